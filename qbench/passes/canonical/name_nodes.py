"""Every node gets a unique name, because names are what profiles, plans and findings call nodes by.

A node without a name takes that of its first output; a name met twice stays with its first bearer, later ones get
``_1``, ``_2``, …; names that are there and unique stay. Value names are unique in valid ONNX; missing ones are filled.
"""

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from qbench.passes.effect import EXACT, Effect
from qbench.passes.naming import NameScope


@dataclass(frozen=True, slots=True)
class NameNodes:
    """Requires nothing. Ensures: every node has a name, unique in the whole model, and every result one too."""

    name: str = "name-nodes"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Name what has no name or shares it; True when any name changed."""
        nodes = list(ir.traversal.RecursiveGraphIterator(model.graph))
        taken = NameScope(())
        nameless = [node for node in nodes if not node.name or not taken.take(node.name)]
        values = NameScope.of_values(model)
        renamed = bool(nameless)
        for node in nameless:
            first = next((value.name for value in node.outputs if value.name), None)
            node.name = taken.fresh(node.name or first or node.op_type)
        for node in nodes:
            for index, value in enumerate(node.outputs):
                if not value.name and value.uses():
                    value.name = values.fresh(f"{node.name}.{index}")
                    renamed = True
        return renamed
