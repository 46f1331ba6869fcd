"""The QDQ convention, and its checker: one QuantizeLinear per value, one DequantizeLinear per consumer.

1. A value is read by at most one QuantizeLinear (or DynamicQuantizeLinear).
2. What a QuantizeLinear gives is read by DequantizeLinear only, and is no graph output; or one Clip with constant ends
   reads it, and its result is read so: a clip of levels, which stands where a Relu or Clip of the real value stood.
3. What a DequantizeLinear gives has exactly one reader: one input of one node, or the graph's output.
4. A DequantizeLinear reads a constant or what a QuantizeLinear gave (through its Clip), with the very scale and zero
   point of that.
5. Scales are constant, finite and positive; a static zero point is constant, given, of the type of the grid.
6. Per axis, there is one scale and one zero point a slice.

DynamicQuantizeLinear makes scale and zero point itself, so 5 and 6 do not bind what it feeds. A grid of 32 bits is
written in floats (``float_levels``): its Div is bound as a QuantizeLinear is, its Muls as DequantizeLinear are. Grids
that are narrower than the type that stores them stand behind a clip: of levels, or of the value before its
QuantizeLinear where ONNX Runtime has no Clip for the type.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph.float_levels import breaches_of_float_levels, is_float_levels
from qbench.graph.operators import int_attribute
from qbench.graph.query import constant_value, input_at, is_constant, node_key, only_consumer

QDQ_OPSET, QDQ_IR_VERSION = 21, 10
"""The operator set that everything is written at, and the IR version that came with it: the first whose QuantizeLinear
has 16-bit, 4-bit and blocked forms. Where it changes, so do the facts of operators (``graph.operators``)."""
_QUANTIZERS = frozenset({"QuantizeLinear", "DynamicQuantizeLinear"})
_DOMAINS = frozenset({"", "com.microsoft"})


def check_convention(model: ir.Model) -> tuple[str, ...]:
    """Every breach of the convention in the main graph of ``model``, as sentences in graph order; empty: it is kept."""
    return tuple(_breaches(model.graph))


def clip_of_levels(quantize: ir.Node) -> ir.Node | None:
    """The Clip with constant ends that alone reads the integers of ``quantize``, a Q of any make, if there is one."""
    if quantize.domain not in _DOMAINS or quantize.op_type not in _QUANTIZERS:
        return None
    reader = only_consumer(quantize.outputs[0])
    if reader is None or not _is(reader, {"Clip"}) or reader.inputs[0] is not quantize.outputs[0]:
        return None
    return reader if all(end is None or is_constant(end) for end in reader.inputs[1:]) else None


def _breaches(graph: ir.Graph) -> Iterator[str]:
    for value in (*graph.inputs, *graph.initializers.values(), *(v for node in graph for v in node.outputs)):
        quantizers = [node_key(use.node) for use in value.uses() if use.idx == 0 and _puts_on_a_grid(use.node)]
        if len(quantizers) > 1:
            yield f"'{value.name}' is quantized {len(quantizers)} times, by {_listed(quantizers)}; expected once."
    for node in graph:
        if _is(node, _QUANTIZERS):
            yield from _breaches_of_quantized(node)
        if _is(node, {"DequantizeLinear"}):
            yield from _breaches_of_dequantize(node)
        if _is(node, {"QuantizeLinear", "DequantizeLinear"}):
            yield from _breaches_of_parameters(node)
        yield from breaches_of_float_levels(node)


def _puts_on_a_grid(node: ir.Node) -> bool:
    return _is(node, _QUANTIZERS) or (_is(node, {"Div"}) and is_float_levels(node))


def _breaches_of_quantized(node: ir.Node) -> Iterator[str]:
    clip = clip_of_levels(node)
    quantized = node.outputs[0] if clip is None else clip.outputs[0]
    readers = [use.node for use in quantized.uses()]
    foreign = [node_key(reader) for reader in readers if not _is(reader, {"DequantizeLinear"})]
    if foreign:
        yield f"The integers of '{node_key(node)}' are read by {_listed(foreign)}; expected DequantizeLinear only."
    if quantized.is_graph_output():
        yield f"The integers of '{node_key(node)}' leave the graph; expected a DequantizeLinear behind them."
    elif not readers:
        yield f"Nothing reads what '{node_key(node)}' quantizes; expected a DequantizeLinear behind it."


def _breaches_of_dequantize(node: ir.Node) -> Iterator[str]:
    result = node.outputs[0]
    readers = len(result.uses()) + result.is_graph_output()
    if readers != 1:
        yield f"What '{node_key(node)}' gives has {readers} readers; expected one DequantizeLinear a reader."
    source = node.inputs[0]
    maker = None if source is None else source.producer()
    if maker is not None and _is(maker, {"Clip"}):
        before = maker.inputs[0].producer() if maker.inputs[0] is not None else None
        maker = before if before is not None and clip_of_levels(before) is maker else maker
    if maker is not None and _is(maker, _QUANTIZERS):
        if not _same_grid(maker, node):
            yield f"'{node_key(node)}' and '{node_key(maker)}' have different grids; expected one grid a value."
    elif not is_constant(source):
        yield f"'{node_key(node)}' reads '{source.name if source else ''}'; expected a constant or a quantized value."


def _same_grid(quantize: ir.Node, dequantize: ir.Node) -> bool:
    if quantize.op_type == "DynamicQuantizeLinear":
        return list(dequantize.inputs[1:3]) == list(quantize.outputs[1:3])
    if int_attribute(quantize, "axis", 1) != int_attribute(dequantize, "axis", 1):
        return False
    pairs = ((input_at(quantize, index), input_at(dequantize, index)) for index in (1, 2))
    return all(a is b or _equal(constant_value(a), constant_value(b)) for a, b in pairs)


def _breaches_of_parameters(node: ir.Node) -> Iterator[str]:
    if _is_dynamic(node):
        return
    name, scale, zero_point = node_key(node), constant_value(input_at(node, 1)), constant_value(input_at(node, 2))
    if scale is None or not np.all(np.isfinite(scale)) or not np.all(scale > 0):
        yield f"The scale of '{name}' is not constant, finite and positive throughout."
        return
    if zero_point is None:
        yield f"'{name}' has no constant zero point; expected one, which says the type of the grid."
        return
    if zero_point.shape != scale.shape:
        yield f"'{name}' has scales of shape {scale.shape} and zero points of shape {zero_point.shape}; expected one."
    grid = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
    tensor = input_at(node, 2)
    if grid is not None and tensor is not None and grid.dtype not in (None, tensor.dtype):
        yield f"'{name}' has integers of type {grid.dtype} and a zero point of type {tensor.dtype}; expected one type."
    yield from _breaches_of_axis(node, scale)


def _breaches_of_axis(node: ir.Node, scale: npt.NDArray[Any]) -> Iterator[str]:
    source = node.inputs[0]
    if scale.ndim != 1 or source is None or source.shape is None or int_attribute(node, "block_size", 0):
        return
    axis, shape = int_attribute(node, "axis", 1), source.shape
    if not -len(shape) <= axis < len(shape):
        yield f"'{node_key(node)}' has axis {axis} of a value with {len(shape)} dimensions."
    elif isinstance(size := shape[axis], int) and size != scale.size:
        yield f"'{node_key(node)}' has {scale.size} scales for {size} slices of axis {axis}; expected one a slice."


def _is_dynamic(node: ir.Node) -> bool:
    scale = input_at(node, 1)
    maker = None if scale is None else scale.producer()
    return maker is not None and maker.op_type == "DynamicQuantizeLinear"


def _is(node: ir.Node, op_types: frozenset[str] | set[str]) -> bool:
    return node.domain == "" and node.op_type in op_types


def _equal(a: npt.NDArray[Any] | None, b: npt.NDArray[Any] | None) -> bool:
    return a is not None and b is not None and a.dtype == b.dtype and np.array_equal(a, b)


def _listed(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
