"""Multiply-adds against rational numbers,
and the quotients built of them against what they approximate.
"""

from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
from hypothesis import example, given, settings

from qbench.numerics import fused_multiply_add as fused
from qbench.numerics import rational_sigmoid, rational_tanh
from qbench.numerics import separate_multiply_add as separate

SINGLES = st.floats(-(2.0**30), 2.0**30, width=32).filter(lambda x: x == 0 or abs(x) > 2.0**-30)


def nearest(exact: Fraction) -> np.float32:
    """The float32 next to ``exact``, the even one of two that are as near."""
    guess = np.float32(float(exact))
    around = [np.nextafter(guess, np.float32(end)) for end in (-np.inf, np.inf)] + [guess]
    return min(
        around,
        key=lambda one: (
            abs(Fraction(float(one)) - exact),
            int(np.float32(one).view(np.int32)) & 1,
        ),
    )


@settings(max_examples=300)
@given(SINGLES, SINGLES, SINGLES)
@example(1 + 2.0**-23, 1 + 2.0**-12, 2.0**-30)  # a float64 sum that ends on a tie of float32
@example(4097.0, 4097.0, 2.0**-30)
@example(4097.0, 4097.0, -(2.0**-30))
def test_a_fused_step_is_rounded_once(a: float, b: float, c: float) -> None:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    assert fused(a, b, c) == nearest(exact)
    assert separate(a, b, c) == nearest(
        Fraction(float(nearest(Fraction(a) * Fraction(b)))) + Fraction(c)
    )


def test_rounding_twice_would_be_seen() -> None:
    a, tiny = np.float32(4097), np.float32(2.0**-30)  # 4097² = 2²⁴ + 2¹³ + 1, a tie of float32
    once = [float(fused(a, a, sign * tiny)) for sign in (-1, 1)]
    twice = [float(np.float32(float(a) * float(a) + sign * float(tiny))) for sign in (-1, 1)]
    assert once == [2.0**24 + 2**13, 2.0**24 + 2**13 + 2]
    assert twice == [once[0], once[0]]


def test_quotients_are_near_what_they_stand_for() -> None:
    x = np.linspace(-12, 12, 4001, dtype=np.float32)
    real = x.astype(np.float64)
    for step in (fused, separate):
        assert np.abs(rational_sigmoid(x, step) - 1 / (1 + np.exp(-real))).max() < 3e-7
        assert np.abs(rational_tanh(x, step) - np.tanh(real)).max() < 3e-7
    assert (rational_sigmoid(x, fused) != rational_sigmoid(x, separate)).any()
