"""What one way to make levels differs from another: how many move, how far, and where both saturate."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from qbench.passes.effect import QDQ, Effect
from qbench.passes.levels.tables import Array, Stop, all_levels, brought, brought_reals
from qbench.passes.levels.thresholds import critical_reals, exact_levels, exact_reals

_KEPT = 4096
"""Differences remembered: every round of a pipeline asks for those again that were too large in the last."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Of two functions with levels of one grid.

    Args:
        steps: the farthest that any level moves. moved, of: how many do, of how many inputs looked at.
        machine: under which the farthest was seen.
    """

    steps: int
    moved: int
    of: int
    machine: str

    def __str__(self) -> str:
        steps = "1 step" if self.steps == 1 else f"{self.steps} steps"
        return f"{self.moved} of {self.of} inputs would move, by up to {steps} ({self.machine})"


@lru_cache(maxsize=_KEPT)
def chain_against(
    start: Stop | None, before: tuple[Stop, ...], after: tuple[Stop, ...], machines: tuple[str, ...]
) -> Difference:
    """What bringing everything over the stops ``before`` and over the stops ``after`` differ.

    Args:
        start: the grid and limits of the levels that come; None: reals come, quantized on the first stop of either.
        before, after: stops, the last of both on one grid.
        machines: under which both are tried; the worst is given.

    Raises:
        InputError: an unknown machine, or a ratio of scales that it cannot hold.
    """
    found = [_difference(start, before, after, machine) for machine in machines]
    return max(found, key=lambda one: (one.steps, one.moved))


def admits(effect: Effect, difference: Difference) -> bool:
    """Whether an author who declared ``effect`` said the truth about a site with this ``difference``."""
    return difference.steps <= effect.steps


def merged_limits(start: Stop | None, stops: tuple[Stop, ...], machine: str) -> tuple[int, int]:
    """Where everything saturates that was brought over ``stops``: the intersection of all limits, on the last grid.

    A chain is monotone, so that its ends are where the ends of what comes are brought.
    """
    if start is None:
        ends = np.array([stops[0].low, stops[0].high], np.int64)
        low, high = brought(ends, stops[0].grid, stops[1:], machine)
    else:
        low, high = brought(np.array([start.low, start.high], np.int64), start.grid, stops, machine)
    return int(low), int(high)


def _difference(start: Stop | None, before: tuple[Stop, ...], after: tuple[Stop, ...], machine: str) -> Difference:
    if start is None:
        (one, other), of = _of_reals(before, after, machine)
    else:
        inputs = all_levels(start)
        of = len(inputs)
        one, other = (brought(inputs, start.grid, stops, machine) for stops in (before, after))
    apart = np.abs(one - other)
    return Difference(int(apart.max(initial=0)), int((apart > 0).sum()), of, machine)


def _of_reals(before: tuple[Stop, ...], after: tuple[Stop, ...], machine: str) -> tuple[tuple[Array, Array], int]:
    """What becomes of reals by either way, and of how many: of float32, and where a machine has them of exact ones."""
    grids = (before[0].grid, after[0].grid)
    floats = np.unique(np.concatenate([critical_reals(grid) for grid in grids]))
    one, other = (brought_reals(floats, stops[0], stops[1:], machine) for stops in (before, after))
    if machine == QDQ:
        return (one, other), len(floats)
    exact = exact_reals(*grids)
    found = [_of_exact(exact, stops, machine) for stops in (before, after)]
    return (np.concatenate([one, found[0]]), np.concatenate([other, found[1]])), len(floats) + len(exact)


def _of_exact(reals: Array, stops: tuple[Stop, ...], machine: str) -> Array:
    first = stops[0]
    levels = np.clip(exact_levels(reals, first.grid), first.low, first.high)
    return brought(levels, first.grid, stops[1:], machine)
