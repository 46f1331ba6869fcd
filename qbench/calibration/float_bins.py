"""Counting float32 numbers by their bits, without a range."""

import functools
import mmap
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

# The cells of a histogram that needs no range: float32 numbers that share sign, exponent and ten
# bits of mantissa.
#
#     m = bits(|x|) >> 13
#     key = m for x ≥ 0, ~m for x < 0      so that keys ascend as numbers do
#     |x| = (top(m) + low) · 2^e(m)
#     low = bits(x) mod 2^13, 0 ≤ low < 2^13
#     top(m) = ((m mod 2^10) + (2^10 where m ≥ 2^10)) · 2^13
#     e(m) = max(m >> 10, 1) − 150
#
# A cell is as wide as 2^-10 of the power of two below it, wherever it lies. −0.0 counts as 0.

Ints = npt.NDArray[np.int64]

CELL_BITS = 10
"""Bits of the mantissa that tell cells apart."""
LOW_BITS = 13
"""Bits of the mantissa that do not."""
MAGNITUDES = 1 << 18
"""Cells of either sign."""
FINITE_MAGNITUDES = 255 << 10
"""Cells of either sign that hold finite numbers."""


def keys_of(values: npt.NDArray[np.float32]) -> Ints:
    """The key of the cell of every one of ``values`` (finite, any shape)."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    magnitude = (bits & np.uint32(0x7FFFFFFF)).astype(np.int64)
    return np.where(
        (bits >> np.uint32(31) == 1) & (magnitude > 0),
        ~(magnitude >> LOW_BITS),
        magnitude >> LOW_BITS,
    )


def magnitudes_of(keys: Ints) -> Ints:
    """The magnitude m of every key."""
    return np.where(keys < 0, ~keys, keys)


def tops_of(keys: Ints) -> Ints:
    """top(m) of every key: the least mantissa of its cell, as an integer below 2^24."""
    magnitude = magnitudes_of(keys)
    mantissas: Ints = (magnitude & 1023) | np.where(magnitude >= 1024, np.int64(1024), np.int64(0))
    return np.asarray(mantissas << LOW_BITS)


def exponents_of(keys: Ints) -> Ints:
    """e(m) of every key: what two is raised to for one unit of the mantissa."""
    return np.asarray(np.maximum(magnitudes_of(keys) >> 10, 1) - 150)


def signs_of(keys: Ints) -> Ints:
    """−1 for keys of negative numbers, else 1."""
    return np.where(keys < 0, -1, 1)


# The inner loops of counting, written for numba: eight numbers per iteration, no branch that
# depends on a number of a finite block.
#
#     order(x) = bits(x) for x ≥ 0, bits(x) xor (2^31 − 1) for x < 0, as int32
#
# orders finite numbers as they are, and ±Inf and NaN outside of them (−0.0 below 0).

ONE = 1 << 38
"""What one number adds to its cell, in addition to its bits."""
ZERO_CELLS = 8
BLOCK = 256
"""Numbers that are looked at for extremes and then counted, before they leave the nearest cache."""
_NO_LOW, _NO_HIGH = 0x7F800000, -0x7F800001
"""order(±Inf): no finite number reaches them."""


def fold_bits(bits: Any, table: Any, ends: Any) -> int:  # noqa: ANN401 - typed by its compiler
    """``count_with_numpy`` up to the first block that holds ±Inf or NaN, and extremes of that.

    Args:
        bits: (n,) uint32.
        table: (2^19 + 8,) int64.
        ends: (2,) int32: order(x) of the least and the greatest number are written there; of none
            order(Inf) and order(−Inf).

    Returns:
        How many were counted.
    """
    ends[0], ends[1] = _NO_LOW, _NO_HIGH
    whole = bits.size & -BLOCK
    for start in range(0, whole, BLOCK):
        low, high = ends[0], ends[1]
        for index in range(start, start + BLOCK):
            signed = np.int32(bits[index])
            order = np.int32(signed ^ ((signed >> 31) & np.int32(0x7FFFFFFF)))
            low, high = min(low, order), max(high, order)
        if low <= _NO_HIGH or high >= _NO_LOW:
            return start
        ends[0], ends[1] = low, high
        for first in range(start, start + BLOCK, ZERO_CELLS):
            for turn in range(ZERO_CELLS):
                short = bits[first + turn]
                number = np.uint64(short)
                cell = number >> np.uint64(13)
                cell = np.uint64((1 << 19) + turn) if np.uint32(short + short) == 0 else cell
                table[cell] += np.int64(number | np.uint64(ONE))
    for index in range(whole, bits.size):
        short, signed = bits[index], np.int32(bits[index])
        order = np.int32(signed ^ ((signed >> 31) & np.int32(0x7FFFFFFF)))
        if order <= _NO_HIGH or order >= _NO_LOW:
            return index
        ends[0], ends[1] = min(ends[0], order), max(ends[1], order)
        number = np.uint64(short)
        cell = np.uint64(1 << 19) if np.uint32(short + short) == 0 else number >> np.uint64(13)
        table[cell] += np.int64(number | np.uint64(ONE))
    return int(bits.size)


def read_cells(table: Any, start: int, stop: int) -> int:  # noqa: ANN401 - typed by its compiler
    """Read one cell in eight of ``table`` from ``start`` to ``stop``; what it gives means
    nothing.
    """
    read = 0
    for cell in range(start, stop, 8):
        read ^= table[cell]
    return read


# Counting float32 numbers by their bits: one addition into a table for every number.
#
#     table[bits(x) >> 13] += 2^38 + bits(x)
#     zeros, of either sign, into one of eight cells behind the table
#
# Cell c, which n numbers went into, holds n · (2^38 + c · 2^13) + Σ low (above), and Σ low ≤ n ·
# (2^13 − 1) < 2^38 for n ≤ 2^24: one division gives count and sum back. Zeros, half of what a ReLU
# lets through, take turns in eight cells, because a processor waits when an addition to a cell
# follows one that is not finished; their number is what is missing in the other cells.
#
# The compiled loop (numba, optional) and numpy's give the same bits. The compiled one finds
# extremes on the way: each number comes from memory once, while additions to cells wait.

Bits = npt.NDArray[np.uint32]
Ends = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]

MOST = 1 << 24
"""Numbers that a table can take before it must be emptied."""
_CELLS = 2 * MAGNITUDES + ZERO_CELLS
_CHUNK = 1 << 15
"""Numbers whose keys stay in the processor's cache between making and using them."""
_WORTH_LOADING = 1 << 24
"""Numbers that are enough for the compiled loops (half a second and 100 MB to load) to be worth
it.
"""
_OCTAVES = 18
"""Powers of two below the greatest magnitude that hold all but a few of a tensor's numbers."""
_WORTH_READING = 1 << 13
"""Numbers that find it quicker to have their cells read in order first."""


