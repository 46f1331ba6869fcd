"""Plans out of models that are quantized already: QDQ or operator form, from any tool."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.calibration import Unit, units_of
from qbench.errors import InputError
from qbench.graph import (
    Form,
    code_dtype,
    constant_value,
    file_products,
    form_of,
    graph_digest,
    input_at,
    is_mover,
    kept_type,
    node_key,
    node_macs,
    op_spec,
    pin_of,
    stored_codes,
    values_by_name,
)
from qbench.numerics import QParams, QType
from qbench.passes import plannable
from qbench.quantization.candidates import ClipForm, Float, clip_form
from qbench.quantization.constant_qparams import float_operand, float_types, pinned_slots
from qbench.quantization.decision import (
    Decision,
    Dynamic,
    Given,
    KeptFloat,
    quantized_weights,
)
from qbench.quantization.plan import Plan
from qbench.quantization.spec import Role, Slot

# Operators of ONNX Runtime that quantize inside themselves, read as slots: they have no float graph
# here.
#
#     DynamicQuantizeLSTM  X dynamic; W [directions, inputs, 4 units] and R along the last axis or
#                          per direction
#     MatMulNBits          what ``passes`` do not read as Q and DQ: no parameters here
#     GroupQueryAttention  of a quantized cache: the past key and value, int8 or int4, by one scale,
#                          or by one for each channel, axis 1 of (n, heads · numbers, tokens)
#     MatMulInteger, ConvInteger with scales that are not found behind them: both operands with
#                          scale 1
#
# Source: ONNX Runtime 1.24, docs/ContribOperators.

_Array = npt.NDArray[Any]
_UINT8 = QType.parse("uint8")


def engine_slots(node: ir.Node) -> dict[Slot, Decision]:
    """Slot → decision for such an operator; empty for every other."""
    match (node.domain, node.op_type):
        case ("com.microsoft", "DynamicQuantizeLSTM"):
            return {
                _slot(node, Role.INPUT, 0): Dynamic(_UINT8),
                _slot(node, Role.WEIGHT, 1): _weight(node, 1, scale=8, point=9),
                _slot(node, Role.WEIGHT, 2): _weight(node, 2, scale=10, point=11),
            }
        case ("com.microsoft", "MatMulNBits"):
            return {
                _slot(node, Role.INPUT, 0): KeptFloat("the operator takes reals"),
                _slot(node, Role.WEIGHT, 1): KeptFloat(
                    "its codes are reordered, or its parameters are computed or no float32"
                ),
            }
        case ("com.microsoft", "GroupQueryAttention") if qtype := kept_type(node):
            return {
                _slot(node, Role.CACHE, index): _cache(node, QType.parse(qtype), scale)
                for index, scale in ((3, 12), (4, 13))
            }
        case ("", "MatMulInteger" | "ConvInteger"):
            return {
                _slot(node, Role.INPUT, 0): _raw(node, 0, point=2),
                _slot(node, Role.WEIGHT, 1): _raw(node, 1, point=3),
            }
        case _:
            return {}


def _slot(node: ir.Node, role: Role, index: int) -> Slot:
    value = node.inputs[index]
    return Slot(node_key(node), role, index, "" if value is None else value.name or "")


def _weight(node: ir.Node, index: int, *, scale: int, point: int) -> Decision:
    """One scale, one per direction (axis 0), or one per column where there is one direction
    (axis 2).
    """
    scales, points, codes = _constant(node, scale), _constant(node, point), node.inputs[index]
    if scales is None or codes is None or codes.dtype is None:
        return KeptFloat("its scales are computed")
    _require_scales(node, scales)
    zeros = np.zeros(scales.shape, np.int64) if points is None else points.astype(np.int64)
    qtype, source = QType.parse(codes.dtype.name.lower()), f"the {node.op_type} '{node_key(node)}'"
    if scales.size == 1:
        return Given(QParams(scales.reshape(()), zeros.reshape(()), qtype), source)
    if scales.ndim == 1:
        return Given(QParams(scales, zeros, qtype, axis=0), source)
    if scales.shape[0] == 1:
        return Given(QParams(scales[0], zeros.reshape(scales.shape)[0], qtype, axis=2), source)
    return KeptFloat(f"its grids, scales of shape {scales.shape}, have no form here")  # stored name


def _cache(node: ir.Node, qtype: QType, scale: int) -> Decision:
    """One scale, or one for each channel of the heads."""
    scales, source = _constant(node, scale), f"the {node.op_type} '{node_key(node)}'"
    if scales is None:
        return KeptFloat("its scales are computed")
    _require_scales(node, scales)
    if scales.size == 1:
        return Given(QParams(scales.reshape(()), np.zeros((), np.int64), qtype), source)
    flat = scales.reshape(-1)
    return Given(QParams(flat, np.zeros(flat.shape, np.int64), qtype, axis=1), source)


def _require_scales(node: ir.Node, scales: _Array) -> None:
    wrong = scales[~(np.isfinite(scales) & (scales > 0))]
    if wrong.size:
        raise InputError(
            f"Reading the {node.op_type} '{node_key(node)}'",
            found=f"a scale of {wrong.flat[0]:g}",
            expected="finite scales above 0",
            remedy="Export the model again; as it is, its numbers mean nothing.",
        )


def _raw(node: ir.Node, index: int, *, point: int) -> Decision:
    """Integers as they are multiplied: less a zero point, of a scale that is applied somewhere
    else.
    """
    value, zero = node.inputs[index], _constant(node, point)
    if value is None or value.dtype is None or (zero is None and input_at(node, point) is not None):
        return Dynamic(_UINT8)
    qtype = QType.parse(value.dtype.name.lower())
    if zero is not None and zero.size != 1:
        return KeptFloat("its scales are applied somewhere else")
    offset = 0 if zero is None else int(zero.reshape(()))
    return Given(
        QParams(1.0, offset, qtype), f"the {node.op_type} '{node_key(node)}', scaled somewhere else"
    )


def _constant(node: ir.Node, index: int) -> _Array | None:
    return constant_value(input_at(node, index))


# Plans out of models that are quantized already: QDQ or operator form, from any tool.
#
# Passes lift what the model says to the values of a float graph (``graph.fixed_qparams``); here
# each becomes a decision "given". Nothing is chosen, no profile is needed, and writing the plan
# into the same model gives the very integers it came with.

GIVEN = "given"
"""The schema of a plan that was read out of a model."""

_QUANTIZED = 0.5


def read_plan(model: ir.Model) -> Plan:
    """What the quantized ``model`` says of its slots, as a plan of its float graph.

    Args:
        model: in QDQ or operator form, or one that holds a file of another format, whose plan has
            products and no decisions; not touched. Of a float model the plan is empty.

    Raises:
        InputError: a Q or DQ that means nothing: a scale of zero, a DequantizeLinear of reals.
        UnsupportedError: the model cannot be brought to the opset that QDQ is written at.
    """
    if form_of(model) is Form.FILE:
        return _plan_of_file(model)
    lifted = plannable(model)
    macs = node_macs(lifted)
    decisions: dict[Slot, Decision] = {}
    clips: dict[str, ClipForm] = {}
    floats: dict[str, Float] = {}
    integer: set[str] = set()
    float8: set[str] = set()
    for unit in units_of(lifted.graph):
        slots = engine_slots(unit.head) or pinned_slots(unit)
        decisions.update(slots)
        clips.update(_clip(unit))
        reason = _float_reason(unit, slots) if unit.name in macs else None
        if reason and _multiplies_float8(unit, slots):
            float8.add(unit.name)
        if reason:
            floats[unit.name] = Float(reason, refused=True)
        else:
            integer.add(unit.name)
    plan = Plan(
        schema=GIVEN,
        canonical="default",
        graph=graph_digest(lifted),
        profile="",
        decisions=_with_cache(decisions, model, lifted, macs.keys() & integer),
        clips=clips,
        floats=floats,
        macs=sum(macs.values()),
        integer_mac_count=sum(macs.get(name, 0) for name in integer),
        weight_mac_count=sum(macs.get(name, 0) for name in quantized_weights(decisions)),
        node_macs=macs,
        integer_nodes=frozenset(macs.keys() & integer),
        float8_nodes=frozenset(float8),
    )
    return _without_refusals(plan)


def _without_refusals(plan: Plan) -> Plan:
    """``plan``, in which a float product is what was asked for: of weights alone one by a quantized
    weight, of a cache alone every one.
    """
    wanted: Collection[str] = ()
    if plan.is_of_weights_alone:
        wanted = quantized_weights(plan.decisions)
    if plan.is_of_cache_alone:
        wanted = plan.floats.keys()
    floats = {
        name: replace(one, refused=one.refused and name not in wanted)
        for name, one in plan.floats.items()
    }
    return replace(plan, floats=floats)


# A schema writes what a decoder keeps as Q, a Clip where it is narrower than its codes, and DQ.
# Read as any values, these would be values of activations. They are slots of the cache.


def _with_cache(
    decisions: Mapping[Slot, Decision],
    model: ir.Model,
    lifted: ir.Model,
    integer: Collection[str],
) -> dict[Slot, Decision]:
    """``decisions``, with a slot of the cache for each key and value that ``model`` keeps between Q
    and DQ, and without those of what is between; operands of ``integer`` products stay.
    """
    stored = [one for one in stored_codes(model.graph) if one.quantized is not None]
    if not stored:
        return dict(decisions)
    values = values_by_name(lifted)
    kept: dict[Slot, Decision] = {}
    between: set[str] = set()
    for one in stored:
        assert one.quantized is not None
        pin = pin_of(values.get(str(one.quantized.name)))
        if pin is None or pin.qparams is None:
            continue
        qtype = _code_type(one.dequantize, pin.qparams.qtype)
        maker = one.quantized.producer()
        name = "" if maker is None else node_key(maker)
        slot = Slot(name, Role.CACHE, 0, str(one.quantized.name))
        kept[slot] = Given(replace(pin.qparams, qtype=qtype), pin.source)
        between |= one.between
    others = {
        slot: decision
        for slot, decision in decisions.items()
        if slot.node in integer or slot.value not in between
    }
    return others | kept


def _code_type(dequantize: ir.Node, stored: QType) -> QType:
    """The type of the codes that ``dequantize`` takes: ``stored``, or the narrowest that a Clip
    before it leaves.
    """
    codes = dequantize.inputs[0]
    clip = None if codes is None else codes.producer()
    if clip is None or clip.op_type != "Clip" or stored.is_float:
        return stored
    low, high = (_constant(clip, index) for index in (1, 2))
    if low is None or high is None:
        return stored
    greatest = max(-int(low.item()) - 1, int(high.item()))
    bits = greatest.bit_length() + stored.signed
    return replace(stored, bits=min(bits, stored.bits))


def _plan_of_file(model: ir.Model) -> Plan:
    """The plan of an opaque file of another format: its products, and which of them are on
    integers.
    """
    products = file_products(model)
    return Plan(
        schema=GIVEN,
        canonical="default",
        graph=graph_digest(model),
        profile="",
        decisions={},
        clips={},
        floats={},
        macs=sum(one.macs for one in products),
        integer_mac_count=sum(one.macs for one in products if one.in_integers),
        node_macs={one.name: one.macs for one in products},
        integer_nodes=frozenset(one.name for one in products if one.in_integers),
    )


def is_quantized(model: ir.Model) -> bool:
    """Whether ``model`` is a quantized one: it holds integer operators, or its Q/DQ pairs stand
    around most products.

    A float model with a few pairs placed by hand is none, nor is one with integer weights and float
    activations.

    Raises:
        What ``read_plan`` raises.
    """
    form = form_of(model)
    if form in (Form.QDQ, Form.FILE):
        return read_plan(model).integer_macs > _QUANTIZED
    return form is not Form.FLOAT


def has_quantized_products(model: ir.Model) -> bool:
    """Whether ``model`` answers something else than its float model: most products are on
    integers, or weights are quantized, however few, whatever else is.

    A float model with a few pairs on activations, placed by hand, is none.

    Raises:
        What ``read_plan`` raises.
    """
    if form_of(model) is not Form.QDQ:
        return is_quantized(model)
    plan = read_plan(model)
    return bool(plan.constants) or plan.integer_macs > _QUANTIZED


# float8 is no integer. An engine that multiplies it would read the codes of both operands.

_FLOAT8 = frozenset(
    {
        ir.DataType.FLOAT8E4M3FN,
        ir.DataType.FLOAT8E4M3FNUZ,
        ir.DataType.FLOAT8E5M2,
        ir.DataType.FLOAT8E5M2FNUZ,
    }
)


def float8_share(model: ir.Model) -> tuple[tuple[str, ...], float]:
    """The products of float8 by float8 in ``model``, in graph order, and their share of the
    multiply-accumulates.

    Raises:
        What ``read_plan`` raises.
    """
    stored = (
        value.dtype for node in model.graph for value in (*node.inputs, *node.outputs) if value
    )
    if not _FLOAT8.intersection(stored):
        return (), 0.0
    plan = read_plan(model)
    names = tuple(name for name in plan.node_macs if name in plan.float8_nodes)
    return names, plan.float8_mac_count / plan.macs if plan.macs else 0.0


def _multiplies_float8(unit: Unit, slots: Mapping[Slot, Decision]) -> bool:
    types = float_types(unit, slots)
    if types:
        return all(name.startswith("float8") for name in types)
    weight = op_spec(unit.head).weight
    operands = (input_at(unit.head, index) for index in (0, 1 if weight is None else weight))
    return all(_is_float8(value) for value in operands)


def _is_float8(value: ir.Value | None) -> bool:
    """Whether ``value`` was dequantized from float8, and then only moved."""
    node = None if value is None else value.producer()
    if node is None or not node.inputs:
        return False
    if node.op_type == "DequantizeLinear":
        return code_dtype(node) in _FLOAT8
    return is_mover(node) and _is_float8(node.inputs[0])


def _clip(unit: Unit) -> dict[str, ClipForm]:
    pin = pin_of(unit.output)
    if unit.clip is None or pin is None or pin.qparams is None:
        return {}
    return {node_key(unit.clip): clip_form(unit.clip, pin.qparams)}


def _float_reason(unit: Unit, slots: Mapping[Slot, Decision]) -> str | None:
    """Which operand of a product is float in the model; None when none is."""
    if _multiplies_float8(unit, slots):
        return "its data and weight are float8 in the model"
    word = float_operand(unit, slots)
    if word is None:
        types = float_types(unit, slots)
        return f"its operands are {' and '.join(types)} in the model" if types else None
    verb = "are" if word == "data" else "is"
    return f"its {word} {verb} float in the model"
