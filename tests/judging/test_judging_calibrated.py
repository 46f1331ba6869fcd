"""Calibrated ranges against the accepted ones: on every class, before drift, never in the place of a loss."""

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
    measurement = measured(*scores, environment=environment, predictions=predictions, calibrated=now)
    expectation = dataclasses.replace(expected(measured()), calibrations={"default": known})
    return judged(measurement, expectation, rules=rules or Rules())


def gate_of(found):
    return next((gate for gate in found.gates if gate.kind == "calibration"), None)


def test_a_moved_range_is_named_first_on_every_class():
    for environment in (HERE, ELSEWHERE):
        found = verdict(calibrated(conv=(-2.0, 1.5), relu=(0.0, 1.5)), environment=environment)
        assert found.outcome is Outcome.DRIFTED
        assert found.headline == (
            "calibration changed: 2 of 4 ranges moved, the first that of 'conv', −2 … 6 → −2 … 1.5"
        )
        assert found.rule == "calibrated ranges within 1 % of what was accepted (default)"
        assert [one.value for one in found.moved] == ["conv", "relu"]
        assert "--qbench-accept=changed" in found.remedy


def test_it_says_why_predictions_drifted_and_why_a_cell_fails():
    moved = calibrated(x=(0.0, 0.5))
    assert verdict(moved, predictions="p2").headline.startswith("calibration changed: ")
    failed = verdict(moved, top1(700), predictions="p2")
    assert failed.outcome is Outcome.FAILED
    assert failed.headline.startswith("top1 ")
    assert any(notice.startswith("calibration changed: 1 of 4 ranges") for notice in failed.notices)


def test_a_hundredth_of_the_width_is_admitted():
    at_most = calibrated(conv=(-2.0, 6.08), x=(0.0, 1.0))
    assert verdict(at_most).outcome is Outcome.PASSED
    assert gate_of(verdict(at_most)).detail == "4 calibrated ranges as accepted"
    assert verdict(calibrated(conv=(-2.0, 6.09))).outcome is Outcome.DRIFTED
    assert verdict(calibrated(still=(3.0, 3.001))).outcome is Outcome.DRIFTED
    assert verdict(calibrated(conv=(-2.0, 6.09)), rules=Rules(ranges=0.02)).outcome is Outcome.PASSED
    assert verdict(calibrated(conv=(900.0, 901.0)), rules=Rules(ranges=1.0)).outcome is Outcome.PASSED


def test_without_ranges_on_either_side_there_is_no_gate():
    for found in (
        verdict(None),
        verdict(Calibrated(key="default+calib16", ranges={"conv": (0.0, 9.0)})),
    ):
        assert gate_of(found) is None
        assert found.outcome is Outcome.PASSED


def test_values_that_were_never_accepted_are_told():
    found = verdict(calibrated(added=(0.0, 1.0)))
    assert found.outcome is Outcome.PASSED
    assert gate_of(found).state is GateState.SHOWN
    assert "1 of 5 calibrated ranges were never accepted" in found.notices


ENDS = st.floats(-1e6, 1e6).map(lambda end: float(f"{end:.5g}"))
RANGES = st.tuples(ENDS, ENDS).map(sorted).map(tuple)


@given(before=RANGES, after=RANGES, limit=st.sampled_from([0.0, 0.01, 0.5, 1.0]))
def test_ranges_apart_are_a_share_both_ways(before, after, limit):
    there = moved_ranges({"v": before}, {"v": after}, limit)
    back = moved_ranges({"v": after}, {"v": before}, limit)
    assert [one.apart for one in there] == [one.apart for one in back]
    assert all(limit < one.apart <= 1 for one in there)
    assert bool(moved_ranges({"v": before}, {"v": after}, 0.0)) == (before != after)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_last_bits_of_another_processor_are_no_change(scale):
    before = {"v": (-1.2345 * scale, 6.7891 * scale)}
    after = {"v": (-1.2346 * scale, 6.7890 * scale)}
    assert not moved_ranges(before, after, Rules().ranges)
