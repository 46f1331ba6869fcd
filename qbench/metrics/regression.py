"""Answers that are real numbers, and what counts their errors: of values, of keypoints, and of
the order of samples.

    mae   = mean over samples of meanⱼ |yᵢⱼ − rᵢⱼ|
    rmse  = √(mean over samples of meanⱼ (yᵢⱼ − rᵢⱼ)²)
    mape  = mean over samples of meanⱼ |yᵢⱼ − rᵢⱼ| / |rᵢⱼ|
    oks   = mean over objects of Σ_k exp(−d_k² / (2·area·(2σ_k)²))·[v_k > 0] / Σ_k [v_k > 0]
    spearman = correlation of the ranks of y and of r, equal values with the mean of their ranks

Sources: Lin et al., COCO, keypoint evaluation (cocodataset.org, 2016) and ``cocoeval.computeOks``
for σ; Spearman, "The proof and measurement of association between two things" (1904).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.metrics.answers import AnswerKind, Answers, IntegerAnswers, Outputs, answer_words
from qbench.metrics.metric import ArrayLabels, Counts, array_metric
from qbench.metrics.resampling import Wide
from qbench.metrics.scores import BILLION, Direction


@dataclass(frozen=True, slots=True, eq=False)
class ValueAnswers(Answers):
    """Numbers for n samples: values, keypoints, pictures.

    Args:
        values: (n, …) float32, finite; of pictures also uint8 or uint16 grey values. Keypoints are
            (n, K, 2), x and y.
        outputs: those of the network for the first samples; None: not recorded.
    """

    values: npt.NDArray[Any]
    outputs: Outputs | None = None

    def __post_init__(self) -> None:
        if self.values.ndim < 2 or self.values.dtype not in (np.float32, np.uint8, np.uint16):
            raise ValueError(
                f"values are (n, …) float32, uint8 or uint16, not {self.values.shape} "
                f"{self.values.dtype}"
            )
        if not np.isfinite(self.values).all():
            raise ValueError("values are finite numbers")

    @property
    def form(self) -> str:
        """One word."""
        return "values"

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """``values``, floats without negative zeros, so that equal numbers have equal digests."""
        return {
            "values": self.values + np.float32(0)
            if self.values.dtype == np.float32
            else self.values
        }

    @property
    def usual_metrics(self) -> tuple[str, ...]:
        """Of pictures, and of other values."""
        return ("mae", "rmse") if self.values.dtype == np.float32 else ("psnr", "ssim")


def answered_values(name: str, answers: Answers) -> npt.NDArray[Any]:
    """The values of ``answers``, which ``name`` counts.

    Raises:
        ValueError: they are none.
    """
    if isinstance(answers, ValueAnswers):
        return answers.values
    raise ValueError(f"{name} compares values, and these answers are {answer_words(answers)}")


def _pair(name: str, answers: Answers, labels: ArrayLabels) -> tuple[Wide, Wide]:
    """Answers and labels as (n, d) float64."""
    values = answered_values(name, answers)
    size = values[0].size
    for index, label in enumerate(labels):
        if label.size != size:
            raise ValueError(
                f"{name} compares {size} values a sample, and label {index} has {label.size}"
            )
    return values.reshape(len(values), -1).astype(np.float64), np.stack(
        [label.ravel() for label in labels]
    ).astype(np.float64)


# Values in whole parts of 10⁻¹² to 1, so that the sums of the answers and of the reference have one
# denominator. They are as fine as lets n errors of a thousand times the largest label add up within
# 64 bits. A larger error counts as the largest that fits.

_MOST = 1 << 62
_ROOM = 1000


def _parts(right: Wide) -> tuple[int, float]:
    """Parts of 1, and the largest number of them that a sample may have."""
    largest = max(float(np.abs(right).max(initial=0.0)), 1.0)
    digits = math.floor(math.log10(_MOST / (len(right) * largest * _ROOM)))
    return int(10 ** min(max(digits, 0), 12)), float(_MOST // len(right))


def _in_parts(errors: Wide, right: Wide) -> npt.NDArray[np.int64]:
    """``errors`` ≥ 0 in parts."""
    one, most = _parts(right)
    return np.rint(np.minimum(errors * one, most)).astype(np.int64)


def _counted(errors: Wide, right: Wide) -> Counts:
    return Counts(_in_parts(errors, right), np.full(len(errors), _parts(right)[0], np.int64))


def _count_absolute(answers: Answers, labels: ArrayLabels, _reference: Answers | None) -> Counts:
    y, right = _pair("mae", answers, labels)
    return _counted(np.abs(y - right).mean(axis=1), right)


def _count_relative(answers: Answers, labels: ArrayLabels, _reference: Answers | None) -> Counts:
    y, right = _pair("mape", answers, labels)
    if not right.all():
        raise ValueError("mape divides by the labels, and one of them is 0")
    return _counted((np.abs(y - right) / np.abs(right)).mean(axis=1), np.ones((len(right), 1)))


# The root is that of the mean over all samples; a sample is better or worse by the root of its own
# mean.


def _count_squared(answers: Answers, labels: ArrayLabels, _reference: Answers | None) -> Counts:
    y, right = _pair("rmse", answers, labels)
    squares = ((y - right) ** 2).mean(axis=1)

    def value(weights: Wide) -> Wide:
        return np.asarray(np.sqrt(weights @ squares / weights.sum(axis=1)))

    alone = _counted(np.sqrt(squares), right)
    whole = _in_parts(value(np.ones((1, len(squares)))), right)
    return Counts(alone.hits, alone.out_of, total=(int(whole[0]), _parts(right)[0]), weighted=value)


MAE = array_metric(
    "mae", "Mean absolute error", _count_absolute, direction=Direction.LOWER, unit=""
)
RMSE = array_metric(
    "rmse", "Root of the mean squared error", _count_squared, direction=Direction.LOWER, unit=""
)
MAPE = array_metric(
    "mape", "Mean relative error", _count_relative, direction=Direction.LOWER, least_margin=0.0005
)


# Keypoints of one object for each sample. Its label is COCO's list of x, y and v of each keypoint,
# v > 0 where it is labelled, and the object's area in square pixels at the end: 3·K + 1 numbers.
# σ_k says how exactly a keypoint can be marked: COCO's for its 17, else 1 / K, as Ultralytics takes
# it. An object without a labelled keypoint is not counted.

_COCO_SIGMAS = (
    np.array(
        [
            0.26,
            0.25,
            0.25,
            0.35,
            0.35,
            0.79,
            0.79,
            0.72,
            0.72,
            0.62,
            0.62,
            1.07,
            1.07,
            0.87,
            0.87,
            0.89,
            0.89,
        ]
    )
    / 10
)


def keypoint_similarities(found: Wide, right: Wide, areas: Wide) -> Wide:
    """(n,) object keypoint similarities of points (n, K, 2) with labels (n, K, 3); 0 where no
    keypoint is labelled.
    """
    sigmas = (
        _COCO_SIGMAS
        if found.shape[1] == len(_COCO_SIGMAS)
        else np.full(found.shape[1], 1 / found.shape[1])
    )
    distances = ((found - right[:, :, :2]) ** 2).sum(axis=2)
    seen = right[:, :, 2] > 0
    shares = np.exp(-distances / ((2 * sigmas) ** 2 * (areas[:, None] + np.spacing(1)) * 2))
    return np.asarray((shares * seen).sum(axis=1) / np.maximum(seen.sum(axis=1), 1))


def _count_keypoints(answers: Answers, labels: ArrayLabels, _reference: Answers | None) -> Counts:
    found = answered_values("oks", answers)
    if found.ndim != 3 or found.shape[2] != 2:
        raise ValueError(f"oks compares keypoints (K, 2), and these answers are {found.shape[1:]}")
    numbers = 3 * found.shape[1] + 1
    for index, label in enumerate(labels):
        if label.shape != (numbers,) or not label[-1] > 0:
            raise ValueError(
                f"oks compares {found.shape[1]} keypoints with {numbers} numbers of a label (x, y, "
                f"v of each, and an area above 0), and label {index} is {label.shape}"
            )
    right = np.stack(labels).astype(np.float64)
    points = right[:, :-1].reshape(len(right), -1, 3)
    similar = keypoint_similarities(found.astype(np.float64), points, right[:, -1])
    counted = (points[:, :, 2] > 0).any(axis=1)
    return Counts(
        np.rint(BILLION * similar).astype(np.int64), np.where(counted, BILLION, 0).astype(np.int64)
    )


OKS = array_metric("oks", "Object keypoint similarity", _count_keypoints)


# Spearman's coefficient of one number for each sample, or of the similarities of pairs, and of
# graded labels. Answers that are all equal have 0. A sample alone is better or worse by how far its
# two ranks are apart, in halves of a rank.


def _gradings(answers: Answers, labels: ArrayLabels) -> tuple[Wide, Wide]:
    """Answers and labels, (n,) each."""
    if isinstance(answers, IntegerAnswers) and answers.kind is AnswerKind.LIKENESS:
        y = answers.ids.astype(np.float64)
    else:
        values = answered_values("spearman", answers)
        y = values.reshape(len(values), -1).astype(np.float64)
    if y.shape[1] != 1 or any(label.size != 1 for label in labels):
        raise ValueError("spearman ranks samples by one number, and answers or labels have several")
    right = np.stack([label.ravel() for label in labels])[:, 0].astype(np.float64)
    if (right == right[0]).all():
        raise ValueError("spearman ranks samples by their labels, and these are all equal")
    return y[:, 0], right


class _Ranks:
    """Mean ranks of values (n,) in samples drawn with replacement."""

    def __init__(self, values: Wide) -> None:
        self._order = np.argsort(values, kind="stable")
        _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
        self._starts = np.searchsorted(values[self._order], values[first])
        self._inverse = inverse

    def of(self, weights: Wide) -> Wide:
        """(b, n) ranks where sample i was drawn ``weights[:, i]`` times; from 0, less a half
        for all alike.
        """
        times = np.add.reduceat(weights[:, self._order], self._starts, axis=1)
        return np.asarray((np.cumsum(times, axis=1) - times / 2)[:, self._inverse])


def rank_correlations(ours: _Ranks, right: _Ranks, weights: Wide) -> Wide:
    """(b,) coefficients where sample i was drawn ``weights[:, i]`` times; 0 where one side is
    constant.
    """
    total = weights.sum(axis=1, keepdims=True)
    a, b = (each.of(weights) - total / 2 for each in (ours, right))
    above = (weights * a * b).sum(axis=1)
    below = np.sqrt((weights * a * a).sum(axis=1) * (weights * b * b).sum(axis=1))
    return np.asarray(np.divide(above, below, out=np.zeros(len(weights)), where=below > 0))


def _count_ordered(answers: Answers, labels: ArrayLabels, _reference: Answers | None) -> Counts:
    y, right = (_Ranks(each) for each in _gradings(answers, labels))
    n = len(answers)
    once = np.ones((1, n))
    apart = np.rint(2 * np.abs(y.of(once)[0] - right.of(once)[0])).astype(np.int64)
    whole = float(rank_correlations(y, right, once)[0])
    return Counts(
        2 * n - apart,
        np.full(n, 2 * n, np.int64),
        total=(round(BILLION * whole), BILLION),
        weighted=lambda weights: rank_correlations(y, right, weights),
    )


SPEARMAN = array_metric("spearman", "Rank correlation with the labels", _count_ordered, unit="")
