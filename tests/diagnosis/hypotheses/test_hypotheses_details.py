"""Mistakes that look like others: each beside a decoy that must be told otherwise,
or not at all.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis_units import MACHINE, add, constant, conv, edited, gemm, made
from test_hypotheses_costs import graphwise

from qbench.diagnosis.hypotheses import catalogue as naming
from qbench.diagnosis.hypotheses import name_cause, remedy_of
from qbench.judging import Cause, Errors
from qbench.numerics import Accumulator, MultiplierForm, Rounding, Scaling, Stage

conv, gemm, add = cache(conv), cache(gemm), cache(add)


def with_integers(one, change):
    """What the machine makes of other integers of the weights,
    under the scales of their channels.
    """
    return one.levels(graph=edited(one.unit, w_q=change(constant(one.unit, "w_q"))))


@pytest.mark.parametrize(("unit", "axis"), [(conv, 0), (gemm, 1)])
def test_integers_of_the_weights_that_are_a_channel_on(unit, axis):
    named = unit().cause(with_integers(unit(), lambda w: np.roll(w, 1, axis)))
    assert named.cause is Cause.LAYOUT
    assert f"the weights' integers one slice on along axis {axis}" in named.evidence
    assert named.weight > 0.99


@pytest.mark.slow
@pytest.mark.parametrize("unit", [conv, gemm])
def test_integers_of_the_weights_in_no_order_that_is_known(unit):
    other = with_integers(
        unit(), lambda w: np.random.default_rng(0).permutation(w.reshape(-1)).reshape(w.shape)
    )
    assert unit().cause(other).cause is Cause.WRONG_KERNEL


@pytest.mark.slow
def test_filters_of_the_next_group():
    one = conv(channels=(6, 12), group=3)
    named = one.cause(with_integers(one, lambda w: np.roll(w, 4, 0)))
    assert named.cause is Cause.LAYOUT
    assert "one group on" in named.evidence


@pytest.mark.slow
def test_scales_that_are_held_in_half_precision():
    one = gemm(samples=120)
    held = constant(one.unit, "w_s").astype(np.float16)
    named = one.cause(one.levels(graph=edited(one.unit, w_s=held)))
    assert named.cause is Cause.WRONG_SCALE
    assert "half precision" in named.evidence
    other = one.levels(graph=edited(one.unit, w_s=1.001 * constant(one.unit, "w_s")))
    assert "half precision" not in one.cause(other).evidence


@pytest.mark.slow
def test_few_levels_are_not_explained_by_as_many_fitted_numbers():
    wrong = gemm().levels()
    wrong[range(6), range(6)] += 1
    named = gemm().cause(wrong)
    assert named.cause is Cause.WRONG_KERNEL
    assert not any("of its own" in one.evidence and one.weight > 0.5 for one in named.others)


def test_products_that_are_rounded_twice():
    one = conv(size=24, seed=1)
    stages = (Stage(Rounding.HALF_UP, 31), Stage(Rounding.HALF_AWAY))
    twice = replace(MACHINE, scaling=Scaling(form=MultiplierForm.FIXED, bits=31, stages=stages))
    wrong = one.levels(twice)
    assert (wrong != one.levels()).any()
    named = one.cause(wrong)
    assert named.cause is Cause.ROUNDING
    assert named.weight > 0.95
    assert one.cause(wrong, machine=twice).cause is None


def test_a_step_in_front_of_the_limits():
    one = conv(behind="Relu", output=(0.25, 0, "uint8"))
    named = one.cause(np.clip(np.rint(one.real()) + 1, 0, 255))
    assert named.cause is Cause.ROUNDING
    assert "+1 on every code, before its limits," in named.evidence


def test_a_lowest_level_that_is_never_reached():
    one = conv(behind="Relu", output=(0.25, 0, "uint8"))
    named = one.cause(np.maximum(one.levels(), 1))
    assert named.cause is Cause.ABSORBED_CLIP
    assert "a lower limit of 1 steps" in named.evidence


@pytest.mark.parametrize("where", ["above", "below"])
def test_levels_that_wrap_at_one_end_alone(where):
    one = conv(output=(0.05, 128, "uint8"))
    free = np.rint(one.real()).astype(int) + 128
    beyond = free > 255 if where == "above" else free < 0
    named = one.cause(np.where(beyond, free % 256, one.levels()))
    assert named.cause is Cause.ACCUMULATOR
    assert f"wrap at 8 bits {where}" in named.evidence
    assert "saturate" in remedy_of(named.cause)


@pytest.mark.slow
def test_channels_of_a_block_where_some_are_right_by_chance():
    one = conv(behind="Relu", output=(0.25, 0, "uint8"))
    levels = one.levels()
    levels[:, 7] = 0  # a channel that is silent anyway
    wrong = levels.copy()
    wrong[:, 5:] = 0
    named = one.cause(wrong)
    assert named.cause is Cause.NOT_WRITTEN
    assert "7 last of 12 slices of axis 1 holding 0 steps throughout" in named.evidence


def test_an_operand_that_is_read_on_the_grid_of_the_other():
    one = add()
    grid = {"b_s": constant(one.unit, "a_s"), "b_z": constant(one.unit, "a_z")}
    named = one.cause(one.levels(graph=edited(one.unit, **grid)))
    assert named.cause is Cause.WRONG_SCALE
    assert "'b_d' read with the qparams of 'a_d'" in named.evidence


def test_a_resize_that_takes_another_neighbour():
    x = {"x": np.random.default_rng(1).normal(size=(2, 3, 6, 6))}
    shape = {"roi": np.zeros(0, np.float32), "twice": np.array([1, 1, 2, 2], np.float32)}
    rule = '<mode="nearest", coordinate_transformation_mode="{}", nearest_mode="{}">'
    one = made("Resize", x, shape=shape, attributes=rule.format("asymmetric", "floor"))
    grid = float(constant(one.unit, "y_s")), int(constant(one.unit, "y_z")), "uint8"
    other = made(
        "Resize", x, shape=shape, attributes=rule.format("half_pixel", "ceil"), output=grid
    )
    assert one.cause().cause is None
    named = one.cause(other.levels())
    assert named.cause is Cause.LAYOUT
    assert "'half_pixel' and 'ceil'" in named.evidence


def test_rows_that_are_exchanged_in_the_graph_with_all_that_is_theirs():
    order = [0, 4, 2, 3, 1, *range(5, 10)]
    constants = {
        name: constant(gemm().unit, name)[..., order] for name in ("w_q", "w_s", "b_q", "b_s")
    }
    named = graphwise(gemm(), **constants).cause()
    assert named.cause is Cause.LAYOUT
    assert "2 slices of axis 1 of the weights are others (1 ← 4, 4 ← 1)" in named.evidence


def test_a_small_change_of_the_bias_is_wrong_unless_it_brings_the_result_nearer():
    one = graphwise(conv(), b_q=constant(conv().unit, "b_q") + 12)
    errors = one.captured().errors
    for alone, cause in ((0.02, Cause.WRONG_BIAS), (0.005, None)):
        told = replace(
            errors,
            isolated=Errors(sqnr_db=30.0, relative=alone),
            explained=Errors(sqnr_db=35.0, relative=0.01),
        )
        named = one.cause(errors=told)
        assert named.cause is cause
        assert ("12.4 of its own" in named.evidence) == (cause is not None)
        assert conv().cause(errors=told).cause is None  # rounding alone moves nothing by so much


@pytest.mark.slow
def test_a_first_sample_in_all_others_of_a_large_batch():
    one = conv(size=40, samples=8)
    levels = one.levels()
    assert levels.size > 2 * 60_000
    named = one.cause(np.broadcast_to(levels[:1], levels.shape).copy())
    assert named.cause is Cause.NOT_WRITTEN
    assert "all 8 samples hold the result of the first one" in named.evidence


def test_sums_that_wrap_are_told_from_levels_that_do():
    one = gemm()
    named = one.cause(one.levels(replace(MACHINE, accumulator=Accumulator(bits=14))))
    assert named.cause is Cause.ACCUMULATOR
    assert "in 14 bits" in named.evidence


def test_a_piece_that_nobody_foresaw_is_a_note_and_no_crash(monkeypatch):
    def broken(*_):
        raise KeyError("levels that nobody has")

    monkeypatch.setattr(naming, "evidence_of", broken)
    named = name_cause(gemm().captured(), None)
    assert named.cause is None
    assert named.notes == ("its cause could not be looked for: KeyError: 'levels that nobody has'",)
