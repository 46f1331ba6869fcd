"""Where a quantizer changes its mind: the float32 numbers on both sides of every step of q = clamp(round(x / s) + z).

Two monotone functions of a real that agree at both sides of every step of either agree everywhere: between two steps
both are constant. So a few hundred numbers prove what holds for all of float32.

A machine that counts exactly has other reals than float32: sums of products that it never rounds. There the steps lie
at s · (k + ½ − z) itself, which float64 holds for any grid of 16 bits, and one number between two steps is enough.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.numerics import QParams, quantize

Array = npt.NDArray[Any]

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
