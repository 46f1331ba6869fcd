"""Writing a plan into a graph as QuantizeLinear / DequantizeLinear; nothing is decided here."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from qbench.calibration import units_of
from qbench.errors import InputError, UnsupportedError, require_type
from qbench.graph import (
    AnyModel,
    as_model,
    constant_value,
    extend_lineage,
    graph_digest,
    mark_float_codes,
    node_key,
    node_macs,
    origin_of,
    own_copy,
    set_origin,
    values_by_name,
)
from qbench.numerics import QParams, QType, quantize
from qbench.passes import NameScope, plannable
from qbench.quantization.candidates import ClipForm, clip_form, codes_of
from qbench.quantization.constant_qparams import multiplies_integers
from qbench.quantization.decision import Decision, Dynamic
from qbench.quantization.plan import Plan
from qbench.quantization.plan_file import plan_digest
from qbench.quantization.spec import (
    Role,
    Slot,
    activation_dtype,
    clips_codes,
    constant_dtype,
    end_values,
    saturates_at,
    stored,
)

# New nodes and constants under fresh names, put right behind what makes a value or right before
# what reads it.


class NodeWriter:
    """The names taken in one model, which grow with what is written into it."""

    def __init__(self, model: ir.Model) -> None:
        self._graph = model.graph
        self._value_names = NameScope.of_values(model)
        self._node_names = NameScope.of_nodes(model)

    def made(
        self,
        operator: str,
        inputs: Sequence[ir.Value | None],
        attributes: Sequence[ir.Attr],
        wanted: str,
        dtype: ir.DataType,
        *,
        outputs: int = 1,
    ) -> ir.Node:
        """A node that is in no graph yet; it and its first result, of ``dtype``, are called
        ``wanted``.
        """
        name = self._node_names.fresh(wanted)
        node = ir.Node("", operator, inputs, attributes, num_outputs=outputs, name=name)
        self.name_output(node.outputs[0], wanted)
        node.outputs[0].dtype = dtype
        return node

    def name_output(self, value: ir.Value, wanted: str) -> None:
        """Call ``value`` ``wanted``, or that with a number."""
        value.name = self._value_names.fresh(wanted)

    def behind(self, maker: ir.Node | None, node: ir.Node, *, origin: str | None = None) -> None:
        """Put ``node`` right behind ``maker``, whose origin it gets; for a graph input (None), at
        the beginning.
        """
        if maker is None:
            self._graph.insert_before(self._graph[0], node)
            return
        self._graph.insert_after(maker, node)
        set_origin(node, origin or origin_of(maker))

    def before(self, consumer: ir.Node, index: int, node: ir.Node) -> None:
        """Put ``node`` right before ``consumer``, in its graph; its input ``index`` is what
        ``node`` gives.
        """
        graph = consumer.graph
        assert graph is not None
        graph.insert_before(consumer, node)
        consumer.replace_input_with(index, node.outputs[0])

    def initializer(self, wanted: str, tensor: ir.TensorProtocol) -> ir.Value:
        """A new constant of the main graph, called ``wanted`` or that with a number."""
        name = self._value_names.fresh(wanted)
        tensor.name = name
        shape, kind = ir.Shape(tensor.shape.numpy()), ir.TensorType(tensor.dtype)
        value = ir.Value(name=name, shape=shape, type=kind, const_value=tensor)
        self._graph.register_initializer(value)
        return value


# Writing codes of 32 bits, which QuantizeLinear does not have, in floats (``graph.qdq``).


def write_float_codes(nodes: NodeWriter, value: ir.Value, qparams: QParams) -> None:
    """Quantize ``value`` for everything that reads it inside the graph.

    Raises:
        UnsupportedError: channels with zero points of their own.
    """
    points = {int(point) for point in qparams.zero_point.reshape(-1)}
    if len(points) != 1:
        raise UnsupportedError(
            f"Writing '{value.name}' in codes of {qparams.qtype}",
            found=f"{len(points)} zero points",
            expected="one, as the codes are clipped in one step",
            remedy="Ask for symmetric qparams.",
        )
    uses, name, (point,) = tuple(value.uses()), qparams.qtype.name, points
    scale = nodes.initializer(f"{value.name}_scale", ir.tensor(_spread(value, qparams)))
    ends = [
        nodes.initializer(f"{value.name}_{word}", ir.tensor(np.float32(code - point)))
        for word, code in (("low", qparams.qmin), ("high", qparams.qmax))
    ]
    last, after = value, value.producer()
    steps: tuple[tuple[str, list[ir.Value], str], ...] = (
        ("Div", [scale], "levels"),  # stored name
        ("Round", [], "rounded"),
        ("Clip", ends, "clipped"),
    )
    for operator, operands, word in steps:
        node = nodes.made(
            operator, [last, *operands], [], f"{value.name}_{word}", ir.DataType.FLOAT
        )
        node.outputs[0].shape = value.shape
        mark_float_codes(node, name)
        nodes.behind(after, node)
        last, after = node.outputs[0], node
    for use in uses:
        wanted = f"{value.name}_for_{node_key(use.node)}"
        node = nodes.made("Mul", [last, scale], [], wanted, ir.DataType.FLOAT)
        node.outputs[0].shape = value.shape
        mark_float_codes(node, name)
        set_origin(node, origin_of(use.node))
        nodes.before(use.node, use.idx, node)


def _spread(value: ir.Value, qparams: QParams) -> "np.typing.NDArray[np.float32]":
    """The scale in a form that broadcasts against ``value``."""
    if qparams.axis is None or value.shape is None:
        return np.asarray(qparams.scale)
    rank = len(value.shape)
    return qparams.scale.reshape([-1 if i == qparams.axis % rank else 1 for i in range(rank)])


# Q and DQ around one value or constant at a time, in a graph that is changed in place.

_DYNAMIC = QType.parse("uint8")


class PairWriter:
    """The state of one writing: the parameters and integers that were written so far, and the
    values that they stand for.
    """

    def __init__(self, model: ir.Model) -> None:
        self._nodes = NodeWriter(model)
        self._graph = model.graph
        self._parameters: dict[tuple[str, QParams, ir.DataType], tuple[ir.Value, ...]] = {}
        self._integers: dict[tuple[str, QParams], ir.Value] = {}
        self._replaced: dict[str, ir.Value] = {}

    def value(
        self, value: ir.Value, qparams: QParams, clip: ClipForm, *, leaves: bool = False
    ) -> None:
        """Quantize ``value`` for everything that reads it inside the graph, and where it ``leaves``
        the graph also as a graph output; ``clip`` is the form of the Clip or Relu that gives it.
        """
        uses = tuple(value.uses())
        if not uses and not leaves:
            return
        if qparams.qtype.bits > 16:
            write_float_codes(self._nodes, value, qparams)
            return
        producer, dtype = value.producer(), activation_dtype(qparams.qtype)
        moved = producer if clip is not ClipForm.FLOAT else None
        source = value if moved is None else moved.inputs[0]
        assert source is not None
        codes = _ends_of(qparams, dtype)
        if moved is not None and clip is ClipForm.INTEGER:
            codes = codes_of(moved, qparams)
        narrow, stem, after = codes != saturates_at(dtype), value.name or "", producer
        if narrow and not clips_codes(dtype):
            source = self._clipped_values(source, after, qparams, codes)
            after = source.producer()
        parameters = self._written_parameters(value.name or "", qparams, dtype)
        attributes = _attributes(qparams)
        node = self._nodes.made(
            "QuantizeLinear", [source, *parameters], attributes, f"{value.name}_quantized", dtype
        )
        node.outputs[0].shape = source.shape
        self._nodes.behind(after, node)
        quantized = node.outputs[0]
        if narrow and clips_codes(dtype):
            clipper = moved if clip is ClipForm.INTEGER else None
            quantized = self._clipped_codes(
                quantized, codes, node_key(clipper) if clipper else stem, clipper
            )
        for use in uses:
            self._dequantized(quantized, use.node, use.idx, parameters, attributes)
        if leaves:
            self._dequantized_output(value, quantized, parameters, attributes)
        if moved is not None:
            self._replaced.update({v.name or "": v for v in moved.inputs[1:] if v is not None})
            self._graph.remove(moved, safe=True)

    def dynamic(self, value: ir.Value, qtype: QType, readers: Collection[tuple[str, int]]) -> None:
        """Let every batch choose the qparams of ``value`` for ``readers``, by node and index;
        others read it in float.

        Raises:
            UnsupportedError: a type that DynamicQuantizeLinear does not give.
        """
        if qtype != _DYNAMIC:
            raise UnsupportedError(
                f"Writing the dynamic parameters of '{value.name}'",
                found=f"codes of {qtype}",
                expected=f"{_DYNAMIC}, the only one that ONNX's DynamicQuantizeLinear gives",
                remedy="Ask for dynamic activations of that type.",
            )
        uses = tuple(use for use in value.uses() if (node_key(use.node), use.idx) in readers)
        if not uses:
            return
        stem = f"{value.name}_quantized"
        node = self._nodes.made(
            "DynamicQuantizeLinear", [value], [], stem, ir.DataType.UINT8, outputs=3
        )
        for output, word, dtype in zip(
            node.outputs[1:], ("scale", "zero_point"), _DYNAMIC_TYPES, strict=True
        ):
            self._nodes.name_output(output, f"{value.name}_{word}")
            output.dtype, output.shape = dtype, ir.Shape([])
        node.outputs[0].shape = value.shape
        self._nodes.behind(value.producer(), node)
        quantized, scale, point = node.outputs
        for use in uses:
            self._dequantized(quantized, use.node, use.idx, (scale, point), [])

    def constant(self, node: ir.Node, index: int, qparams: QParams) -> None:
        """Store the constant at input ``index`` of ``node`` as integers, and dequantize it there.

        Raises:
            IndexError, ValueError: there is none, or ``qparams`` do not fit its shape.
        """
        value = node.inputs[index] if index >= 0 else None
        if value is None:
            raise ValueError("nothing there")
        dtype, key = constant_dtype(qparams.qtype), (value.name or "", qparams)
        if key not in self._integers:
            array = constant_value(value)
            if array is None:
                raise ValueError("no constant there")
            codes = stored(quantize(array, qparams), dtype)
            self._integers[key] = self._nodes.initializer(f"{value.name}_quantized", codes)
        # Engines recognize weights of floats by their having no zero point.
        has_point = not qparams.qtype.is_float
        parameters = self._written_parameters(value.name or "", qparams, dtype, point=has_point)
        self._replaced[value.name or ""] = value
        self._dequantized(self._integers[key], node, index, parameters, _attributes(qparams))

    def drop_unused(self) -> None:
        """Remove the float constants that nothing reads any more."""
        for name, value in self._replaced.items():
            if value.uses() or value.is_graph_output():
                continue
            producer = value.producer()
            if producer is not None:
                self._graph.remove(producer, safe=True)
            elif name in self._graph.initializers:
                del self._graph.initializers[name]

    def _clipped_codes(
        self, quantized: ir.Value, codes: tuple[int, int], stem: str, clip: ir.Node | None
    ) -> ir.Value:
        """``quantized`` clipped to ``codes``; ``clip`` is the clip of real values that it
        replaces, if any.
        """
        dtype, maker = quantized.dtype, quantized.producer()
        assert maker is not None
        assert dtype is not None
        ends = [
            self._nodes.initializer(f"{stem}_{word}", stored(np.asarray(code), dtype))
            for word, code in zip(("low", "high"), codes, strict=True)
        ]
        name = f"{stem}_of_levels"  # stored name
        node = self._nodes.made("Clip", [quantized, *ends], [], name, dtype)
        node.outputs[0].shape = quantized.shape
        self._nodes.behind(maker, node, origin=None if clip is None else origin_of(clip))
        return node.outputs[0]

    def _clipped_values(
        self, source: ir.Value, after: ir.Node | None, qparams: QParams, codes: tuple[int, int]
    ) -> ir.Value:
        """``source`` clipped to the real values of ``codes``, behind ``after``; per channel by
        Max and Min.
        """
        rank = None if source.shape is None else len(source.shape)
        low, high = (
            self._nodes.initializer(f"{source.name}_{word}", ir.tensor(end))
            for word, end in zip(("low", "high"), end_values(qparams, codes, rank), strict=True)
        )
        steps = (
            [("Clip", [low, high])] if qparams.axis is None else [("Max", [low]), ("Min", [high])]
        )
        for operator, ends in steps:
            name = f"{source.name}_in_grid"  # stored name
            node = self._nodes.made(operator, [source, *ends], [], name, ir.DataType.FLOAT)
            node.outputs[0].shape = source.shape
            self._nodes.behind(after, node)
            source, after = node.outputs[0], node
        return source

    def _dequantized(
        self,
        source: ir.Value,
        consumer: ir.Node,
        index: int,
        parameters: tuple[ir.Value, ...],
        attributes: list[ir.Attr],
    ) -> None:
        wanted = f"{source.name}_for_{node_key(consumer)}"
        node = self._nodes.made(
            "DequantizeLinear", [source, *parameters], attributes, wanted, ir.DataType.FLOAT
        )
        node.outputs[0].shape = source.shape
        set_origin(node, origin_of(consumer))
        self._nodes.before(consumer, index, node)

    def _dequantized_output(
        self,
        value: ir.Value,
        quantized: ir.Value,
        parameters: tuple[ir.Value, ...],
        attributes: list[ir.Attr],
    ) -> None:
        """Let the graph return the real numbers of ``quantized`` under the name of ``value``,
        which gets a new one.
        """
        name, maker = value.name or "", quantized.producer()
        wanted = f"{quantized.name}_for_output"
        node = self._nodes.made(
            "DequantizeLinear", [quantized, *parameters], attributes, wanted, ir.DataType.FLOAT
        )
        output = node.outputs[0]
        output.shape = value.shape
        self._nodes.behind(maker, node)
        outputs = self._graph.outputs
        for index, one in enumerate(outputs):
            if one is value:
                outputs[index] = output
        self._nodes.name_output(value, f"{name}_computed")
        output.name = name

    def _written_parameters(
        self, name: str, qparams: QParams, dtype: ir.DataType, *, point: bool = True
    ) -> tuple[ir.Value, ...]:
        key = (name, qparams, dtype)
        if key not in self._parameters:
            scale = self._written_scale(name, qparams)
            parameters: tuple[ir.Value, ...] = (scale,)
            if point:
                points = stored(qparams.zero_point, dtype)
                parameters += (self._nodes.initializer(f"{name}_zero_point", points),)
            self._parameters[key] = parameters
        return self._parameters[key]

    def _written_scale(self, name: str, qparams: QParams) -> ir.Value:
        if qparams.scale_type is None:
            return self._nodes.initializer(f"{name}_scale", ir.tensor(np.asarray(qparams.scale)))
        dtype = ir.DataType[qparams.scale_type.name.upper()]
        codes = stored(qparams.scale_codes, dtype)
        if qparams.tensor_scale is None:
            return self._nodes.initializer(f"{name}_scale", codes)
        parts = (
            self._nodes.initializer(f"{name}_scale_quantized", codes),
            self._nodes.initializer(
                f"{name}_tensor_scale", ir.tensor(np.float32(qparams.tensor_scale))
            ),
        )
        node = self._nodes.made("DequantizeLinear", parts, [], f"{name}_scale", ir.DataType.FLOAT)
        node.outputs[0].shape = parts[0].shape
        self._nodes.behind(None, node)
        return node.outputs[0]


def _ends_of(qparams: QParams, dtype: ir.DataType) -> tuple[int, int]:
    """The lowest and the highest code in use; of floats the whole of ``dtype``, which saturates."""
    return saturates_at(dtype) if qparams.qtype.is_float else (qparams.qmin, qparams.qmax)


_DYNAMIC_TYPES = (ir.DataType.FLOAT, ir.DataType.UINT8)


def _attributes(qparams: QParams) -> list[ir.Attr]:
    attributes = [] if qparams.axis is None else [ir.AttrInt64("axis", qparams.axis)]
    if qparams.block_size is not None:
        attributes.append(ir.AttrInt64("block_size", qparams.block_size))
    if qparams.scale_type is not None and qparams.tensor_scale is None:
        # Else the result would have the type of the scales.
        attributes.append(ir.AttrInt64("output_dtype", ir.DataType.FLOAT.value))
    return attributes


# The operator set whose QuantizeLinear and DequantizeLinear have a type, where that is later than
# the one that everything is written at, and the IR version that came with it.

_SINCE: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"FLOAT4E2M1": (23, 11), "FLOAT8E8M0": (24, 12), "FLOAT6E2M3": (28, 14), "FLOAT6E3M2": (28, 14)}
)


def _raise_opset(model: ir.Model, written: Iterable[QParams]) -> None:
    """Let ``model`` import the operator set that has the types of ``written``."""
    names = set()
    for qparams in written:
        names.add(qparams.qtype.name.upper())
        if qparams.scale_type is not None:
            names.add(qparams.scale_type.name.upper())
    for version, ir_version in (_SINCE[name] for name in names & _SINCE.keys()):
        imports = model.graph.opset_imports
        imports[""] = max(imports.get("", version), version)
        model.ir_version = max(model.ir_version, ir_version)


# Writing a plan into a graph as QuantizeLinear / DequantizeLinear; nothing is decided here.
#
#     value ──Q(s, z)──[Clip of codes]───┬──DQ(s, z)── consumer
#                                        └──DQ(s, z)── consumer
#     value ──DynamicQuantizeLinear──────┴──DQ── consumer
#     integer constant ──DQ(s, z)── consumer
#
# Each value has one Q, right behind its producer, and each use one DQ, right before its consumer. A
# DynamicQuantizeLinear has parameters that every batch makes anew.
#
# Graph inputs and outputs keep their names and float types; a value that is a graph output leaves
# the graph unquantized, unless the plan names it (``quantized_outputs``): then a Q and a DQ are
# before it. A Relu or Clip before a Q is absorbed, or moves behind it, as the plan says
# (``clips``). The convention, with what becomes of types that ONNX has no type for, is in
# ``graph.qdq``.

MARK = "qbench.plan"
"""Metadata key of a model that a plan was written into: the plan's schema and digest."""


