"""An operator between grids reads levels of the grid they were on, not of one that they were brought to for it.

    levels(g₁) ─DQ₁─Q₂─[l₂,h₂]─DQ₂─ f ─Q_y─   →   levels(g₁) ─DQ₁─ f ─Q_y─

It is exact where every level means one real on both grids. Else the operand moves by δ ≤ ½·s₂, what f gives by L·δ,
and its levels by no more than ⌊L·δ/s_y⌋ + 1 steps, where f is one of those of which L is known:

    |f(a) − f(b)| ≤ L·|a − b|     1: Add Sub Max Min Concat Relu Clip Neg Abs Tanh, means, movers      ¼: Sigmoid

and twice that of an Add that reads one requantize on both sides. A requantize that saturates stays: f would see what
was held back. Of Conv and Gemm no small L is known, and their bias is written in steps of s₁·s_w: they go past none but
a requantize of the very same scale, which changes nothing that they count.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import onnx_ir as ir

from qbench.graph import only_consumer
from qbench.passes.declining import decline
from qbench.passes.effect import Effect, within
from qbench.passes.levels.border import border_of
from qbench.passes.levels.readers import Reader, Reads, results_of
from qbench.passes.levels.requantize import Requantize, go_past, requantize_of
from qbench.passes.levels.spread import Spread, spread
from qbench.passes.lowering.movers import is_mover

GAINS: Mapping[str, float] = MappingProxyType(
    {
        **dict.fromkeys(("Add", "Sub", "Max", "Min", "Concat", "Relu", "Clip", "Neg", "Abs", "Tanh"), 1.0),
        **dict.fromkeys(("AveragePool", "GlobalAveragePool", "ReduceMean"), 1.0),
        "Sigmoid": 0.25,
    }
)
"""Operator → by how much more than an operand what it gives can move."""
_SLACK = 2.0**-6
"""Of a step: float32 sums on grids of up to 16 bits."""


@dataclass(frozen=True, slots=True)
class RequantizeIntoConsumer:
    """Requires: QDQ. Ensures: nothing is requantized for operators between grids alone, where they give near enough.

    Args:
        steps: of what an operator gives, that a level may move by; 0: not one may move.
        name: of the pass.
    """

    steps: int = 0
    name: str = "requantize-into-consumer"

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
        if Reads.BETWEEN_GRIDS not in reads or Reads.REAL in reads:
            return False
        reason = site.refusal(readers) or self._problem(site, readers)
        if reason is not None:
            return decline(node, reason, self.name) and False
        go_past(site)
        return True

    def _problem(self, site: Requantize, readers: tuple[Reader, ...]) -> str | None:
        found = spread(site.start, site.stop, self.effect.machines)
        if found.is_same:
            return None
        return self._too_far(site, readers, found) if self.steps and not found.saturated else str(found)

    def _too_far(self, site: Requantize, readers: tuple[Reader, ...], found: Spread) -> str | None:
        """Why a level of what the readers give might move further than it may."""
        step = float(site.border.grid.scale)
        for reader, operands in Counter(readers).items():
            gain = _gain(reader)
            if gain is None or reader.node is None or reader.reads is not Reads.BETWEEN_GRIDS:
                return "how far one of its readers carries a rounding is not known"
            moved = min(_steps(result) for result in results_of(reader.node))
            steps = math.floor(operands * gain * found.farthest * step / moved + _SLACK) + 1
            if steps > self.steps:
                return f"a level that '{reader.node.name}' gives might move by up to {steps} steps"
        return None


def _gain(reader: Reader) -> float | None:
    node = reader.node
    if node is None or node.domain:
        return None
    return 1.0 if is_mover(node) else GAINS.get(node.op_type)


def _steps(result: ir.Value) -> float:
    """The scale of the grid that ``result`` is put on at once."""
    reader = only_consumer(result)
    border = None if reader is None else border_of(reader)
    assert border is not None
    return float(border.grid.scale)
