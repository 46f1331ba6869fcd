"""Answers as a person reads them, and how far probabilities move."""

import numpy as np
import pytest

from qbench.metrics import (
    PADDING,
    AnswerKind,
    AnswerPart,
    BoxAnswers,
    IntegerAnswers,
    MaskAnswers,
    OutputKind,
    Outputs,
    StoredAnswers,
    ValueAnswers,
    points_of,
)


def named(number):
    return {0: "cat", 1: "dog"}.get(number, f"class {number}")


def ranking(ids, scores=None):
    held = None if scores is None else np.array([scores], np.float32)
    return IntegerAnswers(np.array([ids], np.int32), held)


def told(answers):
    return answers.told(0, named)


def test_a_ranking_tells_the_five_best_classes_with_their_probabilities():
    found = told(ranking([1, 0, 2, 3, 4, 5], [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.03125]))
    assert found[:2] == (AnswerPart("dog", 0.5), AnswerPart("cat", 0.25))
    assert len(found) == 5
    assert told(ranking([1, 0])) == (AnswerPart("dog"), AnswerPart("cat"))


def test_texts_tokens_and_likenesses_are_told():
    text = IntegerAnswers(np.array([[*points_of("hi"), PADDING]], np.int32), kind=AnswerKind.TEXT)
    assert told(text) == (AnswerPart("hi"),)
    assert text.told_label(points_of("ho"), named) == "ho"
    tokens = IntegerAnswers(np.array([[7, 8, PADDING]], np.int32), kind=AnswerKind.SEQUENCE)
    assert told(tokens) == (AnswerPart("7 8"),)
    assert tokens.told_label((7, 9), named) == "7 9"
    pair = IntegerAnswers(np.array([[812_300]], np.int32), kind=AnswerKind.LIKENESS)
    assert told(pair) == (AnswerPart("0.8123 alike"),)
    assert pair.told_label((1,), named) == "alike"
    long = IntegerAnswers(np.full((1, 5000), 7, np.int32), kind=AnswerKind.SEQUENCE)
    assert len(told(long)[0].text) < 200


def test_outputs_that_are_numbers_are_told_as_numbers():
    values = np.array([[1.5, -2.0]], np.float32)
    answers = IntegerAnswers(
        values.view(np.int32),
        kind=AnswerKind.SEQUENCE,
        outputs=Outputs(values, OutputKind.VALUES),
    )
    assert told(answers) == (AnswerPart("1.5, -2"),)


def test_boxes_masks_and_values_are_told():
    boxes = BoxAnswers.of(
        [np.array([[0, 0, 9, 9], [1, 1, 8, 8], [2, 2, 3, 3]])],
        [np.array([0.9, 0.6, 0.2])],
        [np.array([1, 1, 0])],
    )
    assert told(boxes) == (AnswerPart("2 × dog", 0.9),)
    assert boxes.told_label(np.zeros((3, 5)), named) == "3 right boxes"
    assert told(BoxAnswers.of([np.zeros((0, 4))], [np.zeros(0)], [np.zeros(0)])) == (
        AnswerPart("no box"),
    )
    mask = MaskAnswers(np.array([[[0, 0], [0, 1]]], np.uint8))
    assert told(mask) == (
        AnswerPart("cat: 75.00 % of pixels"),
        AnswerPart("dog: 25.00 % of pixels"),
    )
    values = ValueAnswers(np.array([[1.5, 2.5]], np.float32))
    assert told(values) == (AnswerPart("values 1.5, 2.5"),)
    assert values.told_label(np.array([3.0]), named) == "3"
    picture = ValueAnswers(np.arange(16, dtype=np.uint8).reshape(1, 4, 4))
    assert told(picture) == (AnswerPart("values 4 × 4 numbers from 0 to 15"),)


def test_answers_of_a_form_of_their_own_are_told_by_their_arrays():
    own = StoredAnswers("times", {"seconds": np.array([[0.25]])})
    assert told(own) == (AnswerPart("seconds 0.25"),)
    assert own.moved_from(own, 0, ()) is None
    texts = StoredAnswers("words", {"word": np.array([["yes", "no"]]), "sure": np.array([True])})
    assert told(texts) == (AnswerPart("sure 1"), AnswerPart("word yes no"))


@pytest.mark.parametrize(
    ("now", "before", "right", "moved"),
    [
        (([0, 1], [0.9, 0.1]), ([0, 1], [0.6, 0.4]), (0,), 0.3),
        (([0, 1], [0.9, 0.1]), ([0, 1], [0.6, 0.4]), (), 0.3),
        (([0, 1], [0.9, 0.1]), ([0, 1], [0.6, 0.4]), (1,), -0.3),
        (([0, 1], [0.9, 0.1]), ([2, 1], [0.6, 0.4]), (2,), -0.5),  # at most 0.1 now
        (([2, 1], [0.6, 0.4]), ([0, 1], [0.9, 0.1]), (2,), 0.5),  # at most 0.1 before
        (([0, 1], [0.9, 0.1]), ([0, 1], [0.6, 0.4]), (5,), 0.0),
        (([0, 1], [0.9, 0.1]), ([0, 1], [0.6, 0.3]), (0, 1), 0.1),
    ],
)
def test_a_probability_moves_by_the_least_that_is_known(now, before, right, moved):
    assert ranking(*now).moved_from(ranking(*before), 0, right) == pytest.approx(moved)


def test_no_probability_moves_where_there_is_none():
    assert ranking([0, 1]).moved_from(ranking([0, 1], [0.6, 0.4]), 0, (0,)) is None
