"""Sums and differences where settings, scales and widths are extreme: right,
or refused in one sentence.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.errors import InputError
from qbench.numerics import (
    Adding,
    AddScheme,
    QParams,
    QType,
    Rounding,
    add_quantized,
    get_arithmetic,
    list_arithmetics,
    subtract_quantized,
)

INT8 = QType.parse("int8")
HEADROOM = ("gemmlowp", "litert-x64", "neon", "tflite-single")
FLOATS = ("ort-x64", "ort-x64-sse", "fbgemm", "onednn", "glow-interpreter")
POWERS = {"pow2-shift", "tqt"}


def grid(scale: float, zero_point: int = 0, qtype: QType | str = INT8) -> QParams:
    return QParams(scale, zero_point, qtype)


@pytest.mark.parametrize("machine", HEADROOM)
@pytest.mark.parametrize("name", ["int16", "uint16"])
def test_headroom_leaves_room_for_sixteen_bits(machine, name):
    """TFLite: 15 bits of headroom there; sums of half the range each,
    within one level of the exact ones.
    """
    qtype = QType.parse(name)
    a, b = (
        np.linspace(qtype.qmin, qtype.qmax, 301).astype(int)[order]
        for order in (slice(None), slice(None, None, -1))
    )
    x, w, y = grid(0.011, 0, qtype), grid(0.007, qtype.qmax // 3, qtype), grid(0.019, 5, qtype)
    for counted in (add_quantized, subtract_quantized):
        near, exact = (counted(a, b, x, w, y, one).astype(int) for one in (machine, "ideal"))
        assert np.abs(near - exact).max() <= 1
    one = grid(1.0, 0, qtype)
    assert add_quantized([30_000], [30_000], one, one, grid(2.0, 0, qtype), machine).tolist() == [
        30_000
    ]
    assert subtract_quantized([30_000], [1], one, one, one, machine).tolist() == [29_999]


@pytest.mark.parametrize("machine", [*HEADROOM, "xnnpack", "qnnpack", "tvm-upward", "glow-cpu"])
@pytest.mark.parametrize("counted", [add_quantized, subtract_quantized])
def test_levels_that_no_product_has_room_for_are_refused(machine, counted):
    wide = grid(0.5, 0, "int32")
    with pytest.raises(InputError, match="operands of 32 bits"):
        counted([2**31 - 1], [2**30], wide, wide, wide, machine)


@pytest.mark.parametrize(("machine", "least"), [("xnnpack", 2.0**-10), ("qnnpack", 2.0**-14)])
@pytest.mark.parametrize("counted", [add_quantized, subtract_quantized])
def test_weighted_sums_have_a_range_of_ratios(machine, least, counted):
    one, below = (
        np.nextafter(np.float32(least), np.float32(0)),
        np.nextafter(np.float32(256), np.float32(0)),
    )
    assert counted([127], [0], grid(below), grid(least), grid(1.0), machine).tolist() == [127]
    for ratio in (one, 256.0, 2.0**21, 2.0**60, 1e-30):
        for a, b in ((ratio, 1.0), (1.0, ratio)):
            with pytest.raises(InputError, match=r"2\^8\)"):
                counted([1], [0], grid(a), grid(b), grid(1.0), machine)


@pytest.mark.parametrize("machine", ["ideal", *FLOATS])
@pytest.mark.parametrize("ratio", [1e12, 1e21, 1e28])
def test_results_beyond_every_integer_saturate(machine, ratio):
    big, one = grid(ratio), grid(1.0)
    assert add_quantized([1, -1, 0], [5, 5, 5], big, one, one, machine).tolist() == [127, -128, 5]
    assert subtract_quantized([5, 5, 5], [1, -1, 0], one, big, one, machine).tolist() == [
        -128,
        127,
        5,
    ]


@pytest.mark.parametrize("machine", FLOATS)
@pytest.mark.parametrize("counted", [add_quantized, subtract_quantized])
def test_scales_that_overflow_floats_are_refused(machine, counted):
    with pytest.raises(InputError, match="float32"):
        counted([100], [-100], grid(3e38), grid(3e38), grid(0.001), machine)


def test_large_scales_that_cancel_are_no_large_sums():
    """Glow's common grid of 2⁻¹⁵ is far too fine for them, and no reason to saturate."""
    big = grid(1e21)
    assert add_quantized([3, -7], [4, 2], big, big, big, "glow-interpreter").tolist() == [7, -5]


