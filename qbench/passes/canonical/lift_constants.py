"""One spelling for constants: initializers that cannot be fed.

Constant nodes become initializers, and initializers that old exporters list among the graph inputs leave them: a
profile and a quantized weight mean nothing if a caller may feed another weight.
"""

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass, RemoveInitializersFromInputsPass

from qbench.passes.effect import EXACT, Effect


@dataclass(frozen=True, slots=True)
class LiftConstants:
    """Requires nothing. Ensures: no Constant node, and no initializer is a graph input."""

    name: str = "lift-constants"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Lift and detach them; True when there were any."""
        lifted = LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model).modified
        detached = RemoveInitializersFromInputsPass()(model).modified
        return lifted or detached
