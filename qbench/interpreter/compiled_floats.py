"""Sums of products of floats in a declared accumulator, compiled by numba."""

import math

import numba
import numpy as np

from qbench.numerics import NO_EXPONENT, FloatSums

# The same bits as ``numerics.float_sums`` by numpy, product by product in registers. Importing this
# file needs numba. Each argument ``rules`` is (significant bits, least exponent, group, kept bits),
# ``ways`` (truncates, joined) and ``largest`` the largest number of the accumulator.

_SINGLE = FloatSums().significant
"""Significant bits of float32, to which the processor rounds by itself."""
_LEAST_SINGLE = FloatSums().least_exponent
_PRESENT = NO_EXPONENT // 2
"""Below the sum of two exponents of numbers, above that of ``NO_EXPONENT`` and one of these."""


@numba.njit
def _odd_sum(first, second):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """The sum in float64, rounded to the odd neighbour where it is inexact."""
    total = first + second
    part = total - first
    lost = (first - (total - part)) + (second - part)
    if lost == 0 or not math.isfinite(total):
        return total
    bits = np.float64(total).view(np.int64)
    if bits & 1:
        return total
    # towards what was lost: a larger magnitude has the larger integer
    step = np.int64(1) if (lost > 0) == (total > 0) else np.int64(-1)
    return np.int64(bits + step).view(np.float64)


@numba.njit
def _rounded(value, rules, ways, largest):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """``value`` as a number of the accumulator."""
    significant, least = rules[0], rules[1]
    if significant == _SINGLE and least == _LEAST_SINGLE and not ways[0]:
        return np.float64(np.float32(value))
    if value == 0 or not math.isfinite(value):
        return value
    bits = np.float64(value).view(np.int64)
    if ((bits >> 52) & 2047) - 1023 >= least:
        lost = np.int64(53 - significant)
        below = (np.int64(1) << lost) - 1
        if not ways[0]:  # of a tie the last bit that stays decides; a carry raises the exponent
            bits += (below >> 1) + ((bits >> lost) & 1)
        found = np.int64(bits & ~below).view(np.float64)
        if abs(found) <= largest:
            return found
        return math.copysign(largest if ways[0] else np.inf, found)
    places = least - significant + 1  # of the steps of subnormal numbers
    steps = math.ldexp(value, -places)
    return math.ldexp(np.trunc(steps) if ways[0] else np.rint(steps), places)


@numba.njit
def _group(left, right, ends, exponents, kept):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """The cut sum of one group in units of the last kept bit, how many places they are shifted by,
    and the sum of all as it is.
    """
    start, stop, total, highest = ends
    for k in range(start, stop):
        highest = max(highest, exponents[0][k] + exponents[1][k])
    shift = kept - 1 - highest if highest > _PRESENT else 0
    factor, whole, plain = math.ldexp(1.0, shift), np.trunc(math.ldexp(total, shift)), total
    for k in range(start, stop):
        product = left[k] * right[k]
        plain += product
        whole += np.trunc(product * factor)
    return whole, shift, plain


@numba.njit(cache=True, nogil=True, error_model="numpy")
def float_sums(left, right, exponents, rules, ways, largest, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, PLR0917
    """What the accumulator holds at the end of each sum: ``left`` (M, K) and ``right`` (N, K)
    float64, their ``exponents`` int64, ``out`` (M, N).
    """
    depth, group, kept = left.shape[1], rules[2], rules[3]
    for m in range(left.shape[0]):
        for n in range(right.shape[0]):
            total = 0.0
            if kept == 0:
                for k in range(depth):
                    both = _odd_sum(total, left[m, k] * right[n, k])
                    total = _rounded(both, rules, ways, largest)
            else:
                rows = (exponents[0][m], exponents[1][n])
                for start in range(0, depth, group):
                    joining, highest = 0.0, np.int64(NO_EXPONENT)
                    if ways[1]:
                        joining = total
                        if total != 0 and math.isfinite(total):
                            highest = np.int64(math.frexp(total)[1] - 1)
                    ends = (start, min(start + group, depth), joining, highest)
                    whole, shift, plain = _group(left[m], right[n], ends, rows, kept)
                    cut = math.ldexp(whole, -shift) if math.isfinite(plain) else plain
                    both = cut if ways[1] else _odd_sum(total, cut)
                    total = _rounded(both, rules, ways, largest)
            out[m, n] = total
