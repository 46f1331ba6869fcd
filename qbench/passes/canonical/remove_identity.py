"""Removing what computes nothing: Identity, and Dropout outside training.

The readers of y = Identity(x) read x. Where y is a graph output, x takes the name of y, unless the graph's interface
needs both names: then the node stays.
"""

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from qbench.graph import constant_value, input_at, is_pinned
from qbench.passes.effect import EXACT, Effect


@dataclass(frozen=True, slots=True)
class RemoveIdentity:
    """Requires nothing. Ensures: no Identity and no idle Dropout stays but where it parts two names or grids."""

    name: str = "remove-identity"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Remove them; True when there were any that could go."""
        nodes = list(ir.traversal.RecursiveGraphIterator(model.graph))
        return sum(_removed(node) for node in nodes if _idle(node)) > 0


def _idle(node: ir.Node) -> bool:
    if node.domain or node.op_type not in ("Identity", "Dropout") or node.inputs[0] is None:
        return False
    if node.op_type == "Identity":
        return True
    mask = node.outputs[1] if len(node.outputs) > 1 else None
    if mask is not None and (mask.uses() or mask.is_graph_output()):
        return False
    training = input_at(node, 2)
    flag = constant_value(training)
    return training is None or (flag is not None and not flag.any())


def _removed(node: ir.Node) -> bool:
    source, result, graph = node.inputs[0], node.outputs[0], node.graph
    if source is None or graph is None or is_pinned(source) or is_pinned(result):  # it keeps two grids apart
        return False
    if result.is_graph_output():
        maker = source.producer()
        if maker is None or maker.graph is not graph or source.is_graph_output():
            return False
        name = result.name
        result.replace_all_uses_with(source, replace_graph_outputs=True)
        result.name = None  # two values may not bear one name, not even for a moment
        source.name = name
    else:
        result.replace_all_uses_with(source)
    source.type = source.type or result.type
    source.shape = source.shape or result.shape
    graph.remove(node, safe=True)
    return True
