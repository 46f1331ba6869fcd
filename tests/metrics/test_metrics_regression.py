"""Errors of values, keypoints and orders: against scalar formulas, scikit-learn and SciPy."""

import math

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import (
    mean_absolute_error,
    mean_absolute_percentage_error,
    root_mean_squared_error,
)

from qbench.metrics import AnswerKind, IntegerAnswers, Score, ValueAnswers, get_metric, score

COCO = (
    0.026,
    0.025,
    0.025,
    0.035,
    0.035,
    0.079,
    0.079,
    0.072,
    0.072,
    0.062,
    0.062,
    0.107,
    0.107,
    0.087,
    0.087,
    0.089,
    0.089,
)


def scored(
    name: str, answers: np.ndarray, labels: np.ndarray, reference: np.ndarray | None = None
) -> Score:
    before = ValueAnswers(answers if reference is None else reference)
    return score(get_metric(name), ValueAnswers(answers), labels=tuple(labels), reference=before)


def counted(name: str, answers: np.ndarray, labels: np.ndarray) -> float:
    """The value alone, without the interval that a score has."""
    hits, out_of = get_metric(name).count(ValueAnswers(answers), tuple(labels), None).sums
    return hits / out_of


def drawn(seed: int, scale: float = 1.0, d: int = 1) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    right = draw.normal(0, scale, (40, d)) + scale / 7
    return (right + draw.normal(0, scale / 5, right.shape)).astype(np.float32), right


@pytest.mark.parametrize("scale", [1e-3, 1.0, 350.0])
def test_scikit_learn_gives_the_same_errors(scale: float) -> None:
    for seed in range(25):
        y, right = drawn(seed, scale, 1 + seed % 3)
        wide = y.astype(np.float64)
        assert counted("mae", y, right) == pytest.approx(mean_absolute_error(right, wide), abs=1e-9)
        assert counted("mape", y, right) == pytest.approx(
            mean_absolute_percentage_error(right, wide), abs=1e-9
        )
        if right.shape[1] == 1:  # of several columns scikit-learn takes the mean of the roots
            assert counted("rmse", y, right) == pytest.approx(
                root_mean_squared_error(right, wide), abs=1e-9
            )


def test_scipy_gives_the_same_rank_correlation_with_ties() -> None:
    for seed in range(60):
        y, right = drawn(seed)
        y, right = np.round(y, seed % 3), np.round(right, (seed + 1) % 3)
        assert counted("spearman", y, right) == pytest.approx(
            spearmanr(y[:, 0], right[:, 0]).statistic, abs=1e-9
        )


def test_similarities_of_pairs_are_ranked_against_graded_labels() -> None:
    ids = np.array([[10], [500], [400], [900]], np.int32)
    answers = IntegerAnswers(ids, kind=AnswerKind.LIKENESS)
    labels = tuple(np.array([grade]) for grade in (0.0, 2.5, 3.0, 5.0))
    found = score(get_metric("spearman"), answers, labels=labels, reference=answers)
    assert found.value == pytest.approx(0.8, abs=1e-9)


def test_equal_answers_have_no_correlation_and_equal_labels_none_at_all() -> None:
    y, right = drawn(1)
    assert scored("spearman", np.zeros_like(y), right).value == 0
    with pytest.raises(ValueError, match="these are all equal"):
        scored("spearman", y, np.ones_like(right))


def similarity(
    found: np.ndarray, right: np.ndarray, area: float, sigmas: tuple[float, ...]
) -> float:
    """Of one object, keypoint by keypoint."""
    shares = [
        math.exp(-((x - u) ** 2 + (y - v) ** 2) / (2 * area * (2 * sigma) ** 2))
        for (x, y), (u, v, seen), sigma in zip(found.tolist(), right.tolist(), sigmas, strict=True)
        if seen > 0
    ]
    return sum(shares) / len(shares)


@pytest.mark.parametrize("points", [17, 4])
def test_keypoint_similarity_is_coco_s(points: int) -> None:
    draw = np.random.default_rng(points)
    right = np.concatenate(
        [draw.uniform(0, 90, (9, points, 2)), draw.integers(0, 3, (9, points, 1))], axis=2
    )
    right[:, 0, 2] = 1
    areas = draw.uniform(300, 4000, 9)
    found = (right[:, :, :2] + draw.normal(0, 4, (9, points, 2))).astype(np.float32)
    sigmas = COCO if points == 17 else (1 / points,) * points
    ours = [similarity(*each, sigmas) for each in zip(found, right, areas, strict=True)]
    labels = np.concatenate([right.reshape(9, -1), areas[:, None]], axis=1)
    assert scored("oks", found, labels).value == pytest.approx(sum(ours) / 9, abs=1e-9)
    labels[3, 2:-1:3] = 0  # no keypoint labelled
    assert scored("oks", found, labels).value == pytest.approx((sum(ours) - ours[3]) / 8, abs=1e-9)


@pytest.mark.slow
def test_an_interval_holds_the_change_and_shrinks_with_the_samples() -> None:
    for name in ("mae", "rmse", "spearman", "mape"):
        widths = []
        for n in (40, 1000):
            draw = np.random.default_rng(n)
            right = draw.normal(5, 1, (n, 1))
            before, now = (
                (right + draw.normal(0, noise, (n, 1))).astype(np.float32) for noise in (0.2, 0.3)
            )
            found = scored(name, now, right, before)
            low, high = found.interval or (0.0, 0.0)
            assert low < found.value - found.reference_value < high
            widths.append(high - low)
        assert widths[1] < widths[0] / 2


def test_an_error_too_large_for_64_bits_counts_as_the_largest_that_fits() -> None:
    y, right = drawn(2)
    for name in ("mae", "rmse", "mape"):
        found = scored(name, np.full_like(y, 3e38), right, y)
        assert found.value > 1e3 * found.reference_value


@pytest.mark.parametrize(
    ("name", "answers", "labels", "sentence"),
    [
        (
            "mae",
            np.zeros((2, 3)),
            np.zeros((2, 4)),
            "mae compares 3 values a sample, and label 0 has 4",
        ),
        (
            "mape",
            np.ones((2, 1)),
            np.array([[1.0], [0.0]]),
            "mape divides by the labels, and one of them is 0",
        ),
        ("spearman", np.ones((2, 2)), np.ones((2, 2)), "spearman ranks samples by one number"),
        ("oks", np.ones((2, 4, 3)), np.ones((2, 13)), r"oks compares keypoints \(K, 2\)"),
        ("oks", np.ones((2, 4, 2)), np.ones((2, 12)), "13 numbers of a label"),
        ("oks", np.ones((2, 4, 2)), np.zeros((2, 13)), "an area above 0"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    name: str, answers: np.ndarray, labels: np.ndarray, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        scored(name, answers.astype(np.float32), labels)


def test_values_are_finite_and_compared_by_what_they_are() -> None:
    with pytest.raises(ValueError, match="finite"):
        ValueAnswers(np.array([[np.nan]], np.float32))
    assert (
        ValueAnswers(np.array([[-0.0]], np.float32)).digest
        == ValueAnswers(np.array([[0.0]], np.float32)).digest
    )
    with pytest.raises(ValueError, match="float64"):
        ValueAnswers(np.zeros((2, 2)))
