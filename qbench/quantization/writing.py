"""Writing a plan into a graph as QuantizeLinear / DequantizeLinear; nothing is decided here.

    value ──Q(s, z)──[Clip of levels]──┬──DQ(s, z)── consumer        one Q a value, right behind its producer
                                       └──DQ(s, z)── consumer        one DQ a use, right before its consumer
    integer constant ──DQ(s, z)── consumer

Graph inputs and outputs keep their names and float types; a value that is a graph output leaves the graph unquantized.
A Relu or Clip before a Q is absorbed, or moves behind it, as the plan says (``clips``).
"""

import ml_dtypes
import numpy as np
import onnx_ir as ir

from qbench.errors import InputError
from qbench.graph import (
    constant_value,
    extend_lineage,
    graph_digest,
    node_key,
    origin_of,
    set_origin,
    values_by_name,
)
from qbench.numerics import QParams, QType, quantize
from qbench.passes import NameScope, canonicalize
from qbench.quantization.clips import ClipForm, levels_of
from qbench.quantization.plan import Plan
from qbench.quantization.plan_text import plan_text
from qbench.storage import digest_bytes

MARK = "qbench.plan"
"""Metadata key of a model that a plan was written into: the plan's schema and digest."""


def quantize_model(model: ir.Model, plan: Plan) -> ir.Model:
    """The QDQ model of the float ``model`` (canonicalized here) under ``plan``, as a new model.

    Raises:
        InputError: the plan is of another graph.
    """
    return insert_qdq(model if MARK in model.metadata_props else canonicalize(model), plan)


def insert_qdq(model: ir.Model, plan: Plan) -> ir.Model:
    """A copy of the canonical ``model`` with ``plan`` written into it; a copy as it is when that was done before.

    Raises:
        InputError: the plan is of another graph.
    """
    mark = _mark(plan)
    if model.metadata_props.get(MARK) == mark:
        return model.clone()
    digest = graph_digest(model)
    if digest != plan.graph:
        raise InputError(
            f"Writing a plan into '{model.graph.name}'",
            found=f"a plan of another graph ({plan.graph[:12]}…)",
            expected=f"one of this graph ({digest[:12]}…)",
            remedy="Make a plan for this model.",
        )
    copy = model.clone()
    writer = _Writer(copy)
    nodes = {node_key(node): node for node in copy.graph}
    values = values_by_name(copy)
    for slot, qparams in plan.constants.items():
        writer.constant(nodes[slot.node], slot.index, qparams)
    for name, qparams in plan.values.items():
        maker = values[name].producer()
        writer.value(
            values[name], qparams, ClipForm.FLOAT if maker is None else plan.clips.get(node_key(maker), ClipForm.FLOAT)
        )
    writer.drop_unused()
    extend_lineage(copy, digest)
    copy.metadata_props[MARK] = mark
    return copy


def _mark(plan: Plan) -> str:
    return f"{plan.schema} {digest_bytes(plan_text(plan).encode())}"


