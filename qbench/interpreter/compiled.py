"""Inner loops compiled by numba: the same bits as their numpy twins, in one pass over memory.

Importing this file needs numba (``program.best_means`` says whether it is there). Channels lie last everywhere, and
accumulators are int32 that cannot overflow: whoever calls has shown it by a bound.
"""

import numba
import numpy as np


@numba.njit(cache=True, nogil=True)
def depthwise(padded, weight, zero, counts, strides, gaps, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, PLR0917
    """Σ (x − z_x) w of one channel a group: ``padded`` (n, H, W, C), ``weight`` (ky, kx, C) int32, ``out`` int32."""
    channels = padded.shape[3]
    for n in range(padded.shape[0]):
        for oy in range(counts[0]):
            for ox in range(counts[1]):
                for c in range(channels):
                    out[n, oy, ox, c] = 0
                for ky in range(weight.shape[0]):
                    for kx in range(weight.shape[1]):
                        y, x = oy * strides[0] + ky * gaps[0], ox * strides[1] + kx * gaps[1]
                        for c in range(channels):
                            out[n, oy, ox, c] += (np.int32(padded[n, y, x, c]) - zero) * weight[ky, kx, c]


@numba.njit(cache=True, nogil=True)
def looked_up(levels, table, low, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """``table`` at every one of ``levels`` (1-d)."""
    for i in range(levels.size):
        out[i] = table[np.int64(levels[i]) - low]


@numba.njit(cache=True, nogil=True)
def looked_up_pair(left, right, table, lows, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """``table`` (flat, 256 a row) at every pair of levels (1-d, of one length)."""
    for i in range(left.size):
        out[i] = table[((np.int64(left[i]) - lows[0]) << 8) | (np.int64(right[i]) - lows[1])]