class Compiled(NamedTuple):
    """The loops above, compiled."""

    fold: Callable[[Bits, Ints, Ends], int]
    read: Callable[[Ints, int, int], int]


def new_table() -> Ints:
    """An empty table: 4 MB of addresses, for which the system finds memory page by page as
    cells are first used.

    A number's neighbours share its page, so that a usual value of a network takes some hundred
    kilobytes.
    """
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        return np.zeros(_CELLS, np.int64)
    memory = mmap.mmap(-1, _CELLS * 8, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        # or some systems would give each table two pages of 2 MB
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, np.int64)


def count_with_numpy(bits: Bits, table: Ints) -> None:
    """Add the numbers whose bits are ``bits`` (1-D, finite) to ``table``; at most MOST in all."""
    turns = np.arange(min(_CHUNK, bits.size), dtype=np.uint32) % ZERO_CELLS + np.uint32(
        2 * MAGNITUDES
    )
    for start in range(0, bits.size, _CHUNK):
        part = bits[start : start + _CHUNK]
        cells = np.where(part << np.uint32(1) == 0, turns[: part.size], part >> np.uint32(LOW_BITS))
        np.add.at(table, cells.astype(np.intp), part.astype(np.int64) | ONE)


def fold_with_numpy(bits: Bits, table: Ints) -> tuple[int, float, float]:
    """What ``Counter.fold`` gives, all numbers or none counted."""
    numbers = bits.view(np.float32)
    low, high = float(numbers.min(initial=np.inf)), float(numbers.max(initial=-np.inf))
    if not -np.inf < low <= high < np.inf:
        return 0, np.inf, -np.inf
    count_with_numpy(bits, table)
    return len(bits), low, high


