"""Drift of integer machines: when the arithmetic itself is another one, the verdict says so."""

import dataclasses

import pytest
from judged_numbers import HERE, judged, measured

from qbench.judging import Accepted, Expectation, Outcome


def counted(arithmetic, predictions="p1"):
    """A cell of an integer machine under the arithmetic of this digest; none: an engine's."""
    one = measured(backend="integer-mine", predictions=predictions)
    more = {"arithmetic": arithmetic} if arithmetic else {}
    return dataclasses.replace(one, digests={**one.digests, **more})


def expecting(arithmetic):
    metrics = {"top1": 760, "agreement@photo_crops": 470}
    accepted = Accepted(metrics=metrics, predictions={"photos": "p1"}, arithmetic=arithmetic)
    return Expectation(reference={"photos": "r1"}, accepted={str(HERE): accepted})


def test_drift_under_another_arithmetic_names_it():
    verdict = judged(counted("b" * 64, "p2"), expecting("a" * 64))
    assert verdict.outcome is Outcome.DRIFTED
    assert verdict.headline.startswith(
        "arithmetic changed: aaaaaaaa → bbbbbbbb; predictions on photos changed"
    )


@pytest.mark.parametrize(
    ("before", "after"), [("a" * 64, "a" * 64), ("", "a" * 64), ("a" * 64, "")]
)
def test_drift_under_the_same_or_an_unknown_one_does_not(before, after):
    verdict = judged(counted(after, "p2"), expecting(before))
    assert verdict.outcome is Outcome.DRIFTED
    assert verdict.headline.startswith("predictions on photos changed")


def test_another_arithmetic_that_answers_the_same_is_no_drift():
    assert judged(counted("b" * 64), expecting("a" * 64)).outcome is Outcome.PASSED
