"""Mean average precision beside its formula in fractions, and what it refuses."""

import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.errors import UnavailableError
from qbench.metrics import AnswerKind, Answers, OutputKind, Outputs, get_metric, score

CLASSES = 4
scored = st.lists(
    st.tuples(
        st.lists(st.integers(0, 5), min_size=CLASSES, max_size=CLASSES),
        st.sets(st.integers(0, 3), min_size=1),
    ),
    min_size=1,
    max_size=8,
)


def answers(rows, kind=OutputKind.CLASSES, n=None):
    held = Outputs(np.array(rows, dtype=np.float32), kind)
    return Answers(np.zeros((n or len(held), 1), np.int32), outputs=held)


def average_precision(scores, right):
    """The mean, over the samples of the class,
    of the share of them among all that are scored no lower.
    """
    found = Fraction(0)
    for mine, is_right in zip(scores, right, strict=True):
        if is_right:
            above = [
                other_right
                for other, other_right in zip(scores, right, strict=True)
                if other >= mine
            ]
            found += Fraction(sum(above), len(above))
    return found / sum(right)


@given(scored)
def test_it_is_the_mean_of_the_formula_over_the_classes_that_are_labelled(samples):
    rows, labels = zip(*samples, strict=True)
    named = set().union(*labels)
    mean = sum(
        average_precision([row[c] for row in rows], [c in one for one in labels]) for c in named
    ) / len(named)
    counts = get_metric("map").count(answers(rows), tuple(map(tuple, labels)), None)
    assert len(counts.hits) == len(samples)
    assert counts.hits.sum() / counts.out_of.sum() == pytest.approx(float(mean), abs=1e-6)


def test_by_hand():
    # class 0: its samples are 1st and 3rd of four, (1/1 + 2/3) / 2; class 1: 1st and 2nd; class 2
    # is no sample's
    rows, labels = [[9, 0, 5], [5, 1, 5], [6, 7, 5], [1, 8, 5]], ((0,), (0,), (1,), (1,))
    counts = get_metric("map").count(answers(rows), labels, None)
    assert counts.hits.tolist() == [833_333, 833_333, 1_000_000, 1_000_000]
    # a class of fewer samples weighs as much as the other: (5/6 · 3/2 / 2) twice, 1 · 3/2
    few = get_metric("map").count(answers(rows[:3]), labels[:3], None)
    assert few.hits.tolist() == [625_000, 625_000, 1_500_000]


def test_a_score_counts_both_runs_by_their_outputs_and_gives_no_interval():
    fp32, now = answers([[9, 0], [8, 1], [1, 7]], n=5), answers([[0, 0], [8, 1], [1, 7]], n=5)
    labels = ((0,), (0,), (1,), (1,), (1,))
    found = score(get_metric("map"), now, labels=labels, reference=fp32)
    assert (found.n, found.reference_value, found.interval) == (3, 1, None)
    assert found.value == pytest.approx((Fraction(1, 2) * (1 + Fraction(2, 3)) + 1) / 2, abs=1e-6)
    assert (found.losses, found.gains) == (2, 0)


def test_what_it_cannot_count_is_refused():
    count = get_metric("map").count
    with pytest.raises(ValueError, match="the task of these answers hands none over"):
        count(Answers(np.zeros((1, 1), np.int32)), ((0,),), None)
    with pytest.raises(ValueError, match="these outputs are other numbers"):
        count(answers([[1, 2]], OutputKind.VALUES), ((0,),), None)
    with pytest.raises(ValueError, match="these answers are sequences"):
        count(Answers(np.zeros((1, 1), np.int32), kind=AnswerKind.SEQUENCE), ((0,),), None)
    with pytest.raises(ValueError, match="nothing to count"):
        score(get_metric("map"), answers([[1, 2]]), labels=((),), reference=answers([[1, 2]]))


def test_without_its_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.metrics", None)
    with pytest.raises(UnavailableError, match=r"no scikit-learn.*pip install .*\[retrieval\]"):
        get_metric("map").count(answers([[1, 2]]), ((0,),), None)
