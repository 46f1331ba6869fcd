"""The result of counting: whole numbers and words, no arrays, so that judging and tracking need
no numpy.

value = Σ hits / Σ out_of, and the same for the fp32 reference
"""

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

BILLION = 1_000_000_000
"""The whole of a value that is not a ratio of sums over samples, or whose two sides are out of
different numbers.
"""
CONFIDENCE = 0.9
"""Of the interval that decides about a margin: each of its ends errs with 5 %."""
LEAST_OF_MEAN = math.ceil(math.log2(2 / (1 - CONFIDENCE)))
"""The fewest samples, or sources, of which a mean proves anything: 5.

If a change is as often a gain as a loss, n samples agree with a chance of 2^(1 − n), which is 1 −
90 % or less from n = log₂ 20 = 4.3 on; fewer are no proof at that confidence, even where all agree
(the sign test: Conover, Practical Nonparametric Statistics, ch. 3).
"""
LEAST_FREEDOM = 0.5
"""Degrees of freedom are no fewer, so that Student's t exists."""


class Direction(enum.StrEnum):
    """Which way a metric is better."""

    HIGHER = "higher"
    LOWER = "lower"


class Against(enum.StrEnum):
    """What answers are compared with: labels, or the answers of the fp32 reference."""

    LABELS = "labels"
    REFERENCE = "reference"


@dataclass(frozen=True, slots=True)
class Gathering:
    """How far changes gather in sources, and how many sources there are to find those that
    change as a whole.

    Args:
        effect: the design effect of the changes that were seen, at least 1.
        freedom: the degrees of freedom of Student's t.
        equal: the number of sources of one size that show as much about sources that change as a
            whole.
    """

    effect: float
    freedom: float
    equal: float

    @staticmethod
    def whole(n: int, sources: int) -> "Gathering":
        """That of ``n`` samples of two or more ``sources`` of one size, of which each changes
        as a whole.
        """
        return Gathering(n / sources, sources - 1, sources)

    def of_more(self, times: float) -> "Gathering":
        """That of ``times`` the number of sources like these."""
        return Gathering(
            self.effect, max((self.freedom + 1) * times - 1, LEAST_FREEDOM), self.equal * times
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Clusters:
    """What samples that share sources (crops, sentences of a voice) prove about a change.

    Intervals and error are of value − reference_value, as fractions in the metric's own sense.

    Args:
        sources: how many different sources the samples have.
        effect: by how much the sources widen the variance of the changes that were seen, Student's
            t included: n samples prove as much as n / effect samples of a source each, but for
            sources that were not met.
        interval: the 90 % interval, which decides.
        shown: the 95 % interval.
        p: two-sided, of "no change": the mid-p where each source gains and loses by a fair coin.
        error: the standard error of the change, by the differences between sources.
        seen, freedom, equal: as ``effect``, ``freedom`` and ``equal`` of ``gathering``. 0: a file
            of a qbench that did not know them.
    """

    sources: int
    effect: float
    interval: tuple[float, float]
    shown: tuple[float, float]
    p: float
    error: float
    seen: float = 1.0
    freedom: float = 0.0
    equal: float = 0.0

    @property
    def gathering(self) -> Gathering:
        """What an interval of the sources is made of; of older files as if the sources were of
        one size.
        """
        if not self.equal:
            return Gathering(self.effect, max(self.sources - 1, LEAST_FREEDOM), self.sources)
        return Gathering(self.seen, self.freedom, self.equal)


class Counted:
    """What follows from the counts of one metric of one cell, whichever value has the counts.

    `Score` has those that were measured. `MetricRecord` of tracking has those of a line, in which
    ``direction`` and ``against`` may be words of a newer qbench. Fractions are in the metric's own
    sense where nothing else is said.
    """

    __slots__ = ()

    if TYPE_CHECKING:  # fields of the classes that inherit: a dataclass, and a struct of msgspec
        direction: str
        against: str
        hits: int
        out_of: int
        reference_hits: int

    @property
    def value(self) -> float:
        """The share hits / out_of, a fraction."""
        return self.hits / self.out_of

    @property
    def reference_value(self) -> float:
        """The fp32 reference's value, a fraction."""
        return self.reference_hits / self.out_of

    @property
    def change(self) -> float:
        """The difference from fp32, a fraction: a lower accuracy is negative."""
        return (self.hits - self.reference_hits) / self.out_of

    @property
    def worse(self) -> float:
        """How much worse than fp32, a fraction; negative is better."""
        return self.change if self.lower_is_better else -self.change

    @property
    def lower_is_better(self) -> bool:
        """Whether it counts errors, or a distance."""
        return self.direction == Direction.LOWER

    @property
    def against_labels(self) -> bool:
        """Whether it counts right answers, not answers equal to those of fp32."""
        return self.against != Against.REFERENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Score(Counted):
    """One metric of one cell and of the fp32 reference on the same samples: whole numbers only.

    Args:
        metric: name as the suite writes it, with its data when it names one: ``top1``,
            ``agreement@photo_crops``.
        n: samples that were counted. hits / out_of: the value, summed over samples.
        reference_hits: the same sum for the fp32 reference (``out_of`` for metrics against the
            reference). losses / gains: samples on which this cell did worse / better than the
            reference.
        interval: the 5 % and 95 % points of value − reference_value by the paired bootstrap
            (``resampling``); None for shares of right samples, which losses and gains describe
            completely, of fewer than ``LEAST_OF_MEAN`` samples or sources, and where resampling is
            impossible.
        never_resampled: of a value that is no share: whether no number of samples gives it an
            interval, as of ``sqnr``, so that its counts alone decide.
        clusters: what the samples prove where some of them share a source; None: each has its own.
    """

    metric: str
    direction: Direction
    against: Against
    unit: str
    proportion: bool
    least_margin: float
    n: int
    hits: int
    out_of: int
    reference_hits: int
    losses: int
    gains: int
    interval: tuple[float, float] | None = None
    never_resampled: bool = False
    clusters: Clusters | None = None

    @property
    def is_share_of_samples(self) -> bool:
        """Whether each sample counts 0 or 1 of 1, so that losses and gains say everything."""
        return self.proportion and self.out_of == self.n

    @property
    def independent(self) -> int:
        """How many samples stand for themselves: all, or one of each source."""
        return self.n if self.clusters is None else self.clusters.sources

    @property
    def reference_errors(self) -> int:
        """The units that the fp32 reference got wrong: out of 100 %, or what a metric counts of
        which less is better.

        0 of a value that has no most, such as decibels: what is relative to its error admits
            nothing.
        """
        if self.direction is Direction.LOWER:
            return self.reference_hits
        return max(self.out_of - self.reference_hits, 0) if self.unit == "%" else 0

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest value that the metric can have: shares that are better the
        higher end at 1, errors and divergences begin at 0 and may exceed 1, decibels have neither.
        """
        if self.proportion or (self.unit == "%" and self.direction is Direction.HIGHER):
            return (0.0, 1.0)
        return (0.0 if self.direction is Direction.LOWER else -math.inf, math.inf)

    @property
    def has_floor(self) -> bool:
        """Whether it counts samples that agree with fp32: these have an accepted floor, a
        distance has none.
        """
        return (
            self.against is Against.REFERENCE
            and self.proportion
            and self.direction is Direction.HIGHER
        )

    @property
    def drop(self) -> int:
        """How many units worse than the reference (negative: better), whatever the direction."""
        worse = self.reference_hits - self.hits
        return worse if self.direction is Direction.HIGHER else -worse
