"""The inner loops of counting, written for numba: eight numbers a turn, no branch that depends on a number."""

from typing import Any

import numpy as np

ONE = 1 << 38
"""What one number adds to its cell, beside its bits."""
ZERO_CELLS = 8


def count_bits(bits: Any, table: Any) -> None:  # noqa: ANN401 - typed by its compiler
    """``counting.count_with_numpy`` with its signature: bits (n,) uint32, table (2^19 + 8,) int64."""
    whole = bits.size & -ZERO_CELLS
    for start in range(0, whole, ZERO_CELLS):
        for turn in range(ZERO_CELLS):
            short = bits[start + turn]
            number = np.uint64(short)
            cell = number >> np.uint64(13)
            cell = np.uint64((1 << 19) + turn) if np.uint32(short + short) == 0 else cell
            table[cell] += np.int64(number | np.uint64(ONE))
    for index in range(whole, bits.size):
        short = bits[index]
        number = np.uint64(short)
        cell = np.uint64(1 << 19) if np.uint32(short + short) == 0 else number >> np.uint64(13)
        table[cell] += np.int64(number | np.uint64(ONE))


def read_cells(table: Any, start: int, stop: int) -> int:  # noqa: ANN401 - typed by its compiler
    """Read one cell in eight of ``table`` from ``start`` to ``stop``; what it gives means nothing."""
    read = 0
    for cell in range(start, stop, 8):
        read ^= table[cell]
    return read
