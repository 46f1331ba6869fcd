"""Inner loops compiled by numba: the same bits as their numpy twins."""

import functools

import numba
import numpy as np
from numba.extending import intrinsic

# Inner loops compiled by numba: the same bits as their numpy twins, in one pass over memory.
#
# Importing this file needs numba (``program.best_means`` says whether it is there). Channels lie
# last everywhere, and accumulators are int32 that cannot overflow: the caller has shown it by a
# bound.

_UNROLLED = 5
"""Taps along an axis up to which the compiler writes all of a window out, which vectors of
channels need.
"""


@numba.njit(inline="always")
def _kept(both, top):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return min(max(both, -top - 1), top)


def depthwise(height: int, width: int, pair_bits: int):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """Σ x · w + start of one channel a group, for windows of one size.

    ``padded`` (n, H, W, C); ``weight`` (height, width, C), of a dtype that holds x · w; ``start``
    (C,), ``out`` int32. Neighbouring products saturate to ``pair_bits``, if there are any, before
    they join the sum; the last one is alone.
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
                                code = product_of(padded[n, y + ky * gaps[0], x + kx * gaps[1], c])
                                product = np.int32(product_of(code * weight[ky, kx, c]))
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
                y = oy * strides[0] + tap // width * gaps[0]
                x = ox * strides[1] + tap % width * gaps[1]
                one, codes = weight[tap // width, tap % width], padded[n, y, x]
                if top and tap + 1 < taps:
                    y = oy * strides[0] + (tap + 1) // width * gaps[0]
                    x = ox * strides[1] + (tap + 1) % width * gaps[1]
                    other, others = weight[(tap + 1) // width, (tap + 1) % width], padded[n, y, x]
                    for c in range(into.size):
                        first = np.int32(product_of(product_of(codes[c]) * one[c]))
                        second = np.int32(product_of(product_of(others[c]) * other[c]))
                        into[c] += _kept(np.int32(first + second), top)
                else:
                    for c in range(into.size):
                        into[c] += np.int32(product_of(product_of(codes[c]) * one[c]))

    return sums


@numba.njit(cache=True, nogil=True)
def looked_up(codes, table, low, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """``table`` at every one of ``codes`` (1-d)."""
    for i in range(codes.size):
        out[i] = table[np.int64(codes[i]) - low]


@numba.njit(cache=True, nogil=True)
def looked_up_pair(left, right, table, lows, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """``table`` (flat, 256 a row) at every pair of codes (1-d, of one length)."""
    for i in range(left.size):
        out[i] = table[((np.int64(left[i]) - lows[0]) << 8) | (np.int64(right[i]) - lows[1])]


# From accumulators or reals to codes, compiled by numba: the same bits as ``numerics`` by numpy, in
# one pass.
#
# One loop a form of multiplier; rules and orders are closed over, registers are the dtypes of
# arguments. Sums are int32 that cannot overflow: the caller has shown it by a bound. Channels lie
# last. ``ends`` are what is added last, and the ends of the clamp before that (``epilogue.Ends``);
# ``out`` has as many bits as a code, whatever its sign.

HALF_EVEN, HALF_AWAY, HALF_UP, TRUNCATE, FLOOR = range(5)
"""In the order of ``Rounding``."""
BARE, ADDED, FUSED, SCALED, RANGED = range(5)
"""In the order of ``FloatOrder``."""


@intrinsic
def _multiply_add(typing, a, b, c):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, ARG001
    """Gives a · b + c of one float type, rounded once: by the processor, or else by the C
    library.
    """

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
    """What, shifted by ``shift``, is ``value`` rounded; ``some`` is 1, or 0 for no shift at
    all, as ``half`` is then.

    Half up adds half; half away one less where the value is negative; half even one less where the
    code below is even; truncating adds all but a whole step where it is negative.
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
def float_codes(order: int, rounding: int):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """clamp(round(v · multiplier + before)) + behind, v = f(acc + bias) and what ``order`` does
    to it (``FloatSteps``).

    All is computed in the dtype of ``multiplier``.
    """

    @numba.njit(cache=True, nogil=True, error_model="numpy")
    def codes(acc, bias, real, first, second, multiplier, before, ends, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, PLR0917
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
                if order == RANGED:
                    value = value * first[j] + real[j]
                    value = _multiply_add(value, multiplier[j], second[j])  # type: ignore[call-arg]
                else:
                    value = value * multiplier[j] + before
                value = low if value < low else value
                value = high if value > high else value
                out[i, j] = np.int32(_rounded(value, rounding)) + behind

    return codes


@functools.cache
def nearest_codes(rounding: int):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """Codes by a rational multiplier, computed in float64 by the nearest one; and how many are
    doubtful.

    A number within ``near`` of a tie is that tie where ``exact`` is set: the multiplier's
    denominator is so small that nothing else can be there. Elsewhere it is in doubt.
    """

    @numba.njit(cache=True, nogil=True, error_model="numpy")
    def codes(acc, bias, multiplier, exact, near, before, ends, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, PLR0917
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

    return codes


@functools.cache
def shifted_codes(roundings: tuple[int, ...]):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """clamp(((acc + bias) << left) · factor, shifted and rounded stage by stage) + behind.

    ``shift``, ``half``, ``some`` are of the first stage, (N,), in int64; those of the others,
    (stages − 1, N), and ``ends`` have the dtype of the registers behind that and of the codes:
    int32 where nothing leaves it, or int64.
    """
    others = len(roundings) - 1

    @numba.njit(cache=True, nogil=True)
    def codes(acc, bias, left, factor, shift, half, some, shifts, halves, somes, ends, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, PLR0917
        (rows, columns), register, code_of = acc.shape, shifts.dtype.type, ends.dtype.type
        behind, low, high = ends[0], ends[1], ends[2]
        for i in range(rows):
            for j in range(columns):
                total = np.int32(np.int32(acc[i, j] + bias[j]) << left[j])
                product = np.int64(total) * np.int64(factor[j])
                value = register(
                    _nudged(product, shift[j], half[j], some[j], roundings[0]) >> shift[j]
                )
                for k in range(others):
                    value = register(
                        _nudged(value, shifts[k, j], halves[k, j], somes[k, j], roundings[k + 1])
                    )
                    value = register(value >> shifts[k, j])
                code = code_of(value)
                code = low if code < low else code
                code = high if code > high else code
                out[i, j] = code + behind

    return codes


@numba.njit(cache=True, nogil=True)
def short_codes(acc, bias, pre, factor, nudge, post, spare, ends, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, PLR0917
    """clamp((((acc + bias) >> pre) · factor + nudge) >> post) + behind; ``spare`` bits on top
    are lost.
    """
    (rows, columns), code_of = acc.shape, ends.dtype.type
    behind, low, high = ends[0], ends[1], ends[2]
    for i in range(rows):
        for j in range(columns):
            total = np.int64(np.int32(acc[i, j] + bias[j]) >> pre[j])
            value = ((total * factor[j] + nudge[j]) << spare) >> spare
            code = code_of(value >> post[j])
            code = low if code < low else code
            code = high if code > high else code
            out[i, j] = code + behind


@functools.cache
def quantized_codes(rounding: int, *, inverse: bool, fused: bool, highest: bool):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """clamp(round(x / scale + before)) + behind of float32 numbers, 1-d, by steps or
    (``fused``) x · scale + before.

    ``inverse``: ``scale`` is a factor. ``highest``: what NaN becomes, else the lowest. ``before``
        is 0 or a zero point.
    """

    @numba.njit(cache=True, nogil=True, error_model="numpy")
    def codes(x, scale, before, ends, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
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

    return codes


# What pairs of products lose by saturating, compiled by numba: the same bits as ``saturation``
# without it.

_BLOCK = 32
"""Rows along which the innermost loop runs; so few that where codes are seldom high most pairs
are left out.
"""


@numba.njit(cache=True, nogil=True)
def find_pairs(weight, most, least):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """(pair, column) where a pair's positive weights add up to ``most`` or more, or its
    negative ones to ``least``.
    """
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
    """The largest sum of each pair of codes in ``rows``."""
    peaks[:] = 0
    for r in range(len(rows)):
        for p in range(peaks.size):
            both = np.uint16(np.uint16(rows[r, 2 * p]) + np.uint16(rows[r, 2 * p + 1]))
            peaks[p] = both if both > peaks[p] else peaks[p]


@numba.njit(inline="always")
def _add_excess(count, left, right, one, other, top, excess):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, PLR0917
    """Adds to ``excess`` what left · one + right · other exceeds −top − 1 … top by, row by row;
    how many do.
    """
    hits = np.int32(0)
    for r in range(count):
        both = np.int32(np.int32(left[r] * one) + np.int32(right[r] * other))
        kept = both if both < top else top
        kept = kept if kept > -top - 1 else np.int32(-top - 1)
        excess[r] += np.int32(both - kept)
        hits += np.int32(both != kept)
    return hits


@numba.njit(cache=True, nogil=True)
def correct_pairs(sums, x, pairs, starts, columns, first, second, least, top):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, PLR0917
    """Take from ``sums`` what the risky pairs of ``x`` exceed −top − 1 … top by; how many do.

    Places ``starts[p]`` … ``starts[p + 1]`` are those of ``pairs[p]``: a column and two weights,
    int32, each. A pair of codes that add up to less than ``least`` cannot saturate: where none of a
    block reaches that, it is left out.
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
                    hits = _add_excess(
                        len(rows), left, right, first[j], second[j], top, excess[columns[j]]
                    )
                    touched[columns[j]] |= hits > 0
                    lost += hits
        for n in np.flatnonzero(touched):
            for r in range(len(rows)):
                into[r, n] -= excess[n, r]
            excess[n], touched[n] = 0, False
    return lost
