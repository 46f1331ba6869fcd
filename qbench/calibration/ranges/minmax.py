"""Range methods by extremes, moments and percentiles."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.histogram import Distribution, Floats
from qbench.calibration.ranges.method import demand, spelled
from qbench.numerics import Interval, QParamsKind

# The range that was seen: [min, max].


@dataclass(frozen=True, slots=True)
class MinMax:
    """Everything seen is inside, whatever the kind of qparams."""

    def of_distribution(self, distribution: Distribution, kind: QParamsKind) -> Interval:  # noqa: ARG002
        """The exact extremes."""
        return Interval(np.asarray(distribution.low), np.asarray(distribution.high))

    def of_rows(self, rows: npt.NDArray[Any], kind: QParamsKind) -> Interval:  # noqa: ARG002
        """The exact extremes of every row."""
        return Interval(rows.min(axis=1).astype(np.float64), rows.max(axis=1).astype(np.float64))

    def __str__(self) -> str:
        return "minmax"


# A range that is given, whatever was seen: [low, high].

_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always [low, high]; qparams widen it to hold zero.

    Raises:
        ValueError: low above high, or an end that is not finite as float32.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        for name, end in (("low", self.low), ("high", self.high)):
            demand(math.isfinite(end) and abs(end) <= _LARGEST, name, end, "finite as float32")
        demand(self.low <= self.high, "low", self.low, f"at most high = {self.high!r}")

    def of_distribution(self, distribution: Distribution, kind: QParamsKind) -> Interval:  # noqa: ARG002
        """The range given."""
        return Interval(np.asarray(self.low), np.asarray(self.high))

    def of_rows(self, rows: npt.NDArray[Any], kind: QParamsKind) -> Interval:  # noqa: ARG002
        """The range given, for every row."""
        return Interval(np.full(len(rows), self.low), np.full(len(rows), self.high))

    def __str__(self) -> str:
        return spelled("fixed", self)


# The moving average of the extremes of samples, replayed in the order of sample keys.
#
#     m ← m + c · (extreme of the next sample − m)        the first sample's is taken as it is
#
# torch's MovingAverageMinMaxObserver, with single samples in place of batches, so that the result
# depends neither on the batch size nor on the order of arrival. A tensor without samples (a
# constant, a value without a sample axis) counts as one sample: its very extremes. Samples without
# a finite number are passed over.


@dataclass(frozen=True, slots=True)
class MovingAverage:
    """``constant`` c is the weight of the newest sample; 1 remembers the last one only.

    Raises:
        ValueError: c outside (0, 1].
    """

    constant: float = 0.01

    def __post_init__(self) -> None:
        demand(0 < self.constant <= 1, "constant", self.constant, "in (0, 1]")

    def of_distribution(self, distribution: Distribution, kind: QParamsKind) -> Interval:
        """The averages after the last sample."""
        lows, highs = distribution.sample_lows, distribution.sample_highs
        if lows is None or highs is None or not np.isfinite(lows).any():
            return MinMax().of_distribution(distribution, kind)
        low = self._replayed(lows[np.isfinite(lows)].tolist())
        high = self._replayed(highs[np.isfinite(highs)].tolist())
        return Interval(np.asarray(low), np.asarray(max(low, high)))

    def of_rows(self, rows: npt.NDArray[Any], kind: QParamsKind) -> Interval:
        """The extremes of every row: a constant is one sample."""
        return MinMax().of_rows(rows, kind)

    def _replayed(self, extremes: list[float]) -> float:
        average = extremes[0]
        for extreme in extremes[1:]:
            average += self.constant * (extreme - average)
        return average

    def __str__(self) -> str:
        return spelled("moving_average", self)


# The mean and its surroundings, inside what was seen: [mean − k·σ, mean + k·σ].
#
# σ = √(Σ (x − mean)² / N)      over all N elements


@dataclass(frozen=True, slots=True)
class Sigma:
    """``k`` standard deviations to either side, never beyond the extremes.

    Raises:
        ValueError: k is not positive and finite.
    """

    k: float = 3.0

    def __post_init__(self) -> None:
        demand(self.k > 0 and math.isfinite(self.k), "k", self.k, "positive and finite")

    def of_distribution(self, distribution: Distribution, kind: QParamsKind) -> Interval:  # noqa: ARG002
        """Of all values of a tensor; [c, c] of a constant c."""
        low, high = np.asarray(distribution.low), np.asarray(distribution.high)
        return self._inside(
            np.asarray(distribution.mean), np.asarray(distribution.deviation), low, high
        )

    def of_rows(self, rows: npt.NDArray[Any], kind: QParamsKind) -> Interval:  # noqa: ARG002
        """Of the values of every row."""
        mean = rows.mean(axis=1, dtype=np.float64)
        low, high = rows.min(axis=1).astype(np.float64), rows.max(axis=1).astype(np.float64)
        return self._inside(mean, rows.std(axis=1, dtype=np.float64), low, high)

    def _inside(
        self,
        mean: npt.NDArray[np.float64],
        deviation: npt.NDArray[np.float64],
        low: npt.NDArray[np.float64],
        high: npt.NDArray[np.float64],
    ) -> Interval:
        spread = self.k * deviation
        return Interval(np.clip(mean - spread, low, high), np.clip(mean + spread, low, high))

    def __str__(self) -> str:
        return spelled("sigma", self)


# The smallest of ranges that keep p percent of the values, the rest cut at both sides alike.
#
#     asymmetric qparams, values of both signs:
#         c = ⌊N · (100 − p) / 200⌋ values are cut at each end:  [x₍c₊₁₎, x₍N₋c₎]
#     all other cases:
#         c = ⌊N · (100 − p) / 100⌋ magnitudes are cut:  [−T, T] inside what was seen,  T = |x|₍N₋c₎
#
# x₍i₎ is the i-th smallest of N values: an order statistic, never interpolated. Where qparams are
# symmetric a cut at one side alone wins nothing, and where all values have one sign the other end
# is zero's. With c = 0 nothing is cut, so that percentile(100) is exactly what was seen.

_ELEMENTS_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True)
class Percentile:
    """``p`` percent of the values lie inside, counted exactly: 99.9 means 999/1000.

    Raises:
        ValueError: p outside (0, 100].
    """

    p: float = 99.99

    def __post_init__(self) -> None:
        demand(0 < self.p <= 100, "p", self.p, "in (0, 100]")

    def _cut(self, count: int, sides: int) -> int:
        """How many of ``count`` values go at each of ``sides`` sides; the decimal text of p is
        what is meant.
        """
        return int(count * (100 - Fraction(repr(float(self.p)))) / (100 * sides))

    def of_distribution(self, distribution: Distribution, kind: QParamsKind) -> Interval:
        """Of all values of a tensor."""
        low, high, count = distribution.low, distribution.high, distribution.count
        if kind.symmetry == "asymmetric" and low < 0 < high:
            cut = self._cut(count, 2)
            if cut:
                low, high = _ranked(distribution, cut), _ranked(distribution, count - 1 - cut)
        else:
            cut = self._cut(count, 1)
            if cut:
                threshold = _ranked(distribution.magnitudes(), count - 1 - cut)
                low, high = max(low, -threshold), min(high, threshold)
        return Interval(np.asarray(low), np.asarray(high))

    def of_rows(self, rows: npt.NDArray[Any], kind: QParamsKind) -> Interval:
        """Of the values of every row."""
        count = rows.shape[1]
        at_once = max(1, _ELEMENTS_AT_ONCE // max(1, count))
        lows, highs = np.empty(len(rows)), np.empty(len(rows))
        for i in range(0, len(rows), at_once):
            lows[i : i + at_once], highs[i : i + at_once] = self._of_some(
                rows[i : i + at_once], kind
            )
        return Interval(lows, highs)

    def _of_some(self, rows: npt.NDArray[Any], kind: QParamsKind) -> tuple[Floats, Floats]:
        count = rows.shape[1]
        low, high = rows.min(axis=1).astype(np.float64), rows.max(axis=1).astype(np.float64)
        two_sided = (low < 0) & (high > 0) & (kind.symmetry == "asymmetric")
        one, two = self._cut(count, 1), self._cut(count, 2)
        if two and two_sided.any():
            ranked = np.partition(rows[two_sided], (two, count - 1 - two), axis=1)
            low[two_sided], high[two_sided] = ranked[:, two], ranked[:, count - 1 - two]
        if one and not two_sided.all():
            rest = ~two_sided
            magnitudes = np.abs(rows[rest].astype(np.float64, copy=False))
            threshold = np.partition(magnitudes, count - 1 - one, axis=1)[:, count - 1 - one]
            low[rest] = np.maximum(low[rest], -threshold)
            high[rest] = np.minimum(high[rest], threshold)
        return low, high

    def __str__(self) -> str:
        return spelled("percentile", self)


def _ranked(distribution: Distribution, rank: int) -> float:
    """The value with ``rank`` values before it."""
    return float(
        distribution.points[np.searchsorted(np.cumsum(distribution.counts), rank, side="right")]
    )
