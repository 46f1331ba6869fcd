"""TQT's initial thresholds: 3 sigma and KL-J."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.histogram import Distribution, Floats
from qbench.calibration.ranges.method import (
    around_zero,
    demand,
    demand_whole,
    each_row,
    spelled,
    warn_of_few_bins,
)
from qbench.numerics import Interval, QParamsKind

# TQT's start value for the thresholds of weights: T = |mean| + k·σ, k = 3 (Jain et al. 2020, table
# 2; Graffitist).
#
# [−T, T], without the side on which the tensor has nothing; T may lie beyond what was seen. For
# their thresholds take qparams of power-of-two scales.

_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Tqt3Sd:
    """``k`` standard deviations beyond the size of the mean.

    Raises:
        ValueError: k is not positive and finite.
    """

    k: float = 3.0

    def __post_init__(self) -> None:
        demand(self.k > 0 and math.isfinite(self.k), "k", self.k, "positive and finite")

    def of_distribution(self, distribution: Distribution, kind: QParamsKind) -> Interval:  # noqa: ARG002
        """Of all values of a tensor."""
        threshold = abs(distribution.mean) + self.k * distribution.deviation
        return around_zero(min(threshold, _LARGEST), distribution.low, distribution.high)

    def of_rows(self, rows: npt.NDArray[Any], kind: QParamsKind) -> Interval:  # noqa: ARG002
        """Of the values of every row."""
        threshold = np.abs(rows.mean(axis=1, dtype=np.float64)) + self.k * rows.std(
            axis=1, dtype=np.float64
        )
        return around_zero(np.minimum(threshold, _LARGEST), rows.min(axis=1), rows.max(axis=1))

    def __str__(self) -> str:
        return spelled("tqt_3sd", self)


# TQT's KL-J: the threshold whose cumulative distribution survives best when only 2^bits codes of
# it are kept.
#
#     P     the cumulative histogram of |x|
#     Q_i   P forced to 1 from bin i on; up to there taken at 2^(bits − signed) even places, and
#           back to all bins by linear interpolation
#     J     Σ (P − Q)·log₂(P/Q) over the bins where both are positive;
#           T = (i + ½)·(bin width), i = codes + 1 …
#
# The first least J wins; with too few bins the largest magnitude stays (a warning). An
# approximation of theirs: they calibrate in topological order, so that later layers see inputs that
# are quantized already, and a profile holds those of the float model. Source: Jain et al. 2020
# (TQT), Graffitist.


@dataclass(frozen=True, slots=True)
class TqtKlJ:
    """``bins`` equal bins over [0, max|x|].

    Raises:
        ValueError: fewer than two bins.
    """

    bins: int = 2048

    def __post_init__(self) -> None:
        demand_whole("bins", self.bins, 2)

    def of_distribution(self, distribution: Distribution, kind: QParamsKind) -> Interval:
        """[−T, T], or the half of it where the tensor is."""
        low, high, largest = distribution.low, distribution.high, distribution.absmax
        codes = 2 ** (kind.qtype.bits - int(low < 0))
        if self.bins < codes + 2:
            warn_of_few_bins(self, self.bins, codes + 2)
            return around_zero(largest, low, high)
        if largest == 0:
            return around_zero(0.0, low, high)
        histogram = distribution.magnitudes().equal_width(self.bins, 0.0, largest)
        cumulative = np.cumsum(histogram) / distribution.count
        tried = np.arange(codes + 1, self.bins)
        # A threshold below everything seen turns all of it into one value: its J is infinite.
        logs = np.log2(np.maximum(cumulative, np.finfo(np.float64).tiny))
        each = np.where(cumulative > 0, (cumulative - 1) * logs, np.inf)
        beyond = np.cumsum(each[::-1])[::-1]
        best = tried[np.argmin([_j(cumulative, int(i), codes) + beyond[i] for i in tried])]
        return around_zero(min((best + 0.5) * (largest / self.bins), largest), low, high)

    def of_rows(self, rows: npt.NDArray[Any], kind: QParamsKind) -> Interval:
        """Of every row, one after the other: slow for many (theirs is for activations)."""
        return each_row(self.of_distribution, rows, kind)

    def __str__(self) -> str:
        return spelled("tqt_klj", self)


def _j(cumulative: Floats, last: int, codes: int) -> float:
    """The part of J before bin ``last``, from which on Q is 1."""
    p, forced = cumulative[:last], cumulative[: last + 1].copy()
    forced[-1] = 1.0
    bins = np.arange(last + 1)
    places = np.linspace(0.0, last, codes)
    q = np.interp(bins[:-1], places, np.interp(places, bins, forced))
    both = (p > 0) & (q > 0)
    return float(((p[both] - q[both]) * np.log2(p[both] / q[both])).sum())
