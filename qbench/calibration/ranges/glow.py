"""Glow's KL calibration."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.histogram import Counts, Distribution
from qbench.calibration.ranges.entropy import Places
from qbench.calibration.ranges.method import (
    demand,
    demand_whole,
    each_row,
    spelled,
    warn_of_few_bins,
)
from qbench.calibration.ranges.tvm import MOST_BINS, Curve
from qbench.numerics import Interval, QParamsKind

GROUPS = 255


@dataclass(frozen=True, slots=True)
class GlowKl:
    """``bins`` of the profile's histogram; 2000 was Glow's number when it had no calibration yet.

    Raises:
        ValueError: bins below 1 or not below 10000.
    """

    bins: int = 2000

    def __post_init__(self) -> None:
        demand_whole("bins", self.bins, 1)
        demand(self.bins < MOST_BINS, "bins", self.bins, f"below {MOST_BINS}")

    def of_distribution(self, distribution: Distribution, kind: QParamsKind) -> Interval:
        """The range for one tensor."""
        low, high = min(distribution.low, 0.0), max(distribution.high, 0.0)
        symmetric = kind.mirrors(low)
        if symmetric:
            below, above = kind.qmin - kind.qtype.middle, kind.qmax - kind.qtype.middle
            step = max(-low / -below, high / above)
            low, high = step * below, step * above
        if self.bins < GROUPS:
            warn_of_few_bins(self, self.bins, GROUPS)
        if self.bins < GROUPS or distribution.low == distribution.high:
            return Interval(np.asarray(low), np.asarray(high))
        seen = distribution.equal_width(self.bins, distribution.low, distribution.high)
        histogram = rescaled(seen, (distribution.low, distribution.high), (low, high))
        firsts, lasts = _both_ends(self.bins) if symmetric else _cheapest_end(histogram)
        best = Curve(histogram, GROUPS, skips_first=False, of_empty=0.0).first_of_least(
            firsts, lasts
        )
        width = (high - low) / self.bins
        start, end = low + firsts[best] * width, low + (lasts[best] + 1) * width
        if symmetric:
            ratio = max(start / low, end / high)
            start, end = low * ratio, high * ratio
        return Interval(np.asarray(start), np.asarray(end))

    def of_rows(self, rows: npt.NDArray[Any], kind: QParamsKind) -> Interval:
        """Of every row, one after the other: slow for many (Glow leaves constants alone by
        default).
        """
        return each_row(self.of_distribution, rows, kind)

    def __str__(self) -> str:
        return spelled("glow_kl", self)


def rescaled(histogram: Counts, source: tuple[float, float], target: tuple[float, float]) -> Counts:
    """``histogram`` over ``source`` in as many bins over ``target``, which holds it: shares
    rounded half up.
    """
    if source == target:
        return histogram
    bins = len(histogram)
    narrow, wide = (source[1] - source[0]) / bins, (target[1] - target[0]) / bins
    begins = source[0] + np.arange(bins) * narrow
    places = np.clip(np.floor((begins - target[0]) / wide).astype(np.int64), 0, bins - 1)
    within = np.clip(target[0] + (places + 1) * wide - begins, 0.0, narrow) / narrow
    shares = np.minimum(np.floor(within * histogram + 0.5).astype(np.int64), histogram)
    found = np.zeros(bins, np.int64)
    np.add.at(found, places, shares)
    np.add.at(found, np.minimum(places + 1, bins - 1), histogram - shares)
    return found


def _both_ends(bins: int) -> tuple[Places, Places]:
    dropped = np.arange((bins - GROUPS) // 2 + 1)
    return dropped, bins - 1 - dropped


def _cheapest_end(histogram: Counts) -> tuple[Places, Places]:
    """Windows that lose one bin at both ends, two at the left or two at the right, whichever
    holds the least.
    """
    counts = histogram.tolist()
    first, last = 0, len(counts) - 1
    windows = []
    while last - first + 1 >= GROUPS:
        windows.append((first, last))
        costs = (
            counts[first] + counts[last],
            counts[first] + counts[first + 1],
            counts[last] + counts[last - 1],
        )
        cheapest = costs.index(min(costs))
        first += (1, 2, 0)[cheapest]
        last -= (1, 0, 2)[cheapest]
    firsts, lasts = np.array(windows, np.int64).T
    return firsts, lasts
