"""Better than accepted by more than the tolerance: told as such, with the command for it, and still red."""

import pytest
from judged_numbers import agreement, expected, judged, measured, per, top1

from qbench.judging import Outcome

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
