"""What two results differ, and whether an effect admits it: bits, steps of the output's grid, and its ends.

exact      every bit; one NaN is as good as another
rounding   |after − before| ≤ n steps, and nothing leaves the ends that everything lay within
"""

from dataclasses import dataclass

import numpy as np

from qbench.passes.effect import Effect, EffectKind
from qbench.passes.effect_check.reach import Reach
from qbench.passes.effect_check.verdicts import Array


@dataclass(frozen=True, slots=True)
class Yardstick:
    """By what results are measured.

    Args:
        effect: what is declared. reach: the ends of the output before.
        step: one step of its grid, as ``step_of`` has it; None: it has no grid.
    """

    effect: Effect
    reach: Reach
    step: float | None

    def steps(self, before: Array, after: Array) -> Array:
        """Whole steps between results of one shape; infinite where they differ and there is no grid."""
        differ = different(before, after)
        with np.errstate(invalid="ignore"):
            apart = np.abs(after.astype(np.float64) - before.astype(np.float64)) / (self.step or 1.0)
        counted = np.rint(np.where(np.isnan(apart), np.inf, apart))
        return np.where(differ, counted if self.step else np.inf, 0.0)

    def wrong(self, before: Array, after: Array) -> Array:
        """Where the effect does not admit what became of ``before``."""
        if self.effect.kind is EffectKind.EXACT:
            return different(before, after)
        if self.effect.kind is EffectKind.LOSSY:
            return np.zeros(before.shape, bool)
        outside = (after < self.reach.low) | (after > self.reach.high)
        return (self.steps(before, after) > self.effect.steps) | outside


def different(before: Array, after: Array) -> Array:
    """Where results of one shape are not the same bit for bit."""
    if before.dtype.kind != "f":
        return np.asarray(before != after)
    bits = np.dtype(f"u{before.dtype.itemsize}")
    same = (before.view(bits) == after.view(bits)) | (np.isnan(before) & np.isnan(after))
    return np.asarray(~same)
