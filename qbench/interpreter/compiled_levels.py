"""From accumulators or reals to levels, compiled by numba: the same bits as ``numerics`` by numpy, in one pass.

One loop a form of multiplier; rules and orders are closed over, registers are the dtypes of arguments. Sums are int32
that cannot overflow: whoever calls has shown it by a bound. Channels lie last. ``ends`` are what is added last, and the
ends of the clamp before that (``epilogue.Ends``); ``out`` has as many bits as a level, whatever its sign.
"""

import functools

import numba
import numpy as np
from numba.extending import intrinsic

HALF_EVEN, HALF_AWAY, HALF_UP, TRUNCATE, FLOOR = range(5)
"""In the order of ``Rounding``."""
BARE, ADDED, FUSED, SCALED = range(4)
"""In the order of ``FloatOrder``."""


@intrinsic
def _multiply_add(typing, a, b, c):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, ARG001
    """Gives a · b + c of one float type, rounded once: by the processor, or else by the C library."""

    def code(context, builder, signature, arguments):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, ARG001
        return builder.fma(*arguments)

    return a(a, a, a), code


@numba.njit
def _rounded(value, rounding):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """``value`` as a whole number. Halves are looked at: v + 1/2 would be rounded itself."""
    if rounding == HALF_EVEN:
        return np.rint(value)
    if rounding == HALF_AWAY:
        low = np.floor(abs(value))
        return np.copysign(low + (abs(value) - low >= 0.5), value)
    if rounding == HALF_UP:
        low = np.floor(value)
        return low + (value - low >= 0.5)
    return np.trunc(value) if rounding == TRUNCATE else np.floor(value)


@numba.njit(inline="always")  # else the loop over columns is not vectorized where these are few
def _nudged(value, shift, half, some, rounding):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """What, shifted by ``shift``, is ``value`` rounded; ``some`` is 1, or 0 for no shift at all, as ``half`` is then.

    Half up adds half; half away one less where the value is negative; half even one less where the level below is even;
    truncating adds all but a whole step where it is negative.
    """
    if rounding == HALF_UP:
        return value + half
    if rounding == HALF_AWAY:
        return value + half - (some & (value < 0))
    if rounding == HALF_EVEN:
        return value + half - (some & ~(value >> shift) & 1)
    if rounding == TRUNCATE:
        return value + (half + half - some if value < 0 else 0)
    return value


@functools.cache
def float_levels(order: int, rounding: int):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """clamp(round(v · multiplier + before)) + behind, v = f(acc + bias) and what ``order`` does to it (``FloatSteps``).

    All is computed in the dtype of ``multiplier``.
    """

    @numba.njit(cache=True, nogil=True, error_model="numpy")
    def levels(acc, bias, real, first, second, multiplier, before, ends, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, PLR0917
        (rows, columns), float_of = acc.shape, multiplier.dtype.type
        behind, low, high = np.int32(ends[0]), ends[1], ends[2]
        for i in range(rows):
            for j in range(columns):
                value = float_of(np.int32(acc[i, j] + bias[j]))
                if order == ADDED:
                    value += real[j]
                if order == FUSED:
                    value = _multiply_add(real[j], first[j], value)  # type: ignore[call-arg]
                if order == SCALED:
                    value = value * first[j] * second[j] + real[j]
                value = value * multiplier[j] + before
                value = low if value < low else value
                value = high if value > high else value
                out[i, j] = np.int32(_rounded(value, rounding)) + behind

    return levels


@functools.cache
def nearest_levels(rounding: int):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """Levels by a rational multiplier, computed in float64 by the nearest one; and how many are doubtful.

    A number within ``near`` of a tie is that tie where ``exact`` is set: the multiplier's denominator is so small that
    nothing else can be there. Elsewhere it is in doubt.
    """

    @numba.njit(cache=True, nogil=True, error_model="numpy")
    def levels(acc, bias, multiplier, exact, near, before, ends, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, PLR0917
        rows, columns = acc.shape
        behind, low, high = np.int32(ends[0]), ends[1], ends[2]
        doubtful = np.int64(0)
        for i in range(rows):
            for j in range(columns):
                value = np.float64(np.int32(acc[i, j] + bias[j])) * multiplier[j] + before
                value = low if value < low else value
                value = high if value > high else value
                tie = np.floor(value) + 0.5
                within = abs(value - tie) <= near
                doubtful += np.int64(within & (exact[j] == 0))
                value = tie if within else value
                out[i, j] = np.int32(_rounded(value, rounding)) + behind
        return doubtful

    return levels


@functools.cache
def shifted_levels(roundings: tuple[int, ...]):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """clamp(((acc + bias) << left) · factor, shifted and rounded stage by stage) + behind.

    ``shift``, ``half``, ``some`` are of the first stage, (N,), in int64; those of the others, (stages − 1, N), and
    ``ends`` have the dtype of the registers behind that and of the levels: int32 where nothing leaves it, or int64.
    """
    others = len(roundings) - 1

    @numba.njit(cache=True, nogil=True)
    def levels(acc, bias, left, factor, shift, half, some, shifts, halves, somes, ends, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, PLR0917
        (rows, columns), register, level_of = acc.shape, shifts.dtype.type, ends.dtype.type
        behind, low, high = ends[0], ends[1], ends[2]
        for i in range(rows):
            for j in range(columns):
                total = np.int32(np.int32(acc[i, j] + bias[j]) << left[j])
                product = np.int64(total) * np.int64(factor[j])
                value = register(_nudged(product, shift[j], half[j], some[j], roundings[0]) >> shift[j])
                for k in range(others):
                    value = register(_nudged(value, shifts[k, j], halves[k, j], somes[k, j], roundings[k + 1]))
                    value = register(value >> shifts[k, j])
                level = level_of(value)
                level = low if level < low else level
                level = high if level > high else level
                out[i, j] = level + behind

    return levels


@numba.njit(cache=True, nogil=True)
def short_levels(acc, bias, pre, factor, nudge, post, spare, ends, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, PLR0917
    """clamp((((acc + bias) >> pre) · factor + nudge) >> post) + behind; ``spare`` bits on top are lost."""
    (rows, columns), level_of = acc.shape, ends.dtype.type
    behind, low, high = ends[0], ends[1], ends[2]
    for i in range(rows):
        for j in range(columns):
            total = np.int64(np.int32(acc[i, j] + bias[j]) >> pre[j])
            value = ((total * factor[j] + nudge[j]) << spare) >> spare
            level = level_of(value >> post[j])
            level = low if level < low else level
            level = high if level > high else level
            out[i, j] = level + behind


@functools.cache
def quantized_levels(rounding: int, *, inverse: bool, fused: bool, highest: bool):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """clamp(round(x / scale + before)) + behind of float32 numbers, 1-d, by steps or (``fused``) x · scale + before.

    ``inverse``: ``scale`` is a factor. ``highest``: what NaN becomes, else the lowest. ``before`` is 0 or a zero point.
    """

    @numba.njit(cache=True, nogil=True, error_model="numpy")
    def levels(x, scale, before, ends, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        behind, low, high = np.int32(ends[0]), ends[1], ends[2]
        for i in range(x.size):
            if fused:
                value = _multiply_add(x[i], scale, before)  # type: ignore[call-arg, var-annotated]
            else:
                value = (x[i] * scale if inverse else x[i] / scale) + before
            if highest:
                value = value if value <= high else high
            value = value if value >= low else low
            value = value if value <= high else high
            out[i] = np.int32(_rounded(value, rounding)) + behind

    return levels
