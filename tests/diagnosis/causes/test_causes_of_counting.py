"""An engine that counts otherwise: numbers of a product, each cause in two situations or more."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from cause_units import MACHINE, add, constant, conv, edited, gemm, grid_over, made

from qbench.judging import Cause
from qbench.numerics import Accumulator, MultiplierForm, Rounding, Scaling, Stage, ZeroPoint
from qbench.numerics.accumulation import Overflow

conv, gemm, add = cache(conv), cache(gemm), cache(add)


@pytest.mark.parametrize("machine", [MACHINE, None], ids=["claimed", "unknown"])
@pytest.mark.parametrize("unit", [conv, gemm])
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


def test_a_bias_that_is_left_out_in_one_channel():
    one = conv()
    bias = constant(one.unit, "b_q").copy()
    bias[5] = 0
    named = one.cause(one.levels(graph=edited(one.unit, b_q=bias)))
    assert named.cause is Cause.WRONG_BIAS
    assert "243 of 2916 places alone" in named.evidence


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


@pytest.mark.parametrize("machine", [MACHINE, None], ids=["claimed", "unknown"])
@pytest.mark.parametrize(("words", "of"), [
    ("next channel", lambda s: np.roll(s, -1)),
    ("first channel", lambda s: np.full_like(s, s[0])),
    ("opposite order", lambda s: s[::-1]),
    ("1.05 times", lambda s: 1.05 * s),
])  # fmt: skip
def test_a_wrong_scale(words, of, machine):
    one = conv()
    scales = constant(one.unit, "w_s")
    named = one.cause(one.rounded(one.real() * (of(scales) / scales).reshape(1, -1, 1, 1)), machine=machine)
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
    assert "'a_d' taken over" in named.evidence
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
    assert one.cause(one.levels(avx2), machine=avx2).cause is None
    named = one.cause(one.levels(), machine=avx2)
    assert named.cause is Cause.PAIR_SATURATION
    assert "one by one" in named.evidence


@pytest.mark.parametrize("unit", [conv, gemm])
@pytest.mark.parametrize("overflow", Overflow)
def test_an_accumulator_of_few_bits(unit, overflow):
    one = unit()
    named = one.cause(one.levels(replace(MACHINE, accumulator=Accumulator(bits=15, overflow=overflow))))
    assert named.cause is Cause.ACCUMULATOR
    assert f"{overflow.value} in 15 bits" in named.evidence


@pytest.mark.parametrize("machine", [MACHINE, None], ids=["claimed", "unknown"])
@pytest.mark.parametrize("unit", [conv, gemm, add])
@pytest.mark.parametrize("rounding", [np.trunc, np.floor, np.ceil])
def test_another_rounding(unit, rounding, machine):
    one = unit()
    named = one.cause(one.rounded(rounding(one.real())), machine=machine)
    assert named.cause is Cause.ROUNDING
    assert named.weight > 0.95


def test_another_rounding_of_a_stretch_in_memory():
    one = conv()
    levels, cut = one.levels(), one.rounded(np.floor(one.real()))
    levels.reshape(-1)[-200:] = cut.reshape(-1)[-200:]
    named = one.cause(levels)
    assert named.cause is Cause.ROUNDING
    assert "places alone" in named.evidence


@pytest.mark.parametrize("rounding", [Rounding.HALF_UP, Rounding.HALF_AWAY])
def test_ties_that_go_another_way(rounding):
    rng = np.random.default_rng(2)
    weight = rng.integers(-3, 4, (6, 8, 1, 1)).astype(float)
    weight[0, 0] = 127  # of an input of zeros: it only makes the scale a power of two
    x = rng.integers(0, 40, (4, 8, 5, 5)) * 0.5
    x[:, 0] = 0
    one = made(
        "Conv", {"x": x}, weight=weight, channelwise=False,
        grids={"x": (0.5, 0, "uint8")}, output=(1.0, 130, "uint8"),
    )  # fmt: skip
    other = replace(MACHINE, scaling=replace(MACHINE.scaling, stages=(Stage(rounding),)))
    wrong = one.levels(other)
    assert (wrong != one.levels()).any()
    named = one.cause(wrong)
    assert named.cause is Cause.ROUNDING
    assert named.weight > 0.999
    assert one.cause(wrong, machine=other).cause is None
    assert one.cause(wrong, machine=None).cause is None  # ties are nobody's fault where nothing is claimed


def test_a_zero_point_that_is_added_before_rounding():
    rng = np.random.default_rng(2)
    weight = rng.integers(-3, 4, (6, 8, 1, 1)).astype(float)
    weight[0, 0] = 127  # of an input of zeros: it only makes the scale a power of two
    x = rng.integers(0, 40, (4, 8, 5, 5)) * 0.5
    x[:, 0] = 0
    one = made(
        "Conv", {"x": x}, weight=weight, channelwise=False,
        grids={"x": (0.5, 0, "uint8")}, output=(1.0, 131, "uint8"),
    )  # fmt: skip
    wrong = one.levels(replace(MACHINE, scaling=replace(MACHINE.scaling, zero_point=ZeroPoint.BEFORE)))
    named = one.cause(wrong)
    assert named.cause is Cause.ROUNDING
    assert "behind the zero point" in named.evidence


@pytest.mark.parametrize("unit", [conv, gemm, add])
def test_zero_points(unit):
    one = unit()
    levels = one.levels().astype(int)
    for wrong, words in ((levels - one.unit.zero_point, "not added"), (levels - 1, "-1 on every level")):
        named = one.cause(np.clip(wrong, 0, 255))
        assert named.cause is Cause.ROUNDING
        assert words in named.evidence


@pytest.mark.parametrize("unit", [conv, gemm])
@pytest.mark.parametrize("zero", [0, 100])
def test_another_zero_point_of_the_input(unit, zero):
    one = unit()
    named = one.cause(one.levels(graph=edited(one.unit, x_z=np.array(zero))))
    assert named.cause is Cause.ROUNDING
    assert f"zero point {zero} in place of" in named.evidence


def test_a_zero_point_of_the_weights_that_is_left_out():
    rng = np.random.default_rng(3)
    one = made(
        "Gemm", {"x": rng.normal(size=(40, 32))}, weight=rng.normal(size=(32, 8)), bias=rng.normal(size=8),
        channelwise=False, weight_zero=121, output=(0.6, 120, "uint8"),
    )  # fmt: skip
    assert one.cause().cause is None
    named = one.cause(one.levels(graph=edited(one.unit, w_z=np.array(0))))
    assert named.cause is Cause.ROUNDING
    assert "zero point 0 in place of 121 for 'w_d'" in named.evidence


def test_levels_that_wrap():
    for output in ((0.05, 128, "uint8"), (0.05, 0, "int8")):
        one = conv(output=output)
        free = np.rint(one.real()).astype(int) + output[1]
        named = one.cause(free.astype(output[2]))
        assert named.cause is Cause.ABSORBED_CLIP
        assert "wrap at 8 bits" in named.evidence


@pytest.mark.parametrize("machine", [MACHINE, None], ids=["claimed", "unknown"])
@pytest.mark.parametrize(("behind", "lost"), [("Relu", "no limits"), ("Clip(0.0, 6.0)", "no limits")])
def test_a_limit_that_is_gone(behind, lost, machine):
    one = conv(behind=behind, output=(0.25, 100, "uint8"))
    named = one.cause(np.clip(np.rint(one.real()) + 100, 0, 255), machine=machine)
    assert named.cause is Cause.ABSORBED_CLIP
    assert lost in named.evidence


def test_an_upper_limit_alone_that_is_gone():
    one = conv(behind="Clip(0.0, 6.0)", output=(0.25, 100, "uint8"))
    named = one.cause(np.clip(np.rint(one.real()) + 100, 100, 255))
    assert named.cause is Cause.ABSORBED_CLIP
    assert "no upper limit of 24 steps" in named.evidence


def test_a_limit_of_its_own():
    one = conv()
    named = one.cause(np.minimum(one.levels(), 180))
    assert named.cause is Cause.ABSORBED_CLIP
    assert "an upper limit of" in named.evidence


def sigmoid():
    x = np.random.default_rng(5).normal(size=(4, 300)) * 3
    one = made("Sigmoid", {"x": x}, output=(1 / 256, 0, "uint8"))
    levels = one.feeds["x_q"].astype(int)
    return one, levels, dict(zip(levels.reshape(-1).tolist(), one.levels().reshape(-1).tolist(), strict=True))


@pytest.mark.parametrize("machine", [MACHINE, None], ids=["claimed", "unknown"])
@pytest.mark.parametrize(
    ("words", "entry"),
    [
        ("1 entry up", lambda level: level + 1),
        ("2 entries down", lambda level: level - 2),
        ("4 neighbouring levels", lambda level: level // 4 * 4),
    ],
)
def test_tables(words, entry, machine):
    one, levels, table = sigmoid()
    assert one.cause(machine=machine).cause is None
    wrong = np.array([table.get(entry(level), table[level]) for level in levels.reshape(-1).tolist()])
    named = one.cause(wrong.reshape(levels.shape), machine=machine)
    assert named.cause is Cause.TABLE
    assert words in named.evidence


def test_one_entry_of_a_table():
    one, levels, _ = sigmoid()
    named = one.cause(np.where(levels == levels[0, 0], one.levels() + 9.0, one.levels()).clip(0, 255))
    assert named.cause is Cause.TABLE
    assert "wrong for 1 of" in named.evidence


def test_a_softmax_that_is_a_step_low():
    x = np.random.default_rng(6).normal(size=(40, 10)) * 3
    one = made("Softmax", {"x": x}, attributes="<axis=1>", output=(1 / 256, 0, "uint8"))
    assert one.cause().cause is None
    for wrong in (np.maximum(one.levels().astype(int) - 1, 0), one.rounded(np.floor(one.real()))):
        assert one.cause(wrong).cause is Cause.ROUNDING


def test_a_softmax_by_a_coarse_exponential():
    x = np.random.default_rng(6).normal(size=(40, 10)) * 3
    one = made("Softmax", {"x": x}, attributes="<axis=1>", output=(1 / 256, 0, "uint8"))
    coarse = np.exp2(np.rint(x / np.log(2) * 2) / 2)
    named = one.cause(one.rounded(coarse / coarse.sum(axis=1, keepdims=True) * 256))
    assert named.cause is Cause.TABLE


@pytest.mark.parametrize("machine", [MACHINE, None], ids=["claimed", "unknown"])
def test_what_no_rule_explains_is_said_so(machine):
    for one in (conv(), gemm()):
        noise = np.random.default_rng(4).integers(-20, 20, one.levels().shape)
        named = one.cause(np.clip(one.levels().astype(int) + noise, 0, 255), machine=machine)
        assert named.cause is Cause.WRONG_KERNEL
        assert "by 20 steps at most" in named.evidence


def test_grids_over_ranges_of_the_tests_are_what_they_say():
    scale, zero, _ = grid_over(np.array([-1.0, 3.0]))
    assert (round(4 / 255, 6), 64) == (round(scale, 6), zero)
