"""Levels that are requantized only to be read as reals are read as what they were.

    levels(g₁) ─DQ₁─Q₂─[l₂,h₂]─DQ₂─ reals   →   levels(g₁) ─DQ₁─ reals

    r₁ = s₁·(q − z₁)       r₂ = s₂·(T(q) − z₂)       |r₂ − r₁| ≤ ½·s₂      unless the requantize saturates

It is exact where every level means one real before and behind, as float32 and exactly; else a rounding is dropped,
half a step of g₂. A requantize that holds any level of the source back stays: without it reals would leave the range
that they were held in. The readers are operators that stay in floats, and outputs of the graph; a product that reads
levels counts in steps of their scale, its bias too, and goes past none but one of the same scale. Where other
operators stand between grids and read the same levels, only what is exact is done.
"""

from dataclasses import dataclass

import onnx_ir as ir

from qbench.passes.declining import decline
from qbench.passes.effect import Effect, within
from qbench.passes.levels.readers import Reads
from qbench.passes.levels.requantize import Requantize, go_past, requantize_of
from qbench.passes.levels.spread import spread


@dataclass(frozen=True, slots=True)
class RequantizeIntoDequantize:
    """Requires: QDQ. Ensures: nothing is requantized for readers of reals alone, where their reals stay near enough.

    Args:
        steps: of the requantize's grid, that a real may move by; 0: not one may move; 1: by half a step.
        name: of the pass.
    """

    steps: int = 0
    name: str = "requantize-into-dequantize"

    @property
    def effect(self) -> Effect:
        """Exact, or rounding by ``steps``."""
        return within(self.steps)

    def run(self, model: ir.Model) -> bool:
        """Go past in graph order; True when there was a requantize to go past."""
        return sum(self._past(node) for node in list(model.graph) if node.graph is not None) > 0

    def _past(self, node: ir.Node) -> bool:
        site = requantize_of(node)
        if site is None:
            return False
        if isinstance(site, str):
            return decline(node, site, self.name) and False
        readers = site.readers
        reads = {reader.reads for reader in readers}
        if Reads.REAL not in reads:
            return False
        reason = site.refusal(readers) or self._problem(site, alone=len(reads) == 1)
        if reason is not None:
            return decline(node, reason, self.name) and False
        go_past(site)
        return True

    def _problem(self, site: Requantize, *, alone: bool) -> str | None:
        found = spread(site.start, site.stop, self.effect.machines)
        if found.is_same or (alone and self.steps and not found.saturated):
            return None
        return str(found) if alone else f"not all that read its levels read reals, and {found}"
