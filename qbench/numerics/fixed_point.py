"""Numbers of 32 bits with a binary point, as gemmlowp's functions count them: exp of negatives, and a reciprocal.

    a ⊗ b = ⌊(a · b + 2³⁰) / 2³¹⌋        of Qm.(31−m) and Qn.(31−n), a result in Q(m+n).(31−m−n)

Raw values are int64 arrays that hold 32-bit numbers. Source: gemmlowp fixedpoint/fixedpoint.h, as formulas.
"""

import math

import numpy as np

from qbench.numerics.rounding import Ints, Rounding, shift_right

ONE = (1 << 31) - 1
"""1 in Q0.31, which it cannot hold: the largest number there."""
_LOWEST = -(1 << 31)


def high_product(a: Ints, b: Ints | int) -> Ints:
    """Give a ⊗ b, which saturates where both are −2³¹."""
    return np.asarray(np.minimum((a * b + (1 << 30)) >> 31, ONE), np.int64)


def exp_of_negatives(a: Ints, integer_bits: int = 5) -> Ints:
    """exp(a) in Q0.31 for a ≤ 0 in Q``integer_bits``.

    a = r − Σ 2^k over the bits of what a lacks to the quarter above it: a polynomial on (−¼, 0], times exp(−2^k).
    """
    fraction = 31 - integer_bits
    quarter = 1 << (fraction - 2)
    within = (a & (quarter - 1)) - quarter
    result = _exp_within_a_quarter(within << integer_bits)
    lacking = within - a
    for power in range(-2, integer_bits):
        factor = _constant(math.exp(-(2.0**power)), 0)
        result = np.where(lacking & (1 << (fraction + power)) != 0, high_product(result, factor), result)
    return np.where(a == 0, ONE, result)


def reciprocal(sums: Ints, integer_bits: int) -> tuple[Ints, Ints]:
    """(r, e) with 1 / sum = r · 2⁻ᵉ, r in Q0.31 and ½ … 1, of positive sums in Q``integer_bits``: Newton, three steps.

    Each sum is shifted to 1 + f with 0 ≤ f < 1, of which 1 / (1 + f) is taken.
    """
    _, length = np.frexp(sums.astype(np.float64))  # exact: a sum has 31 bits
    headroom = 32 - length.astype(np.int64)
    rest = (sums << headroom) - (1 << 31)
    half = (rest + ONE + 1) >> 1  # (1 + f) / 2, half up: neither is negative
    x = _constant(48 / 17, 2) + high_product(half, _constant(-32 / 17, 2))
    for _ in range(3):
        left = (1 << 29) - high_product(half, x)
        x = x + np.clip(high_product(x, left) << 2, _LOWEST, ONE)
    return np.clip(x << 1, _LOWEST, ONE), integer_bits - headroom


def _exp_within_a_quarter(a: Ints) -> Ints:
    """exp(a) for −¼ ≤ a < 0, both in Q0.31: e^−⅛ · (1 + x + x²/2 + x³/6 + x⁴/24), x = a + ⅛."""
    x = a + (1 << 28)
    square = high_product(x, x)
    cube, fourth = high_product(square, x), high_product(square, square)
    tail = high_product(shift_right(fourth, 2, Rounding.HALF_AWAY) + cube, _constant(1 / 3, 0)) + square
    at_eighth = _constant(math.exp(-0.125), 0)
    return at_eighth + high_product(x + shift_right(tail, 1, Rounding.HALF_AWAY), at_eighth)


def _constant(value: float, integer_bits: int) -> int:
    return round(value * (1 << (31 - integer_bits)))
