"""A metric counts: per sample, how many of how many. Its value is Σ hits / Σ out_of, never a
mean of floats.

top-1 counts 1 of 1 for a right answer; a phoneme error rate counts the edits of a word out of its
phonemes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.metrics.answers import Answers
from qbench.metrics.clusters import clustered, of_too_few, resampled, source_numbers, widened
from qbench.metrics.resampling import (
    RESAMPLES,
    by_source,
    change_interval,
    weighted_interval,
    with_unmet,
)
from qbench.metrics.scores import BILLION, LEAST_OF_MEAN, Against, Clusters, Direction, Score

Labels = tuple[tuple[int, ...], ...]
"""Per sample: the class ids that count as right, or the one right sequence of tokens."""

ArrayLabels = tuple[npt.NDArray[Any], ...]
"""Per sample: an array of numbers, such as the boxes or the mask that are right; shapes are
those of the task.
"""

Resampled = Callable[[Any, Any, Any, npt.NDArray[np.intp] | None], tuple[float, float] | None]
"""Of answers, labels, reference answers and source numbers: the 90 % interval of the change;
None: there is none.
"""

_Resampling = Callable[[], tuple[float, float] | None]
"""``Resampled`` of answers that are given."""


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """What a metric counted.

    Args:
        hits, out_of: (n,) int64 each, of every sample.
        total: hits and out_of of all samples together, where these are not the sums of the two, or
            where ``out_of`` depends on the answers: then a share of ``BILLION``, so that all cells
            count in one unit. Losses and gains compare ``hits``, which are what each sample counts
            alone.
        weighted: of such a value, (b, n) float64 how often each sample counts → (b,) values, NaN
            where there is nothing to count; the change is resampled with it, ``resamples`` times.
            None: ``hits`` are resampled.
    """

    hits: npt.NDArray[np.int64]
    out_of: npt.NDArray[np.int64]
    total: tuple[int, int] | None = None
    weighted: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]] | None = None
    resamples: int = RESAMPLES

    @property
    def sums(self) -> tuple[int, int]:
        """Hits and out_of of all samples together."""
        return (int(self.hits.sum()), int(self.out_of.sum())) if self.total is None else self.total


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A named way to count answers.

    ``count(answers, labels, reference)`` gets ``reference`` when ``against`` is REFERENCE and
    ``labels`` when it is LABELS or ``by_labels`` is set; the other is None. ``unit`` is shown after
    values: ``"%"`` values are shares shown times 100, ``""`` is a plain number. ``least_margin`` is
    the smallest margin judging grants, as a share (an error rate near zero would have none).
    ``proportion``: each sample counts 0 or 1 of 1, so that paired statistics apply. ``of_run``: the
    reference is to be today's fp32 run, with its outputs and ties; stored answers have neither.
    ``of_likelihoods``: it needs the likelihoods of the labels. ``resampled(answers, labels,
    reference, sources)`` gives the interval of the change where the value is not a sum over
    samples; ``sources`` (n,) numbers the source of each sample, None: each has its own.
    ``resampled`` None: sums are resampled; ``no_interval``: nothing is. ``array_labels``: it counts
    against labels that are arrays (``ArrayLabels``), and not against whole numbers (``Labels``).
    ``depth``: how many of the best classes it looks at. ``of_text``: what is right comes with the
    samples, as the next token of a text does, so that it needs no labels.
    """

    name: str
    title: str
    direction: Direction
    against: Against
    count: Callable[[Any, Any, Any], Counts]
    unit: str = "%"
    least_margin: float = 0.0
    proportion: bool = True
    by_labels: bool = False
    of_run: bool = False
    of_likelihoods: bool = False
    resampled: Resampled | None = None
    array_labels: bool = False
    depth: int = 1
    of_text: bool = False

    @property
    def summary(self) -> str:
        """What it counts, in one line."""
        return f"{self.title}; against {self.against.value}, {self.direction.value} is better"

    @property
    def is_distance(self) -> bool:
        """Whether it is a distance from fp32, which a suite may limit; not a share of samples
        that agree.
        """
        agrees = self.proportion and self.direction is Direction.HIGHER
        return self.against is Against.REFERENCE and not agrees

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest value that a sample usually has: shares lie between 0 and 1
        (an error rate may exceed it), errors and divergences begin at 0, decibels have no bound.
        """
        if self.proportion or self.unit == "%":
            return (0.0, 1.0)
        return (0.0 if self.direction is Direction.LOWER else -math.inf, math.inf)

    @property
    def needs_labels(self) -> bool:
        """Whether it cannot count unlabelled samples."""
        return self.by_labels or (self.against is Against.LABELS and not self.of_text)


def no_interval(
    _answers: Any,  # noqa: ANN401 - whatever the metric counts
    _labels: Any,  # noqa: ANN401
    _reference: Any,  # noqa: ANN401
    _sources: npt.NDArray[np.intp] | None,
) -> None:
    """``Metric.resampled`` of a value that is not resampled, however many samples there are."""


def array_metric(
    name: str,
    title: str,
    count: Callable[[Any, Any, Any], Counts],
    *,
    direction: Direction = Direction.HIGHER,
    unit: str = "%",
    least_margin: float = 0.0,
) -> Metric:
    """A metric against labels that are arrays (boxes, masks, values), whose samples count more
    than right or wrong.
    """
    return Metric(
        name=name,
        title=title,
        direction=direction,
        against=Against.LABELS,
        count=count,
        unit=unit,
        least_margin=least_margin,
        proportion=False,
        array_labels=True,
    )


def score(
    metric: Metric,
    answers: Answers,
    *,
    labels: Labels | ArrayLabels | None,
    reference: Answers,
    name: str | None = None,
    sources: Sequence[str] | None = None,
) -> Score:
    """Count ``answers`` and ``reference``, the fp32 answers to the same n samples, with ``metric``.

    ``sources``: n names of what each sample was cut from; samples of one source are not independent
    evidence (``Score.clusters``). None: each sample has its own.

    Raises:
        ValueError: answers, reference, labels and sources differ in length, a metric against labels
            got none or labels of another kind, there is nothing to count, or the metric is not for
            answers of this kind.
    """
    if len(answers) != len(reference) or (labels is not None and len(labels) != len(answers)):
        raise ValueError(
            f"{metric.name}: {len(answers)} answers, {len(reference)} reference answers, "
            f"{'no' if labels is None else len(labels)} labels"
        )
    if metric.needs_labels and labels is None:
        raise ValueError(f"{metric.name} counts against labels and the data has none")
    right = labels if metric.needs_labels else None
    if right and isinstance(right[0], np.ndarray) != metric.array_labels:
        kinds = ("arrays", "classes or sequences")
        raise ValueError(
            f"{metric.name} counts against labels that are {kinds[not metric.array_labels]}, and "
            f"these are {kinds[metric.array_labels]}"
        )
    other = reference if metric.against is Against.REFERENCE else None
    now, before = metric.count(answers, right, other), metric.count(reference, right, other)
    (hits, out_of), (reference_hits, reference_out_of) = now.sums, before.sums
    if out_of == 0 or reference_out_of == 0:
        raise ValueError(f"{metric.name} has nothing to count in {len(answers)} samples")
    if (
        metric.against is Against.REFERENCE
        and metric.proportion
        and metric.direction is Direction.HIGHER
    ):
        # the reference agrees with itself, out of whatever
        reference_hits, reference_out_of = out_of, out_of
    if (
        out_of != reference_out_of
    ):  # such as a precision: each of the two is counted out of its own answers
        hits, reference_hits = (round(BILLION * Fraction(*one)) for one in (now.sums, before.sums))
        out_of = BILLION
    numbers = source_numbers(sources, len(answers))
    recompute = metric.resampled
    own = (
        None if recompute is None else lambda: recompute(answers, labels or (), reference, numbers)
    )
    if now.weighted is not None and before.weighted is not None:
        own = partial(_reweighted, now, before, numbers)
    rows = np.stack([now.hits, now.out_of, before.hits, before.out_of], axis=1)
    return _score(
        metric,
        rows,
        (hits, out_of, reference_hits),
        name=name or metric.name,
        own=own,
        numbers=numbers,
    )


def slice_scores(
    metric: Metric,
    answers: Answers,
    *,
    labels: Labels | ArrayLabels | None,
    reference: Answers,
    slices: Sequence[str],
    name: str | None = None,
    sources: Sequence[str] | None = None,
) -> dict[str, Score]:
    """The score of the samples of each of ``slices`` (n names), in the order of the names; the
    rest is as of ``score``.

    Empty of a metric whose value is not the sum over samples. A slice in which nothing is to be
    counted is left out.

    Raises:
        ValueError: as ``score``, or there are more or fewer slices than samples.
    """
    if len(slices) != len(answers):
        raise ValueError(f"{metric.name}: {len(slices)} slices of {len(answers)} samples")
    right = labels if metric.needs_labels else None
    other = reference if metric.against is Against.REFERENCE else None
    now, before = metric.count(answers, right, other), metric.count(reference, right, other)
    if metric.resampled is not None or now.total is not None or before.total is not None:
        return {}
    rows = np.stack([now.hits, now.out_of, before.hits, before.out_of], axis=1)
    of_slice, found = np.asarray(slices), {}
    for one in sorted({*slices}):
        places = np.flatnonzero(of_slice == one)
        part = rows[places]
        hits, out_of, reference_hits, reference_out_of = (int(total) for total in part.sum(axis=0))
        if not out_of or out_of != reference_out_of:
            continue
        numbers = (
            None
            if sources is None
            else source_numbers([sources[int(place)] for place in places], len(places))
        )
        found[one] = _score(
            metric,
            part,
            (hits, out_of, reference_hits),
            name=name or metric.name,
            own=None,
            numbers=numbers,
        )
    return found


def _score(
    metric: Metric,
    rows: npt.NDArray[np.int64],
    totals: tuple[int, int, int],
    *,
    name: str,
    own: _Resampling | None,
    numbers: npt.NDArray[np.intp] | None,
) -> Score:
    """Of ``rows`` as ``change_interval`` takes them and their ``totals``: hits, out_of, hits of
    the reference.

    ``own``: the metric's own way to resample.
    """
    hits, out_of, reference_hits = totals
    better = (rows[:, 0] - rows[:, 2]) * (1 if metric.direction is Direction.HIGHER else -1)
    change = (hits - reference_hits) / out_of
    never_resampled = not metric.proportion and not _is_resampled(metric, own)
    interval = _interval(metric, rows, own, numbers, change)
    clusters = None
    if numbers is not None and not never_resampled:
        clusters = _clusters(metric, rows, numbers, interval, change)
    return Score(
        metric=name,
        direction=metric.direction,
        against=metric.against,
        unit=metric.unit,
        proportion=metric.proportion,
        least_margin=metric.least_margin,
        n=len(rows),
        hits=hits,
        out_of=out_of,
        reference_hits=reference_hits,
        losses=int((better < 0).sum()),
        gains=int((better > 0).sum()),
        interval=interval,
        never_resampled=never_resampled,
        clusters=clusters,
    )


def _is_resampled(metric: Metric, own: _Resampling | None) -> bool:
    """Whether enough samples give an interval of the change of ``metric`` by resampling."""
    if own is None:
        return not metric.proportion and metric.against is Against.LABELS
    return metric.resampled is not no_interval


def _reweighted(
    now: Counts, before: Counts, sources: npt.NDArray[np.intp] | None
) -> tuple[float, float] | None:
    value, value_before = now.weighted, before.weighted
    assert value is not None
    assert value_before is not None
    draws = min(now.resamples, before.resamples)
    return weighted_interval(
        lambda w: value(w) - value_before(w), len(now.hits), sources, resamples=draws
    )


def _clusters(
    metric: Metric,
    rows: npt.NDArray[np.int64],
    numbers: npt.NDArray[np.intp],
    interval: tuple[float, float] | None,
    change: float,
) -> Clusters | None:
    if metric.proportion:
        return clustered(rows[:, 0] - rows[:, 2], numbers) if (rows[:, 1] == 1).all() else None
    sources = int(numbers.max()) + 1
    if sources < LEAST_OF_MEAN:
        return of_too_few(len(rows), sources)
    return None if interval is None else resampled(change, rows, numbers, interval)


def _interval(
    metric: Metric,
    rows: npt.NDArray[np.int64],
    own: _Resampling | None,
    sources: npt.NDArray[np.intp] | None,
    change: float,
) -> tuple[float, float] | None:
    """Of ``change``, from ``rows`` as ``change_interval`` takes them, or by the metric's
    ``own`` way to resample.
    """
    if not _is_resampled(metric, own):
        return None
    numbers = np.arange(len(rows)) if sources is None else sources
    sums = rows if sources is None else by_source(rows, sources)
    if len(sums) < LEAST_OF_MEAN:
        return None
    found = change_interval(rows, sources) if own is None else own()
    if found is None:
        return None
    return with_unmet(widened(found, change, numbers), change, sums, metric.bounds)
