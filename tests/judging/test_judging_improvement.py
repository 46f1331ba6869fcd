"""Better than accepted by more than the tolerance: told as such, with the command for it,
and still red.
"""

import dataclasses

import pytest
from judged_numbers import accepted_of, agreement, expected, judged, measured, per, top1

from qbench.judging import Outcome
from qbench.metrics import Against

BEFORE = measured(top1(760), per(100), agreement(470))


def verdict(*scores):
    # 0.5 % of 760 are 3.8 samples; 0.1 % of 2000 letters, the least margin, are 2
    return judged(measured(*scores, predictions="p2"), expected(BEFORE))


@pytest.mark.parametrize(
    ("scores", "is_improved"),
    [
        ((top1(764), per(100), agreement(470)), True),
        ((top1(763), per(100), agreement(470)), False),  # within the tolerance
        ((top1(760), per(97), agreement(470)), True),  # an error rate improves downwards
        ((top1(764), per(101), agreement(470)), False),  # one got worse
        ((top1(757), per(100), agreement(470)), False),
        ((top1(760), per(100), agreement(490)), False),  # agreement is no quality
    ],
)
def test_when(scores, is_improved):
    found = verdict(*scores)
    assert found.outcome is Outcome.DRIFTED
    assert found.headline.startswith("improved: ") is is_improved
    assert ("--qbench-accept=improved" in found.remedy) is is_improved
    assert found.remedy.startswith("qbench compare last-green latest; then ")
    assert found.outcome.is_red


@pytest.mark.parametrize(
    ("then", "now", "is_improved"),
    [
        ({"calibration": "32 samples of 'c'"}, {"calibration": "4 samples of 'c'"}, False),
        ({"schema": "a"}, {"schema": "b"}, False),
        ({"schema": "a"}, {"schema": "a"}, True),
        ({}, {"schema": "b"}, True),  # an older qbench accepted it
    ],
)
def test_a_result_of_another_calibration_or_schema_is_no_improvement(then, now, is_improved):
    before = dataclasses.replace(BEFORE, made=then)
    accepted = dataclasses.replace(accepted_of(before), made=then)
    after = measured(top1(764), per(100), agreement(470), predictions="p2", made=now)
    found = judged(after, expected(after, accepted={str(after.environment): accepted}))
    assert found.outcome is Outcome.DRIFTED
    assert found.headline.startswith("improved: ") is is_improved
    for key in then.keys() & now.keys():
        words = (
            "the rules of the schema were edited"
            if key == "schema"
            else f"{then[key]} → {now[key]}"
        )
        assert (words in found.headline) == (then[key] != now[key])


def test_a_drift_in_decibels_is_written_in_decibels(words):
    sqnr = dataclasses.replace(
        top1(42_700, n=1000, reference=0, metric="sqnr"),
        against=Against.REFERENCE,
        unit="dB",
        proportion=False,
    )
    after = measured(top1(760), dataclasses.replace(sqnr, hits=14_000), predictions="p2")
    accepted = accepted_of(measured(top1(760), sqnr))
    found = judged(after, expected(after, accepted={str(after.environment): accepted}))
    words(found.headline)
