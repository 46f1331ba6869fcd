"""Samples that share sources: held to a scalar count, to McNemar's test and to scipy's Student distribution."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from qbench.judging import mcnemar_midp
from qbench.metrics import Answers, get_metric, score
from qbench.metrics.clusters import flip_midp, student_quantile


def top1(now, before, sources):
    """``now`` and ``before``: per sample whether it is right."""
    answers = [Answers(np.array([[int(right)] for right in one], dtype=np.int32)) for one in (now, before)]
    return score(get_metric("top1"), answers[0], labels=((1,),) * len(now), reference=answers[1], sources=sources)


SIDES = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40)


@given(SIDES)
def test_samples_of_a_source_each_are_judged_as_without_sources(sides):
    now, before = zip(*sides, strict=True)
    alone = top1(now, before, [f"photo {i}" for i in range(len(sides))])
    assert alone == top1(now, before, None)
    assert alone.clusters is None


def test_other_sources_than_samples_are_refused():
    with pytest.raises(ValueError, match="1 sources of 2 samples"):
        top1([1, 0], [1, 1], ["a"])


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=9))
def test_the_flip_test_counts_every_sign(sums):
    seen = abs(sum(sums))
    totals = [
        abs(sum(map(lambda s, sign: s * sign, sums, signs))) for signs in itertools.product((1, -1), repeat=len(sums))
    ]
    expected = Fraction(sum(total > seen for total in totals)) + Fraction(sum(total == seen for total in totals), 2)
    expected = 1 if seen == 0 else expected / len(totals)
    assert flip_midp(np.array(sums)) == pytest.approx(float(expected), abs=1e-14)


@given(st.integers(0, 60), st.integers(0, 60))
def test_the_flip_test_of_single_samples_is_mcnemars(losses, gains):
    sums = np.array([-1] * losses + [1] * gains + [0] * 5)
    assert flip_midp(sums) == pytest.approx(mcnemar_midp(losses, gains), rel=1e-12)


@pytest.mark.parametrize("freedom", [1, 2, 3.5, 19, 199, 9999])
@pytest.mark.parametrize("chance", [0.5, 0.9, 0.95, 0.975, 0.995])
def test_students_quantile_is_scipys(freedom, chance):
    assert student_quantile(chance, freedom) == pytest.approx(scipy.stats.t.ppf(chance, freedom), rel=1e-9, abs=1e-9)
