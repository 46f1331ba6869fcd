"""Grids for the constants of one unit: its weight, its bias, and constants that stand where data does."""

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.calibration import get_range_method
from qbench.errors import InputError
from qbench.graph import constant_value, node_key, operator_facts
from qbench.numerics import Interval, QParams
from qbench.quantization.bias import bias_qparams, raised_for_bias, without_dead_channels
from qbench.quantization.candidates import Candidate
from qbench.quantization.constraints import channel_axis
from qbench.quantization.decision import Decision, Derived, KeptFloat, Static, qparams_of
from qbench.quantization.schema import BiasKind
from qbench.quantization.slot import Role, Slot
from qbench.quantization.spec import Granularity, Spec

_Array = npt.NDArray[Any]


def plan_constants(candidate: Candidate, input_scale: float | None) -> dict[Slot, Decision]:
    """Slot → decision for every constant of the unit.

    Args:
        candidate: the unit; its constants are read here.
        input_scale: of its first data input; None when that stays float, and the bias with it.

    Raises:
        InputError: a constant holds NaN or Inf.
    """
    decided: dict[Slot, Decision] = {}
    weight: QParams | None = None
    place = _bias_place(candidate)
    bias = None if place is None else _finite(place[1], candidate)
    for index, value in candidate.constant_inputs:
        slot = Slot(candidate.unit.name, Role.WEIGHT, index, value.name or "")
        if index == candidate.weight_index:
            decided[slot] = _weight(candidate, value, bias, input_scale)
            weight = qparams_of(decided[slot])
        elif candidate.rule.activation is not None:
            spec = candidate.rule.activation
            decided[slot] = Static(_qparams(_finite(value, candidate), spec, None))
    if place is not None:
        slot, value = place
        decided[slot] = _bias(candidate, bias, weight, input_scale)
    return decided


def _bias_place(candidate: Candidate) -> tuple[Slot, ir.Value] | None:
    """Where the unit's bias stands: an input of its head, or of the Add behind it."""
    unit = candidate.unit
    index = operator_facts(unit.head).bias
    node = unit.bias or unit.head
    if unit.bias is not None:
        index = 1 if unit.bias.inputs[0] is unit.head.outputs[0] else 0
    value = None if index is None or index >= len(node.inputs) else node.inputs[index]
    if index is None or value is None:
        return None
    return Slot(node_key(node), Role.BIAS, index, value.name or ""), value


def _weight(candidate: Candidate, value: ir.Value, bias: _Array | None, input_scale: float | None) -> Decision:
    spec, array = candidate.rule.weight, _finite(value, candidate)
    if spec is None:
        return KeptFloat("the schema keeps weights in float")
    assert array is not None
    axis = channel_axis(candidate.unit.head, array.ndim) if spec.granularity is Granularity.CHANNEL else None
    notes = ["per tensor: no axis of output channels"] * (spec.granularity is Granularity.CHANNEL and axis is None)
    dead = np.logical_not(np.asarray(_rows(array, axis).any(axis=1)))
    if axis is not None and dead.any():
        notes.append(f"{int(dead.sum())} of {len(dead)} channels are zero")
    qparams = without_dead_channels(_qparams(array, spec, axis), dead)
    reach = None if bias is None else _reach(bias, None if axis is None else len(dead))
    if reach is not None and input_scale is not None and candidate.rule.bias is BiasKind.INT32:
        pow2 = spec.scale_kind == "pow2"
        qparams, raised = raised_for_bias(qparams, input_scale, reach, pow2=pow2, dead=bool(dead.all()))
        notes += [f"{raised} scales raised so that the bias fits"] * bool(raised)
    return Static(qparams, "; ".join(notes))


def _bias(candidate: Candidate, bias: _Array | None, weight: QParams | None, input_scale: float | None) -> Decision:
    if candidate.rule.bias is BiasKind.FLOAT:
        return KeptFloat("the schema keeps biases in float")
    if bias is None:
        return KeptFloat("it is computed, not constant")
    if weight is None or input_scale is None:
        return KeptFloat("the products are not integers")
    if weight.axis is not None and _reach(bias, len(weight.scale)) is None:
        return KeptFloat("one bias for channels of different scales")
    head = candidate.unit.name
    sources = (f"{head}.input[0]", f"{head}.weight[{candidate.weight_index}]")
    return Derived(bias_qparams(weight, input_scale, axis=bias.ndim - 1), sources)


def _qparams(array: _Array | None, spec: Spec, axis: int | None) -> QParams:
    assert array is not None
    interval = get_range_method(spec.range_method).of_rows(_rows(array, axis), spec.grid, spec.family)
    if axis is None:
        interval = Interval(interval.low[0], interval.high[0])
    return spec.choose(interval, axis=axis)


def _rows(array: _Array, axis: int | None) -> _Array:
    """(channels, elements); one row without an axis."""
    return array.reshape(1, -1) if axis is None else np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)


def _reach(bias: _Array, channels: int | None) -> npt.NDArray[np.float64] | None:
    """Largest absolute bias, of every channel or of all; None when the bias has no channels."""
    size = np.abs(bias.astype(np.float64))
    if channels is None:
        return size.reshape(-1)
    if not bias.ndim or bias.shape[-1] != channels:
        return None
    return np.asarray(size.reshape(-1, channels).max(axis=0))


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
