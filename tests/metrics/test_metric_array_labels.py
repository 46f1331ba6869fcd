"""Labels that are arrays, and values that are not sums over samples."""

import dataclasses

import numpy as np
import pytest

from qbench.metrics import BILLION, Against, Answers, Counts, Direction, Metric, get_metric, score
from qbench.subjects import Dataset


@dataclasses.dataclass(frozen=True, eq=False)
class Values(Answers):
    x: np.ndarray

    form = "values"

    def arrays(self):
        return {"x": self.x}


def off_by_one_at_most(answers, labels, _reference):
    hits = np.array(
        [abs(int(x) - int(right)) <= 1 for x, right in zip(answers.x, labels, strict=True)]
    )
    return Counts(hits.astype(np.int64), answers.x.astype(np.int64))


NEAR = Metric(
    name="near",
    title="Near",
    direction=Direction.HIGHER,
    against=Against.LABELS,
    count=off_by_one_at_most,
    proportion=False,
    array_labels=True,
)
LABELS = tuple(np.array(value, np.int16) for value in (3, 5, 8))


def data(labels) -> Dataset:
    ids = ("a", "b", "c")
    return Dataset(
        id="d", kind="array", sample_ids=ids, sources=ids, labels=labels, content="", load=np.zeros
    )


def test_a_data_set_of_array_labels_is_picked_and_identified_by_their_numbers() -> None:
    whole = data(LABELS)
    assert [int(one) for one in whole.pick([2, 0]).labels] == [8, 3]
    assert whole.whole_labels is None
    assert data(((3,), (5,), (8,))).whole_labels == ((3,), (5,), (8,))
    others = [
        (*LABELS[:2], np.array(9, np.int16)),
        LABELS[::-1],
        tuple(one.astype(np.int32) for one in LABELS),
        None,
    ]
    assert len({whole.digest, *(data(one).digest for one in others)}) == 5
    assert data(tuple(one.copy() for one in LABELS)).digest == whole.digest


def test_values_out_of_different_numbers_are_told_in_billionths() -> None:
    now, before = Values(np.array([4, 4, 4])), Values(np.array([3, 5, 1]))
    found = score(NEAR, now, labels=LABELS, reference=before)
    assert (found.hits, found.reference_hits, found.out_of) == (
        round(BILLION * 2 / 12),
        round(BILLION * 2 / 9),
        BILLION,
    )
    assert (found.losses, found.gains) == (0, 0)


def test_a_total_is_the_value_whatever_samples_count_alone() -> None:
    metric = dataclasses.replace(
        NEAR,
        count=lambda answers, *_: Counts(
            answers.x, np.ones(3, np.int64), total=(int(answers.x.max()), 10)
        ),
    )
    found = score(
        metric, Values(np.array([4, 1, 2])), labels=LABELS, reference=Values(np.array([1, 2, 3]))
    )
    assert (found.hits, found.reference_hits, found.out_of, found.losses, found.gains) == (
        4,
        3,
        10,
        2,
        1,
    )


def test_a_metric_refuses_labels_of_the_other_kind() -> None:
    answers = Values(np.array([3, 5, 8]))
    with pytest.raises(
        ValueError, match=r"near counts against labels that are arrays, and these are classes"
    ):
        score(NEAR, answers, labels=((3,), (5,), (8,)), reference=answers)
    classes = Answers(np.zeros((3, 1), np.int32))
    with pytest.raises(
        ValueError, match=r"top1 counts against labels that are classes or sequences"
    ):
        score(get_metric("top1"), classes, labels=LABELS, reference=classes)
