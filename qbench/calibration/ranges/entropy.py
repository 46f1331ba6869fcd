"""The range that loses least information, KL(P‖Q)."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.histogram import Counts, Distribution, Floats
from qbench.calibration.ranges.method import demand_whole, each_row, spelled, warn_of_few_bins
from qbench.numerics import Interval, QParamsKind

# How much of a histogram is lost when a window of it is merged into few groups: KL(P‖Q), for many
# windows at once.
#
#     P    the window's counts; all that lies outside is added to its first and its last bin
#     Q    the window's own counts; every group's sum spread evenly over those of its bins where
#          P > 0
#     KL   Σ P̂·ln(P̂/Q̂),  P̂ = P/ΣP,  Q̂ = Q/ΣQ;  infinite of a window without counts
#
# Values may be saturated into a group that holds nothing itself. Its sum is ε = 1e-4, as in MXNet's
# smoothing: with 0 a single outlier would make every narrower window infinite. All windows go by
# prefix sums of h and h·ln h.

Places = npt.NDArray[np.int64]

SMOOTHING = 1e-4
_EDGES_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class WindowSums:
    """Prefix sums (bins + 1,) over the counts of a histogram (bins,)."""

    counts: Floats
    whole: Floats
    entropy: Floats
    filled: Floats

    @classmethod
    def of(cls, histogram: npt.NDArray[Any]) -> "WindowSums":
        """Those of ``histogram``, counts ≥ 0."""
        counts = histogram.astype(np.float64)
        filled = (counts > 0).astype(np.float64)
        sums = [counts, _times_log(counts), filled]
        return cls(counts, *(np.concatenate([[0.0], np.cumsum(each)]) for each in sums))


def even_edges(firsts: Places, lasts: Places, groups: int) -> Places:
    """Edges (k, groups + 1) that cut each window of bins first … last into groups of one width,
    to within a bin.
    """
    widths = (lasts - firsts + 1)[:, np.newaxis]
    return np.asarray(firsts[:, np.newaxis] + (widths * np.arange(groups + 1)) // groups)


def divergences(sums: WindowSums, firsts: Places, lasts: Places, groups: int) -> Floats:
    """KL (k,) of the windows of bins first … last, each of at least two bins, cut at
    ``even_edges``.
    """
    at_once = max(1, _EDGES_AT_ONCE // groups)
    parts = [
        _of_some(sums, even_edges(firsts[i : i + at_once], lasts[i : i + at_once], groups))
        for i in range(0, len(firsts), at_once)
    ]
    return np.concatenate(parts)


def _of_some(sums: WindowSums, edges: Places) -> Floats:
    first, last = edges[:, 0], edges[:, -1] - 1
    total = sums.whole[-1]
    ends = np.stack([sums.counts[first], sums.counts[last]])
    outside = np.stack([sums.whole[first], total - sums.whole[last + 1]])
    groups = np.diff(sums.whole[edges], axis=1)
    filled = np.diff(sums.filled[edges], axis=1)
    masses = groups.copy()
    for side, group in enumerate((0, -1)):
        masses[:, group] += outside[side]
        filled[:, group] += (ends[side] == 0) & (outside[side] > 0)
    kept = groups.sum(axis=1)
    groups = np.where((masses > 0) & (groups == 0), SMOOTHING, groups)
    inner = sums.entropy[last] - sums.entropy[first + 1]
    own = inner + _times_log(ends + outside).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(masses > 0, np.log(groups / filled), 0.0)
        cross = (masses * logs).sum(axis=1)
        found = (own - cross) / total + np.log(groups.sum(axis=1) / total)
    return np.where(kept > 0, found, np.inf)


def _times_log(values: Floats) -> Floats:
    """x·ln x, 0 where x is 0."""
    return values * np.log(np.where(values > 0, values, 1.0))


# The range that loses least information, KL(P‖Q), when it is merged into as many groups as
# there are codes.
#
# Of a tensor with one sign, and with symmetric qparams, the histogram is that of |x| over [0, max
# |x|], and the windows are [0, T]; the groups are the codes on that side. Of two signs
# with asymmetric qparams it is that of x over [low, high], and the windows shrink bin by bin from
# the end that costs less, never past zero.
#
#     P  the window's bins, all that is outside added to the end bins
#     Q  the window merged into groups, spread again
#
# after Migacz, "8-bit inference with TensorRT" (GTC 2017). Here exact zeros are left out: all
# qparams represent them exactly, and the half of all values that a Relu makes zero says nothing
# about the rest. Groups are of even width. Every window is tried, and the whole range wins ties.
#
# The least divergence is not the least error: it counts how often a value is saturated, not by how
# much. Where few large values carry the result, this loses against ``minmax`` and ``mse``.

_MARGIN = 1e-12


@dataclass(frozen=True, slots=True)
class Entropy:
    """``bins`` equal bins over what was seen; with fewer than there are codes the range is
    kept (a warning).

    Raises:
        ValueError: fewer than two bins.
    """

    bins: int = 2048

    def __post_init__(self) -> None:
        demand_whole("bins", self.bins, 2)

    def of_distribution(self, distribution: Distribution, kind: QParamsKind) -> Interval:
        """Of one tensor; it holds zero. Of zeros alone: [0, 0]."""
        low, high = min(distribution.low, 0.0), max(distribution.high, 0.0)
        symmetric = kind.mirrors(low)
        groups = kind.qmax - kind.qtype.middle + 1 if symmetric else kind.code_count
        if self.bins < groups:
            warn_of_few_bins(self, self.bins, groups)
            return Interval(np.asarray(low), np.asarray(high))
        filled = distribution.points != 0
        if not filled.any():
            return Interval(np.asarray(low), np.asarray(high))
        nonzero = replace(
            distribution, points=distribution.points[filled], counts=distribution.counts[filled]
        )
        if low < 0 < high and not symmetric:
            return self._of_both_signs(nonzero, low, high, groups)
        histogram = nonzero.magnitudes().equal_width(self.bins, 0.0, distribution.absmax)
        lasts = np.arange(self.bins - 1, groups - 2, -1)
        firsts = np.zeros_like(lasts)
        last = lasts[_best_window(histogram, firsts, lasts, groups)]
        if last == self.bins - 1:
            return Interval(np.asarray(low), np.asarray(high))
        above = (last + 1) * (distribution.absmax / self.bins)
        return Interval(np.asarray(max(low, -above)), np.asarray(min(high, above)))

    def _of_both_signs(
        self, nonzero: Distribution, low: float, high: float, groups: int
    ) -> Interval:
        """With asymmetric qparams, over [low, high] with zero strictly inside."""
        width = (high - low) / self.bins
        histogram = nonzero.equal_width(self.bins, low, high)
        zero = int(min(-low / (high - low) * self.bins, self.bins - 1))
        firsts, lasts = _shrinking(histogram, zero, groups)
        best = _best_window(histogram, firsts, lasts, groups)
        below = low if firsts[best] == 0 else low + firsts[best] * width
        above = high if lasts[best] == self.bins - 1 else low + (lasts[best] + 1) * width
        return Interval(np.asarray(below), np.asarray(min(high, above)))

    def of_rows(self, rows: npt.NDArray[Any], kind: QParamsKind) -> Interval:
        """Of every row, one after the other."""
        return each_row(self.of_distribution, rows, kind)

    def __str__(self) -> str:
        return spelled("entropy", self)


def _best_window(histogram: Counts, firsts: Places, lasts: Places, groups: int) -> int:
    """The place of the first window whose divergence is the least one, within rounding."""
    found = divergences(WindowSums.of(histogram), firsts, lasts, groups)
    return int(np.argmax(found <= found.min() + _MARGIN))


def _shrinking(histogram: Counts, zero: int, least: int) -> tuple[Places, Places]:
    """First and last bins of windows, the whole … ``least`` bins; each is the one before
    without its cheaper end.
    """
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
