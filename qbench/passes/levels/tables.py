"""A function of quantized values as a table, the thresholds of a quantizer, and what two tables differ in."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.numerics import Arithmetic, QParams, dequantize, get_arithmetic, quantize, rescaler
from qbench.passes.effect import QDQ, Effect

# A function of levels as the table of all its values: what a chain of requantizations does, machine by machine.
#
# A grid of 8 bits has 256 levels, one of 16 has 65,536: whatever is done to each of them by itself is known whole, so
# that two ways of doing it are compared by looking, not by reasoning about scales.

Array = npt.NDArray[Any]
_KEPT = 256
"""Tables remembered: a chain asks for each once a machine, and again for its limits."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A grid that levels are brought to, and the limits there."""

    grid: QParams
    low: int
    high: int


def all_levels(stop: Stop) -> Array:
    """(high − low + 1,) int64: every level between the limits."""
    return np.arange(stop.low, stop.high + 1, dtype=np.int64)


def brought(levels: Array, start: QParams, stops: tuple[Stop, ...], machine: str) -> Array:
    """``levels`` of the grid ``start`` after every stop, int64, as ``machine`` brings them there.

    Raises:
        InputError: an unknown machine, or a ratio of scales that it cannot hold.
    """
    grid = start
    for stop in stops:
        there = _table(grid, stop.grid, machine)[levels - grid.qtype.qmin]
        levels, grid = np.clip(there, stop.low, stop.high), stop.grid
    return levels


def brought_reals(reals: Array, first: Stop, stops: tuple[Stop, ...], machine: str) -> Array:
    """Float32 ``reals`` quantized on ``first``, then as ``brought``."""
    levels = np.clip(quantize(reals, first.grid).astype(np.int64), first.low, first.high)
    return brought(levels, first.grid, stops, machine)


@lru_cache(maxsize=_KEPT)
def _table(start: QParams, grid: QParams, machine: str) -> Array:
    """What becomes of every level of ``start`` on ``grid``, int64, read-only."""
    stored = np.arange(start.qtype.qmin, start.qtype.qmax + 1).astype(start.qtype.storage_dtype)
    if machine == QDQ:
        there = quantize(dequantize(stored, start), grid)
    else:
        there = rescaler(start, grid, _requantizing(machine))(stored)
    table = there.astype(np.int64)
    table.setflags(write=False)
    return np.asarray(table)


@lru_cache(maxsize=16)
def _requantizing(machine: str) -> Arithmetic:
    return get_arithmetic(machine).at("Requantize", "")


# Where a quantizer changes its mind: the float32 numbers on both sides of every step of q = clamp(round(x / s) + z).
#
# Two monotone functions of a real that agree at both sides of every step of either agree everywhere: between two steps
# both are constant. So a few hundred numbers prove what holds for all of float32.
#
# A machine that counts exactly has other reals than float32: sums of products that it never rounds. There the steps lie
# at s · (k + ½ − z) itself, which float64 holds for any grid of 16 bits, and one number between two steps is enough.

_STEPS = 8
"""Floats looked at on each side of a step: division and product are right to half a unit in the last place."""


def critical_reals(grid: QParams) -> Array:
    """Float32, ascending: −∞, the last float below and the first above every step of ``grid``, +∞.

    Raises:
        ValueError: a grid per channel.
    """
    if grid.axis is not None:
        raise ValueError("steps are those of a grid per tensor")
    below = np.arange(grid.qmin, grid.qmax, dtype=np.int64)  # the level under each step
    near = np.sort(_neighbours(_middles(grid).astype(np.float32)), axis=1)
    above = quantize(near, grid).astype(np.int64) > below[:, None]
    first = above.argmax(axis=1)
    if not (above.any(axis=1) & (first > 0)).all():
        raise ArithmeticError("a step of a grid lies further from its middle than rounding explains")
    rows = np.arange(len(below))
    found = np.concatenate([near[rows, first - 1], near[rows, first], np.array([-np.inf, np.inf], np.float32)])
    return np.asarray(np.unique(found))


def exact_reals(*grids: QParams) -> Array:
    """Float64, ascending: −∞, every step of the ``grids``, per tensor, and one number between any two, +∞."""
    steps = np.unique(np.concatenate([_middles(grid) for grid in grids]))
    return np.asarray(np.sort(np.concatenate([[-np.inf], steps, (steps[:-1] + steps[1:]) / 2, [np.inf]])))


def exact_levels(reals: Array, grid: QParams) -> Array:
    """Float64 ``reals`` on ``grid``, int64, rounded once: what a machine gives that counts exactly."""
    levels = np.rint(reals / np.float64(grid.scale)) + int(grid.zero_point)
    return np.asarray(np.clip(levels, grid.qmin, grid.qmax), np.int64)


def _middles(grid: QParams) -> Array:
    """Float64: where the steps of ``grid`` would be if nothing rounded."""
    below = np.arange(grid.qmin, grid.qmax, dtype=np.int64)  # the level under each step
    return np.asarray((below - int(grid.zero_point) + 0.5) * np.float64(grid.scale))


def _neighbours(middle: Array) -> Array:
    """(n, 2·8 + 1) float32: every number with its nearest floats."""
    columns = [middle]
    for towards in (-np.inf, np.inf):
        near = middle
        for _ in range(_STEPS):
            near = np.nextafter(near, np.float32(towards))
            columns.append(near)
    return np.asarray(np.stack(columns, axis=1))


# What one way to make levels differs from another: how many move, how far, and where both saturate.

_DIFFERENCE_KEPT = 4096
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


@lru_cache(maxsize=_DIFFERENCE_KEPT)
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
