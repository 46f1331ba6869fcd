"""Inner loops compiled by numba: the same bits as their numpy twins, in one pass over memory.

Importing this file needs numba (``program.best_means`` says whether it is there). Channels lie last everywhere, and
accumulators are int32 that cannot overflow: whoever calls has shown it by a bound.
"""

import functools

import numba
import numpy as np


@functools.cache
def depthwise(height: int, width: int, pair_bits: int):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """Σ x · w + start of one channel a group: windows of one size, all taps of a channel summed at once.

    ``padded`` (n, H, W, C); ``weight`` (height, width, C), of a dtype that holds x · w; ``start`` (C,), ``out`` int32.
    Neighbouring products saturate to ``pair_bits``, if there are any, before they join the sum; the last one is alone.
    """
    last, top = height * width - 1, np.int32((1 << (pair_bits - 1)) - 1 if pair_bits else 0)

    @numba.njit(cache=True, nogil=True)
    def sums(padded, weight, start, strides, gaps, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, PLR0917
        product_of = weight.dtype.type
        for n in range(out.shape[0]):
            for oy in range(out.shape[1]):
                for ox in range(out.shape[2]):
                    y, x = oy * strides[0], ox * strides[1]
                    for c in range(out.shape[3]):
                        total, neighbour = start[c], np.int32(0)
                        for ky in range(height):
                            for kx in range(width):
                                level = product_of(padded[n, y + ky * gaps[0], x + kx * gaps[1], c])
                                product = np.int32(product_of(level * weight[ky, kx, c]))
                                tap = ky * width + kx
                                if pair_bits and tap % 2:
                                    total += min(max(np.int32(neighbour + product), -top - 1), top)
                                elif pair_bits and tap < last:
                                    neighbour = product
                                else:
                                    total += product
                        out[n, oy, ox, c] = total

    return sums


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
