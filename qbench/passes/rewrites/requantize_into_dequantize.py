"""Levels that are requantized only to be read as reals are read as what they were.

    levels(g₁) ─DQ₁─Q₂─[l₂,h₂]─DQ₂─ reals   →   levels(g₁) ─DQ₁─ reals

It is done where every level means one real before and behind, as float32 and exactly, and nowhere else: a requantize
that holds a level back keeps reals in its range, and one that rounds is what the graph says. The readers are operators
that stay in floats, and outputs of the graph; a product that reads levels counts in steps of their scale, its bias
too, and goes past none but one of the same scale. Whoever else reads the same levels goes past with them.
"""

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from qbench.passes.effect import EXACT, Effect
from qbench.passes.levels.readers import Reads
from qbench.passes.levels.same_reals import GoingPast


@dataclass(frozen=True, slots=True)
class RequantizeIntoDequantize:
    """Requires: QDQ. Ensures: nothing is requantized for readers of reals to whom every level means what it meant.

    Args:
        name: of the pass.
    """

    name: str = "requantize-into-dequantize"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Go past in graph order; True when there was a requantize to go past."""
        return GoingPast(_wanted, self.effect.machines, self.name).sweep(model)


def _wanted(reads: set[Reads]) -> bool:
    return Reads.REAL in reads