@pytest.mark.parametrize(
    "scales",
    [
        (0.25, 0.125, 0.5),
        (0.03, 0.02, 0.05),
        (2.0**-40, 3.0, 0.5),
        (1e-30, 1e20, 0.1),
        (1e20, 1e-30, 1e19),
        (0.7, 1e-9, 0.01),
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_all_pairs_of_the_exact_machine_are_rational(scales, sign):
    a, b, y = grid(scales[0], -12), grid(scales[1], 7), grid(scales[2], -3)
    random = np.random.default_rng(3)
    left, right = random.integers(-128, 128, (2, 1500))
    counted = add_quantized if sign == 1 else subtract_quantized
    first, second, out = (Fraction(float(one.scale)) for one in (a, b, y))
    exact = [
        round((first * (i + 12) + sign * second * (j - 7)) / out) - 3
        for i, j in zip(left.tolist(), right.tolist(), strict=True)
    ]
    assert counted(left, right, a, b, y, "ideal").tolist() == np.clip(exact, -128, 127).tolist()


@given(
    st.tuples(*[st.floats(2.0**-120, 2.0**120, width=32)] * 3), st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**31), 2**31 - 1),
)  # fmt: skip
@settings(max_examples=100)
def test_the_exact_machine_is_exact_at_any_scale_and_width(scales, left, right):
    a, b, y = (grid(scale, 0, "int32") for scale in scales)
    first, second, out = (Fraction(float(one.scale)) for one in (a, b, y))
    exact = round((first * left + second * right) / out)
    clamped = min(max(exact, -(2**31)), 2**31 - 1)
    assert int(add_quantized(left, right, a, b, y, "ideal")) == clamped


@pytest.mark.parametrize("machine", sorted(set(list_arithmetics()) - POWERS))
def test_adding_what_is_negated_is_subtracting_where_nothing_mirrors(machine):
    """Within one level: two roundings each may part; and a − b is never b − a."""
    a, b, y = grid(0.031, -12), grid(0.027, 0), grid(0.05, -3)
    left, right = (
        one.reshape(-1) for one in np.meshgrid(np.arange(-128, 128), np.arange(-127, 128))
    )
    gap = subtract_quantized(left, right, a, b, y, machine).astype(int) - add_quantized(
        left, -right, a, b, y, machine
    )
    assert np.abs(gap).max() <= 1


def test_operands_of_a_difference_round_as_those_of_a_sum():
    base = get_arithmetic("gemmlowp")
    once = get_arithmetic("litert-x64").at("Add", "").adding
    machine = replace(base, overrides=(), adding=once)
    x, w = grid(0.15342818200588226), grid(0.5051593780517578)
    y = grid(0.3508257567882538, -114)
    left, right = (
        one.reshape(-1) for one in np.meshgrid(np.arange(-128, 128), np.arange(-127, 128))
    )
    ours, plain = (subtract_quantized(left, right, x, w, y, one) for one in (machine, base))
    assert (ours != plain).any()
    factors = [
        round(Fraction(float(one.scale)) / Fraction(2 * float(w.scale)) * 2**40) for one in (x, w)
    ]
    scaled = [
        [(level * 2**20 * factor + 2**39) >> 40 for level in range(-128, 128)] for factor in factors
    ]
    for i, j in ((20, -79), (-128, 127), (64, 3), (-77, -120)):
        real = (
            Fraction(scaled[0][i + 128] - scaled[1][j + 128], 2**20)
            * Fraction(2 * float(w.scale))
            / Fraction(float(y.scale))
        )
        found = int(subtract_quantized(i, j, x, w, y, machine))
        assert abs(min(max(real - 114, -128), 127) - found) <= Fraction(501, 1000)


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({"scheme": AddScheme.WEIGHTED}, "8 to 31"),
        ({"scheme": AddScheme.WEIGHTED, "bits": 7}, "8 to 31"),
        ({"scheme": AddScheme.WEIGHTED, "bits": 32}, "8 to 31"),
        ({"scheme": AddScheme.EACH, "bits": 20}, "weighted"),
        ({"scheme": AddScheme.EACH, "operands": get_arithmetic("gemmlowp").scaling}, "headroom"),
        ({"scheme": AddScheme.EACH, "rounding": Rounding.HALF_UP}, "weighted"),
        ({"scheme": AddScheme.WEIGHTED, "bits": 21, "least_power": 8}, "least_power"),
    ],
)
def test_settings_of_sums_that_no_machine_has(given_, words):
    with pytest.raises(ValueError, match=words):
        Adding(**given_)
