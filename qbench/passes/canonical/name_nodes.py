"""Every node gets a unique name, because names are what profiles, plans and findings call nodes by.

A node without a name takes that of its first output; a name met twice keeps its first bearer, later ones get ``_1``,
``_2``, …; names that are there and unique stay.
"""

from dataclasses import dataclass

import onnx_ir as ir

from qbench.passes.naming import NameScope


@dataclass(frozen=True, slots=True)
class NameNodes:
    """Requires nothing. Ensures: every node has a name, unique in the whole model."""

    name: str = "name-nodes"

    def run(self, model: ir.Model) -> bool:
        """Name what has no name or shares it; True when any name changed."""
        scope = NameScope.of_nodes(())
        renamed = False
        unnamed = []
        for node in ir.traversal.RecursiveGraphIterator(model.graph):
            if not node.name or node.name in scope:
                unnamed.append(node)
            else:
                scope.fresh(node.name)
        for node in unnamed:
            first = next((value.name for value in node.outputs if value.name), None)
            node.name = scope.fresh(node.name or first or node.op_type)
            renamed = True
        return renamed
