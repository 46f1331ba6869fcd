"""An engine that rounds, clamps or looks up otherwise: each cause in two situations or more."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis_units import MACHINE, MACHINES, add, conv, edited, gemm, made

from qbench.judging import Cause
from qbench.numerics import Rounding, Stage, ZeroPoint, get_arithmetic

conv, gemm, add = cache(conv), cache(gemm), cache(add)


@pytest.mark.parametrize("machine", MACHINES)
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


def _of_many_ties():
    rng = np.random.default_rng(2)
    weight = rng.integers(-3, 4, (6, 8, 1, 1)).astype(float)
    weight[:, 0] = 127  # of an input of zeros: it only makes the scale a power of two
    x = rng.integers(0, 40, (4, 8, 5, 5)) * 0.5
    x[:, 0] = 0
    return made(
        "Conv", {"x": x}, weight=weight, channelwise=False,
        grids={"x": (0.5, 0, "uint8")}, output=(2.0, 130, "uint8"),
    )  # fmt: skip


@pytest.mark.slow
def test_a_single_tie_is_not_a_mistake_under_exact_arithmetic_alone():
    one, ideal = _of_many_ties(), get_arithmetic("ideal")
    right = one.levels(ideal)
    rounded_up = replace(ideal, scaling=replace(ideal.scaling, stages=(Stage(Rounding.HALF_UP),)))
    moved = one.levels(rounded_up)
    first = np.flatnonzero(moved != right)[:1]
    found = right.copy()
    found.reshape(-1)[first] = moved.reshape(-1)[first]
    assert one.cause(found, machine=ideal).cause is None
    assert one.cause(moved, machine=ideal).cause is Cause.ROUNDING  # half of all ties
    few = one.cause(
        found, machine=MACHINE
    )  # an engine can be this arithmetic, but one place names no rule
    assert few.cause is Cause.WRONG_KERNEL
    assert f"1 of {right.size} codes" in few.evidence
    assert one.cause(moved, machine=MACHINE).cause is Cause.ROUNDING


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("count", [1, 2, 7])
def test_fewer_than_eight_of_six_hundred_places_name_no_rule(count):
    one = _of_many_ties()
    right = one.levels(MACHINE)
    found = right.copy()
    found.reshape(-1)[:count] += 1
    assert one.cause(found, machine=MACHINE).cause is Cause.WRONG_KERNEL
    found.reshape(-1)[:300] = right.reshape(-1)[:300] + 1
    assert one.cause(found, machine=MACHINE).cause is Cause.ROUNDING


def test_a_few_values_that_differ_at_ties_alone_are_rounded_otherwise():
    """They do not tell one rule from another; that all are at ties, where few values are,
    is no chance.
    """
    one = conv()
    right, real = one.levels(), one.real().copy()
    found = right.copy()
    places = np.flatnonzero((right > 1) & (right < 250))[:4]
    found.reshape(-1)[places] -= 1
    assert one.cause(found).cause is Cause.WRONG_KERNEL
    real.reshape(-1)[places] = right.reshape(-1)[places] - one.unit.zero_point - 0.5
    assert one.cause(found, real=real).cause is Cause.ROUNDING


@pytest.mark.parametrize("rounding", [Rounding.HALF_UP, Rounding.HALF_AWAY])
def test_ties_that_go_another_way(rounding):
    one = _of_many_ties()
    other = replace(MACHINE, scaling=replace(MACHINE.scaling, stages=(Stage(rounding),)))
    wrong = one.levels(other)
    assert (wrong != one.levels()).any()
    named = one.cause(wrong)
    assert named.cause is Cause.ROUNDING
    assert named.weight > 0.999
    assert one.cause(wrong, machine=other).cause is None
    assert (
        one.cause(wrong, machine=None).cause is None
    )  # ties are nobody's fault where nothing is claimed


def test_a_zero_point_that_is_added_before_rounding():
    rng = np.random.default_rng(2)
    weight = rng.integers(-3, 4, (6, 8, 1, 1)).astype(float)
    weight[:, 0] = 127  # of an input of zeros: it only makes the scale a power of two
    x = rng.integers(0, 40, (4, 8, 5, 5)) * 0.5
    x[:, 0] = 0
    one = made(
        "Conv", {"x": x}, weight=weight, channelwise=False,
        grids={"x": (0.5, 0, "uint8")}, output=(2.0, 131, "uint8"),
    )  # fmt: skip
    wrong = one.levels(
        replace(MACHINE, scaling=replace(MACHINE.scaling, zero_point=ZeroPoint.BEFORE))
    )
    named = one.cause(wrong)
    assert named.cause is Cause.ROUNDING
    assert "half to even after the zero point is added" in named.evidence


@pytest.mark.parametrize("unit", [conv, gemm, add])
def test_zero_points(unit):
    one = unit()
    levels = one.levels().astype(int)
    for wrong, words in (
        (levels - one.unit.zero_point, "not added"),
        (levels - 1, "-1 on every code"),
    ):
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
        "Gemm", {"x": rng.normal(size=(40, 32))}, weight=rng.normal(size=(32, 8)),
        bias=rng.normal(size=8), channelwise=False, weight_zero=121, output=(0.6, 120, "uint8"),
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
        assert named.cause is Cause.ACCUMULATOR
        assert "wrap at 8 bits" in named.evidence


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("behind", "lost"), [("Relu", "no limits"), ("Clip(0.0, 6.0)", "no limits")]
)
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
    return (
        one,
        levels,
        dict(zip(levels.reshape(-1).tolist(), one.levels().reshape(-1).tolist(), strict=True)),
    )


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("words", "entry"),
    [
        ("1 entry up", lambda level: level + 1),
        ("2 entries down", lambda level: level - 2),
        ("4 neighbouring codes", lambda level: level // 4 * 4),
    ],
)
def test_tables(words, entry, machine):
    one, levels, table = sigmoid()
    assert one.cause(machine=machine).cause is None
    wrong = np.array(
        [table.get(entry(level), table[level]) for level in levels.reshape(-1).tolist()]
    )
    named = one.cause(wrong.reshape(levels.shape), machine=machine)
    assert named.cause is Cause.TABLE
    assert words in named.evidence


def test_one_entry_of_a_table():
    one, levels, _ = sigmoid()
    named = one.cause(
        np.where(levels == levels[0, 0], one.levels() + 9.0, one.levels()).clip(0, 255)
    )
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
