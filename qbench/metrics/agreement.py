"""Agreement with the fp32 reference, flips, ties, and element-wise equality."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.metrics.answers import AnswerKind, Answers, IntegerAnswers
from qbench.metrics.metric import Counts, Labels, Metric
from qbench.metrics.scores import Against, Direction

# Agreement with the fp32 reference: the same best class, or the identical sequence, text or
# similarity.
#
# hits_i = 1 if answer_i = reference_i else 0, out of 1; answers of a form of their own may count
# the parts of a sample, such as its boxes (``Answers.agreement_with``). It needs no labels, so it
# can be counted on any data.


def _count_same(answers: Answers, _labels: Labels | None, reference: Answers | None) -> Counts:
    assert reference is not None
    if answers.form != reference.form:
        raise ValueError(
            f"answers and reference are not of one kind: {answers.form} and {reference.form}"
        )
    return Counts(*answers.agreement_with(reference))


AGREEMENT = Metric(
    name="agreement",
    title="Agreement with fp32",
    direction=Direction.HIGHER,
    against=Against.REFERENCE,
    count=_count_same,
)


# Flips: samples that are right in fp32 and wrong now, or the reverse.
#
#     negative_flips  hits_i = 1 if sample i was right in the reference and is wrong now, out of 1
#                     (losses)
#     flips           hits_i = 1 if it was right in one of the two and is wrong in the other, out of
#                     1 (losses and gains)
#
# Right is the best class among the labels, or the whole sequence. Equal accuracy can hide many
# flips (Dutta et al., "Accuracy is not all you need", 2024); users feel the negative ones (Yan et
# al., "Positive-congruent training", 2021).


def _right(name: str, answers: Answers, labels: Labels) -> npt.NDArray[np.bool_]:
    if not isinstance(answers, IntegerAnswers) or answers.kind is AnswerKind.LIKENESS:
        raise ValueError(
            f"{name} needs answers that are right or wrong, and a {answers.form} is neither"
        )
    if answers.kind is AnswerKind.RANKING:
        found = [answers.best(index)[0] in right for index, right in enumerate(labels)]
    else:
        found = [answers.best(index) == tuple(right) for index, right in enumerate(labels)]
    return np.array(found, dtype=np.bool_)


def _count_flips(answers: Answers, labels: Labels | None, reference: Answers | None) -> Counts:
    assert labels is not None
    assert reference is not None
    turned = _right("flips", answers, labels) != _right("flips", reference, labels)
    return Counts(turned.astype(np.int64), np.ones(len(answers), dtype=np.int64))


def _count_negative(answers: Answers, labels: Labels | None, reference: Answers | None) -> Counts:
    assert labels is not None
    assert reference is not None
    lost = _right("negative_flips", reference, labels) & ~_right("negative_flips", answers, labels)
    return Counts(lost.astype(np.int64), np.ones(len(answers), dtype=np.int64))


FLIPS = Metric(
    name="flips",
    title="Flips",
    direction=Direction.LOWER,
    against=Against.REFERENCE,
    count=_count_flips,
    by_labels=True,
)
NEGATIVE_FLIPS = Metric(
    name="negative_flips",
    title="Negative flips",
    direction=Direction.LOWER,
    against=Against.REFERENCE,
    count=_count_negative,
    by_labels=True,
)


# Ties: the share of samples whose best score was shared, so that the lowest id was taken.
#
# hits_i = 1 if another class (of a sequence: another token of some step) has the best score too,
# out of 1. A quantized network has few distinct scores; with many ties, its top-1 score depends on
# the order of the classes.


def _count_tied(answers: Answers, _labels: Labels | None, _reference: Answers | None) -> Counts:
    if answers.tied is None:
        raise ValueError(
            "ties counts samples whose best score is shared, and the task of these answers does "
            "not record ties"
        )
    return Counts(answers.tied.astype(np.int64), np.ones(len(answers), dtype=np.int64))


TIES = Metric(
    name="ties",
    title="Ties for the best",
    direction=Direction.LOWER,
    against=Against.REFERENCE,
    count=_count_tied,
    of_run=True,
)


# Two results of one tensor, element for element: how many differ, and by how much.
#
# differing = #{a ≠ b}      steps = max|a − b| / scale      relative = max|a − b| / max|b|
#
# Levels times a scale are rounded to floats, each by at most ε/2 of itself: where |a − b| is within
# ε/2 · (|a| + |b|) of n ≥ 1 steps, it is n. A smaller difference, which no two levels have, is
# never taken for none.
#
# Values are compared, not bits: NaN equals NaN, and −0.0 equals 0.0. Where one of the two is NaN or
# infinite and the other differs, the difference has no finite size, and it is counted as unbounded.
# So are all elements of two results whose sizes depend on the numbers and differ, such as the boxes
# that a suppression keeps.

Array = npt.NDArray[Any]

_SMALLEST = float(np.finfo(np.float32).tiny)
"""Used as max|b| of a tensor of zeros."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """What was counted over one or more tensors.

    Args:
        elements: all.
        differing: those that are not equal.
        unbounded: of these, NaN or infinite on one side.
        steps: largest difference of the others in steps; None: no tensor has a scale.
        relative: their largest difference as a share of the largest value of their tensor.
    """

    elements: int = 0
    differing: int = 0
    unbounded: int = 0
    steps: float | None = None
    relative: float = 0.0

    def joined(self, more: "Differences") -> "Differences":
        """Both together."""
        steps = [found for found in (self.steps, more.steps) if found is not None]
        return Differences(
            elements=self.elements + more.elements,
            differing=self.differing + more.differing,
            unbounded=self.unbounded + more.unbounded,
            steps=max(steps, default=None),
            relative=max(self.relative, more.relative),
        )


def unequal(ours: Array, theirs: Array) -> npt.NDArray[np.bool_]:
    """Where two arrays of one shape differ in value: bool, of their shape."""
    different = np.asarray(ours != theirs)
    if ours.dtype.kind in "fc" and theirs.dtype.kind in "fc":
        different &= ~(np.isnan(ours) & np.isnan(theirs))
    return different


def count_differences(ours: Array, theirs: Array, scale: Array | None = None) -> Differences:
    """The differences of one tensor.

    Args:
        ours, theirs: of one rank, floats or integers.
        scale: size of a step, broadcast against them, > 0; None: the tensor has no steps.

    Raises:
        ValueError: their ranks differ.
    """
    if ours.shape != theirs.shape:
        if ours.ndim != theirs.ndim:
            raise ValueError(f"the shapes {ours.shape} and {theirs.shape}")
        every = max(ours.size, theirs.size)
        return Differences(elements=every, differing=every, unbounded=every)
    different = unequal(ours, theirs)
    count = int(different.sum())
    nothing = None if scale is None else 0.0
    if not count:
        return Differences(elements=ours.size, differing=0, steps=nothing)
    a, b = ours[different].astype(np.float64), theirs[different].astype(np.float64)
    bounded = np.isfinite(a) & np.isfinite(b)
    gaps = np.abs(a[bounded] - b[bounded])
    if not gaps.size:
        return Differences(elements=ours.size, differing=count, unbounded=count, steps=nothing)
    wide = np.abs(theirs[np.isfinite(theirs)].astype(np.float64))
    steps = nothing
    if scale is not None:
        sizes = np.broadcast_to(scale, ours.shape)[different][bounded].astype(np.float64)
        steps = float(
            _whole(
                gaps / sizes, _rounding(ours, theirs) * (np.abs(a) + np.abs(b))[bounded] / sizes
            ).max()
        )
    return Differences(
        elements=ours.size,
        differing=count,
        unbounded=count - int(bounded.sum()),
        steps=steps,
        relative=float(gaps.max() / max(float(wide.max(initial=0.0)), _SMALLEST)),
    )


def _rounding(ours: Array, theirs: Array) -> float:
    """ε/2 of the coarser type; 0 of integers."""
    return max(
        (float(np.finfo(one.dtype).eps) / 2 for one in (ours, theirs) if one.dtype.kind == "f"),
        default=0.0,
    )


def _whole(
    steps: npt.NDArray[np.float64], slack: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """``steps``, those within ``slack`` of a whole number of them, 1 or more, as that number."""
    nearest = np.maximum(np.rint(steps), 1.0)
    return np.where(np.abs(steps - nearest) <= slack, nearest, steps)
