"""Units: the operators of a graph as a quantizer sees them, an operator with the bias and the clip it carries.

    unit = head ──correlation── [Add of a constant] ──sum── [Relu | Clip] ──output──

The Add stands behind a MatMul, and behind other operators where the bias was split off. An integer machine computes
such a chain in one accumulator, so no value inside it is on a grid of its own: inner values are neither watched nor
quantized, unless the graph's canonical passes split biases off for the very purpose.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from qbench.graph import constant_value, is_constant, is_pinned, node_key, only_consumer, operator_facts
from qbench.passes import bias_split_from, is_product

_CARRIES_A_CLIP = frozenset({"Add", "Conv", "ConvTranspose", "Gemm", "MatMul", "Mul", "Sub"})


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """One operator with what follows it at no further rounding."""

    head: ir.Node
    bias: ir.Node | None = None
    clip: ir.Node | None = None

    @property
    def name(self) -> str:
        """The name of its head, which stands for the unit in plans and counts."""
        return node_key(self.head)

    @property
    def last(self) -> ir.Node:
        """The node that makes the unit's result."""
        return self.clip or self.bias or self.head

    @property
    def output(self) -> ir.Value:
        """The (first) result."""
        return self.last.outputs[0]

    @property
    def bias_operand(self) -> tuple[ir.Node, int, ir.Value] | None:
        """Where its bias stands, constant or not: the node, the index of the operand, and the value."""
        node, index = self.bias or self.head, operator_facts(self.head).bias
        if self.bias is not None:
            index = 1 if self.bias.inputs[0] is self.head.outputs[0] else 0
        value = None if index is None or index >= len(node.inputs) else node.inputs[index]
        return None if index is None or value is None else (node, index, value)

    @property
    def correlation(self) -> ir.Value | None:
        """The product before its bias or clip, where that is a value to be watched; never the result itself."""
        return self._inner(self.head)

    @property
    def sum(self) -> ir.Value | None:
        """The product and its bias before the clip, where that is a value to be watched; never the result itself."""
        return self._inner(self.bias or self.head)

    @property
    def values(self) -> tuple[ir.Value, ...]:
        """What it makes that a schema can put on a grid, each once, in order."""
        inner = dict.fromkeys(value for value in (self.correlation, self.sum) if value is not None)
        return (*inner, *self.last.outputs[:1])

    def _inner(self, node: ir.Node) -> ir.Value | None:
        return node.outputs[0] if is_product(self.head) and node is not self.last else None

    @property
    def nodes(self) -> tuple[ir.Node, ...]:
        """Its nodes in order."""
        return tuple(node for node in (self.head, self.bias, self.clip) if node is not None)


def units_of(graph: ir.Graph) -> tuple[Unit, ...]:
    """Every node of the main graph in exactly one unit, in the order of the heads."""
    return tuple(_units(graph))


def _units(graph: ir.Graph) -> Iterator[Unit]:
    taken: set[ir.Node] = set()
    for node in graph:
        if node in taken:
            continue
        bias = bias_split_from(node) or _bias_behind(node)
        clip = _clip_behind(bias or node)
        unit = Unit(node, bias, clip)
        taken.update(unit.nodes)
        yield unit


def _bias_behind(node: ir.Node) -> ir.Node | None:
    """The Add of one constant a column behind a MatMul with constant weights, when nothing else reads the product."""
    if is_pinned(node.outputs[0]):
        return None  # it has a grid of its own: it is no inner value
    if node.op_type != "MatMul" or node.domain or not is_constant(node.inputs[1]):
        return None
    follower = only_consumer(node.outputs[0])
    if follower is None or follower.op_type != "Add" or follower.domain:
        return None
    other = follower.inputs[1] if follower.inputs[0] is node.outputs[0] else follower.inputs[0]
    bias, weight = constant_value(other), constant_value(node.inputs[1])
    if bias is None or weight is None or weight.ndim != 2 or bias.ndim == 0:
        return None
    columns = weight.shape[1]
    return follower if bias.size == columns and bias.shape[-1] == columns else None


def _clip_behind(node: ir.Node) -> ir.Node | None:
    """The Relu, or Clip with constant ends, that alone reads the result of ``node``."""
    if node.op_type not in _CARRIES_A_CLIP or node.domain or is_pinned(node.outputs[0]):
        return None
    follower = only_consumer(node.outputs[0])
    if follower is None or follower.domain or follower.inputs[0] is not node.outputs[0]:
        return None
    if follower.op_type == "Relu":
        return follower
    constant_ends = all(value is None or is_constant(value) for value in follower.inputs[1:])
    return follower if follower.op_type == "Clip" and constant_ends else None
