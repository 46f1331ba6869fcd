"""Inner loops compiled by numba: the same bits as their numpy twins, in one pass over memory.

Importing this file needs numba (``program.best_means`` says whether it is there). Channels lie last everywhere, and
accumulators are int32 that cannot overflow: whoever calls has shown it by a bound.
"""

import functools

import numba
import numpy as np

HALF_EVEN, HALF_AWAY, HALF_UP = range(3)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def float_levels(acc, bias, multiplier, before, zero, low, high, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, PLR0917
    """Half-even float32 levels: clamp(round(f32(acc + bias) · m + before)) + zero; the ends are float32, without zero.

    A zero point is in ``before`` or in ``zero``, never in both.
    """
    rows, columns = acc.shape
    for i in range(rows):
        for j in range(columns):
            value = np.float32(np.int32(acc[i, j] + bias[j])) * multiplier[j] + before
            value = low if value < low else value
            value = high if value > high else value
            out[i, j] = np.int32(np.rint(value)) + zero


@functools.cache
def one_shift(rounding: int):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """Levels by an integer multiplier and one rounding shift: clamp(((acc + bias) · m + half) >> shift + zero).

    Rounding by adding: half up adds half; half away one less where the product is negative; half even one less where
    the level below is even. ``some`` is 1, or 0 for a shift by nothing, where ``half`` is 0 too.
    """

    @numba.njit(cache=True, nogil=True)
    def fixed_levels(acc, bias, factor, shift, half, some, zero, low, high, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, PLR0917
        rows, columns = acc.shape
        for i in range(rows):
            for j in range(columns):
                value = np.int64(np.int32(acc[i, j] + bias[j])) * np.int64(factor[j])
                nudge = half[j]
                if rounding == HALF_AWAY:
                    nudge -= some[j] & np.int64(value < 0)
                if rounding == HALF_EVEN:
                    nudge -= some[j] & ~(value >> shift[j]) & np.int64(1)
                level = np.int32((value + nudge) >> shift[j]) + zero
                level = low if level < low else level
                out[i, j] = high if level > high else level

    return fixed_levels


@functools.cache
def two_shifts(rounding: int):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """Levels by a 31-bit multiplier and two rounding shifts: half up by 31 bits, then ``rounding`` (up or away)."""

    @numba.njit(cache=True, nogil=True)
    def fixed_levels(acc, bias, factor, shift, half, some, zero, low, high, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, PLR0917
        rows, columns = acc.shape
        for i in range(rows):
            for j in range(columns):
                value = np.int64(np.int32(acc[i, j] + bias[j])) * np.int64(factor[j])
                upper = np.int32((value + np.int64(1 << 30)) >> 31)
                nudge = half[j]
                if rounding == HALF_AWAY:
                    nudge -= some[j] & np.int32(upper < 0)
                level = (np.int32(upper + nudge) >> shift[j]) + zero
                level = low if level < low else level
                out[i, j] = high if level > high else level

    return fixed_levels


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
