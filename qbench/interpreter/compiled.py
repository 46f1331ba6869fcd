"""Inner loops compiled by numba: the same bits as their numpy twins, in one pass over memory.

Importing this file needs numba (``program.best_means`` says whether it is there). Channels lie last everywhere, and
accumulators are int32 that cannot overflow: whoever calls has shown it by a bound.
"""

import functools

import numba
import numpy as np

_UNROLLED = 5
"""Taps along an axis up to which the compiler writes all of a window out, which vectors of channels need."""


@numba.njit(inline="always")
def _kept(both, top):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return min(max(both, -top - 1), top)


def depthwise(height: int, width: int, pair_bits: int):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """Σ x · w + start of one channel a group, for windows of one size.

    ``padded`` (n, H, W, C); ``weight`` (height, width, C), of a dtype that holds x · w; ``start`` (C,), ``out`` int32.
    Neighbouring products saturate to ``pair_bits``, if there are any, before they join the sum; the last one is alone.
    """
    top = (1 << (pair_bits - 1)) - 1 if pair_bits else 0
    return _tap_by_tap(top) if max(height, width) > _UNROLLED else _at_once(height, width, top)


@functools.cache
def _at_once(height: int, width: int, top: int):  # type: ignore[no-untyped-def]  # noqa: ANN202
    """All taps of a channel in one expression, so that its sum stays in a register."""
    last = height * width - 1

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
                                if top and tap % 2:
                                    total += _kept(np.int32(neighbour + product), top)
                                elif top and tap < last:
                                    neighbour = product
                                else:
                                    total += product
                        out[n, oy, ox, c] = total

    return sums


@functools.cache
def _tap_by_tap(top: int):  # type: ignore[no-untyped-def]  # noqa: ANN202
    """All channels of a tap, or of two that saturate, one after the other."""
    step = 2 if top else 1

    @numba.njit(cache=True, nogil=True)
    def sums(padded, weight, start, strides, gaps, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, PLR0917
        product_of, width = weight.dtype.type, weight.shape[1]
        taps = weight.shape[0] * width
        for n, oy, ox in np.ndindex(out.shape[:3]):
            into = out[n, oy, ox]
            into[:] = start
            for tap in range(0, taps, step):
                y, x = oy * strides[0] + tap // width * gaps[0], ox * strides[1] + tap % width * gaps[1]
                one, levels = weight[tap // width, tap % width], padded[n, y, x]
                if top and tap + 1 < taps:
                    y, x = oy * strides[0] + (tap + 1) // width * gaps[0], ox * strides[1] + (tap + 1) % width * gaps[1]
                    other, others = weight[(tap + 1) // width, (tap + 1) % width], padded[n, y, x]
                    for c in range(into.size):
                        first = np.int32(product_of(product_of(levels[c]) * one[c]))
                        second = np.int32(product_of(product_of(others[c]) * other[c]))
                        into[c] += _kept(np.int32(first + second), top)
                else:
                    for c in range(into.size):
                        into[c] += np.int32(product_of(product_of(levels[c]) * one[c]))

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
