"""Units: the operators of a graph as a quantizer sees them, an operator with the bias and the clip it carries.

    unit = head [→ Add of a constant, behind a MatMul] [→ Relu | Clip]

An integer machine computes such a chain in one accumulator, so no value inside it is ever on a grid of its own: inner
values are neither watched nor quantized.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from qbench.graph import constant_value, is_constant, node_key, only_consumer

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
        bias = _bias_behind(node)
        clip = _clip_behind(bias or node)
        unit = Unit(node, bias, clip)
        taken.update(unit.nodes)
        yield unit


def _bias_behind(node: ir.Node) -> ir.Node | None:
    """The Add of one constant a column behind a MatMul with constant weights, when nothing else reads the product."""
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
    if node.op_type not in _CARRIES_A_CLIP or node.domain:
        return None
    follower = only_consumer(node.outputs[0])
    if follower is None or follower.domain or follower.inputs[0] is not node.outputs[0]:
        return None
    if follower.op_type == "Relu":
        return follower
    constant_ends = all(value is None or is_constant(value) for value in follower.inputs[1:])
    return follower if follower.op_type == "Clip" and constant_ends else None
