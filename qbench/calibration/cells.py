"""The cells of a histogram that needs no range: float32 numbers that share sign, exponent and ten bits of mantissa.

    m = bits(|x|) >> 13        key = m for x ≥ 0, ~m for x < 0        so that keys ascend as numbers do
    |x| = (top(m) + low) · 2^e(m)        low = bits(x) mod 2^13,   0 ≤ low < 2^13
    top(m) = ((m mod 2^10) + (2^10 where m ≥ 2^10)) · 2^13        e(m) = max(m >> 10, 1) − 150

A cell is as wide as 2^-10 of the power of two below it, wherever it lies. −0.0 counts as 0.
"""

import numpy as np
import numpy.typing as npt

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
    return np.where((bits >> np.uint32(31) == 1) & (magnitude > 0), ~(magnitude >> LOW_BITS), magnitude >> LOW_BITS)


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
