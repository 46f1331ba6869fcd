"""Pairs of products that can saturate, and what sums lose where they do.

Intel's vpmaddubsw sums two neighbouring raw products x · w in 16 bits before it widens. Only pairs whose weights have
one sign and |w₀| + |w₁| ≥ 129 can saturate, as 255 · 129 > 2¹⁵ − 1: exact sums are taken for all, and mended at those.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.interpreter.arrays import Array

Places = tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]
"""(pair, column): neighbours 2 · pair and 2 · pair + 1 along K."""
Mend = Callable[[npt.NDArray[Any], Array], int]
"""Takes from exact sums (M, N) of levels (M, K), in place, what their pairs lose; how many pairs saturated."""

PROCESSORS = 16
"""The bits in which processors with vpmaddubsw sum pairs."""
_LARGEST = 255
"""Of unsigned levels."""
_HEAVIEST = 128
"""Of signed weights, in magnitude."""


def risky_pairs(weight: Array, bits: int = PROCESSORS, *, compiled: bool = False) -> Places:
    """(pair, column) of the neighbours along K whose products can exceed ``bits`` bits, for some unsigned levels.

    Args:
        weight: (K, N) signed levels.
        bits: to which pairs saturate.
        compiled: by numba.
    """
    half = 1 << (bits - 1)
    most, least = -(-half // _LARGEST), -(half // _LARGEST) - 1
    if compiled:
        from qbench.interpreter.compiled_pairs import find_pairs

        pair, column = find_pairs(np.ascontiguousarray(weight), most, least)
        return pair, column
    even = weight[: len(weight) // 2 * 2].astype(np.int16)
    first, second = even[0::2], even[1::2]
    above = np.maximum(first, 0) + np.maximum(second, 0)
    below = np.minimum(first, 0) + np.minimum(second, 0)
    pair, column = np.nonzero((above >= most) | (below <= least))
    return pair, column


def mender(weight: Array, bits: int, *, compiled: bool) -> Mend | None:
    """What mends exact sums of unsigned levels times ``weight``; None where no pair can saturate.

    Args:
        weight: (K, N) signed levels.
        bits: to which pairs saturate.
        compiled: by numba.
    """
    places, top = risky_pairs(weight, bits, compiled=compiled), (1 << (bits - 1)) - 1
    if not places[0].size:
        return None
    return (_in_blocks if compiled else _pair_by_pair)(weight, places, top)


def _in_blocks(weight: Array, places: Places, top: int) -> Mend:
    from qbench.interpreter.compiled_pairs import mend_pairs

    pair, columns = places
    pairs, starts = np.unique(pair, return_index=True)
    ends, least = np.append(starts, len(pair)), -(-(top + 1) // _HEAVIEST)
    first, second = (weight[2 * pair + side, columns].astype(np.int32) for side in (0, 1))

    def mend(sums: npt.NDArray[Any], x: Array) -> int:
        levels = np.ascontiguousarray(x)
        return int(mend_pairs(sums, levels, pairs, ends, columns, first, second, least, np.int32(top)))

    return mend


def _pair_by_pair(weight: Array, places: Places, top: int) -> Mend:
    order, starts = np.unique(places[0], return_index=True)
    columns = np.split(places[1], starts[1:])

    def mend(sums: npt.NDArray[Any], x: Array) -> int:
        lost = 0
        for pair, where in zip(order.tolist(), columns, strict=True):
            first, second = weight[2 * pair, where].astype(np.int32), weight[2 * pair + 1, where].astype(np.int32)
            both = x[:, 2 * pair, None] * first + x[:, 2 * pair + 1, None] * second
            excess = both - np.clip(both, -top - 1, top)
            lost += int(np.count_nonzero(excess))
            sums[:, where] -= excess
        return lost

    return mend
