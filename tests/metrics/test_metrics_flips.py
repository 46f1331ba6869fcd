"""Flips, ties and recall against plain loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.metrics import PADDING, AnswerKind, Answers, get_metric, score

classes = st.lists(st.tuples(*[st.integers(0, 2)] * 3), min_size=1, max_size=12)


def ranking(ids):
    return Answers(np.array(ids, dtype=np.int32).reshape(len(ids), -1))


def total(name, now, labels, fp32):
    return score(get_metric(name), now, labels=labels, reference=fp32)


@given(classes)
def test_flips_are_losses_and_gains(samples):
    now, fp32, right = zip(*samples, strict=True)
    labels = tuple((one,) for one in right)
    flips, negative = (
        total(name, ranking(now), labels, ranking(fp32)) for name in ("flips", "negative_flips")
    )
    top1 = total("top1", ranking(now), labels, ranking(fp32))
    assert (flips.hits, negative.hits) == (top1.losses + top1.gains, top1.losses)
    assert flips.out_of == negative.out_of == len(samples)
    assert (flips.reference_hits, negative.reference_hits) == (0, 0)


def test_flips_of_sequences_are_of_the_whole():
    def words(*rows):
        return Answers(np.array(rows, dtype=np.int32), kind=AnswerKind.SEQUENCE)

    labels = ((1, 2), (3,), (4,))
    now, fp32 = words([1, 2], [3, 3], [4, PADDING]), words([1, PADDING], [3, PADDING], [4, PADDING])
    assert get_metric("flips").count(now, labels, fp32).hits.tolist() == [1, 1, 0]
    assert get_metric("negative_flips").count(now, labels, fp32).hits.tolist() == [0, 1, 0]


def test_flips_need_labels_and_answers_that_are_right_or_wrong():
    with pytest.raises(ValueError, match="flips counts against labels and the data has none"):
        total("flips", ranking([1]), None, ranking([1]))
    alike = Answers(np.zeros((1, 1), np.int32), kind=AnswerKind.LIKENESS)
    with pytest.raises(ValueError, match="a likeness is neither"):
        total("negative_flips", alike, ((1,),), alike)


def test_ties_are_of_this_run_and_of_todays_fp32():
    def tied(*which):
        return Answers(np.zeros((len(which), 1), np.int32), tied=np.array(which, np.bool_))

    found = total("ties", tied(True, False, True, True), None, tied(True, False, False, False))
    assert (found.hits, found.reference_hits, found.out_of, found.losses) == (3, 1, 4, 2)
    assert tied(True, False, True).ties == 2
    with pytest.raises(ValueError, match="the task of these answers does not record ties"):
        total("ties", ranking([1]), None, ranking([1]))
    with pytest.raises(ValueError, match="ties of 1 answers are"):
        Answers(np.zeros((1, 1), np.int32), tied=np.zeros(2, np.bool_))


@given(
    st.lists(
        st.tuples(st.permutations(range(12)), st.sets(st.integers(0, 14), min_size=1)),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([5, 10]),
)
def test_recall_is_the_share_of_right_ones_among_the_first(samples, k):
    ids, right = zip(*samples, strict=True)
    found = total(f"recall{k}", ranking(ids), tuple(map(tuple, right)), ranking(ids))
    assert found.hits == sum(one in row[:k] for row, ones in samples for one in ones)
    assert found.out_of == sum(map(len, right))


def test_recall_refuses_answers_that_name_too_few():
    with pytest.raises(
        ValueError, match="recall10 looks for right ones among 10, and these answers name 5"
    ):
        total("recall10", ranking([range(5)]), ((1,),), ranking([range(5)]))