@functools.cache
def compiled() -> Compiled | None:
    """The compiled twin of ``fold_with_numpy``, and what goes with it; None where numba is not
    installed.
    """
    try:
        import numba
    except ImportError:
        return None
    jit: Any = numba.njit
    table = numba.int64[::1]
    fold = numba.int64(numba.uint32[::1], table, numba.int32[::1])
    read = numba.int64(table, numba.int64, numba.int64)
    try:
        return Compiled(
            jit(fold, nogil=True, cache=True)(fold_bits),
            jit(read, nogil=True, cache=True)(read_cells),
        )
    except RuntimeError:  # no folder to keep compiled code in
        return Compiled(jit(fold, nogil=True)(fold_bits), jit(read, nogil=True)(read_cells))


class Counter:
    """Counts with numpy, and with the compiled loops (if there are) from when that pays for
    loading them.
    """

    def __init__(self, worth_loading: int = _WORTH_LOADING) -> None:
        self._worth_loading = worth_loading
        self._seen = 0
        self._compiled: Compiled | None = None

    def fold(self, numbers: Floats, table: Ints) -> tuple[int, float, float]:
        """Add ``numbers`` (1-D, contiguous) to ``table``, up to some place before the first that
        is not finite; how many these are, the least and the greatest of them (Inf and −Inf of
        none).
        """
        if self._seen <= self._worth_loading < self._seen + numbers.size:
            self._compiled = compiled()
        self._seen += numbers.size
        bits = numbers.view(np.uint32)
        if self._compiled is None:
            return fold_with_numpy(bits, table)
        ends = np.empty(2, np.int32)
        counted = self._compiled.fold(bits, table, ends)
        low, high = (ends ^ ((ends >> 31) & np.int32(0x7FFFFFFF))).view(np.float32).tolist()
        return counted, low, high

    def warm(self, table: Ints, low: float, high: float, size: int) -> None:
        """Bring the cells of ``table`` near that ``size`` numbers between ``low`` and ``high``
        will mostly go into.

        Memory gives cells in order several times as quickly as here one and there one. Nothing
        depends on it.
        """
        if self._compiled is None or size < _WORTH_READING:
            return
        for end, first in ((high, 0), (-low, MAGNITUDES)):
            if end > 0:
                octave = int(np.float32(end).view(np.uint32)) >> 23
                start, stop = max(octave + 1 - _OCTAVES, 0) << CELL_BITS, octave + 1 << CELL_BITS
                self._compiled.read(table, first + start, first + stop)


def unpacked(table: Ints, seen: int) -> tuple[Ints, Ints, Ints, int]:
    """What is in ``table`` after ``seen`` numbers.

    Returns:
        Ascending keys, counts and Σ low of the cells that are not empty; and how many numbers were
        zeros.
    """
    cells = np.flatnonzero(table[: 2 * MAGNITUDES])
    counts, lows = np.divmod(table[cells], ONE + (cells << LOW_BITS))
    keys = np.where(cells < MAGNITUDES, cells, ~(cells - MAGNITUDES))
    zeros = seen - int(counts.sum())
    if zeros and 0 in keys:  # with positive numbers so tiny that they share the cell of zero
        counts[keys == 0] += zeros
    elif zeros:
        keys, counts, lows = np.append(keys, 0), np.append(counts, zeros), np.append(lows, 0)
    order = np.argsort(keys)
    return keys[order], counts[order], lows[order], zeros
