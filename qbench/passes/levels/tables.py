"""A function of levels as the table of all its values: what a chain of requantizations does, machine by machine.

A grid of 8 bits has 256 levels, one of 16 has 65,536: whatever is done to each of them by itself is known whole, so
that two ways of doing it are compared by looking, not by reasoning about scales.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.numerics import Arithmetic, QParams, dequantize, get_arithmetic, quantize, rescaler
from qbench.passes.effect import QDQ

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
