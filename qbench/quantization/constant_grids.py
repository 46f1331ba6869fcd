"""Grids for the constants of one unit: its weight, its bias, and constants that stand where data does."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.errors import InputError
from qbench.graph import Capabilities, constant_value, is_constant, node_key, weight_summed_axis
from qbench.numerics import QParams
from qbench.quantization.bias import (
    added_on_product,
    bias_qparams,
    no_finer_than,
    own_qparams,
    raised_for_bias,
    without_dead_channels,
)
from qbench.quantization.bias_spec import BiasKind, BiasSpec, Finer
from qbench.quantization.candidates import Candidate
from qbench.quantization.constraints import channel_axis
from qbench.quantization.decision import BY_SCHEMA, Decision, Derived, Given, KeptFloat, Static, qparams_of
from qbench.quantization.granules import constant_qparams, rows_along
from qbench.quantization.pinned_grids import given_bias, given_of
from qbench.quantization.slot import Role, Slot
from qbench.quantization.spec import Granularity, Spec

_Array = npt.NDArray[Any]

_EMPTY = KeptFloat("it has no elements")
_ANY = Capabilities()


@dataclass(frozen=True, slots=True, eq=False)
class _Bias:
    """A constant bias; ``axis`` of it runs over output channels, where it has channels."""

    array: _Array
    axis: int

    def reach(self, channels: int | None) -> npt.NDArray[np.float64] | None:
        """Largest absolute bias, of every channel or each of all; None when the bias has no such channels."""
        size = np.abs(self.array.astype(np.float64))
        if channels is None:
            return size.reshape(-1)
        if not size.ndim or size.shape[self.axis] != channels:
            return None
        return np.asarray(np.moveaxis(size, self.axis, -1).reshape(-1, channels).max(axis=0))


def plan_constants(
    candidate: Candidate, input_scale: float | None, limits: Capabilities = _ANY
) -> dict[Slot, Decision]:
    """Slot → decision for every constant of the unit, but for a bias that shares the grid of the unit's correlation.

    Args:
        candidate: the unit; its constants are read here.
        input_scale: of its first data input; None when that stays float, and a derived bias with it.
        limits: of the backend; biases on grids that it lacks are added in float, which the plan then shows.

    Raises:
        InputError: a constant holds NaN or Inf.
    """
    decided = _recurrent(candidate)
    weight: QParams | None = None
    operand = candidate.unit.bias_operand
    bias = None if operand is None else _constant_bias(candidate, operand[2])
    for index, value in candidate.constant_inputs:
        slot = Slot(candidate.unit.name, Role.WEIGHT, index, value.name or "")
        if index == candidate.weight_index:
            decided[slot] = _weight(candidate, value, bias, input_scale, limits)
            weight = qparams_of(decided[slot])
        elif candidate.wishes.input is not None:
            decided[slot] = given_of(value) or _data(candidate.wishes.input, _finite(value, candidate))
    if operand is not None and (bias is None or candidate.wishes.bias.kind is not BiasKind.SHARED):
        node, index, value = operand
        slot = Slot(node_key(node), Role.BIAS, index, value.name or "")
        given = given_of(value)
        if given is not None and bias is not None:
            sources = (f"{candidate.unit.name}.input[0]", f"{candidate.unit.name}.weight[{candidate.weight_index}]")
            decided[slot] = given_bias(given, _product(bias, weight, input_scale), sources)
        else:
            decided[slot] = _bias(candidate, bias, weight, input_scale, limits.bias_qtypes)
    return decided


def _recurrent(candidate: Candidate) -> dict[Slot, Decision]:
    """The weights of input and state of a whole recurrence; its biases, peepholes and first states have no slots."""
    head = candidate.unit.head
    if head.domain or head.op_type not in ("GRU", "LSTM", "RNN"):
        return {}
    return {
        Slot(candidate.unit.name, Role.WEIGHT, index, value.name or ""): _weight(candidate, value, None, None)
        for index, value in enumerate(head.inputs[1:3], 1)
        if value is not None and is_constant(value)
    }


def _constant_bias(candidate: Candidate, value: ir.Value) -> _Bias | None:
    array = _finite(value, candidate)
    if array is None:
        return None
    # Behind a convolution a bias of the split-off kind is [channels, 1, …]; everywhere else channels are the last axis.
    behind = candidate.unit.bias is not None and candidate.unit.head.op_type in ("Conv", "ConvTranspose")
    return _Bias(array, 0 if behind else array.ndim - 1)


def _data(spec: Spec, array: _Array | None) -> Decision:
    """The grid of a constant that stands where data does: one pair, known beforehand."""
    assert array is not None
    if spec.fixed is not None:
        return Given(spec.fixed, BY_SCHEMA)
    return Static(constant_qparams(array, spec, axis=None)) if array.size else _EMPTY


def _weight(
    candidate: Candidate,
    value: ir.Value,
    bias: _Bias | None,
    input_scale: float | None,
    limits: Capabilities = _ANY,
) -> Decision:
    spec, array = candidate.wishes.weight, _finite(value, candidate)
    if given := given_of(value):
        return given
    if spec is None:
        return KeptFloat("the schema keeps weights in float")
    if spec.fixed is not None:
        return Given(spec.fixed, BY_SCHEMA)
    assert array is not None
    if not array.size:
        return _EMPTY
    head = candidate.unit.head
    whole = _coarser(candidate, array.ndim, spec, limits)
    if (
        spec.granularity is Granularity.BLOCK
        and not whole
        and (summed := weight_summed_axis(head, array.ndim)) is not None
    ):
        short = array.shape[summed] % (spec.block_size or 1)
        note = f"the last block of a row has {short} elements" if short else ""
        return Static(constant_qparams(array, spec, axis=summed, block_size=spec.block_size), note)
    axis = channel_axis(head, array.ndim) if spec.granularity is Granularity.CHANNEL and not whole else None
    if not whole and axis is None:
        whole = {
            Granularity.CHANNEL: "no axis of output channels",
            Granularity.BLOCK: "no axis that is summed over",
        }.get(spec.granularity, "")
    notes = [f"per tensor: {whole}"] * bool(whole)
    dead = np.logical_not(np.asarray(rows_along(array, axis).any(axis=1)))
    if axis is not None and dead.any():
        notes.append(f"{int(dead.sum())} of {len(dead)} channels are zero")
    qparams = without_dead_channels(constant_qparams(array, spec, axis=axis), dead)
    reach = None if bias is None else bias.reach(None if axis is None else len(dead))
    if reach is not None and input_scale is not None and added_on_product(candidate.wishes.bias):
        pow2 = spec.scale_kind != "real"
        qparams, raised = raised_for_bias(qparams, input_scale, reach, pow2=pow2, dead=bool(dead.all()))
        notes += [f"{raised} scales raised so that the bias fits"] * bool(raised)
    return Static(qparams, "; ".join(notes))


def _coarser(candidate: Candidate, rank: int, spec: Spec, limits: Capabilities) -> str:
    """Why a weight of ``rank`` axes has one scale where the schema asks for many; empty where the backend has them."""
    if spec.granularity is Granularity.BLOCK and rank == 1 and not limits.blocks_of_vectors:
        return "the backend has no blocks along a vector"
    quantized = candidate.wishes.input is not None
    batched = candidate.unit.head.op_type == "MatMul" and rank > 2 and not limits.batched_per_channel
    if spec.granularity is Granularity.CHANNEL and quantized and batched:
        return f"the backend multiplies no integers by a constant of {rank} axes with a scale per channel"
    return ""


def _bias(
    candidate: Candidate,
    bias: _Bias | None,
    weight: QParams | None,
    input_scale: float | None,
    bias_qtypes: frozenset[str],
) -> Decision:
    spec = candidate.wishes.bias
    if spec.kind is BiasKind.FLOAT:
        return KeptFloat("the schema keeps biases in float")
    if bias is None:
        return KeptFloat("it is computed, not constant")
    if not bias.array.size:
        return _EMPTY
    product = _product(bias, weight, input_scale)
    if spec.kind is BiasKind.OWN:
        return _own(spec, bias, product, bias_qtypes)
    if isinstance(product, str):
        return KeptFloat(product)
    head = candidate.unit.name
    return Derived(product, (f"{head}.input[0]", f"{head}.weight[{candidate.weight_index}]"))


def _product(bias: _Bias, weight: QParams | None, input_scale: float | None) -> QParams | str:
    """The grid of the product along the axis of its bias, or why there is none."""
    if weight is None or input_scale is None:
        return "the products are not integers"
    if weight.block_size is not None:
        return "the products of its blocks have different scales"
    if weight.axis is not None and bias.reach(len(weight.scale)) is None:
        return "one bias for channels of different scales"
    return bias_qparams(weight, input_scale, bias.axis)


def _own(spec: BiasSpec, bias: _Bias, product: QParams | str, bias_qtypes: frozenset[str]) -> Decision:
    own = own_qparams(spec, bias.array.astype(np.float64))
    if isinstance(product, str):
        return Static(own, product) if spec.finer is Finer.CHOSEN else KeptFloat(product)
    coarser = int(np.count_nonzero(product.scale > own.scale))
    words = {0: "the product is no coarser", product.scale.size: "the bias is finer"}
    notes = [words.get(coarser, f"the bias is finer in {coarser} of {product.scale.size} channels")]
    if spec.finer is Finer.PRODUCT:
        own = no_finer_than(own, product)
        notes += ["raised to the product's scale"] * bool(coarser)
    if not np.array_equal(own.scale, product.scale) and own.qtype.name not in bias_qtypes - {"int32"}:
        notes.append(f"added in float: the backend adds no {own.qtype} off the product's scale")
    return Static(own, "; ".join(notes))


def _finite(value: ir.Value, candidate: Candidate) -> _Array | None:
    """The array of a constant, or None of what is computed."""
    array = constant_value(value)
    if array is not None and not np.isfinite(array).all():
        raise InputError(
            f"Planning the quantization of '{candidate.unit.name}'",
            found=f"NaN or Inf in its constant '{value.name}'",
            expected="finite weights",
            remedy="Mend the model.",
        )
    return array
