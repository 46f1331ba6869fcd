"""What pairs of products lose by saturating, compiled by numba: the same bits as ``saturation`` without it."""

import numba
import numpy as np

_BLOCK = 32
"""Rows along which the innermost loop runs; so few that where levels are seldom high most pairs are left out."""


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


@numba.njit
def _peaks(rows, peaks):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """The largest sum of each pair of levels in ``rows``."""
    peaks[:] = 0
    for r in range(len(rows)):
        for p in range(peaks.size):
            both = np.uint16(np.uint16(rows[r, 2 * p]) + np.uint16(rows[r, 2 * p + 1]))
            peaks[p] = both if both > peaks[p] else peaks[p]


@numba.njit(inline="always")
def _add_excess(count, left, right, one, other, top, excess):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, PLR0917
    """Adds to ``excess`` what left · one + right · other exceeds −top − 1 … top by, row by row; how many do."""
    hits = np.int32(0)
    for r in range(count):
        both = np.int32(np.int32(left[r] * one) + np.int32(right[r] * other))
        kept = both if both < top else top
        kept = kept if kept > -top - 1 else np.int32(-top - 1)
        excess[r] += np.int32(both - kept)
        hits += np.int32(both != kept)
    return hits


@numba.njit(cache=True, nogil=True)
def mend_pairs(sums, x, pairs, starts, columns, first, second, least, top):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, PLR0917
    """Take from ``sums`` what the risky pairs of ``x`` exceed −top − 1 … top by; how many do.

    Places ``starts[p]`` … ``starts[p + 1]`` are those of ``pairs[p]``: a column and two weights, int32, each. A pair of
    levels that add up to less than ``least`` cannot saturate: where none of a block reaches that, it is left out.
    """
    peaks, lost = np.empty(x.shape[1] // 2, np.uint16), np.int64(0)
    left, right = np.empty(_BLOCK, np.int32), np.empty(_BLOCK, np.int32)
    excess, touched = np.zeros((sums.shape[1], _BLOCK), np.int32), np.zeros(sums.shape[1], np.bool_)
    for start in range(0, len(x), _BLOCK):
        rows, into = x[start : start + _BLOCK], sums[start : start + _BLOCK]
        _peaks(rows, peaks)
        for p in range(pairs.size):
            k = 2 * pairs[p]
            if peaks[pairs[p]] >= least:
                for r in range(len(rows)):
                    left[r], right[r] = rows[r, k], rows[r, k + 1]
                for j in range(starts[p], starts[p + 1]):
                    hits = _add_excess(len(rows), left, right, first[j], second[j], top, excess[columns[j]])
                    touched[columns[j]] |= hits > 0
                    lost += hits
        for n in np.flatnonzero(touched):
            for r in range(len(rows)):
                into[r, n] -= excess[n, r]
            excess[n], touched[n] = 0, False
    return lost
