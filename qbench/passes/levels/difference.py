"""What one way to make levels differs from another: how many move, how far, and where both saturate."""

from dataclasses import dataclass

import numpy as np

from qbench.passes.effect import Effect
from qbench.passes.levels.tables import Array, Stop, all_levels, brought, brought_reals
from qbench.passes.levels.thresholds import critical_reals


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
        inputs = np.unique(np.concatenate([critical_reals(before[0].grid), critical_reals(after[0].grid)]))
        one, other = (_of_reals(inputs, stops, machine) for stops in (before, after))
    else:
        inputs = all_levels(start)
        one, other = (brought(inputs, start.grid, stops, machine) for stops in (before, after))
    apart = np.abs(one - other)
    return Difference(int(apart.max(initial=0)), int((apart > 0).sum()), len(inputs), machine)


def _of_reals(reals: Array, stops: tuple[Stop, ...], machine: str) -> Array:
    return brought_reals(reals, stops[0], stops[1:], machine)
