"""Q and DQ as other tools spell them, brought to the one form that is read here: the default
domain, and scales in float32.

    com.microsoft.QuantizeLinear(x, s, z)    →   QuantizeLinear(x, s, z)
    x32 ─Cast─ x16 ─Q(s16)─ q                →   x32 ─Cast─Cast─ Q(float32(s16)) ─ q
    q ─DQ(s16)─ x16 ─Conv(w16)─ y16          →   q ─DQ(float32(s16))─ x32 ─Conv(w32)─ y32
    q ─DQ─ x32 ─Cast to float32─ reader      →   q ─DQ─ x32 ─ reader

Every float16 (and bfloat16) number is a float32 number, so that scales, weights and biases keep
their values. What the file rounds to float16 on the way in stays rounded, by two Casts. What its
operators round to float16 between them does not: an engine that multiplies integers has no such
values either.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from qbench.graph import constant_value, infer_shapes, input_at, is_qdq
from qbench.passes.contract import LOSSY, Effect
from qbench.passes.editing import NameScope, add_constant, take_place

_HALVES = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype")
"""Attributes that name the type of a result."""
_ROUNDED = "qbench.rounded_to_half"
"""Metadata key of the two Casts that round what comes in."""


@dataclass(frozen=True, slots=True)
class StandardForm:
    """Requires: constants are initializers. Ensures: every Q and DQ is one of ONNX itself, no
    scale of theirs is float16 or bfloat16, and no Cast gives the type that it takes.

    A graph without a Q or a DQ is left as it is, as are subgraphs.
    """

    name: str = "standard-form"
    effect: ClassVar[Effect] = LOSSY

    def run(self, model: ir.Model) -> bool:
        """Bring them there; True when anything was spelled otherwise."""
        pairs = [node for node in model.graph if is_qdq(node)]
        if not pairs:
            return False
        changed = [_in_default_domain(node) for node in pairs].count(True) > 0
        halves = any(_type(node, 1) in _HALVES for node in pairs)
        casts = [node for node in model.graph if node.op_type == "Cast" and not node.domain]
        if not halves and not casts:
            return changed
        if any(value.dtype is None for node in model.graph for value in node.outputs):
            infer_shapes(model)
        if halves:
            _widen(model)
        idle = [node for node in model.graph if _is_idle(node)]
        for node in idle:
            _remove(node)
        return changed or halves or bool(idle)


def _in_default_domain(node: ir.Node) -> bool:
    spelled = bool(node.domain)
    node.domain = ""
    return spelled


def _type(node: ir.Node, index: int) -> ir.DataType | None:
    value = input_at(node, index)
    return None if value is None else value.dtype


def _is_idle(node: ir.Node) -> bool:
    """Whether ``node`` is a Cast to the type that its operand has already."""
    if node.domain or node.op_type != "Cast" or _ROUNDED in node.metadata_props:
        return False
    return _type(node, 0) is not None and _type(node, 0) == node.attributes["to"].as_int()


def _remove(node: ir.Node) -> None:
    source, result, graph = node.inputs[0], node.outputs[0], node.graph
    assert source is not None
    assert isinstance(graph, ir.Graph)
    if not result.is_graph_output():
        result.replace_all_uses_with(source)
    elif source.producer() is None or source.is_graph_output():
        node.op_type = "Identity"  # both names are part of the interface
        del node.attributes["to"]
        return
    else:
        take_place(result, source)
    graph.remove(node, safe=True)


# float16 → float32.


def _widen(model: ir.Model) -> None:
    """Every float16 and bfloat16 of the main graph of ``model`` as float32; its inputs and
    outputs keep their types.
    """
    graph, values, nodes = model.graph, NameScope.of_values(model), NameScope.of_nodes(model)
    rounding = [node for node in graph if _rounds_reals(node)]
    for value in list(graph.initializers.values()):
        if value.dtype in _HALVES and not value.is_graph_output():
            _widen_constant(graph, value, values)
    for node in graph:
        _widen_results(node)
    for node in rounding:
        _round(node, values, nodes)
    for value in graph.inputs:
        if value.dtype in _HALVES and value.uses():
            cast = _cast(value, ir.DataType.FLOAT, f"{value.name}_float", values, nodes)
            readers = tuple(value.uses())
            graph.insert_before(graph[0], cast)
            for use in readers:
                if use.node is not cast:
                    use.node.replace_input_with(use.idx, cast.outputs[0])
    for value in graph.outputs:
        maker = value.producer()
        if value.dtype in _HALVES and maker is not None:
            _give_half(graph, value, maker, values, nodes)


def _rounds_reals(node: ir.Node) -> bool:
    """Whether ``node`` is a Cast of a float32 that is not on codes to float16 or bfloat16."""
    if node.domain or node.op_type != "Cast" or _type(node, 0) is not ir.DataType.FLOAT:
        return False
    source = node.inputs[0]
    maker = None if source is None else source.producer()
    on_codes = maker is not None and maker.op_type == "DequantizeLinear"
    return node.attributes["to"].as_int() in _HALVES and not on_codes


def _round(node: ir.Node, values: NameScope, nodes: NameScope) -> None:
    """Let ``node``, a Cast whose result was made float32, be a Cast to float32 of one to
    float16.
    """
    graph, source = node.graph, node.inputs[0]
    assert isinstance(graph, ir.Graph)
    assert source is not None
    half = _cast(source, ir.DataType.FLOAT16, f"{node.outputs[0].name}_half", values, nodes)
    graph.insert_before(node, half)
    node.replace_input_with(0, half.outputs[0])
    for one in (half, node):
        one.metadata_props[_ROUNDED] = ""


def _widen_constant(graph: ir.Graph, value: ir.Value, values: NameScope) -> None:
    array = constant_value(value)
    if array is None:
        return
    name = value.name or ""
    graph.initializers.pop(name)
    values.release(name)
    wide = add_constant(graph, name, array.astype(np.float32), values)
    value.replace_all_uses_with(wide)


def _widen_results(node: ir.Node) -> None:
    for name in _TYPE_ATTRIBUTES:
        given = node.attributes.get(name)
        if given is not None and given.as_int() in _HALVES:
            node.attributes[name] = ir.AttrInt64(name, ir.DataType.FLOAT)
    filler = node.attributes.get("value")
    if filler is not None and filler.type is ir.AttributeType.TENSOR:
        tensor = filler.as_tensor()
        if tensor.dtype in _HALVES:
            wide = ir.Tensor(tensor.numpy().astype(np.float32))
            node.attributes["value"] = ir.AttrTensor("value", wide)
    for value in node.outputs:
        if value.dtype in _HALVES and not value.is_graph_output():
            value.type = ir.TensorType(ir.DataType.FLOAT)


def _give_half(
    graph: ir.Graph, value: ir.Value, maker: ir.Node, values: NameScope, nodes: NameScope
) -> None:
    """A Cast back before the output ``value`` of the graph, which keeps its name and type."""
    kind, name = value.type, value.name or ""
    dtype = value.dtype
    assert dtype is not None
    value.type = ir.TensorType(ir.DataType.FLOAT)
    cast = _cast(value, dtype, name, values, nodes)
    value.name = values.fresh(f"{name}_float")
    for index, output in enumerate(graph.outputs):
        if output is value:
            graph.outputs[index] = cast.outputs[0]
    cast.outputs[0].name, cast.outputs[0].type, cast.outputs[0].shape = name, kind, value.shape
    graph.insert_after(maker, cast)


def _cast(
    source: ir.Value, to: ir.DataType, wanted: str, values: NameScope, nodes: NameScope
) -> ir.Node:
    node = ir.Node(
        "", "Cast", [source], [ir.AttrInt64("to", to)], num_outputs=1, name=nodes.fresh(wanted)
    )
    result = node.outputs[0]
    result.name, result.shape = values.fresh(wanted), source.shape
    result.type = ir.TensorType(to)
    return node
