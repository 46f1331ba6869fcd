"""Every value carries the shape and dtype that can be inferred, for planners and people to read."""

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from qbench.graph import infer_shapes
from qbench.passes.effect import EXACT, Effect


@dataclass(frozen=True, slots=True)
class InferShapes:
    """Requires nothing. Ensures: known shapes and dtypes are written; the numbers stay."""

    name: str = "infer-shapes"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Write them; True when any was new."""
        return infer_shapes(model)
