"""Questions about a float operator between grids, and new constants in front of it: what edits of a graph need.

levels ─DequantizeLinear─ operator ─(Relu | Clip)─ QuantizeLinear─(Clip)─ levels
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import PRODUCTS, constant_value, grid_of, input_at, int_attribute, ints_attribute, only_consumer
from qbench.numerics import QParams

Array = npt.NDArray[Any]
Fits = Callable[[ir.Node], bool]

_PAIRS = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
_LIMITS = frozenset({"Relu", "Clip"})

MOVERS = frozenset({"Flatten", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Identity"})
"""Operators that compute nothing."""


def float_operators(model: ir.Model) -> Iterator[ir.Node]:
    """The operators of a QDQ graph that read a dequantized value, in its order."""
    for node in model.graph:
        if node.domain == "" and node.op_type not in _PAIRS and pair_in_front(node, 0) is not None:
            yield node


def of_type(*op_types: str, also: Fits | None = None) -> Fits:
    """Whether a node is one of these operators, and ``also`` holds."""
    return lambda node: node.op_type in op_types and (also is None or also(node))


def pair_in_front(node: ir.Node, index: int) -> ir.Node | None:
    """The DequantizeLinear that makes input ``index``, if one does."""
    value = input_at(node, index)
    maker = None if value is None else value.producer()
    return maker if maker is not None and maker.op_type == "DequantizeLinear" else None


def grid_in_front(node: ir.Node, index: int) -> QParams | None:
    """The static grid of input ``index``."""
    pair = pair_in_front(node, index)
    return None if pair is None else grid_of(pair)


def stored(node: ir.Node, index: int) -> Array | None:
    """The constant levels behind the pair at input ``index``."""
    pair = pair_in_front(node, index)
    return None if pair is None else constant_value(pair.inputs[0])


def quantizer_behind(node: ir.Node) -> ir.Node | None:
    """The QuantizeLinear that alone reads the result, or that of a Relu or Clip behind."""
    reader = only_consumer(node.outputs[0])
    if reader is not None and reader.op_type in _LIMITS and reader.inputs[0] is node.outputs[0]:
        reader = only_consumer(reader.outputs[0])
    return reader if reader is not None and reader.op_type == "QuantizeLinear" else None


def grid_behind(node: ir.Node) -> QParams | None:
    """The grid of the result."""
    quantizer = quantizer_behind(node)
    return None if quantizer is None else grid_of(quantizer)


def is_requantized(node: ir.Node) -> bool:
    """Whether the result goes to one static grid of 8 bits."""
    grid = grid_behind(node)
    return grid is not None and grid.axis is None and grid.qtype.bits == 8


def has_weight(node: ir.Node) -> bool:
    """Whether it sums products with constant levels of 8 bits or fewer."""
    levels = stored(node, 1) if node.op_type in PRODUCTS else None
    return levels is not None and levels.dtype.itemsize == 1


def has_bias(node: ir.Node) -> bool:
    """Whether it has a bias of int32 that is not zero throughout."""
    levels = stored(node, 2) if has_weight(node) else None
    return levels is not None and levels.dtype == np.int32 and bool(np.any(levels))


def reads_levels(node: ir.Node, index: int) -> bool:
    """Whether input ``index`` is computed and comes from one grid of 8 bits."""
    grid = grid_in_front(node, index)
    return stored(node, index) is None and grid is not None and grid.axis is None and grid.qtype.bits == 8


def shape_of(value: ir.Value | None) -> tuple[int | None, ...]:
    """The sizes, None where one is free; empty where nothing is known."""
    if value is None or value.shape is None:
        return ()
    return tuple(size if isinstance(size, int) else None for size in value.shape)


def window_of(node: ir.Node) -> tuple[int, ...]:
    """The kernel's height and width, as its attribute or its weight says."""
    given = ints_attribute(node, "kernel_shape")
    levels = None if given else stored(node, 1)
    return given if levels is None else tuple(levels.shape[2:])


def pads_of(node: ir.Node) -> tuple[int, ...]:
    """Rows and columns beyond each edge: those before, then those behind."""
    return ints_attribute(node, "pads", (0,) * (2 * len(window_of(node))))


def group_of(node: ir.Node) -> int:
    """Into how many groups a convolution splits its channels."""
    return int_attribute(node, "group", 1)


def put_constant(node: ir.Node, index: int, array: Array) -> None:
    """Give ``node`` a constant of its own as input ``index``; the one that stood there stays for its other readers."""
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    old = node.inputs[index]
    name = f"{'' if old is None else old.name}_of_{node.name or node.outputs[0].name}_{index}"
    while name in graph.initializers:
        name += "_"
    tensor = ir.Tensor(np.asarray(array, order="C"), name=name)
    value = ir.val(name, tensor.dtype, tensor.shape, const_value=tensor)
    graph.register_initializer(value)
    node.replace_input_with(index, value)


def put_levels(node: ir.Node, index: int, levels: Array) -> None:
    """Other constant levels behind the pair at input ``index``."""
    pair = pair_in_front(node, index)
    assert pair is not None
    put_constant(pair, 0, levels)


def put_scales(pair: ir.Node, scales: Array) -> None:
    """Other scales of a Q or DQ, of as many slices as before."""
    put_constant(pair, 1, np.asarray(scales, np.float32))


def put_point(pair: ir.Node, point: int) -> None:
    """Another zero point of a Q or DQ, the same for all slices."""
    old = constant_value(pair.inputs[2])
    assert old is not None
    put_constant(pair, 2, np.full(old.shape, point, old.dtype))


def put_ints(node: ir.Node, name: str, values: Sequence[int]) -> None:
    """The attribute ``name`` of several integers."""
    node.attributes[name] = ir.AttrInt64s(name, [int(value) for value in values])
