"""Calibrated ranges against the accepted ones: on every class, before drift,
never in the place of a loss.
"""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged_numbers import ELSEWHERE, HERE, expected, judged, measured, top1

from qbench.judging import Calibrated, GateState, Outcome, Rules, moved_ranges

ACCEPTED = {"x": (0.0, 1.0), "conv": (-2.0, 6.0), "relu": (0.0, 6.0), "still": (3.0, 3.0)}


def calibrated(**ranges):
    return Calibrated(key="default", ranges=ACCEPTED | ranges)


def verdict(now, *scores, rules=None, environment=HERE, known=ACCEPTED, predictions="p1"):
    measurement = measured(
        *scores, environment=environment, predictions=predictions, calibrated=now
    )
    expectation = dataclasses.replace(expected(measured()), calibrations={"default": known})
    return judged(measurement, expectation, rules=rules or Rules())


def gate_of(found):
    return next((gate for gate in found.gates if gate.kind == "calibration"), None)


def test_a_moved_range_is_named_first_on_every_class(words):
    for environment in (HERE, ELSEWHERE):
        found = verdict(calibrated(conv=(-2.0, 1.5), relu=(0.0, 1.5)), environment=environment)
        assert found.outcome is Outcome.DRIFTED
        words(found.headline)
        words(found.rule)
        assert [one.value for one in found.moved] == ["conv", "relu"]
        assert "--qbench-accept=changed" in found.remedy


def test_it_says_why_predictions_drifted_and_why_a_cell_fails():
    moved = calibrated(x=(0.0, 0.5))
    assert verdict(moved, predictions="p2").headline.startswith("calibration changed: ")
    failed = verdict(moved, top1(700), predictions="p2")
    assert failed.outcome is Outcome.FAILED
    assert failed.headline.startswith("top1 ")
    assert any(notice.startswith("calibration changed: 1 of 4 ranges") for notice in failed.notices)


def test_a_hundredth_of_the_width_is_admitted(words):
    at_most = calibrated(conv=(-2.0, 6.08), x=(0.0, 1.0))
    assert verdict(at_most).outcome is Outcome.PASSED
    words(gate_of(verdict(at_most)).detail)
    assert verdict(calibrated(conv=(-2.0, 6.09))).outcome is Outcome.DRIFTED
    assert verdict(calibrated(still=(3.1, 3.1))).outcome is Outcome.DRIFTED
    assert (
        verdict(calibrated(conv=(-2.0, 6.09)), rules=Rules(ranges=0.02)).outcome is Outcome.PASSED
    )
    assert (
        verdict(calibrated(conv=(900.0, 901.0)), rules=Rules(ranges=1.0)).outcome is Outcome.PASSED
    )


def test_what_was_not_calibrated_or_is_not_held_to_a_baseline_has_no_gate():
    assert gate_of(verdict(None)) is None
    measurement = measured(calibrated=calibrated(conv=(0.0, 9.0)))
    for changes in ({"stored": False}, {"whole": False}):
        found = judged(measurement, dataclasses.replace(expected(measured()), **changes))
        assert gate_of(found) is None


def test_a_baseline_without_ranges_is_told(words):
    found = verdict(Calibrated(key="default+calib16", ranges={"conv": (0.0, 9.0)}))
    assert found.outcome is Outcome.PASSED
    words(found.notices)


def test_values_that_were_never_accepted_and_those_that_are_gone_are_told(words):
    left = {value: ends for value, ends in ACCEPTED.items() if value != "still"}
    found = verdict(Calibrated(key="default", ranges=left | {"added": (0.0, 1.0)}))
    assert found.outcome is Outcome.PASSED
    assert gate_of(found).state is GateState.SHOWN
    words(found.notices)


ENDS = st.floats(-1e6, 1e6).map(lambda end: float(f"{end:.5g}"))
RANGES = st.tuples(ENDS, ENDS).map(sorted).map(tuple)


@given(before=RANGES, after=RANGES, limit=st.sampled_from([0.0, 0.01, 0.5, 1.0]))
def test_ranges_apart_are_a_share_both_ways(before, after, limit):
    there = moved_ranges({"v": before}, {"v": after}, limit)
    back = moved_ranges({"v": after}, {"v": before}, limit)
    assert [one.apart for one in there] == [one.apart for one in back]
    assert all(limit < one.apart <= 1 for one in there)
    assert bool(moved_ranges({"v": before}, {"v": after}, 0.0)) == (before != after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((0.33333, 0.33333), (0.33334, 0.33334)),
        ((1000.0, 1000.0), (1000.1, 1000.1)),
        ((-1.2e-9, 1.2e-9), (-4e-9, 0.0)),
    ],
)
def test_what_hardly_spans_anything_is_held_to_what_its_grid_spans(before, after):
    assert not moved_ranges({"v": before}, {"v": after}, Rules().ranges)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_last_bits_of_another_processor_are_no_change(scale):
    before = {"v": (-1.2345 * scale, 6.7891 * scale)}
    after = {"v": (-1.2346 * scale, 6.7890 * scale)}
    assert not moved_ranges(before, after, Rules().ranges)


def test_a_moved_range_says_what_the_run_was_calibrated_on():
    now = dataclasses.replace(calibrated(conv=(-2.0, 1.5)), samples="2 samples of 'd'")
    assert gate_of(verdict(now)).detail.endswith("; calibrated on 2 samples of 'd' now")
    assert now == calibrated(conv=(-2.0, 1.5))  # no record and no baseline has the words
