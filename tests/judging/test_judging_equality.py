"""Equality with another backend, from counts to a verdict: which limits hold, what is said,
what needs no baseline.
"""

import dataclasses

import pytest
from judged_numbers import agreement, expected, judged, measured, top1

from qbench.judging import (
    Compared,
    Criterion,
    Expectation,
    FirstNode,
    GateState,
    Outcome,
    QuarantineEntry,
    holds,
)
from qbench.judging.verdict import WIDTH
from qbench.number_text import steps_text
from qbench.tracking import CellRecord, record_of_line

EQUAL = Criterion(backend="ort-cpu", rule="suite smoke")
SAME = Compared(backend="ort-cpu", elements=4000, differing=0, steps=0.0)
OTHER = Compared(
    backend="ort-cpu",
    environment_class="x64-avx2+onnxruntime-1.31",
    elements=4000,
    differing=12,
    steps=1.0,
    relative=0.004,
    graph="model",
    sample="crop_17",
    first=FirstNode(
        origin="features.3.conv", elements=5, steps=1.0, note="tapping changes what ort-cpu answers"
    ),
)


@pytest.mark.parametrize(
    ("changes", "criterion", "held"),
    [
        ({"differing": 0}, {}, True),
        ({}, {}, False),
        ({}, {"steps": 1.0}, True),
        ({"steps": 1.01}, {"steps": 1.0}, False),
        ({}, {"steps": 0.0}, False),
        ({"steps": 0.004}, {"steps": 0.0}, False),
        ({}, {"relative": 0.004}, True),
        ({"relative": 0.0041}, {"relative": 0.004}, False),
        ({}, {"steps": 1.0, "relative": 0.003}, False),
        ({}, {"steps": 0.5, "relative": 0.01}, False),
        ({"steps": None}, {"steps": 1.0, "relative": 0.01}, True),
        ({"unbounded": 1}, {"steps": 1e9, "relative": 1e9}, False),
    ],
)
def test_both_limits_must_hold_and_nan_is_near_nothing(changes, criterion, held):
    assert (
        holds(dataclasses.replace(OTHER, **changes), Criterion(backend="ort-cpu", **criterion))
        is held
    )


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (0.0, "0 steps"),
        (1.0, "1 step"),
        (0.5, "0.5 steps"),
        (1.00391, "1 step"),
        (0.00312, "0.0031 steps"),
        (70000.0, "70000 steps"),
        (2.0**31 - 0.5, "2147483647.5 steps"),
    ],
)
def test_steps_are_rounded_for_reading_alone(steps, said):
    assert steps_text(steps) == said


def test_a_limit_below_nothing_is_refused():
    with pytest.raises(ValueError, match="steps = -1"):
        Criterion(backend="ort-cpu", steps=-1)
    with pytest.raises(ValueError, match="relative = nan"):
        Criterion(backend="ort-cpu", relative=float("nan"))


def test_a_cell_that_is_what_it_should_be_says_so():
    verdict = judged(measured(compared=SAME), criterion=EQUAL)
    assert verdict.outcome is Outcome.PASSED
    assert verdict.headline.endswith("98 % of MACs planned in integers, equals ort-cpu")
    gate = next(gate for gate in verdict.gates if gate.kind == "equality")
    assert (gate.state, gate.detail) == (
        GateState.HOLDS,
        "all 4000 elements equal those of ort-cpu",
    )
    assert gate.rule == "equal_to ort-cpu (suite smoke)"
    near = judged(measured(compared=OTHER), criterion=Criterion(backend="ort-cpu", steps=1))
    assert near.outcome is Outcome.PASSED
    assert near.headline.endswith("close to ort-cpu")


def test_a_cell_that_is_not_fails_with_number_sample_and_node(words):
    verdict = judged(measured(compared=OTHER), criterion=EQUAL)
    assert verdict.outcome is Outcome.FAILED
    assert verdict.headline.startswith(
        "12 of 4000 elements differ from ort-cpu, first at 'features.3.conv'"
    )
    assert len(verdict.headline) <= WIDTH
    assert verdict.rule == "equal_to ort-cpu (suite smoke)"
    gate = next(gate for gate in verdict.gates if gate.kind == "equality")
    words(gate.detail)
    assert "close_to" in verdict.remedy


def test_a_worse_loss_is_said_first_and_drift_last():
    lossy = judged(measured(top1(700), agreement(470), compared=OTHER), criterion=EQUAL)
    assert lossy.headline.startswith("top1")
    drifted = measured(compared=OTHER, predictions="p2")
    assert judged(drifted, expected(measured()), criterion=EQUAL).outcome is Outcome.FAILED


@pytest.mark.parametrize(
    "expectation",
    [Expectation.missing("no baseline of 'm'"), Expectation(cell_known=False)],
    ids=["model", "cell"],
)
def test_it_needs_no_baseline(expectation):
    verdict = judged(measured(compared=OTHER), expectation, criterion=EQUAL)
    assert verdict.outcome is Outcome.FAILED
    assert verdict.headline.startswith("12 of 4000 elements differ")
    assert judged(measured(compared=SAME), expectation, criterion=EQUAL).outcome is Outcome.MISSING


def test_a_known_difference_may_be_listed():
    entry = QuarantineEntry(
        cell="*", measured="12 differ", reason="ties", owner="kernels", expires="2999-12-31"
    )
    verdict = judged(measured(compared=OTHER), criterion=EQUAL, quarantine=entry)
    assert verdict.outcome is Outcome.QUARANTINED
    named = dataclasses.replace(entry, cell="mobilenet_v2::ort-cpu+w8a8_asym_pc")
    assert (
        judged(measured(compared=SAME), criterion=EQUAL, quarantine=named).outcome
        is Outcome.EXPIRED
    )


@pytest.mark.parametrize("compared", [None, SAME, OTHER])
def test_the_line_of_a_run_file_keeps_it(compared):
    measurement = measured(compared=compared)
    line = CellRecord.of(measurement.cell, judged(measurement, criterion=EQUAL), measurement).line()
    assert ("compared" in line) is (compared is not None)
    assert record_of_line(line).measurement() == measurement
    if compared is OTHER:
        later = {
            **line,
            "compared": {
                **line["compared"],
                "unheard": 1,
                "first": {**line["compared"]["first"], "of": 2},
            },
        }
        assert record_of_line(later).measurement() == measurement
