"""What no output depends on goes: nodes, constants and imported operator sets."""

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass, RemoveUnusedOpsetsPass

from qbench.passes.effect import EXACT, Effect


@dataclass(frozen=True, slots=True)
class RemoveDead:
    """Requires nothing. Ensures: every node and initializer is needed by an output; inputs stay, used or not."""

    name: str = "remove-dead"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Remove them; True when there were any."""
        nodes = RemoveUnusedNodesPass()(model).modified
        opsets = RemoveUnusedOpsetsPass()(model).modified
        return nodes or opsets
