"""How far the reals of a requantize lie from those of the levels that it read: r₂ = s₂(T(q) − z₂) from r₁ = s₁(q − z₁).

A requantize that only rounds moves a real by half a step of its grid at most; whatever moves further has saturated.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from qbench.numerics import dequantize
from qbench.passes.effect import QDQ
from qbench.passes.levels.tables import Array, Stop, all_levels, brought

_SLACK = 2.0**-6
"""Of a step: what float32 adds to the half of rounding, on grids of up to 16 bits (65,535 steps · 2 · 2⁻²⁴)."""
_KEPT = 4096
"""Spreads remembered: every round of a pipeline asks for those again that were too wide in the last."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Of all levels under all machines.

    Args:
        farthest: in steps of the requantize's grid, that a real lies from where it was.
        moved, of: how many levels mean another real, of how many.
        saturated: whether any was held back by the limits.
        shifts: whether the ratio of the scales is a power of two, so that products of either count alike.
    """

    farthest: float
    moved: int
    of: int
    saturated: bool
    shifts: bool

    @property
    def is_same(self) -> bool:
        """Whether every level means the same real behind the requantize as before, whatever is made of it."""
        return not self.moved and self.shifts

    def __str__(self) -> str:
        if self.saturated:
            return f"it saturates: {self.moved} of {self.of} levels mean another real behind it"
        return f"{self.moved} of {self.of} levels mean another real, by up to {self.farthest:.3g} steps"


@lru_cache(maxsize=_KEPT)
def spread(start: Stop, stop: Stop, machines: tuple[str, ...]) -> Spread:
    """What bringing the levels of ``start`` to ``stop`` does to the reals that they mean.

    Raises:
        InputError: an unknown machine, or a ratio of scales that it cannot hold.
    """
    levels = all_levels(start)
    step, before = np.float64(stop.grid.scale), _exact(levels, start)
    moved, apart = np.zeros(len(levels), bool), np.zeros(len(levels))
    for machine in machines:
        there = brought(levels, start.grid, (stop,), machine)
        moved |= _float32(levels, start) != _float32(there, stop)
        exact = np.abs(before - _exact(there, stop))
        moved |= exact > 0
        apart = np.maximum(apart, exact / step - (_SLACK if machine == QDQ else 0.0))
    ratio, _ = np.frexp(np.float64(start.grid.scale) / step)
    farthest = float(np.max(apart, initial=0.0))
    return Spread(farthest, int(moved.sum()), len(levels), farthest > 0.5, bool(ratio == 0.5))


def _exact(levels: Array, stop: Stop) -> Array:
    """Float64, no bit lost: 24 of the scale, 17 of the levels."""
    return np.asarray(np.float64(stop.grid.scale) * (levels - int(stop.grid.zero_point)))


def _float32(levels: Array, stop: Stop) -> Array:
    return dequantize(levels.astype(stop.grid.qtype.storage_dtype), stop.grid)
