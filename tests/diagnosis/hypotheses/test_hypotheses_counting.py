"""An engine that counts otherwise: numbers of a product, each cause in two situations or more."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis_units import MACHINE, MACHINES, add, constant, conv, edited, gemm, grid_over, made

from qbench.judging import Cause
from qbench.numerics import Accumulator, MultiplierForm, Scaling
from qbench.numerics.accumulator import Overflow

conv, gemm, add = cache(conv), cache(gemm), cache(add)


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("unit", [conv, pytest.param(gemm, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("words", "bias"),
    [
        ("left out", lambda b: 0 * b),
        ("twice", lambda b: 2 * b),
        ("next channel", lambda b: np.roll(b, -1)),
        ("first channel", lambda b: np.full_like(b, b[0])),
        ("times as large", lambda b: np.rint(1.37 * b)),
    ],
)
def test_a_wrong_bias(unit, words, bias, machine):
    one = unit()
    wrong = one.levels(graph=edited(one.unit, b_q=bias(constant(one.unit, "b_q"))))
    named = one.cause(wrong, machine=machine)
    assert named.cause is Cause.WRONG_BIAS
    assert words in named.evidence
    assert named.weight > 0.9


@pytest.mark.slow
def test_a_bias_that_is_left_out_in_one_channel():
    one = conv()
    bias = constant(one.unit, "b_q").copy()
    bias[5] = 0
    named = one.cause(one.levels(graph=edited(one.unit, b_q=bias)))
    assert named.cause is Cause.WRONG_BIAS
    assert "243 of 2916 places alone" in named.evidence


@pytest.mark.slow
def test_a_bias_of_no_rule_is_still_one():
    one = conv()
    noise = np.random.default_rng(0).normal(size=12) * 800
    named = one.cause(one.levels(graph=edited(one.unit, b_q=constant(one.unit, "b_q") + noise)))
    assert named.cause is Cause.WRONG_BIAS
    assert "offset of its own in 12 of 12 channels" in named.evidence


@pytest.mark.parametrize("bits", [10, 11])
@pytest.mark.parametrize("unit", [conv, gemm])
def test_a_bias_in_too_few_bits(unit, bits):
    one = unit()
    bias = constant(one.unit, "b_q")
    held = np.clip(bias, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    named = one.cause(one.levels(graph=edited(one.unit, b_q=held)))
    assert named.cause is Cause.BIAS_SATURATION
    assert f"saturate in {bits}" in named.evidence


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("words", "of"), [
    ("next channel", lambda s: np.roll(s, -1)),
    ("first channel", lambda s: np.full_like(s, s[0])),
    ("opposite order", lambda s: s[::-1]),
    ("1.05 times", lambda s: 1.05 * s),
])  # fmt: skip
def test_a_wrong_scale(words, of, machine):
    one = conv()
    scales = constant(one.unit, "w_s")
    named = one.cause(
        one.rounded(one.real() * (of(scales) / scales).reshape(1, -1, 1, 1)), machine=machine
    )
    assert named.cause is Cause.WRONG_SCALE
    assert words in named.evidence
    assert named.weight > 0.95


@pytest.mark.parametrize("bits", [4, 7])
def test_a_multiplier_of_few_bits(bits):
    one = gemm()
    scaling = Scaling(form=MultiplierForm.FIXED, bits=bits)
    named = one.cause(one.levels(replace(MACHINE, scaling=scaling)))
    assert named.cause is Cause.WRONG_SCALE
    assert f"{bits} significant bits" in named.evidence


def test_operands_of_a_sum_that_count_too_little():
    one = add()
    a, b = ((one.feeds[f"{n}_q"] - float(constant(one.unit, f"{n}_z"))) for n in "ab")
    steps = (a + b) * constant(one.unit, "a_s") / constant(one.unit, "y_s")
    named = one.cause(one.rounded(steps))
    assert named.cause is Cause.WRONG_SCALE
    assert "'b_d' counted 0.44" in named.evidence


def test_a_concatenation_without_rescaling():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 4, 5, 5)), rng.normal(size=(2, 6, 5, 5)) * 3
    one = made("Concat", {"a": a, "b": b}, attributes="<axis=1>")
    named = one.cause(np.concatenate([one.feeds["a_q"], one.feeds["b_q"]], 1))
    assert named.cause is Cause.WRONG_SCALE
    assert "'a_d'" in named.evidence
    assert one.cause().cause is None


@pytest.mark.parametrize("unit", [conv, gemm])
def test_pairs_that_saturate(unit):
    one = unit()
    named = one.cause(one.levels(replace(MACHINE, accumulator=Accumulator(pair_bits=16))))
    assert named.cause is Cause.PAIR_SATURATION
    assert named.weight > 0.99


def test_pairs_that_should_saturate_and_do_not():
    one = conv()
    avx2 = replace(MACHINE, name="pairs", accumulator=Accumulator(pair_bits=16))
    claimed = one.cause(
        one.levels(avx2), machine=avx2
    )  # then they are no fault, and yet the cause of the error
    assert claimed.cause is Cause.PAIR_SATURATION
    assert "as it claims" in claimed.evidence
    named = one.cause(one.levels(), machine=avx2)
    assert named.cause is Cause.PAIR_SATURATION
    assert "one by one" in named.evidence


@pytest.mark.parametrize("unit", [conv, gemm])
@pytest.mark.parametrize("overflow", Overflow)
def test_an_accumulator_of_few_bits(unit, overflow):
    one = unit()
    named = one.cause(
        one.levels(replace(MACHINE, accumulator=Accumulator(bits=15, overflow=overflow)))
    )
    assert named.cause is Cause.ACCUMULATOR
    assert f"{overflow.value} in 15 bits" in named.evidence


@pytest.mark.parametrize("machine", MACHINES)
def test_what_no_rule_explains_is_said_so(machine):
    for one in (gemm(width=16),):
        noise = np.random.default_rng(4).integers(-20, 20, one.levels().shape)
        named = one.cause(np.clip(one.levels().astype(int) + noise, 0, 255), machine=machine)
        assert named.cause is Cause.WRONG_KERNEL
        assert "by 20 steps at most" in named.evidence


def test_grids_over_ranges_of_the_tests_are_what_they_say():
    scale, zero, _ = grid_over(np.array([-1.0, 3.0]))
    assert (round(4 / 255, 6), 64) == (round(scale, 6), zero)
