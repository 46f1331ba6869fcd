"""Quantized models of other tools as a float graph with fixed quantization parameters."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import (
    INTEGER_DOMAIN,
    INTEGER_FORMS,
    IntegerForm,
    Pin,
    PinKind,
    clip_of_codes,
    constant_value,
    float_attribute,
    float_name,
    float_qparams,
    float_qparams_of_scales,
    input_at,
    int_attribute,
    is_constant,
    is_pinned,
    node_key,
    node_qparams,
    only_consumer,
    op_spec,
    origin_of,
    pin_of,
    pin_value,
    set_origin,
)
from qbench.numerics import QParams, QType, dequantize
from qbench.passes.canonical.cleanup import RemoveDead
from qbench.passes.contract import LOSSY, Effect
from qbench.passes.editing import NameScope, add_constant
from qbench.passes.qdq.folding import moved_constant

# Q/DQ pairs leave the graph and are recorded at the values that they quantize
# (``graph.fixed_qparams``).
#
#     v ─Q(s,z)─ q ─DQ(s,z)─ d ─ reader       →   v (pinned: s, z) ─ reader
#     integers ─DQ(s,z)─ d ─ reader           →   constant s·(integers − z) (pinned: s, z) ─ reader
#     v ─Q─ q ─Reshape─ r ─DQ─ d ─ reader     →   v (pinned) ─Reshape─ (pinned) ─ reader
#     v ─Q─ q ─Clip of codes─ r ─DQ─ reader  →   v ─Clip of real ends─ (pinned) ─ reader
#
# Quantizing v, or the constant, again with what is pinned gives the very integers that were there.

_QUANTIZERS = frozenset({"QuantizeLinear", "DynamicQuantizeLinear"})
_DOMAINS = ("", "com.microsoft")
_DYNAMIC = QType.parse("uint8")


@dataclass(frozen=True, slots=True)
class LiftPairs:
    """Requires: canonical passes. Ensures: no pair is left whose parameters can be kept at a
    value instead.

    A pair that guards a graph output leaves an Identity behind, so that the output stays rounded.
    Left in the graph are a Q whose integers something else reads or that leave the graph, a DQ of
    integers that are computed or fed, types that qbench does not know, and a Q and a DQ of
    different qparams; the values around them are pinned all the same.

    Raises (from ``run``):
        InputError: an invalid Q or DQ.
    """

    name: str = "lift-pairs"
    effect: ClassVar[Effect] = LOSSY

    def run(self, model: ir.Model) -> bool:
        """Lift them in graph order; True when anything changed."""
        if not any(
            _is(node, "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
            for node in model.graph
        ):
            return False
        lifting, before = _Lifting(model), _contents(model)
        for node in list(model.graph):
            lifting.visit(node)
        RemoveDead().run(model)
        lifting.rename()
        # An inserted node that nothing reads is removed again, so the contents tell of a change.
        return lifting.changed or _contents(model) != before


def _contents(model: ir.Model) -> tuple[object, ...]:
    return (*model.graph, *model.graph.initializers.values(), dict(model.opset_imports))


def _is(node: ir.Node | None, *operators: str) -> bool:
    return node is not None and node.domain in _DOMAINS and node.op_type in operators


@dataclass(frozen=True, slots=True, eq=False)
class _Twin:
    """The real value that some integers represent, and what is pinned to it."""

    value: ir.Value
    pin: Pin


class _Lifting:
    """The state of one lifting: integers met so far, with their real twins."""

    def __init__(self, model: ir.Model) -> None:
        self.changed = False
        self._graph = model.graph
        self._values = NameScope.of_values(model)
        self._nodes = NameScope.of_nodes(model)
        self._twins: dict[ir.Value, _Twin] = {}
        self._parallel = {
            value for value in _quantized_values(model.graph) if _has_two_qparams(value)
        }
        self._copies: list[tuple[ir.Node, str]] = []

    def visit(self, node: ir.Node) -> None:
        """Note what ``node`` quantizes, moves or gives back."""
        if _is(node, "QuantizeLinear"):
            self._quantize(node)
        elif _is(node, "DynamicQuantizeLinear") and node.inputs[0] is not None:
            pin = Pin(
                PinKind.DYNAMIC, f"the DynamicQuantizeLinear '{node_key(node)}'", qtype=_DYNAMIC
            )
            self._twins[node.outputs[0]] = _Twin(self._dynamic(node.inputs[0], pin, node), pin)
        elif _is(node, "DequantizeLinear"):
            self._dequantize(node)
        elif node.inputs and node.inputs[0] in self._twins and _moves(node):
            self._move(node, self._twins[node.inputs[0]])

    def rename(self) -> None:
        """Give each copy of an operator that moves integers the name of the original, if that was
        removed.
        """
        alive = {node.name for node in self._graph}
        for copy, name in self._copies:
            if name not in alive:
                copy.name = name

    def _quantize(self, node: ir.Node) -> None:
        qparams, source = pair_qparams(node), node.inputs[0]
        if qparams is None or source is None:
            return
        pin = Pin(PinKind.QPARAMS, f"the QuantizeLinear '{node_key(node)}'", qparams)
        clip = clip_of_codes(node) if qparams.axis is None else None
        if clip is None or source in self._parallel:
            self._twins[node.outputs[0]] = _Twin(self._pinned(source, pin, node), pin)
            return
        ends = [self._constant(end, qparams) for end in clip.inputs[1:]]
        real = self._copied(clip, [source, *ends])
        pin_value(real, pin)
        self._twins[clip.outputs[0]] = _Twin(real, pin)

    def _dequantize(self, node: ir.Node) -> None:
        if float_qparams_of_scales(node) is not None:
            return  # its reader, which has the scales, removes it
        source, qparams = node.inputs[0], pair_qparams(node)
        twin = None if source is None else self._twins.get(source)
        if twin is not None and (
            _same_dynamic(node, twin) or (qparams is not None and qparams == twin.pin.qparams)
        ):
            self._give(node, twin.value)
        elif qparams is not None and source is not None and is_constant(source):
            integers = constant_value(source)
            assert integers is not None
            stem = (source.name or "constant").removesuffix("_quantized")
            self._give_constant(node, node.outputs[0], (integers, qparams), stem)
        elif qparams is not None:
            pin = Pin(PinKind.QPARAMS, f"the DequantizeLinear '{node_key(node)}'", qparams)
            self.changed |= pin_value(node.outputs[0], pin)

    def _give(self, node: ir.Node, real: ir.Value) -> None:
        """Every reader of ``node`` reads ``real`` instead."""
        for use in tuple(node.outputs[0].uses()):
            use.node.replace_input_with(use.idx, real)
        if node.outputs[0].is_graph_output():
            self._give_output(node, real)
        self.changed = True

    def _give_output(self, node: ir.Node, real: ir.Value) -> None:
        """An Identity of ``real`` leaves the graph where the result of ``node`` did."""
        result = node.outputs[0]
        name, result.name = result.name, None
        bridge = self._inserted("Identity", [real], node, f"{node_key(node)}_output")
        bridge.shape = result.shape
        result.replace_all_uses_with(bridge, replace_graph_outputs=True)
        bridge.name = name

    def _give_constant(
        self, node: ir.Node, result: ir.Value, codes: tuple[npt.NDArray[Any], QParams], stem: str
    ) -> None:
        """Every reader of ``result``, which ``node`` gives, reads a pinned constant of its own;
        movers move it.
        """
        integers, qparams = codes
        for use in tuple(result.uses()):
            moved = moved_constant(use.node, integers, qparams) if use.idx == 0 else None
            if moved is not None and not use.node.outputs[0].is_graph_output():
                self._give_constant(node, use.node.outputs[0], moved, stem)
            else:
                use.node.replace_input_with(use.idx, self._real_constant(node, codes, stem))
        if result.is_graph_output():
            self._give_output(node, self._real_constant(node, codes, stem))
        self.changed = True

    def _real_constant(
        self, node: ir.Node, codes: tuple[npt.NDArray[Any], QParams], stem: str
    ) -> ir.Value:
        integers, qparams = codes
        real = add_constant(self._graph, stem, dequantize(integers, qparams), self._values)
        pin_value(real, Pin(PinKind.QPARAMS, f"the DequantizeLinear '{node_key(node)}'", qparams))
        return real

    def _constant(self, end: ir.Value | None, qparams: QParams) -> ir.Value | None:
        array = constant_value(end)
        if end is None or array is None:
            return None
        return add_constant(
            self._graph, f"{end.name}_real", dequantize(array, qparams), self._values
        )

    def _pinned(self, value: ir.Value, pin: Pin, quantizer: ir.Node) -> ir.Value:
        """``value`` with ``pin``, or an Identity of it where it has another one."""
        if value in self._parallel:
            why = "two pairs of different grids"  # stored name
            self.changed |= pin_value(value, Pin(PinKind.FLOAT, why))
        known = pin_of(value)
        if known is None:
            self.changed |= pin_value(value, pin)
            return value
        return value if _same(known, pin) else self._guarded(value, pin, quantizer)

    def _dynamic(self, value: ir.Value, pin: Pin, quantizer: ir.Node) -> ir.Value:
        """``value`` with ``pin``, or an Identity of it where others read the value as it is.

        Qparams known beforehand are those of a value for all its readers; those of a batch serve
        the product behind.
        """
        others = [use for use in value.uses() if not _is(use.node, *_QUANTIZERS)]
        if others and not is_pinned(value):
            return self._guarded(value, pin, quantizer)
        return self._pinned(value, pin, quantizer)

    def _guarded(self, value: ir.Value, pin: Pin, quantizer: ir.Node) -> ir.Value:
        """An Identity of ``value`` with ``pin``; no change until something reads it."""
        value = self._inserted("Identity", [value], quantizer, f"{node_key(quantizer)}_input")
        pin_value(value, pin)
        return value

    def _move(self, node: ir.Node, twin: _Twin) -> None:
        """A real copy of ``node``, which moves integers about."""
        if twin.pin.qparams is None or twin.pin.qparams.axis is not None:
            return
        self._copied(node, [twin.value, *node.inputs[1:]])
        copy = self._copies[-1][0]
        for before, after in zip(node.outputs, copy.outputs, strict=True):
            pin_value(after, twin.pin)
            self._twins[before] = _Twin(after, twin.pin)

    def _copied(self, node: ir.Node, inputs: list[ir.Value | None]) -> ir.Value:
        """The first result of a real copy of ``node`` with other ``inputs``."""
        copy = ir.Node(
            "", node.op_type, inputs, list(node.attributes.values()), num_outputs=len(node.outputs),
            name=self._nodes.fresh(node_key(node)),
        )  # fmt: skip
        copy.metadata_props.update(node.metadata_props)
        for before, after in zip(node.outputs, copy.outputs, strict=True):
            after.dtype, after.shape = ir.DataType.FLOAT, before.shape
            after.name = self._values.fresh(
                f"{(before.name or '').removesuffix('_quantized')}_real"
            )
        self._graph.insert_before(node, copy)
        self._copies.append((copy, node_key(node)))
        return copy.outputs[0]

    def _inserted(
        self, operator: str, inputs: list[ir.Value], before: ir.Node, wanted: str
    ) -> ir.Value:
        node = ir.Node("", operator, inputs, num_outputs=1, name=self._nodes.fresh(wanted))
        node.outputs[0].name = self._values.fresh(wanted)
        node.outputs[0].dtype = ir.DataType.FLOAT
        node.outputs[0].shape = inputs[0].shape
        self._graph.insert_before(before, node)
        return node.outputs[0]


def pair_qparams(node: ir.Node) -> QParams | None:
    """The qparams of a Q or DQ ``node``, of integers or of floats; None: computed at run time.

    Raises:
        InputError: it is invalid.
    """
    found = node_qparams(node)
    return float_qparams(node) if found is None else found


def _quantized_values(graph: ir.Graph) -> dict[ir.Value, None]:
    return {
        node.inputs[0]: None
        for node in graph
        if _is(node, *_QUANTIZERS) and node.inputs[0] is not None
    }


def _has_two_qparams(value: ir.Value) -> bool:
    quantizers = [use.node for use in value.uses() if use.idx == 0 and _is(use.node, *_QUANTIZERS)]
    if len(quantizers) < 2:
        return False
    all_qparams = [
        None if node.op_type == "DynamicQuantizeLinear" else pair_qparams(node)
        for node in quantizers
    ]
    return any(qparams != all_qparams[0] for qparams in all_qparams)


def _same(known: Pin, pin: Pin) -> bool:
    return (known.kind, known.qparams, known.qtype) == (pin.kind, pin.qparams, pin.qtype)


def _same_dynamic(node: ir.Node, twin: _Twin) -> bool:
    maker = None if node.inputs[0] is None else node.inputs[0].producer()
    return (
        maker is not None
        and twin.pin.kind is PinKind.DYNAMIC
        and list(node.inputs[1:]) == list(maker.outputs[1:])
    )


def _moves(node: ir.Node) -> bool:
    """Whether ``node`` gives integers of its first input and nothing else; Pad mixes a constant
    in.
    """
    return node.op_type != "Pad" and op_spec(node).moved == (0,)


# Putting Q, DQ and float operators in the place of an integer operator, under names that people
# recognise.

_SUFFIX = "_quantized"


class PairWriter:
    """The graph being rewritten and the names taken in it."""

    def __init__(self, model: ir.Model, values: NameScope, nodes: NameScope) -> None:
        self.graph = model.graph
        self.values = values
        self._nodes = nodes

    def dequantized(
        self, at: ir.Node, operand: Sequence[ir.Value | None], axis: int | None, wanted: str
    ) -> ir.Value:
        """A DequantizeLinear of ``operand`` (integers, scale, zero point) before ``at``; its
        real result.
        """
        integers, scale, point = operand
        attributes = [] if axis is None else [ir.AttrInt64("axis", axis)]
        inputs = [
            integers,
            self._parameter(scale, axis),
            *([self._parameter(point, axis)] if point is not None else []),
        ]
        node = self.before(at, "DequantizeLinear", inputs, attributes, name=f"{wanted}_dequantize")
        real = node.outputs[0]
        real.shape = None if integers is None else integers.shape
        return real

    def dynamically_quantized(
        self, at: ir.Node, real: ir.Value | None, wanted: str
    ) -> list[ir.Value]:
        """A DynamicQuantizeLinear of ``real`` before ``at``: integers, scale, zero point."""
        inputs = [real]
        node = ir.Node(
            "",
            "DynamicQuantizeLinear",
            inputs,
            num_outputs=3,
            name=self._nodes.fresh(f"{wanted}_quantize"),
        )
        kinds = (ir.DataType.UINT8, ir.DataType.FLOAT, ir.DataType.UINT8)
        for value, word, kind in zip(
            node.outputs, ("quantized", "scale", "zero_point"), kinds, strict=True
        ):
            value.name = self.values.fresh(f"{wanted}_{word}")
            value.type = ir.TensorType(kind)
        set_origin(node, origin_of(at))
        self.graph.insert_before(at, node)
        return list(node.outputs)

    def requantized(
        self,
        at: ir.Node,
        real: ir.Node,
        parameters: tuple[ir.Value | None, ir.Value | None],
        kind: ir.DataType | None,
    ) -> None:
        """A QuantizeLinear of the result of ``real`` that takes the place of ``at``, whose
        result keeps its name.
        """
        scale, point = parameters
        old = at.outputs[0]
        stem = (old.name or "").removesuffix(_SUFFIX)
        real.outputs[0].name = self.values.fresh(stem if stem != old.name else f"{old.name}_real")
        real.outputs[0].shape = old.shape
        if point is None and kind is not None:
            point = add_constant(
                self.graph, f"{old.name}_zero_point", np.zeros((), kind.numpy()), self.values
            )
        inputs = [
            real.outputs[0],
            self._parameter(scale, None),
            *([self._parameter(point, None)] if point else []),
        ]
        node = self.before(at, "QuantizeLinear", inputs, [], name=f"{real.name}_quantize")
        kind = None if point is None else point.dtype
        node.outputs[0].type = ir.TensorType(kind or ir.DataType.UINT8)
        node.outputs[0].shape = old.shape
        self.take_place(at, node)

    def before(
        self,
        at: ir.Node,
        operator: str,
        inputs: Sequence[ir.Value | None],
        attributes: Sequence[ir.Attr],
        *,
        name: str,
        domain: str = "",
    ) -> ir.Node:
        """A new node before ``at``, with one result of float; it may have the name of ``at``,
        which is to go.
        """
        origin = origin_of(at)
        if name == at.name:
            at.name = None
            self._nodes.release(name)
        node = ir.Node(
            domain, operator, inputs, attributes, num_outputs=1, name=self._nodes.fresh(name)
        )
        node.outputs[0].dtype = ir.DataType.FLOAT
        node.outputs[0].name = self.values.fresh(f"{node.name}_out")
        set_origin(node, origin)
        self.graph.insert_before(at, node)
        return node

    def rename(self, node: ir.Node, wanted: str) -> None:
        """Call ``node`` ``wanted``, or that with a number; a new node may have its old name."""
        if node.name:
            self._nodes.release(node.name)
        node.name = self._nodes.fresh(wanted)

    def constant(self, name: str, array: npt.NDArray[Any]) -> ir.Value:
        """A new initializer."""
        return add_constant(self.graph, name, array, self.values)

    def take_place(self, old: ir.Node, new: ir.Node) -> None:
        """The result of ``new`` replaces that of ``old``, under its name; ``old`` goes."""
        before, after = old.outputs[0], new.outputs[0]
        name = before.name
        before.replace_all_uses_with(after, replace_graph_outputs=True)
        before.name = None
        if after.name is not None:
            self.values.release(after.name)
        after.name = name
        after.shape = after.shape or before.shape
        self.graph.remove(old, safe=True)

    def _parameter(self, value: ir.Value | None, axis: int | None) -> ir.Value | None:
        """``value``; a scalar where it is a constant of one element and no axis is meant."""
        array = constant_value(value) if axis is None else None
        if value is None or array is None or array.ndim == 0 or array.size != 1:
            return value
        return add_constant(self.graph, f"{value.name}_number", array.reshape(()), self.values)


# Integer operators with scales of their own become the float operator between DequantizeLinear and
# QuantizeLinear.
#
#     QLinearConv(x, sx, zx, w, sw, zw, sy, zy, b)
#         →  Q(sy, zy) ∘ Conv ∘ (DQ(x, sx, zx), DQ(w, sw, zw), DQ(b, sx·sw, 0))
#
# The real function is the same; only the last rounding of an engine that requantizes by a
# multiplier may differ from that of Q. Sources: ONNX QLinearConv-10, QLinearMatMul-21; contrib
# operators of ONNX Runtime 1.24 (docs/ContribOperators).

_MICROSOFT = "com.microsoft"
_ENGINE_ATTRIBUTES = ("channels_last", "opset")


@dataclass(frozen=True, slots=True)
class RaiseOperators:
    """Requires: constants are initializers. Ensures: of the operators above only those are left
    that cannot be raised.

    Left alone: parameters that are computed, layouts with channels last, one scale per row. The
    float operator keeps the name of the integer one, the integer result its own.
    """

    name: str = "raise-operators"
    effect: ClassVar[Effect] = LOSSY

    def run(self, model: ir.Model) -> bool:
        """Raise them in graph order; True when there were any."""
        nodes = [node for node in model.graph if _layout(node) is not None]
        if not nodes:
            return False
        writer = PairWriter(model, NameScope.of_values(model), NameScope.of_nodes(model))
        return sum(_raised(node, writer) for node in nodes) > 0


def _layout(node: ir.Node) -> IntegerForm | None:
    form = INTEGER_FORMS.get((node.domain, node.op_type))
    if form is None or form.domain == INTEGER_DOMAIN:
        return None
    if form.name == "QLinearConcat":
        triples = tuple((i, i + 1, i + 2) for i in range(2, len(node.inputs), 3))
        return replace(form, operands=triples, result=(0, 1))
    return form if form.result is not None else None


def _raised(node: ir.Node, writer: PairWriter) -> bool:
    layout = _layout(node)
    assert layout is not None
    if not _plain(node) or not _constant_parameters(node, layout):
        return False
    axes = [_axis(node, layout, position) for position in range(len(layout.operands))]
    if any(axis is not None and axis < 0 for axis in axes):
        return False
    name = node_key(node)
    operands = [
        input_at(node, places[0])
        if len(places) == 1
        else writer.dequantized(
            node, [input_at(node, place) for place in places], axis, f"{name}.{position}"
        )
        for position, (places, axis) in enumerate(zip(layout.operands, axes, strict=True))
    ]
    bias = None if layout.bias is None else input_at(node, layout.bias)
    if bias is not None:
        operands.append(_dequantized_bias(node, bias, layout, writer))
    attributes = [a for key, a in node.attributes.items() if key not in _ENGINE_ATTRIBUTES]
    real = writer.before(node, float_name(layout.name), operands, attributes, name=name)
    if layout.result is None or input_at(node, layout.result[0]) is None:
        writer.take_place(node, real)
        return True
    point = input_at(node, layout.result[1])
    kind = point or input_at(node, layout.operands[-1][2]) or input_at(node, layout.operands[-1][0])
    writer.requantized(
        node, real, (input_at(node, layout.result[0]), point), None if kind is None else kind.dtype
    )
    return True


def _plain(node: ir.Node) -> bool:
    """No layout with channels last, and a softmax as ONNX has it today; before opset 13 it was
    another.
    """
    if int_attribute(node, "channels_last", 0):
        return False
    if node.op_type == "QLinearSoftmax" and int_attribute(node, "opset", 13) < 13:
        return int_attribute(node, "axis", 1) == -1
    return True


def _constant_parameters(node: ir.Node, layout: IntegerForm) -> bool:
    places = [place for operand in layout.operands for place in operand[1:]] + list(
        layout.result or ()
    )
    given = [value for value in (input_at(node, place) for place in places) if value is not None]
    return all(constant_value(value) is not None for value in given)


def _axis(node: ir.Node, layout: IntegerForm, position: int) -> int | None:
    """The axis of many scales, None for a single one, -1 where they do not run over output
    channels.
    """
    places = layout.operands[position]
    scale = constant_value(input_at(node, places[1])) if len(places) > 1 else None
    if scale is None or scale.size == 1:
        return None
    weight = input_at(node, places[0])
    rank = None if weight is None or weight.shape is None else len(weight.shape)
    if position != 1 or scale.ndim != 1:
        return -1
    match float_name(layout.name):
        case "Conv":
            return 0
        case "Gemm":
            return 0 if int_attribute(node, "transB", 0) else 1
        case "MatMul" if rank is not None:
            return rank - 1
        case _:
            return -1


def _dequantized_bias(
    node: ir.Node, bias: ir.Value, layout: IntegerForm, writer: PairWriter
) -> ir.Value:
    """DQ of an int32 bias: float32(s_x · s_w), times alpha in a QGemm, which has the bias
    inside its bracket.
    """
    scales = [constant_value(input_at(node, places[1])) for places in layout.operands]
    assert scales[0] is not None
    assert scales[1] is not None
    product = np.float32(scales[0].reshape(())) * scales[1].astype(np.float32)
    product = product * np.float32(float_attribute(node, "alpha", 1.0))
    scale = product.reshape(()) if product.size == 1 else product
    value = add_constant(
        writer.graph, f"{bias.name}_scale", np.asarray(scale, np.float32), writer.values
    )
    axis = None
    if scale.ndim > 0:
        axis = 0 if bias.shape is None else len(bias.shape) - 1
    return writer.dequantized(node, [bias, value, None], axis, f"{node_key(node)}.bias")


# Integer products whose scales are applied behind them become float products between
# DequantizeLinear.
#
#     Cast(MatMulInteger(x, w, zx, zw)) · (sx · sw)  →  MatMul(DQ(x, sx, zx), DQ(w, sw, zw))
#                                                       ConvInteger likewise
#     MatMulIntegerToFloat(x, w, sx, sw, zx, zw, b)  →  MatMul(DQ(x, sx, zx), DQ(w, sw, zw)) + b
#     DynamicQuantizeMatMul(x, w, sw, zw, b)         →  the same, x quantized by
#                                                       DynamicQuantizeLinear
#
# So a product of ONNX Runtime's dynamic quantization is recognised by what it computes. Sources:
# ONNX MatMulInteger-10, ConvInteger-10, DynamicQuantizeLinear-11; contrib operators of ONNX Runtime
# 1.24.

_PRODUCTS = frozenset(
    key for key, form in INTEGER_FORMS.items() if form.is_scaled_behind and not form.domain
)
_FUSED = frozenset({"MatMulIntegerToFloat", "DynamicQuantizeMatMul"})


@dataclass(frozen=True, slots=True)
class RaiseProducts:
    """Requires: constants are initializers. Ensures: no product of the above forms with a
    constant weight is left. The float product keeps the name of the integer one, under which
    engines report it.

    Left alone: a product whose scale is not found behind it, or that something else reads too.
    """

    name: str = "raise-products"
    effect: ClassVar[Effect] = LOSSY

    def run(self, model: ir.Model) -> bool:
        """Raise them in graph order; True when there were any."""
        products = [node for node in model.graph if (node.domain, node.op_type) in _PRODUCTS]
        fused = [
            node
            for node in model.graph
            if node.domain == "com.microsoft" and node.op_type in _FUSED
        ]
        if not products and not fused:
            return False
        writer = PairWriter(model, NameScope.of_values(model), NameScope.of_nodes(model))
        raised = [_raised_product(node, writer) for node in products] + [
            _raised_fused(node, writer) for node in fused
        ]
        return any(raised)


def _raised_product(node: ir.Node, writer: PairWriter) -> bool:
    scaled = _scaled(node)
    if scaled is None:
        return False
    multiply, scales = scaled
    weight, scale = node.inputs[1], constant_value(scales[1])
    if weight is None or scale is None:
        return False
    axis = _raise_products_axis(node, weight, scale)
    if axis == -1:
        return False
    flat = scales[1] if scale.ndim < 2 else _flattened(scales[1], scale, writer)
    data = writer.dequantized(
        multiply, [node.inputs[0], scales[0], input_at(node, 2)], None, f"{node_key(node)}.0"
    )
    qparams = writer.dequantized(
        multiply, [weight, flat, input_at(node, 3)], axis, f"{node_key(node)}.1"
    )
    operator, name, origin = float_name(node.op_type), node_key(node), origin_of(node)
    writer.rename(node, f"{name}_of_integers")
    real = writer.before(
        multiply, operator, [data, qparams], list(node.attributes.values()), name=name
    )
    set_origin(real, origin)
    writer.take_place(multiply, real)
    return True


def _raised_fused(node: ir.Node, writer: PairWriter) -> bool:
    dynamic = node.op_type == "DynamicQuantizeMatMul"
    weight = node.inputs[1]
    scale_of_weight, point_of_weight, bias = (
        input_at(node, index) for index in ((2, 3, 4) if dynamic else (3, 5, 6))
    )
    scale = constant_value(scale_of_weight)
    axis = None if weight is None or scale is None else _raise_products_axis(node, weight, scale)
    if weight is None or scale is None or axis == -1:
        return False
    name = node_key(node)
    operand = (
        writer.dynamically_quantized(node, node.inputs[0], f"{name}.0")
        if dynamic
        else [node.inputs[0], input_at(node, 2), input_at(node, 4)]
    )
    data = writer.dequantized(node, operand, None, f"{name}.0")
    qparams = writer.dequantized(
        node, [weight, scale_of_weight, point_of_weight], axis, f"{name}.1"
    )
    real = writer.before(node, "MatMul", [data, qparams], [], name=name)
    if bias is not None:
        real = writer.before(node, "Add", [real.outputs[0], bias], [], name=f"{name}_bias")
    writer.take_place(node, real)
    return True


def _scaled(node: ir.Node) -> tuple[ir.Node, Sequence[ir.Value]] | None:
    """The Mul that makes the product real, and the scales of data and weight that it multiplies
    by.
    """
    cast = only_consumer(node.outputs[0])
    if (
        cast is None
        or cast.op_type != "Cast"
        or cast.domain
        or cast.attributes["to"].as_int() != ir.DataType.FLOAT
    ):
        return None
    multiply = only_consumer(cast.outputs[0])
    if multiply is None or multiply.op_type != "Mul" or multiply.domain:
        return None
    factor = next((v for v in multiply.inputs if v is not cast.outputs[0]), None)
    both = None if factor is None else factor.producer()
    if both is None or both.op_type != "Mul" or both.domain:
        return None
    scales = [value for value in both.inputs if value is not None]
    maker = None if node.inputs[0] is None else node.inputs[0].producer()
    own = None if maker is None or maker.op_type != "DynamicQuantizeLinear" else maker.outputs[1]
    if len(scales) != 2 or own not in scales:
        return None
    return multiply, scales if scales[0] is own else scales[::-1]


def _raise_products_axis(
    node: ir.Node, weight: ir.Value, scale: np.ndarray[tuple[int, ...], np.dtype[np.float32]]
) -> int | None:
    """The axis of many scales, None for a single one, -1 where they do not run over output
    channels.
    """
    if scale.size == 1:
        return None
    shape = None if weight.shape is None else [d for d in weight.shape if isinstance(d, int)]
    if shape is None or len(shape) != len(weight.shape or ()) or max(scale.shape) != scale.size:
        return -1
    axis = 0 if node.op_type == "ConvInteger" else len(shape) - 1
    return axis if shape[axis] == scale.size else -1


def _flattened(
    value: ir.Value, scale: np.ndarray[tuple[int, ...], np.dtype[np.float32]], writer: PairWriter
) -> ir.Value:
    return add_constant(writer.graph, f"{value.name}_flat", scale.reshape(-1), writer.values)
