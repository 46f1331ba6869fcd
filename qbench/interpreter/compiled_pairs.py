"""What pairs of products lose by saturating, compiled by numba: the same bits as ``accumulate.mend`` without it."""

import numba
import numpy as np


@numba.njit(cache=True, nogil=True)
def mend_pairs(sums, x, weight, pair, column, top):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, PLR0917
    """Take the excess of each place (pair, column) over −top − 1 … top from ``sums``; how many had any."""
    lost = 0
    for i in range(x.shape[0]):
        for j in range(pair.size):
            k, n = 2 * pair[j], column[j]
            both = np.int32(x[i, k]) * np.int32(weight[k, n]) + np.int32(x[i, k + 1]) * np.int32(weight[k + 1, n])
            if both > top:
                sums[i, n] -= both - top
                lost += 1
            elif both < -top - 1:
                sums[i, n] -= both + top + 1
                lost += 1
    return lost
