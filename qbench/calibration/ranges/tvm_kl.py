"""TVM's KL calibration (v0.8, inherited from MXNet): one threshold from 8001 bins over [−max|x|, max|x|].

Windows of 2i + 1 bins about the middle one, i = groups/2 … bins/2, are merged into 2^bits − 1 groups (255), of a
non-negative tensor on an unsigned grid into 2^(bits+1) − 1 (511). T is the right edge of the window of least
divergence, the smallest of equals (``smoothed_divergence``, in float32 as their C++). Sources: TVM v0.8
src/relay/quantize/calibrate.cc and python/tvm/relay/quantize/kl_divergence.py.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.distribution import Distribution
from qbench.calibration.ranges.each_row import each_row
from qbench.calibration.ranges.few_bins import warn_of_few_bins
from qbench.calibration.ranges.smoothed_divergence import MOST_BINS, Curve
from qbench.calibration.ranges.spelling import demand, demand_whole, spelled
from qbench.calibration.ranges.threshold import around_zero
from qbench.numerics import GridKind, Interval


@dataclass(frozen=True, slots=True)
class TvmKl:
    """``bins`` is an odd number, so that zero has the middle one; of fewer than groups max|x| stays (a warning).

    Raises:
        ValueError: bins even, below 3 or above 10000.
    """

    bins: int = 8001

    def __post_init__(self) -> None:
        demand_whole("bins", self.bins, 3)
        demand(self.bins % 2 == 1 and self.bins < MOST_BINS, "bins", self.bins, f"an odd number below {MOST_BINS}")

    def of_distribution(self, distribution: Distribution, kind: GridKind) -> Interval:
        """[−T, T], or the half of it where the tensor is."""
        low, high, largest = distribution.low, distribution.high, distribution.absmax
        unsigned = low >= 0 and kind.symmetry != "symmetric"
        groups = 2 ** (kind.qtype.bits + int(unsigned)) - 1
        if self.bins < groups:
            warn_of_few_bins(self, self.bins, groups)
            return around_zero(largest, low, high)
        if largest == 0:
            return around_zero(0.0, low, high)
        histogram = distribution.equal_width(self.bins, -largest, largest)
        middle = self.bins // 2
        reach = np.arange(groups // 2, middle + 1)
        curve = Curve(histogram, groups, skips_first=True, of_empty=np.inf)
        best = reach[curve.first_of_least(middle - reach, middle + reach)]
        return around_zero((2 * best + 1) / self.bins * largest, low, high)

    def of_rows(self, rows: npt.NDArray[Any], kind: GridKind) -> Interval:
        """Of every row, one after the other: slow for many (theirs is for activations)."""
        return each_row(self.of_distribution, rows, kind)

    def __str__(self) -> str:
        return spelled("tvm_kl", self)
