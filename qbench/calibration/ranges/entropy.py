"""The range that loses least information, KL(P‖Q), when it is merged into as many cells as its grid has levels.

Of a tensor with one sign, and on symmetric grids, the histogram is that of |x| over [0, max |x|], and the windows are
[0, T]; the groups are the levels that the grid has on that side. Of two signs on an asymmetric grid it is that of x
over [low, high], and the windows shrink bin by bin from the end that costs less, never past zero.

    P  the window's bins, all that is outside added to the end bins      Q  the window merged into groups, spread again

after Migacz, "8-bit inference with TensorRT" (GTC 2017). Here exact zeros are left out: every grid represents them
exactly, and the half of all values that a Relu makes zero says nothing about the rest. Groups are of even width. Every
window is tried, and the whole range wins ties.

The least divergence is not the least error: it counts how often a value is saturated, not by how much. Where few large
values carry the result, this loses against ``minmax`` and ``mse``.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.distribution import Counts, Distribution
from qbench.calibration.ranges.divergence import Places, WindowSums, divergences
from qbench.calibration.ranges.each_row import each_row
from qbench.calibration.ranges.few_bins import warn_of_few_bins
from qbench.calibration.ranges.spelling import demand_whole, spelled
from qbench.numerics import GridKind, Interval

_MARGIN = 1e-12


@dataclass(frozen=True, slots=True)
class Entropy:
    """``bins`` equal bins over what was seen; of fewer than the grid has levels nothing can be told (a warning).

    Raises:
        ValueError: fewer than two bins.
    """

    bins: int = 2048

    def __post_init__(self) -> None:
        demand_whole("bins", self.bins, 2)

    def of_distribution(self, distribution: Distribution, kind: GridKind) -> Interval:
        """Of one tensor; it holds zero. Of zeros alone: [0, 0]."""
        low, high = min(distribution.low, 0.0), max(distribution.high, 0.0)
        symmetric = kind.mirrors(low)
        two_sided = low < 0 < high and not symmetric
        groups = kind.qmax - kind.qtype.middle + 1 if symmetric else kind.levels
        if self.bins < groups:
            warn_of_few_bins(self, self.bins, groups)
            return Interval(np.asarray(low), np.asarray(high))
        filled = distribution.points != 0
        if not filled.any():
            return Interval(np.asarray(low), np.asarray(high))
        start, end = (low, high) if two_sided else (0.0, distribution.absmax)
        apart = replace(distribution, points=distribution.points[filled], counts=distribution.counts[filled])
        histogram = (apart if two_sided else apart.magnitudes()).equal_width(self.bins, start, end)
        if two_sided:
            firsts, lasts = _shrinking(histogram, int(min(-low / (high - low) * self.bins, self.bins - 1)), groups)
        else:
            lasts = np.arange(self.bins - 1, groups - 2, -1)
            firsts = np.zeros_like(lasts)
        found = divergences(WindowSums.of(histogram), firsts, lasts, groups)
        best = int(np.argmax(found <= found.min() + _MARGIN))
        width = (end - start) / self.bins
        below = low if firsts[best] == 0 else low + firsts[best] * width
        above = high if lasts[best] == self.bins - 1 else start + (lasts[best] + 1) * width
        if not two_sided:
            below = max(low, -above) if lasts[best] < self.bins - 1 else low
        return Interval(np.asarray(below), np.asarray(min(high, above)))

    def of_rows(self, rows: npt.NDArray[Any], kind: GridKind) -> Interval:
        """Of every row, one after the other."""
        return each_row(self.of_distribution, rows, kind)

    def __str__(self) -> str:
        return spelled("entropy", self)


def _shrinking(histogram: Counts, zero: int, least: int) -> tuple[Places, Places]:
    """First and last bins of windows, the whole … ``least`` bins; each is the one before without its cheaper end."""
    counts = histogram.tolist()
    first, last = 0, len(counts) - 1
    windows = [(first, last)]
    while last - first + 1 > least:
        if last == zero or (first < zero and counts[first] <= counts[last]):
            first += 1
        else:
            last -= 1
        windows.append((first, last))
    firsts, lasts = np.array(windows, np.int64).T
    return firsts, lasts
