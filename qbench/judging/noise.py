"""How far the runs of one cell differ although nothing changed, and what that means for its
verdict.

The value v of a metric varies for two reasons: other samples would give another one, and so would
another run of the same samples on an engine that does not repeat its results. Of R runs of n
samples, with h(i, r) hits of sample i in run r out of N:

    noise of single samples    W = Σᵢ s²ᵢ / N²,  s²ᵢ = [R Σᵣ h² − (Σᵣ h)²] / (R (R − 1))
    of whole runs              S² = the sample variance of the R values vᵣ
    variance of one run        V = max(S², W); B = max(S² − W, 0) is the part that all samples of a
                               run share
    variance of the change, mean of K runs    σ² − W (1 − 1/K) + B/K

σ² is the sampling variance of one run, which has W in it already: the variance of one sample's
change is that of its expectation plus the expectation of its variance (the law of total variance;
Miller 2024, arXiv 2411.00640). Averaging K runs divides W and B by K and leaves the rest.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from statistics import NormalDist

from qbench.judging.format import apart
from qbench.judging.statistics import ALPHA
from qbench.metrics import Direction, Score
from qbench.number_text import counted

_ONE_SIDED = NormalDist().inv_cdf(1 - ALPHA)
_DRIFT = 3.0
"""Standard deviations by which a result may differ from the accepted one: 0.3 % of good runs of
a metric do.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricNoise:
    """One metric in every run of a cell, in whole numbers.

    Args:
        hits, out_of: of each run, the first being that of the score.
        pairs: Σᵢ [R Σᵣ h² − (Σᵣ h)²]; where a sample counts 0 or 1, the pairs of runs that count it
            differently.
        flips: over all pairs of runs, samples whose best answer is another one, whatever the metric
            counts.
    """

    hits: tuple[int, ...]
    out_of: tuple[int, ...]
    pairs: int
    flips: int = 0

    def __post_init__(self) -> None:
        runs = {len(self.hits), len(self.out_of)}
        if (
            len(runs) > 1
            or min(runs) < 2
            or min(self.out_of) < 1
            or min(self.pairs, self.flips) < 0
        ):
            raise ValueError(
                f"hits {self.hits} out of {self.out_of} in runs that differ by {self.pairs} pairs"
            )

    @property
    def mean(self) -> Fraction:
        """The mean value of the runs."""
        return sum(
            (Fraction(h, o) for h, o in zip(self.hits, self.out_of, strict=True)), Fraction()
        ) / len(self.hits)

    @property
    def within(self) -> float:
        """W: the variance of a run's value by noise that is independent between samples."""
        runs = len(self.hits)
        return self.pairs / (runs * (runs - 1)) / self.out_of[0] ** 2

    @property
    def variance(self) -> float:
        """V: the variance of a run's value."""
        return max(self._between, self.within)

    @property
    def shared(self) -> float:
        """B: the part of the variance that all samples of a run share."""
        return max(self._between - self.within, 0.0)

    @property
    def _between(self) -> float:
        values = [Fraction(h, o) for h, o in zip(self.hits, self.out_of, strict=True)]
        mean = self.mean
        return float(sum(((value - mean) ** 2 for value in values), Fraction()) / (len(values) - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """The runs of one cell whose code, model and samples are the same.

    Args:
        runs: how many, the first included: at least 2.
        differing: data set → samples whose answer is not the same in all runs, ranks below the best
            included.
        flips: data set → over all pairs of runs, samples whose best answer is another one.
        metrics: metric → its counts, where the runs differ; empty: every run gave the same answers.
            Metrics of outputs or likelihoods, which only a run has, are not repeated.
    """

    runs: int
    differing: Mapping[str, int] = field(default_factory=dict)
    flips: Mapping[str, int] = field(default_factory=dict)
    metrics: Mapping[str, MetricNoise] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.runs < 2 or any(len(one.hits) != self.runs for one in self.metrics.values()):
            raise ValueError(f"{self.runs} runs with counts of another number of runs")

    @property
    def is_noisy(self) -> bool:
        """Whether any two runs gave different answers."""
        return any(self.differing.values())

    @property
    def text(self) -> str:
        """``2 runs gave the same answers`` or ``in 5 runs the answers to 14 samples of photos
        differ``.
        """
        if not self.is_noisy:
            return f"{self.runs} runs gave the same answers"
        parts = [
            f"{counted(n, 'sample')} of {data}" for data, n in sorted(self.differing.items()) if n
        ]
        return f"in {self.runs} runs the answers to {' and '.join(parts)} differ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """The noise of one score.

    Args:
        counts: of the runs.
        averaged: whether the score is one of these runs, so that their mean is judged; else the
            runs were made before, and the score is a single further one.
        margin: what it may lose, a fraction.
    """

    counts: MetricNoise
    averaged: bool
    margin: float = math.inf

    @property
    def runs(self) -> int:
        """K: how many runs the judged value is the mean of."""
        return len(self.counts.hits) if self.averaged else 1

    def value(self, score: Score) -> Fraction:
        """What is judged: the mean of the runs, or the value of ``score``."""
        return self.counts.mean if self.averaged else Fraction(score.hits, score.out_of)

    def drop(self, score: Score) -> Fraction:
        """How much worse than the reference that is, a fraction; negative: better."""
        change = self.value(score) - Fraction(score.reference_hits, score.out_of)
        return -change if score.direction is Direction.HIGHER else change

    @property
    def spread(self) -> float:
        """The standard deviation of what is judged by noise alone, a fraction."""
        return math.sqrt(self.counts.variance / self.runs)

    def spreads(self, score: Score) -> tuple[float, float]:
        """Standard deviations by noise alone of what is judged and of one run, fractions.

        Noise that moves answers moves hits too, even if it did not in the few runs that measured
        it: a share of samples varies at least as if each flip had an even chance to be a hit.
        """
        runs, n = len(self.counts.hits), self.counts.out_of[0]
        variance = self.counts.variance
        if score.proportion:
            variance = max(variance, self.counts.flips / (runs * (runs - 1)) / n**2)
        return math.sqrt(variance / self.runs), math.sqrt(variance)

    def total(self, sampling: float) -> float:
        """The standard error of the change, ``sampling`` being that of one run; at least the
        noise alone.
        """
        averaged = 1 - 1 / self.runs
        variance = sampling**2 - self.counts.within * averaged + self.counts.shared / self.runs
        return math.sqrt(max(variance, self.counts.variance / self.runs))

    @property
    def exceeds(self) -> bool:
        """Whether the noise alone, at its one-sided 95 % point, is more than the margin."""
        return _ONE_SIDED * self.spread > self.margin

    @property
    def runs_needed(self) -> int | None:
        """How many runs would bring the noise under the margin; None: no number does, for the
        margin is 0.
        """
        if self.margin <= 0:
            return None
        return max(2, math.ceil(_ONE_SIDED**2 * self.counts.variance / self.margin**2))

    def admits(self, score: Score, accepted: int) -> tuple[bool, float]:
        """Whether ``score`` is within the noise of ``accepted`` hits, a single run; by how many
        it may differ.
        """
        most = _DRIFT * math.hypot(*self.spreads(score)) * score.out_of
        return abs(float(self.value(score) * score.out_of) - accepted) <= most, most

    def text(self, score: Score) -> str:
        """``mean of 5 runs 88.10 %, 350 to 355; standard deviation of a run 0.52 pp``."""
        one = apart(score, math.sqrt(self.counts.variance))
        hits = self.counts.hits
        runs = f"{len(hits)} runs gave {min(hits)} to {max(hits)}"
        return f"{runs if self.averaged else f'{runs} before'}, standard deviation of a run {one}"


def noise_of(score: Score, repeats: Repeats | None, *, averaged: bool) -> Noise | None:
    """The noise of ``score``; None where none is known, or all runs gave the same answers."""
    counts = None if repeats is None else repeats.metrics.get(score.metric)
    return (
        None
        if counts is None or counts.out_of[0] != score.out_of
        else Noise(counts=counts, averaged=averaged)
    )


def most_flips(repeats: Repeats, data: str) -> float:
    """How many samples of ``data`` may be answered otherwise than in an accepted run, by noise
    alone.

    Two of R runs differ by f flips on average; a further pair is within f + 3 √(f (1 + 2/R)) where
    flips are Poisson counts, and the mean is as good as that of R/2 pairs without a run in common.
    """
    mean = repeats.flips.get(data, 0) / (repeats.runs * (repeats.runs - 1) // 2)
    return mean + _DRIFT * math.sqrt(mean * (1 + 2 / repeats.runs))
