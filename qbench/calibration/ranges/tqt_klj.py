"""TQT's KL-J: the threshold whose cumulative distribution survives best when only 2^bits levels of it are kept.

    P     the cumulative histogram of |x|
    Q_i   P forced to 1 from bin i on; up to there taken at 2^(bits − signed) even places, and back to all bins by
          linear interpolation
    J     Σ (P − Q)·log₂(P/Q) over the bins where both are positive;   T = (i + ½)·(bin width), i = levels + 1 …

The first least J wins; with too few bins the largest magnitude stays (a warning). An approximation of theirs: they
calibrate in topological order, so that later layers see inputs that are quantized already, and a profile holds those
of the float model. Source: Jain et al. 2020 (TQT), Graffitist.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.distribution import Distribution, Floats
from qbench.calibration.ranges.each_row import each_row
from qbench.calibration.ranges.few_bins import warn_of_few_bins
from qbench.calibration.ranges.spelling import demand_whole, spelled
from qbench.calibration.ranges.threshold import around_zero
from qbench.numerics import GridKind, Interval


@dataclass(frozen=True, slots=True)
class TqtKlJ:
    """``bins`` equal bins over [0, max|x|].

    Raises:
        ValueError: fewer than two bins.
    """

    bins: int = 2048

    def __post_init__(self) -> None:
        demand_whole("bins", self.bins, 2)

    def of_distribution(self, distribution: Distribution, kind: GridKind) -> Interval:
        """[−T, T], or the half of it where the tensor is."""
        low, high, largest = distribution.low, distribution.high, distribution.absmax
        levels = 2 ** (kind.qtype.bits - int(low < 0))
        if self.bins < levels + 2:
            warn_of_few_bins(self, self.bins, levels + 2)
            return around_zero(largest, low, high)
        if largest == 0:
            return around_zero(0.0, low, high)
        histogram = distribution.magnitudes().equal_width(self.bins, 0.0, largest)
        cumulative = np.cumsum(histogram) / distribution.count
        tried = np.arange(levels + 1, self.bins)
        # A threshold below everything seen turns all of it into one value: its J is infinite.
        logs = np.log2(np.maximum(cumulative, np.finfo(np.float64).tiny))
        each = np.where(cumulative > 0, (cumulative - 1) * logs, np.inf)
        beyond = np.cumsum(each[::-1])[::-1]
        best = tried[np.argmin([_j(cumulative, int(i), levels) + beyond[i] for i in tried])]
        return around_zero(min((best + 0.5) * (largest / self.bins), largest), low, high)

    def of_rows(self, rows: npt.NDArray[Any], kind: GridKind) -> Interval:
        """Of every row, one after the other: slow for many (theirs is for activations)."""
        return each_row(self.of_distribution, rows, kind)

    def __str__(self) -> str:
        return spelled("tqt_klj", self)


def _j(cumulative: Floats, last: int, levels: int) -> float:
    """The part of J before bin ``last``, from which on Q is 1."""
    p, forced = cumulative[:last], cumulative[: last + 1].copy()
    forced[-1] = 1.0
    bins = np.arange(last + 1)
    places = np.linspace(0.0, last, levels)
    q = np.interp(bins[:-1], places, np.interp(places, bins, forced))
    both = (p > 0) & (q > 0)
    return float(((p[both] - q[both]) * np.log2(p[both] / q[both])).sum())
