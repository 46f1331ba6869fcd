"""Tasks that answer with masks, values and pictures: what they make of outputs,
and what they refuse.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qbench.errors import InputError
from qbench.metrics import MaskAnswers, ValueAnswers, packed_answers, unpacked_answers
from qbench.storage import Cache
from qbench.subjects import (
    Dataset,
    ReadyArray,
    Regression,
    Restoration,
    Samples,
    Segmentation,
    Task,
    prepare_samples,
    task_answers,
)


class Fixed:
    """Gives rows of one array, batch by batch."""

    def __init__(self, rows: np.ndarray) -> None:
        self._rows, self._at = rows, 0

    def run(self, feeds: Any) -> dict[str, np.ndarray]:
        count = len(feeds["x"])
        self._at += count
        return {"out": self._rows[self._at - count : self._at]}


@pytest.fixture
def samples(tmp_path: Path) -> Callable[..., Samples]:
    def of(count: int, labels: Any = None) -> Samples:
        data = Dataset.from_arrays("d", np.arange(count, dtype=np.float32)[:, None], labels)
        return prepare_samples(data, ReadyArray(), Cache(tmp_path))

    return of


def answered(task: Task, rows: np.ndarray, given: Samples) -> Any:
    return task.answer({"model": Fixed(rows)}, given)


def test_the_best_class_of_a_pixel_is_the_lowest_of_equal_ones(
    samples: Callable[..., Samples],
) -> None:
    rows = np.zeros((10, 3, 2, 2), np.float32)
    rows[:, 2, 0, 0] = 1
    rows[4, :, :, :] = np.array([1, 2, 3], np.float32)[:, None, None]
    found = answered(Segmentation(), rows, samples(10))
    assert found.classes[0].tolist() == [[2, 0], [0, 0]]
    assert found.classes[4].tolist() == [[2, 2], [2, 2]]
    assert found.tied.tolist() == [True] * 4 + [False] + [True] * 5
    assert found.ties == 9
    assert found.outputs.values.shape == (10, 12)


def test_whole_numbers_are_the_mask_itself(samples: Callable[..., Samples]) -> None:
    rows = np.arange(8, dtype=np.int64).reshape(2, 2, 2)
    assert np.array_equal(answered(Segmentation(), rows, samples(2)).classes, rows)
    assert answered(Segmentation(), rows + 300, samples(2)).classes.dtype == np.uint16


def test_a_label_of_a_network_of_many_classes_may_be_255(samples: Callable[..., Samples]) -> None:
    rows = np.zeros((1, 300, 1, 1), np.float32)
    rows[0, 255] = 1
    assert (
        answered(
            Segmentation(), rows, samples(1, np.full((1, 1, 1), 255, np.uint16))
        ).classes.item()
        == 255
    )


def test_values_are_in_the_unit_and_the_form_of_the_labels(samples: Callable[..., Samples]) -> None:
    rows = np.arange(12, dtype=np.float32).reshape(2, 6)
    found = answered(Regression(factor=10.0, shape=(3, 2)), rows, samples(2))
    assert found.values.tolist() == (10 * rows.reshape(2, 3, 2)).tolist()
    assert found.values.dtype == np.float32


def test_pictures_are_rounded_to_the_grey_values_they_are_saved_in(
    samples: Callable[..., Samples],
) -> None:
    rows = np.array([[[[-0.5, 0.5, 1.5, 2.0]]]], np.float32)
    assert answered(Restoration(), rows, samples(1)).values.ravel().tolist() == [0, 128, 255, 255]
    assert answered(Restoration(peak=2.0), rows, samples(1)).values.ravel().tolist() == [
        0,
        64,
        191,
        255,
    ]


@pytest.mark.parametrize(
    ("task", "answers"),
    [
        (Segmentation(), MaskAnswers(np.arange(8, dtype=np.uint8).reshape(2, 2, 2))),
        (Regression(), ValueAnswers(np.array([[1.5], [-2.5]], np.float32))),
        (Restoration(), ValueAnswers(np.arange(8, dtype=np.uint8).reshape(2, 1, 2, 2))),
    ],
)
def test_stored_answers_come_back(task: Task, answers: Any) -> None:
    found = task_answers(task, unpacked_answers(packed_answers(answers)))
    assert type(found) is type(answers)
    assert found.digest == answers.digest


NAN = np.zeros((3, 2, 4, 4), np.float32)
NAN[1, 0, 0, 0] = np.nan


@pytest.mark.parametrize(
    ("task", "rows", "sentence"),
    [
        (Segmentation(), NAN, r"sample 'x\[1\]': found NaN or Inf"),
        (Regression(), NAN, r"sample 'x\[1\]': found NaN or Inf"),
        (Segmentation(), np.zeros((3, 1, 4, 4), np.float32), r"shape \(3, 1, 4, 4\) and float32"),
        (Segmentation(), np.zeros((3, 4, 4), np.float32), r"shape \(3, 4, 4\) and float32"),
        (Segmentation(), np.full((3, 4, 4), -1), r"shape \(3, 4, 4\) and int64"),
        (Segmentation(output="none"), NAN, r"an output of shape \(0,\)"),
        (Regression(shape=(2, 2)), np.zeros((3, 5), np.float32), "expected 4 values a sample"),
        (Restoration(), np.zeros((3, 5), np.float32), r"expected pictures \(n, C, H, W\)"),
    ],
)
def test_outputs_that_are_no_such_answers_are_refused(
    task: Task, rows: np.ndarray, sentence: str, samples: Callable[..., Samples]
) -> None:
    with pytest.raises(InputError, match=sentence):
        answered(task, rows, samples(3))
