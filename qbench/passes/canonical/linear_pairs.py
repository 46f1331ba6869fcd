"""Pairs of linear operators between which a factor a channel can be moved, because all between them lets it through.

    B(f(A(x)))  =  B(S · f(S⁻¹ · A(x)))        where f(s·x) = s·f(x) for s > 0, channel by channel

Such are Relu, LeakyRelu, PRelu, Abs, poolings by mean or maximum, and Flatten, which makes columns of a channel.
A Clip is none of them: its upper end would move with the channel.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from qbench.graph import constant_value, input_at, int_attribute, is_constant, is_pinned, only_consumer
from qbench.passes.canonical.linear_blocks import LINEAR, blocks_of

_HOMOGENEOUS = frozenset(
    {"Abs", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LeakyRelu", "MaxPool", "PRelu", "Relu"}
)


@dataclass(frozen=True, slots=True, eq=False)
class LinearPair:
    """Two linear operators and what is between them; nothing else reads any value from one to the other.

    Args:
        first: makes the channels.
        second: sums over them.
        between: the nodes between, in order.
        columns: how many input channels of ``second`` one output channel of ``first`` becomes.
    """

    first: ir.Node
    second: ir.Node
    between: tuple[ir.Node, ...]
    columns: int


def linear_pairs(graph: ir.Graph, *, through: frozenset[str] = frozenset()) -> tuple[LinearPair, ...]:
    """The pairs of ``graph`` in its order; ``through`` names operators that may stand between as well."""
    return tuple(_pairs(graph, _HOMOGENEOUS | through))


def _pairs(graph: ir.Graph, passing: frozenset[str]) -> Iterator[LinearPair]:
    for first in graph:
        if not _is_scalable(first) or not _has_scalable_bias(first):
            continue
        between: list[ir.Node] = []
        value = first.outputs[0]
        while (node := _reader(value)) is not None and _passes(node, passing):
            between.append(node)
            value = node.outputs[0]
        if node is not None and _is_scalable(node) and not int_attribute(node, "transA", 0):
            columns = _columns(first, node, between)
            if columns is not None:
                yield LinearPair(first, node, tuple(between), columns)


def _reader(value: ir.Value) -> ir.Node | None:
    """The only reader of ``value``, where it reads it as data and the value has no grid of its own."""
    reader = None if is_pinned(value) else only_consumer(value)
    return reader if reader is not None and reader.inputs[0] is value and not reader.domain else None


def _passes(node: ir.Node, passing: frozenset[str]) -> bool:
    if any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
        return False  # the indices of a MaxPool
    return node.op_type in passing or (node.op_type == "Flatten" and int_attribute(node, "axis", 1) == 1)


def _is_scalable(node: ir.Node) -> bool:
    """Whether ``node`` is linear with a constant float32 weight that is free to change."""
    if node.domain or node.op_type not in LINEAR:
        return False
    weight = node.inputs[1]
    return weight is not None and is_constant(weight) and weight.dtype == ir.DataType.FLOAT and not is_pinned(weight)


def _has_scalable_bias(node: ir.Node) -> bool:
    bias = input_at(node, 2)
    return bias is None or (is_constant(bias) and not is_pinned(bias))


def _columns(first: ir.Node, second: ir.Node, between: list[ir.Node]) -> int | None:
    """Input channels of ``second`` for each output channel of ``first``; None where the two do not fit."""
    made, read = constant_value(first.inputs[1]), constant_value(second.inputs[1])
    assert made is not None
    assert read is not None
    if made.ndim < 2 or read.ndim < 2:
        return None
    groups, outputs = blocks_of(first, made).shape[:2]
    read_groups, _, inputs = blocks_of(second, read).shape[:3]
    columns, rest = divmod(read_groups * inputs, groups * outputs)
    flattened = any(node.op_type == "Flatten" for node in between)
    return columns if not rest and columns and (columns == 1 or flattened) else None