class _Writer:
    """The state of one writing: fresh names, and the parameters and integers written so far."""

    def __init__(self, model: ir.Model) -> None:
        self._graph = model.graph
        self._value_names = NameScope.of_values(model)
        self._node_names = NameScope.of_nodes(model)
        self._parameters: dict[tuple[str, QParams], tuple[ir.Value, ir.Value]] = {}
        self._integers: dict[tuple[str, QParams], ir.Value] = {}
        self._replaced: dict[str, ir.Value] = {}

    def value(self, value: ir.Value, qparams: QParams, clip: ClipForm) -> None:
        """Put ``value`` on its grid for everything that reads it inside the graph; ``clip`` is of its producer."""
        uses = tuple(value.uses())
        parameters = self._written_parameters(value.name or "", qparams)
        producer = value.producer()
        moved = producer if clip is not ClipForm.FLOAT else None
        source = value if moved is None else moved.inputs[0]
        assert source is not None
        node = self._node("QuantizeLinear", source, parameters, qparams, f"{value.name}_quantized")
        if producer is None:
            self._graph.insert_before(self._graph[0], node)
        else:
            self._graph.insert_after(producer, node)
            set_origin(node, origin_of(producer))
        quantized = node.outputs[0]
        quantized.dtype = onnx_dtype(qparams.qtype)
        if moved is not None and clip is ClipForm.INTEGER:
            quantized = self._clipped(quantized, moved, qparams)
        for use in uses:
            self._dequantized(quantized, use.node, use.idx, parameters, qparams)
        if moved is not None:
            self._replaced.update({v.name or "": v for v in moved.inputs[1:] if v is not None})
            self._graph.remove(moved, safe=True)

    def constant(self, node: ir.Node, index: int, qparams: QParams) -> None:
        """Store the constant at input ``index`` of ``node`` as integers, and dequantize it there."""
        value = node.inputs[index]
        assert value is not None
        key = (value.name or "", qparams)
        if key not in self._integers:
            array = constant_value(value)
            assert array is not None
            self._integers[key] = self._initializer(
                f"{value.name}_quantized", stored(quantize(array, qparams), qparams.qtype)
            )
        parameters = self._written_parameters(value.name or "", qparams)
        self._replaced[value.name or ""] = value
        self._dequantized(self._integers[key], node, index, parameters, qparams)

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

    def _clipped(self, levels: ir.Value, clip: ir.Node, qparams: QParams) -> ir.Value:
        """``levels`` clipped to those that ``clip`` becomes on the grid."""
        ends = [
            self._initializer(f"{node_key(clip)}_{word}", stored(np.asarray(level), qparams.qtype))
            for word, level in zip(("low", "high"), levels_of(clip, qparams), strict=True)
        ]
        name = self._node_names.fresh(f"{node_key(clip)}_of_levels")
        node = ir.Node("", "Clip", [levels, *ends], num_outputs=1, name=name)
        set_origin(node, origin_of(clip))
        node.outputs[0].name = self._value_names.fresh(f"{node_key(clip)}_of_levels")
        node.outputs[0].shape, node.outputs[0].dtype = levels.shape, onnx_dtype(qparams.qtype)
        maker = levels.producer()
        assert maker is not None
        self._graph.insert_after(maker, node)
        return node.outputs[0]

    def _dequantized(
        self, source: ir.Value, consumer: ir.Node, index: int, parameters: tuple[ir.Value, ir.Value], qparams: QParams
    ) -> None:
        wanted = f"{source.name}_for_{node_key(consumer)}"
        node = self._node("DequantizeLinear", source, parameters, qparams, wanted)
        set_origin(node, origin_of(consumer))
        node.outputs[0].dtype = ir.DataType.FLOAT
        node.outputs[0].shape = source.shape
        self._graph.insert_before(consumer, node)
        consumer.replace_input_with(index, node.outputs[0])

    def _node(
        self, operator: str, source: ir.Value, parameters: tuple[ir.Value, ir.Value], qparams: QParams, wanted: str
    ) -> ir.Node:
        attributes = [] if qparams.axis is None else [ir.AttrInt64("axis", qparams.axis)]
        if qparams.block_size is not None:
            attributes.append(ir.AttrInt64("block_size", qparams.block_size))
        name = self._node_names.fresh(wanted)
        node = ir.Node("", operator, [source, *parameters], attributes, num_outputs=1, name=name)
        node.outputs[0].name = self._value_names.fresh(wanted)
        node.outputs[0].shape = source.shape
        return node

    def _written_parameters(self, name: str, qparams: QParams) -> tuple[ir.Value, ir.Value]:
        key = (name, qparams)
        if key not in self._parameters:
            scale = self._initializer(f"{name}_scale", ir.tensor(np.asarray(qparams.scale)))
            zero_point = self._initializer(f"{name}_zero_point", stored(qparams.zero_point, qparams.qtype))
            self._parameters[key] = (scale, zero_point)
        return self._parameters[key]

    def _initializer(self, wanted: str, tensor: ir.TensorProtocol) -> ir.Value:
        name = self._value_names.fresh(wanted)
        tensor.name = name
        shape, kind = ir.Shape(tensor.shape.numpy()), ir.TensorType(tensor.dtype)
        value = ir.Value(name=name, shape=shape, type=kind, const_value=tensor)
        self._graph.register_initializer(value)
        return value


def onnx_dtype(qtype: QType) -> ir.DataType:
    """The ONNX element type that stores a grid: its own, or the next wider one that ONNX has."""
    width = next(width for width in (4, 8, 16, 32) if qtype.bits <= width)
    return ir.DataType[f"{'' if qtype.signed else 'U'}INT{width}"]


def stored(levels: "np.typing.NDArray[np.integer]", qtype: QType) -> ir.TensorProtocol:
    """Levels as a tensor of the element type of their grid, packed where that is narrower than a byte."""
    dtype = onnx_dtype(qtype)
    if dtype.bitwidth < 8:
        levels = levels.astype(getattr(ml_dtypes, f"{'' if qtype.signed else 'u'}int{dtype.bitwidth}"))
        return ir.tensor(levels, dtype=dtype)
    return ir.tensor(levels.astype(dtype.numpy()), dtype=dtype)