def quantize_model(model: AnyModel, plan: Plan) -> ir.Model:
    """The QDQ model of the float ``model`` (a model or the path of its file, which is canonicalized
    here) under ``plan``, as a new model.

    Raises:
        InputError: the plan is of another graph, or is not a plan.
        UnsupportedError: the plan holds a decision that ONNX has no operators for.
    """
    graph = as_model(model)
    remedy = "Make one with make_plan(model, profile, schema), or load one with load_plan."
    require_type(f"Quantizing '{graph.graph.name}'", plan, Plan, expected="a Plan", remedy=remedy)
    if is_written(graph, plan):
        return own_copy(graph)
    canonical = plannable(graph, plan.canonical)
    return insert_qdq(canonical, with_clips_of(canonical, plan))


def with_clips_of(model: ir.Model, plan: Plan) -> Plan:
    """``plan`` with its clips where the parameters of their results put them: a file may have
    been edited since.
    """
    nodes = {node_key(node): node for node in model.graph}
    values, clips = plan.values, dict(plan.clips)
    for name in clips.keys() & nodes.keys():
        qparams = values.get(nodes[name].outputs[0].name or "")
        if qparams is not None:
            clips[name] = clip_form(nodes[name], qparams)
    return plan if clips == plan.clips else replace(plan, clips=clips)


