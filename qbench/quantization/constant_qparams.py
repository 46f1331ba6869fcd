"""Quantization parameters of the constants of one unit, and those that the model fixed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.calibration import Unit, units_of
from qbench.errors import InputError
from qbench.graph import (
    Capabilities,
    Kind,
    Pin,
    PinKind,
    constant_value,
    is_constant,
    is_mover,
    node_key,
    op_spec,
    pin_of,
    values_by_name,
    weight_summed_axis,
)
from qbench.numerics import Interval, QParams, dequantize
from qbench.quantization.by_hand import HandRanges, refuse_other
from qbench.quantization.candidates import Candidate, channel_axis
from qbench.quantization.decision import (
    BY_SCHEMA,
    Decision,
    Derived,
    Dynamic,
    Given,
    KeptFloat,
    Static,
    qparams_of,
)
from qbench.quantization.internal_qparams import (
    added_on_product,
    bias_qparams,
    no_finer_than,
    own_qparams,
    raised_for_bias,
    without_dead_channels,
)
from qbench.quantization.spec import BiasKind, BiasSpec, Finer, Granularity, Role, Slot, Spec

# Cutting a constant into the parts that share one pair of parameters, and qparams for each.
#
# per tensor    one row of all elements
# per channel   one row for every index of an axis
# per block     one row for every ``block_size`` elements along an axis, the last of which may be
#               shorter

_Array = npt.NDArray[Any]


def constant_qparams(
    array: _Array, spec: Spec, *, axis: int | None, block_size: int | None = None
) -> QParams:
    """The qparams that ``spec`` requests for a constant, at the granularity that its operator
    allows.

    Args:
        array: real, finite, at least one element.
        spec: the type and the range method; its granularity and fixed parameters are not looked at.
        axis: that channels or blocks run along; None: one pair for all.
        block_size: elements of a block; None: channels.
    """
    if axis is not None and block_size is not None:
        interval = _of_blocks(array, spec, axis, block_size)
        return spec.kind.choose(interval.low, interval.high, axis=axis, block_size=block_size)
    interval = _of_rows(rows_along(array, axis), spec)
    if axis is None:
        interval = Interval(interval.low[0], interval.high[0])
    return spec.kind.choose(interval.low, interval.high, axis=axis)


def rows_along(array: _Array, axis: int | None) -> _Array:
    """(channels, elements); one row without an axis."""
    return (
        array.reshape(1, -1)
        if axis is None
        else np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)
    )


def _of_rows(rows: _Array, spec: Spec) -> Interval:
    return spec.method.of_rows(rows, spec.kind)


def _of_blocks(array: _Array, spec: Spec, axis: int, size: int) -> Interval:
    """Intervals of the blocks' shape: that of ``array`` with ``axis`` divided by ``size`` and
    rounded up.
    """
    moved = np.moveaxis(array, axis, -1)
    around, length = moved.shape[:-1], moved.shape[-1]
    whole = length - length % size
    parts = []
    for part, width in ((moved[..., :whole], size), (moved[..., whole:], length - whole)):
        if part.size:
            found = _of_rows(part.reshape(-1, width), spec)
            parts.append((found.low.reshape(*around, -1), found.high.reshape(*around, -1)))
    low, high = (
        np.moveaxis(np.concatenate(ends, axis=-1), -1, axis) for ends in zip(*parts, strict=True)
    )
    return Interval(low, high)


# What the model itself fixed before anything is planned: pinned values and constants, as decisions
# that stand.
#
# a value      Given, for every reader; units around it have those qparams or stay float
# a weight     Given: quantizing it again gives the integers that were stored
# a bias       Given where its qparams are those of the planned product; else those of the product,
#              rounded again, because engines add a bias with no other qparams

_SAME_SCALE = 1e-6
"""Relative: two tools that multiply two float32 scales agree so far."""


def decision_of(pin: Pin) -> Decision:
    """What ``pin`` says, as a decision."""
    if pin.qparams is not None:
        return Given(pin.qparams, pin.source)
    if pin.kind is PinKind.DYNAMIC and pin.qtype is not None:
        return Dynamic(pin.qtype)
    return KeptFloat(pin.source)


def given_of(value: ir.Value) -> Given | None:
    """The qparams that ``value`` came with, if it did."""
    pin = pin_of(value)
    return None if pin is None or pin.qparams is None else Given(pin.qparams, pin.source)


def given_values(model: ir.Model) -> dict[str, Decision]:
    """Name of a computed or fed value → what the model fixed about it."""
    pins = ((name, value, pin_of(value)) for name, value in values_by_name(model).items())
    return {
        name: decision_of(pin)
        for name, value, pin in pins
        if pin is not None and not is_constant(value)
    }


def given_bias(given: Given, product: QParams | str, sources: tuple[str, ...]) -> Decision:
    """A bias that came with qparams, added to products with the qparams ``product``, or to real
    ones (the reason).
    """
    if isinstance(product, str) or _same_qparams(given.qparams, product):
        return given
    return Derived(
        product,
        sources,
        f"it came as {given.qparams.qtype} on another grid, by {given.source}",  # stored name
    )


def pinned_slots(unit: Unit) -> dict[Slot, Decision]:
    """Slot → decision for every value and constant of ``unit`` that came with qparams."""
    found: dict[Slot, Decision] = {}
    bias = unit.bias_operand
    for index, value in enumerate(unit.head.inputs):
        if value is not None and (bias is None or (unit.head, index) != bias[:2]):
            role = Role.WEIGHT if is_constant(value) else Role.INPUT
            moved = op_spec(unit.head).weight is not None and role is Role.INPUT
            found.update(_slot(unit.name, role, index, value, moved=moved))
    if bias is not None:
        node, index, value = bias
        found.update(
            _slot(node_key(node), Role.BIAS if is_constant(value) else Role.INPUT, index, value)
        )
    for index, value in enumerate(unit.last.outputs):
        found.update(_slot(unit.name, Role.OUTPUT, index, value))
    return found


def float_operand(unit: Unit, slots: Mapping[Slot, Decision]) -> str | None:
    """Which operand of the product of ``unit`` is not quantized by ``slots``: data or weight;
    None where both are.
    """
    weight = op_spec(unit.head).weight
    operands = {
        slot.index: decision
        for slot, decision in slots.items()
        if slot.role in (Role.INPUT, Role.WEIGHT)
    }
    for index, word in ((0, "data"), (1 if weight is None else weight, "weight")):
        decision = operands.get(index)
        if decision is None or (qparams_of(decision) is None and not isinstance(decision, Dynamic)):
            return word
    return None


def multiplies_integers(unit: Unit, slots: Mapping[Slot, Decision]) -> bool:
    """Whether ``unit`` is a product both of whose operands are integers by ``slots``."""
    return multiplies_quantized(unit, slots) and not float_types(unit, slots)


def multiplies_quantized(unit: Unit, slots: Mapping[Slot, Decision]) -> bool:
    """Whether ``unit`` is a product both of whose operands are quantized by ``slots``."""
    return op_spec(unit.head).weight is not None and float_operand(unit, slots) is None


def float_types(unit: Unit, slots: Mapping[Slot, Decision]) -> tuple[str, ...]:
    """The types of the operands of the product of ``unit``, data first, where one is of floats of
    few bits; empty: both are integers.
    """
    weight = op_spec(unit.head).weight
    decisions = {s.index: d for s, d in slots.items() if s.role in (Role.INPUT, Role.WEIGHT)}
    operands = (decisions.get(index) for index in (0, 1 if weight is None else weight))
    known = [None if one is None else qparams_of(one) for one in operands]
    if not any(qparams is not None and qparams.qtype.is_float for qparams in known):
        return ()
    return tuple("integers" if qparams is None else qparams.qtype.name for qparams in known)


def kept_slots(
    model: ir.Model, decided: Mapping[Slot, Decision]
) -> tuple[dict[Slot, Decision], frozenset[str]]:
    """What the model fixed and ``decided`` has not, and the units whose products are in
    integers by that.

    Units that the schema or the backend leaves in float keep the qparams they came with all the
    same.
    """
    kept: dict[Slot, Decision] = {}
    products = set()
    for unit in units_of(model.graph):
        slots = pinned_slots(unit)
        kept.update({slot: decision for slot, decision in slots.items() if slot not in decided})
        if multiplies_integers(unit, slots):
            products.add(unit.name)
    return kept, frozenset(products)


def _slot(
    node: str, role: Role, index: int, value: ir.Value, *, moved: bool = False
) -> dict[Slot, Decision]:
    pin = _pin_before_movers(value) if moved else pin_of(value)
    if pin is None or (role is Role.OUTPUT and pin.qparams is None):
        return {}
    return {Slot(node, role, index, value.name or ""): decision_of(pin)}


def _pin_before_movers(value: ir.Value) -> Pin | None:
    """The pin of ``value``, or of the value whose elements operators such as Flatten only moved
    or picked.

    What is dequantized and then only moved is still on its codes, so that engines multiply it in
    integers. Parameters per channel do not follow a value that is moved.
    """
    pin, node = pin_of(value), value.producer()
    if pin is not None or node is None or value is not node.outputs[0] or not node.inputs:
        return pin
    source = node.inputs[0]
    pin = None if source is None else _pin_before_movers(source)
    if pin is None or pin.qparams is None or pin.qparams.axis is not None:
        return None
    return pin if _keeps_codes(node, pin.qparams) else None


def _keeps_codes(node: ir.Node, qparams: QParams) -> bool:
    """Whether what ``node`` makes of a value on ``qparams`` is on them too: it moves or picks
    elements, fills in zeros, or limits them to zero or to ends that are codes.
    """
    if node.op_type == "Relu" and not node.domain:
        return True  # zero is a code of every affine quantization
    if node.op_type == "Clip" and not node.domain:
        if qparams.qtype.is_float:
            return False
        codes = np.arange(qparams.qmin, qparams.qmax + 1).astype(qparams.qtype.storage_dtype)
        reals = dequantize(codes, qparams)
        ends = [constant_value(end) for end in node.inputs[1:] if end is not None]
        return all(end is not None and _is_code(end, reals) for end in ends)
    why_float = op_spec(node).why_float
    return is_mover(node) and (why_float is None or why_float(node) is None)


def _is_code(end: _Array, reals: npt.NDArray[np.float32]) -> bool:
    """Whether the number ``end`` is one of ``reals``, ascending, or beyond all of them."""
    return bool(not reals[0] < end < reals[-1] or np.isin(end, reals).all())


def _same_qparams(one: QParams, other: QParams) -> bool:
    sizes = {one.scale.size, other.scale.size} - {1}
    if one.qtype != other.qtype or len(sizes) > 1 or one.zero_point.any() or other.zero_point.any():
        return False
    mine, theirs = np.broadcast_arrays(one.scale, other.scale)
    return bool(np.allclose(mine, theirs, rtol=_SAME_SCALE, atol=0.0))


# Qparams for the constants of one unit: its weight, its bias, and constants that stand where data
# does.

_EMPTY = KeptFloat("it has no elements")
_ANY = Capabilities()


@dataclass(frozen=True, slots=True, eq=False)
class _Bias:
    """A constant bias; ``axis`` of it runs over output channels, where it has channels."""

    array: _Array
    axis: int

    def reach(self, channels: int | None) -> npt.NDArray[np.float64] | None:
        """Largest absolute bias, of every channel or each of all; None when the bias has no
        such channels.
        """
        size = np.abs(self.array.astype(np.float64))
        if channels is None:
            return size.reshape(-1)
        if not size.ndim or size.shape[self.axis] != channels:
            return None
        return np.asarray(np.moveaxis(size, self.axis, -1).reshape(-1, channels).max(axis=0))


def plan_constants(
    candidate: Candidate,
    input_scale: float | None,
    limits: Capabilities = _ANY,
    hand: HandRanges | None = None,
) -> dict[Slot, Decision]:
    """Slot → decision for every constant of the unit, but for a bias that shares the qparams of
    the unit's correlation.

    Args:
        candidate: the unit; its constants are read here.
        input_scale: of its first data input; None when that stays float, and a derived bias with
            it.
        limits: of the backend; biases of types that it lacks are added in float, which the plan
            then shows.
        hand: the ranges of a file; None: there is none.

    Raises:
        InputError: a constant holds NaN or Inf, or has no such range as ``hand`` gives.
    """
    weight_spec, input_spec = candidate.options.weight, candidate.options.input
    decided = {
        slot: _unless_by_hand(hand, slot.value, weight_spec, one)
        for slot, one in _recurrent(candidate).items()
    }
    weight: QParams | None = None
    operand = candidate.unit.bias_operand
    bias = None if operand is None else _constant_bias(candidate, operand[2])
    for index, value in candidate.constant_inputs:
        slot = Slot(candidate.unit.name, Role.WEIGHT, index, value.name or "")
        if index == candidate.weight_index:
            found = _weight(candidate, value, bias, input_scale, limits)
            decided[slot] = _unless_by_hand(hand, slot.value, weight_spec, found)
            weight = qparams_of(decided[slot])
        elif input_spec is not None:
            found = given_of(value) or _data(input_spec, _finite(value, candidate))
            decided[slot] = _unless_by_hand(hand, slot.value, input_spec, found)
    if operand is not None and (bias is None or candidate.options.bias.kind is not BiasKind.SHARED):
        node, index, value = operand
        slot = Slot(node_key(node), Role.BIAS, index, value.name or "")
        given = given_of(value)
        if given is not None and bias is not None:
            sources = (
                f"{candidate.unit.name}.input[0]",
                f"{candidate.unit.name}.weight[{candidate.weight_index}]",
            )
            decided[slot] = given_bias(given, _product(bias, weight, input_scale), sources)
        else:
            decided[slot] = _bias(candidate, bias, weight, input_scale, limits)
    return decided


def _unless_by_hand(
    hand: HandRanges | None, name: str, spec: Spec | None, decision: Decision
) -> Decision:
    """``decision`` about the constant ``name``, or the parameters that ``hand`` gives it, of the
    same granularity.

    Raises:
        InputError: ``spec`` has no such parameters, or the schema or the model fixes others.
    """
    chosen = qparams_of(decision)
    if hand is None or spec is None or name not in hand or chosen is None:
        return decision
    shape, axis, size = chosen.scale.shape, chosen.axis, chosen.block_size
    given = hand.given(name, spec.kind, shape=shape, axis=axis, block_size=size)
    if isinstance(decision, Given):
        refuse_other(given, chosen, f"'{name}' is given by {decision.source}")
    return given


def _recurrent(candidate: Candidate) -> dict[Slot, Decision]:
    """The weights of input and state of a whole recurrence; its biases, peepholes and first
    states have no slots.
    """
    head = candidate.unit.head
    if op_spec(head).kind is not Kind.RECURRENCE:
        return {}
    return {
        Slot(candidate.unit.name, Role.WEIGHT, index, value.name or ""): _weight(
            candidate, value, None, None
        )
        for index, value in enumerate(head.inputs[1:3], 1)
        if value is not None and is_constant(value)
    }


def _constant_bias(candidate: Candidate, value: ir.Value) -> _Bias | None:
    array = _finite(value, candidate)
    if array is None:
        return None
    # Behind a convolution a bias of the split-off kind is [channels, 1, …]; everywhere else
    # channels are the last axis.
    behind = (
        candidate.unit.bias is not None and op_spec(candidate.unit.head).kind is Kind.CONVOLUTION
    )
    return _Bias(array, 0 if behind else array.ndim - 1)


def _data(spec: Spec, array: _Array | None) -> Decision:
    """The qparams of a constant at a data input: per tensor, known beforehand."""
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
    spec, array = candidate.options.weight, _finite(value, candidate)
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
    if spec.granularity is Granularity.BLOCK and not whole:
        summed = weight_summed_axis(head, array.ndim)
        if summed is not None:
            return _blocks(array, spec, summed)
    axis = (
        channel_axis(head, array.ndim)
        if spec.granularity is Granularity.CHANNEL and not whole
        else None
    )
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
    on_product = bias is not None and input_scale is not None and not qparams.qtype.is_float
    if on_product and added_on_product(candidate.options.bias):
        assert bias is not None
        assert input_scale is not None
        reach = bias.reach(None if axis is None else len(dead))
        if reach is not None:
            pow2 = spec.scale_kind != "real"
            qparams, raised = raised_for_bias(
                qparams, input_scale, reach, pow2=pow2, dead=bool(dead.all())
            )
            notes += [f"{raised} scales raised so that the bias fits"] * bool(raised)
    return Static(qparams, "; ".join(notes))


def _blocks(array: _Array, spec: Spec, summed: int) -> Static:
    """The qparams of a weight in blocks along the axis ``summed``."""
    short = array.shape[summed] % (spec.block_size or 1)
    note = f"the last block of a row has {short} elements" if short else ""
    return Static(constant_qparams(array, spec, axis=summed, block_size=spec.block_size), note)


def _coarser(candidate: Candidate, rank: int, spec: Spec, limits: Capabilities) -> str:
    """Why a weight of ``rank`` axes has one scale where the schema asks for many; empty where
    the backend has them.
    """
    if spec.granularity is Granularity.BLOCK and rank == 1 and not limits.blocks_of_vectors:
        return "the backend has no blocks along a vector"
    quantized = candidate.options.input is not None
    batched = (
        candidate.unit.head.op_type == "MatMul" and rank > 2 and not limits.batched_per_channel
    )
    if spec.granularity is Granularity.CHANNEL and quantized and batched:
        return (
            f"the backend multiplies no integers by a constant of {rank} axes with a scale per "
            "channel"
        )
    return ""


def _bias(
    candidate: Candidate,
    bias: _Bias | None,
    weight: QParams | None,
    input_scale: float | None,
    limits: Capabilities,
) -> Decision:
    spec = candidate.options.bias
    if spec.kind is BiasKind.FLOAT:
        return KeptFloat("the schema keeps biases in float")
    if bias is None:
        return KeptFloat("it is computed, not constant")
    if not bias.array.size:
        return _EMPTY
    product = _product(bias, weight, input_scale)
    if spec.kind is BiasKind.OWN:
        return _own(spec, bias, product, limits)
    if isinstance(product, str):
        return KeptFloat(product)
    head = candidate.unit.name
    return Derived(product, (f"{head}.input[0]", f"{head}.weight[{candidate.weight_index}]"))


def _product(bias: _Bias, weight: QParams | None, input_scale: float | None) -> QParams | str:
    """The qparams of the product along the axis of its bias, or the reason why it has none."""
    if weight is None or input_scale is None:
        return "the products are not integers"
    if weight.qtype.is_float:
        return f"the products are of {weight.qtype}"
    if weight.block_size is not None:
        return "the products of its blocks have different scales"
    if weight.axis is not None and bias.reach(len(weight.scale)) is None:
        return "one bias for channels of different scales"
    return bias_qparams(weight, input_scale, bias.axis)


def _own(spec: BiasSpec, bias: _Bias, product: QParams | str, limits: Capabilities) -> Decision:
    own = own_qparams(spec, bias.array.astype(np.float64))
    if isinstance(product, str):
        return Static(own, product) if spec.finer is Finer.CHOSEN else KeptFloat(product)
    coarser = int(np.count_nonzero(product.scale > own.scale))
    words = {0: "the product is no coarser", product.scale.size: "the bias is finer"}
    notes = [words.get(coarser, f"the bias is finer in {coarser} of {product.scale.size} channels")]
    if spec.finer is Finer.PRODUCT:
        own = no_finer_than(own, product)
        notes += ["raised to the product's scale"] * bool(coarser)
    if not np.array_equal(own.scale, product.scale) and not limits.adds_off_product(own.qtype.name):
        notes.append(f"added in float: the backend adds no {own.qtype} off the product's scale")
    return Static(own, "; ".join(notes))


def _finite(value: ir.Value, candidate: Candidate) -> _Array | None:
    """The array of a constant; None where the value is computed."""
    array = constant_value(value)
    if array is not None and not np.isfinite(array).all():
        raise InputError(
            f"Planning the quantization of '{candidate.unit.name}'",
            found=f"NaN or Inf in its constant '{value.name}'",
            expected="finite weights",
            remedy="Correct the model.",
        )
    return array


# Counting the entries of a constant out of the range of its codes.
#
# saturated = #{ x : round_half_even(x / scale) + zero_point outside [qmin, qmax] }


def saturated_entries(array: npt.NDArray[Any], qparams: QParams) -> int:
    """How many elements of ``array`` (real, finite) ``quantize`` would saturate: float32
    division, as there.
    """
    scale, point = qparams.expanded(array.shape)
    floating = qparams.qtype.floating
    with np.errstate(over="ignore"):
        if floating is not None:
            return int(np.count_nonzero(floating.saturates(array.astype(np.float32) / scale)))
        codes = np.asarray(np.divide(array.astype(np.float32, copy=False), scale, dtype=np.float32))
        np.rint(codes, out=codes)
    low, high = (np.float64(end) - point for end in (qparams.qmin, qparams.qmax))
    return int(np.count_nonzero(codes < low)) + int(np.count_nonzero(codes > high))
