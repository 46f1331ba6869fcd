"""Model-local functions become the nodes they stand for: what is profiled must lie in the graph."""

from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass


@dataclass(frozen=True, slots=True)
class InlineFunctions:
    """Requires nothing. Ensures: the model has no functions."""

    name: str = "inline-functions"

    def run(self, model: ir.Model) -> bool:
        """Inline every call; True when there were functions."""
        if not model.functions:
            return False
        InlinePass()(model)
        model.functions.clear()
        return True
