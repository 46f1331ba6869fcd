"""Model-local functions become the nodes they stand for: what is profiled must lie in the graph."""

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from qbench.passes.effect import EXACT, Effect


@dataclass(frozen=True, slots=True)
class InlineFunctions:
    """Requires nothing. Ensures: the model has no functions."""

    name: str = "inline-functions"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Inline every call; True when there were functions."""
        if not model.functions:
            return False
        InlinePass()(model)
        model.functions.clear()
        return True
