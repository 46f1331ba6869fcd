"""TVM's global scale, KL and percentile calibrations."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.histogram import Distribution
from qbench.calibration.ranges.entropy import SMOOTHING, Places
from qbench.calibration.ranges.method import (
    around_zero,
    demand,
    demand_whole,
    each_row,
    spelled,
    warn_of_few_bins,
)
from qbench.numerics import Interval, QParamsKind

# TVM's global scale: one range for all activations of a network, 8.0 unless said otherwise (4.0 for
# MobileNet).
#
# [−scale, scale], without the side on which the tensor has nothing. TVM's own int8 codes have the
# step scale/128 and end at ±127; qparams of ours cover the range, so that their step is scale/127.


@dataclass(frozen=True, slots=True)
class TvmGlobal:
    """``scale`` is the range, whatever was seen.

    Raises:
        ValueError: scale is not positive and finite as float32.
    """

    scale: float = 8.0

    def __post_init__(self) -> None:
        finite = math.isfinite(self.scale) and self.scale <= float(np.finfo(np.float32).max)
        demand(finite and self.scale > 0, "scale", self.scale, "positive and finite as float32")

    def of_distribution(self, distribution: Distribution, kind: QParamsKind) -> Interval:  # noqa: ARG002
        """The range given, on the sides where the tensor has values."""
        return around_zero(self.scale, distribution.low, distribution.high)

    def of_rows(self, rows: npt.NDArray[Any], kind: QParamsKind) -> Interval:  # noqa: ARG002
        """The same for every row."""
        return around_zero(np.full(len(rows), self.scale), rows.min(axis=1), rows.max(axis=1))

    def __str__(self) -> str:
        return spelled("tvm_global", self)


# The divergence of one window as MXNet's search and its descendants in C++ (TVM, Glow) compute it,
# in float32.
#
#     P    the window's counts; what lies outside is added to its first and its last bin
#     Q    sums of ⌊width/groups⌋ bins of the window (the last group takes the rest), divided by how
#          many of these bins hold counts, and given to every bin where P > 0
#     both smoothed by 1e-4, normalised;  Σ P·ln(P/Q)
#
# Their curves are flat enough for the rounding of float32 to move the minimum by tens of percent,
# so every number is rounded here where theirs is: sums run from left to right in float32,
# logarithms are the float32 nearest to the exact ones. Equal to their code compiled with g++ as
# long as a group holds fewer than 2²⁴ counts. They disagree about the first bin of a window, which
# TVM leaves out of Q, and about a window without counts: nothing is lost (0, Glow), or it is not a
# choice (infinite, TVM). Sources: TVM v0.8 src/relay/quantize/calibrate.cc; pytorch/glow
# lib/Quantization/Base/Calibration.cpp.

MOST_BINS = 10_000
"""With more the part that smoothing takes from a bin can exceed its count, and theirs stop."""

Float32s = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Curve:
    """The divergences of windows of one histogram.

    Args:
        histogram: (bins,) counts.
        groups: that a window is merged into; no window is narrower.
        skips_first: the first bin of a window has no part in Q.
        of_empty: the divergence of a window without counts.
    """

    histogram: npt.NDArray[np.int64]
    groups: int
    skips_first: bool
    of_empty: float

    def first_of_least(self, firsts: Places, lasts: Places) -> int:
        """Which of the windows of bins firsts … lasts (k,) has the least; the first of equals."""
        windows = zip(firsts.tolist(), lasts.tolist(), strict=True)
        return int(np.argmin([self.at(first, last) for first, last in windows]))

    def at(self, first: int, last: int) -> float:
        """The divergence of the window of bins first … last."""
        counts = self.histogram[first : last + 1]
        p = counts.astype(np.float32)
        p[0], p[-1] = self.histogram[: first + 1].sum(), self.histogram[last:].sum()
        inside = counts.copy()
        if self.skips_first:
            inside[0] = 0
        starts = np.arange(self.groups) * (len(p) // self.groups)
        filled = np.add.reduceat((inside != 0).astype(np.float32), starts)
        sums = np.add.reduceat(inside, starts).astype(np.float32)
        each = np.asarray(sums / np.maximum(filled, np.float32(1)), np.float32)
        spread = np.repeat(each, np.diff(starts, append=len(p)))
        spread[p == 0] = 0
        if not spread.any():
            return self.of_empty
        p, q = _smoothed(p), _smoothed(spread)
        p /= _sum(p)
        q /= _sum(q)
        logs = np.log(np.divide(p, q, dtype=np.float32), dtype=np.float64).astype(np.float32)
        return float(_sum(p * logs))


def _smoothed(values: Float32s) -> Float32s:
    """``values`` with ``SMOOTHING`` in the empty places, taken in equal parts from the others."""
    empty = values == 0
    some = np.float32(np.count_nonzero(empty))
    values -= np.float32(SMOOTHING) * some / np.float32(len(values) - some)
    values[empty] = SMOOTHING
    return values


def _sum(values: Float32s) -> np.float32:
    """The sum from left to right, rounded to float32 after every step."""
    return np.float32(np.cumsum(values, dtype=np.float32)[-1])


# TVM's KL calibration (v0.8, inherited from MXNet): one threshold from 8001 bins over [−max|x|,
# max|x|].
#
# Windows of 2i + 1 bins about the middle one, i = groups/2 … bins/2, are merged into 2^bits − 1
# groups (255), of a non-negative tensor in an unsigned type into 2^(bits+1) − 1 (511). T is the
# right edge of the window of least divergence, the smallest of equals (``smoothed_divergence``, in
# float32 as their C++). Sources: TVM v0.8 src/relay/quantize/calibrate.cc and
# python/tvm/relay/quantize/kl_divergence.py.


@dataclass(frozen=True, slots=True)
class TvmKl:
    """``bins`` is an odd number, so that zero has the middle one; of fewer than groups max|x|
    stays (a warning).

    Raises:
        ValueError: bins even, below 3 or above 10000.
    """

    bins: int = 8001

    def __post_init__(self) -> None:
        demand_whole("bins", self.bins, 3)
        demand(
            self.bins % 2 == 1 and self.bins < MOST_BINS,
            "bins",
            self.bins,
            f"an odd number below {MOST_BINS}",
        )

    def of_distribution(self, distribution: Distribution, kind: QParamsKind) -> Interval:
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

    def of_rows(self, rows: npt.NDArray[Any], kind: QParamsKind) -> Interval:
        """Of every row, one after the other: slow for many (theirs is for activations)."""
        return each_row(self.of_distribution, rows, kind)

    def __str__(self) -> str:
        return spelled("tvm_kl", self)


# TVM's percentile: T is the k-th smallest of the magnitudes (counted from 0), k = ⌊N · p / 100⌋, p
# = 99.999.
#
# In float64, as theirs: 0.99999 · N. [−T, T], without the side on which the tensor has nothing.

_ELEMENTS_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True)
class TvmPercentile:
    """``p`` percent of the magnitudes lie below T.

    Raises:
        ValueError: p outside (0, 100].
    """

    p: float = 99.999

    def __post_init__(self) -> None:
        demand(0 < self.p <= 100, "p", self.p, "in (0, 100]")

    def _rank(self, count: int) -> int:
        return min(int(count * (self.p / 100)), count - 1)

    def of_distribution(self, distribution: Distribution, kind: QParamsKind) -> Interval:  # noqa: ARG002
        """Of all values of a tensor."""
        magnitudes, rank = distribution.magnitudes(), self._rank(distribution.count)
        below = np.cumsum(magnitudes.counts)
        found = float(magnitudes.points[np.searchsorted(below, rank, side="right")])
        threshold = distribution.absmax if rank == distribution.count - 1 else found
        return around_zero(threshold, distribution.low, distribution.high)

    def of_rows(self, rows: npt.NDArray[Any], kind: QParamsKind) -> Interval:  # noqa: ARG002
        """Of the values of every row."""
        rank = self._rank(rows.shape[1])
        at_once = max(1, _ELEMENTS_AT_ONCE // max(1, rows.shape[1]))
        found = np.empty(len(rows))
        for i in range(0, len(rows), at_once):
            found[i : i + at_once] = np.partition(np.abs(rows[i : i + at_once]), rank, axis=1)[
                :, rank
            ]
        return around_zero(found, rows.min(axis=1), rows.max(axis=1))

    def __str__(self) -> str:
        return spelled("tvm_percentile", self)
