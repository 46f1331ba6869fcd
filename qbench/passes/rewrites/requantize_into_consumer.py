"""An operator between grids reads levels of the grid they were on, not of one that they were brought to for it.

    levels(g₁) ─DQ₁─Q₂─[l₂,h₂]─DQ₂─ f ─Q_y─   →   levels(g₁) ─DQ₁─ f ─Q_y─

It is done where every level means one real on both grids, whatever f makes of it, and nowhere else: a requantize that
saturates holds back what f would see, and roundings that are dropped on several ways to one f add up. The bias of a
product is written in steps of s₁·s_w, so that it goes past none but a requantize of the very same scale; what counts
integers of one width or one type alone goes past none that changes it.
"""

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from qbench.passes.effect import EXACT, Effect
from qbench.passes.levels.readers import Reads
from qbench.passes.levels.same_reals import GoingPast


@dataclass(frozen=True, slots=True)
class RequantizeIntoConsumer:
    """Requires: QDQ. Ensures: nothing is requantized for operators between grids alone that count the same without.

    Args:
        name: of the pass.
    """

    name: str = "requantize-into-consumer"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Go past in graph order; True when there was a requantize to go past."""
        return GoingPast(_wanted, self.effect.machines, self.name).sweep(model)


def _wanted(reads: set[Reads]) -> bool:
    return Reads.BETWEEN_GRIDS in reads and Reads.REAL not in reads
