"""From what was captured to a scene: few enough samples, what the claimed machine makes of them, what differs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.backends import IntegerBackend
from qbench.diagnosis.captured import Captured
from qbench.diagnosis.causes.channels import axis_of_channels
from qbench.diagnosis.causes.interior import Interior
from qbench.diagnosis.causes.scene import MOST, Floats, Scene
from qbench.diagnosis.step_causes import TIE_WIDTH
from qbench.errors import QbenchError
from qbench.numerics import Arithmetic, get_arithmetic

OFTEN = 0.01
"""Share of levels that may be a step off real arithmetic where no arithmetic is claimed: machines round otherwise."""
_REAL_TOLERANCE = 1e-4


def scene_of(
    captured: Captured, healthy: Arithmetic | None, original: ir.Model | None = None
) -> tuple[Scene, tuple[str, ...]]:
    """``captured`` in steps, and notes on what could not be done."""
    captured, notes = _cropped(captured), []
    unit = captured.unit
    low, high, zero = unit.ends.low, unit.ends.high, unit.zero_point
    found = captured.found.astype(np.float64) - zero
    real = captured.real.reshape(found.shape)
    lowest, highest = (float(unit.rounded(np.array(end))) - zero for end in (-np.inf, np.inf))
    ideal = unit.rounded(real) - zero
    machine, levels = healthy or get_arithmetic("ideal"), None
    if healthy is not None and unit.grid is not None:
        levels = counted(captured, healthy, captured.feeds)
        if levels is None:
            notes.append(f"'{healthy.name}' cannot count the piece, so real arithmetic is compared with")
        elif levels.shape != found.shape:
            levels = None
    width = _width(real, unit.grid is not None)
    hard = np.abs(found - np.clip(real, low, high)) > 0.5 * bool(unit.grid) + width
    if levels is None:
        if unit.grid is not None and np.abs(found - ideal).max(initial=0) <= 1 and hard.mean() <= OFTEN:
            hard = np.zeros_like(hard)
        baseline, differing, slack = np.where(hard, ideal, found), hard, TIE_WIDTH
    else:
        baseline, differing = levels, found != levels
        beyond = np.abs(levels - np.clip(real, low, high)) - 0.5
        slack = float(np.clip(np.quantile(beyond, 0.999) if beyond.size else 0, TIE_WIDTH, 1.0)) + TIE_WIDTH
        hard = differing & (np.abs(found - np.clip(real, low, high)) > 0.5 + slack)
    if unit.grid is None:
        slack = float(np.max(width)) - 0.5  # a real result is compared without rounding
    interior = Interior.of(unit)
    scene = Scene(
        captured=captured,
        machine=machine,
        claimed=levels is not None,
        feeds=captured.feeds,
        found=found,
        again=None if captured.again is None else captured.again.astype(np.float64) - zero,
        healthy=baseline,
        real=real,
        differing=differing,
        hard=hard,
        low=low,
        high=high,
        lowest=lowest,
        highest=highest,
        slack=slack,
        interior=interior,
        operands={} if interior is None else interior.values(captured.feeds),
        original=original,
        result_axis=axis_of_channels(found.ndim, interior, original, unit.stands_for),
    )
    return scene, tuple(notes)


def counted(captured: Captured, machine: Arithmetic, feeds: Mapping[str, npt.NDArray[Any]]) -> Floats | None:
    """The levels above the zero point that ``machine`` makes of the piece, float64; None: it cannot."""
    unit = captured.unit
    try:
        with IntegerBackend(arithmetic=machine).prepare(unit.graph) as executor:
            levels = executor.run(feeds)[unit.value]
    except (QbenchError, ValueError):
        return None
    return np.asarray(levels.astype(np.float64) - unit.zero_point)


def _width(real: Floats, on_grid: bool) -> Floats:
    """What float32 and a tie may be off."""
    if on_grid:
        return np.maximum(TIE_WIDTH, np.abs(real) * 2.0**-20)
    return np.abs(real) * _REAL_TOLERANCE + _REAL_TOLERANCE * float(np.abs(real).max(initial=0))


def _cropped(captured: Captured) -> Captured:
    """The first sample and those where most is off, until there are enough elements."""
    found = captured.found
    arrays = [*captured.feeds.values(), captured.real]
    count = found.shape[0] if found.ndim else 0
    if found.size <= MOST or count < 2 or any(a.ndim == 0 or a.shape[0] != count for a in arrays):
        return captured
    unit = captured.unit
    limited = np.clip(captured.real, unit.ends.low, unit.ends.high).reshape(found.shape)
    off = np.abs(found.astype(np.float64) - unit.zero_point - limited) > 0.5 + TIE_WIDTH
    if captured.again is not None and captured.again.shape == found.shape:
        off = off | (captured.again != found)
    worst = np.argsort(-off.reshape(count, -1).sum(axis=1), kind="stable")
    several = max(1, MOST * count // found.size)
    kept = np.sort(worst[:several])
    if several > 1 and 0 not in kept:
        kept[0] = 0  # what belongs to the first sample may stand in all others
    again = captured.again
    return replace(
        captured,
        feeds={name: array[kept] for name, array in captured.feeds.items()},
        found=found[kept],
        again=None if again is None or again.shape != found.shape else again[kept],
        real=captured.real[kept],
        fed={name: array[kept] if array.shape[:1] == (count,) else array for name, array in captured.fed.items()},
        isolated=None if captured.isolated is None else captured.isolated[kept],
        expected=captured.expected[kept],
    )
