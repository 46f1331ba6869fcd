"""What pairs of products lose by saturating, compiled by numba: the same bits as ``saturation`` without it."""

import numba
import numpy as np

_BLOCK = 64
"""Rows that are turned at once, so that the innermost loop runs along them; a column's share stays in the cache."""


@numba.njit(cache=True, nogil=True)
def find_pairs(weight, most, least):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """(pair, column) where a pair's positive weights add up to ``most`` or more, or its negative ones to ``least``."""
    pairs, columns = weight.shape[0] // 2, weight.shape[1]
    flags = np.empty((pairs, columns), np.bool_)
    count = np.int64(0)
    for pair in range(pairs):
        for column in range(columns):
            one, other = np.int32(weight[2 * pair, column]), np.int32(weight[2 * pair + 1, column])
            above = np.maximum(one, 0) + np.maximum(other, 0)
            below = np.minimum(one, 0) + np.minimum(other, 0)
            flags[pair, column] = (above >= most) | (below <= least)
            count += np.int64(flags[pair, column])
    found = np.empty((2, count), np.intp)
    place = np.int64(0)
    for pair in range(pairs):
        for column in range(columns):
            if flags[pair, column]:
                found[0, place], found[1, place] = pair, column
                place += 1
    return found[0], found[1]


@numba.njit(cache=True, nogil=True)
def mend_pairs(sums, x, elements, columns, pair, column, first, second, top):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, PLR0917
    """Take the excess over −top − 1 … top of each place from ``sums``; how many had any.

    ``elements`` are those of a row of ``x`` that are part of a risky pair, ``columns`` those of ``sums`` that have one;
    ``pair`` and ``column`` count among them, two elements a pair. ``first`` and ``second`` are the weights, int32.
    """
    levels = np.empty((elements.size, _BLOCK), x.dtype)
    excess = np.empty((columns.size, _BLOCK), np.int32)
    lost = np.int64(0)
    for start in range(0, len(x), _BLOCK):
        count = min(_BLOCK, len(x) - start)
        for r in range(count):
            for k in range(elements.size):
                levels[k, r] = x[start + r, elements[k]]
        excess[:] = 0
        for j in range(pair.size):
            one, other, over = first[j], second[j], excess[column[j]]
            left, right = levels[2 * pair[j]], levels[2 * pair[j] + 1]
            hits = np.int32(0)
            for r in range(count):
                both = np.int32(np.int32(np.int32(left[r]) * one) + np.int32(np.int32(right[r]) * other))
                kept = both if both < top else top
                kept = kept if kept > -top - 1 else np.int32(-top - 1)
                over[r] += np.int32(both - kept)
                hits += np.int32(both != kept)
            lost += hits
        for r in range(count):
            for n in range(columns.size):
                sums[start + r, columns[n]] -= excess[n, r]
    return lost