def with_integers_of(model: ir.Model, plan: Plan) -> Plan:
    """``plan`` without the products of ``model`` that a person has left in float since it was saved
    among those in integers.
    """
    macs, slots = node_macs(model), dict[str, dict[Slot, Decision]]()
    for slot, decision in plan.decisions.items():
        slots.setdefault(slot.node, {})[slot] = decision
    left = [
        unit.name
        for unit in units_of(model.graph)
        if unit.name in plan.requested
        and unit.name not in plan.floats
        and not multiplies_integers(unit, slots.get(unit.name, {}))
    ]
    kept = plan.macs - sum(macs.get(name, 0) for name in (*left, *plan.floats))
    return replace(plan, integer_mac_count=max(min(plan.integer_mac_count, kept), 0))


def insert_qdq(model: ir.Model, plan: Plan) -> ir.Model:
    """A copy of the canonical ``model`` with ``plan`` written into it; an unchanged copy if that
    was done before.

    Raises:
        InputError: the plan is of another graph.
        UnsupportedError: the plan holds a decision that ONNX has no operators for.
    """
    if is_written(model, plan):
        return own_copy(model)
    digest = graph_digest(model)
    if digest != plan.graph:
        raise InputError(
            f"Writing a plan into '{model.graph.name}'",
            found=f"a plan of another graph ({plan.graph[:12]}…)",
            expected=f"one of this graph ({digest[:12]}…)",
            remedy="Make a plan for this model.",
        )
    copy = own_copy(model)
    writer = PairWriter(copy)
    nodes = {node_key(node): node for node in copy.graph}
    values = values_by_name(copy)
    for slot, qparams in plan.constants.items():
        try:
            writer.constant(nodes[slot.node], slot.index, qparams)
        except (KeyError, IndexError, ValueError) as error:
            raise _misplaced(model, f"parameters for '{slot}' ({error})") from error
    if strange := plan.values.keys() - values.keys():
        raise _misplaced(model, f"qparams for the value '{min(strange)}'")
    for name, qparams in plan.values.items():
        maker = values[name].producer()
        clip = ClipForm.FLOAT if maker is None else plan.clips.get(node_key(maker), ClipForm.FLOAT)
        writer.value(values[name], qparams, clip, leaves=name in plan.quantized_outputs)
    for (name, qtype), readers in _dynamic(plan).items():
        writer.dynamic(values[name], qtype, readers)
    writer.drop_unused()
    _raise_opset(copy, (*plan.constants.values(), *plan.values.values()))
    extend_lineage(copy, digest)
    copy.metadata_props[MARK] = _mark(plan)
    return copy


def _misplaced(model: ir.Model, found: str) -> InputError:
    return InputError(
        f"Writing a plan into '{model.graph.name}'",
        found=found,
        expected="qparams for constants and values of the graph that the plan names",
        remedy="Make the plan again: its file was changed.",
    )


def is_written(model: ir.Model, plan: Plan) -> bool:
    """Whether ``plan`` was written into ``model``."""
    return model.metadata_props.get(MARK) == _mark(plan)


def _dynamic(plan: Plan) -> dict[tuple[str, QType], set[tuple[str, int]]]:
    """Value and type → the operands, node and index, that read it with parameters made at run
    time.
    """
    found: dict[tuple[str, QType], set[tuple[str, int]]] = {}
    for slot, decision in plan.decisions.items():
        if isinstance(decision, Dynamic) and slot.role is Role.INPUT:
            found.setdefault((slot.value, decision.qtype), set()).add((slot.node, slot.index))
    return found


def _mark(plan: Plan) -> str:
    return f"{plan.schema} {plan_digest(plan)}"
