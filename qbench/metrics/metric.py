"""A metric counts: per sample, how many of how many. Its value is Σ hits / Σ out_of, never a mean of floats.

top-1 counts 1 of 1 for a right answer; a phoneme error rate counts the edits of a word out of its phonemes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qbench.metrics.answers import Answers
from qbench.metrics.resampling import change_interval, with_unmet
from qbench.metrics.scores import Against, Direction, Score

Labels = tuple[tuple[int, ...], ...]
"""Per sample: the class ids that count as right, or the one right sequence of tokens."""


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """(n,) int64 each: what a metric counted in every sample, and out of how many."""

    hits: npt.NDArray[np.int64]
    out_of: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A named way to count answers.

    ``count(answers, labels, reference)`` gets ``reference`` when ``against`` is REFERENCE and ``labels`` when it is
    LABELS or ``by_labels`` is set; the other is None. ``unit`` is shown after values: ``"%"`` values
    are shares shown times 100, ``""`` is a plain number.
    ``least_margin`` is the smallest margin judging grants, as a share (an error rate near zero would have none).
    ``proportion``: each sample counts 0 or 1 of 1, so that paired statistics apply. ``of_run``: the reference is to be
    today's fp32 run, with its outputs and ties; stored answers have neither. ``of_likelihoods``: it needs the
    likelihoods of the labels. ``resampled(answers, labels, reference)`` gives the interval of the change where the
    value is not a sum over samples; None: sums are resampled.
    """

    name: str
    title: str
    direction: Direction
    against: Against
    count: Callable[[Answers, Labels | None, Answers | None], Counts]
    unit: str = "%"
    least_margin: float = 0.0
    proportion: bool = True
    by_labels: bool = False
    of_run: bool = False
    of_likelihoods: bool = False
    resampled: Callable[[Answers, Labels, Answers], tuple[float, float] | None] | None = None

    @property
    def summary(self) -> str:
        """What it counts, in one line."""
        return f"{self.title}; against {self.against.value}, {self.direction.value} is better"

    @property
    def is_distance(self) -> bool:
        """Whether it is a distance from fp32, which a suite may limit; not a share of samples that agree."""
        agrees = self.proportion and self.direction is Direction.HIGHER
        return self.against is Against.REFERENCE and not agrees

    @property
    def needs_labels(self) -> bool:
        """Whether it cannot count unlabelled samples."""
        return self.by_labels or self.against is Against.LABELS


def score(
    metric: Metric, answers: Answers, *, labels: Labels | None, reference: Answers, name: str | None = None
) -> Score:
    """Count ``answers`` and ``reference``, the fp32 answers to the same n samples, with ``metric``.

    Raises:
        ValueError: answers, reference and labels differ in length, a metric against labels got none, there is nothing
            to count, or the metric is not for answers of this kind.
    """
    if len(answers) != len(reference) or (labels is not None and len(labels) != len(answers)):
        raise ValueError(
            f"{metric.name}: {len(answers)} answers, {len(reference)} reference answers, "
            f"{'no' if labels is None else len(labels)} labels"
        )
    if metric.needs_labels and labels is None:
        raise ValueError(f"{metric.name} counts against labels and the data has none")
    right = labels if metric.needs_labels else None
    other = reference if metric.against is Against.REFERENCE else None
    now, before = metric.count(answers, right, other), metric.count(reference, right, other)
    if now.out_of.sum() == 0:
        raise ValueError(f"{metric.name} has nothing to count in {len(answers)} samples")
    sign = 1 if metric.direction is Direction.HIGHER else -1
    better = sign * (now.hits - before.hits)
    resampled = metric.resampled
    own = None if resampled is None else lambda: resampled(answers, labels or (), reference)
    return Score(
        metric=name or metric.name,
        direction=metric.direction,
        against=metric.against,
        unit=metric.unit,
        proportion=metric.proportion,
        least_margin=metric.least_margin,
        n=len(now.hits),
        hits=int(now.hits.sum()),
        out_of=int(now.out_of.sum()),
        reference_hits=int(before.hits.sum()),
        losses=int((better < 0).sum()),
        gains=int((better > 0).sum()),
        interval=_interval(metric, np.stack([now.hits, now.out_of, before.hits, before.out_of], axis=1), own),
    )


def _interval(
    metric: Metric, rows: npt.NDArray[np.int64], own: Callable[[], tuple[float, float] | None] | None
) -> tuple[float, float] | None:
    """Of the change, from ``rows`` as ``change_interval`` takes them, or by the metric's ``own`` way to resample."""
    if own is not None:
        found = own()
    elif metric.proportion or metric.against is not Against.LABELS:
        return None
    else:
        found = change_interval(rows)
    return None if found is None else with_unmet(found, rows)
