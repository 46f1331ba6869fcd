"""ONNX Runtime's entropy and percentile calibrators."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.histogram import Counts, Distribution
from qbench.calibration.ranges.entropy import SMOOTHING
from qbench.calibration.ranges.method import (
    demand,
    demand_whole,
    each_row,
    spelled,
    warn_of_few_bins,
)
from qbench.calibration.ranges.tvm import MOST_BINS
from qbench.numerics import Interval, QParamsKind

# ONNX Runtime's entropy calibrator: KL over windows about zero, in whole numbers; by default the
# min/max range.
#
# Of ``bins`` bins over [−max|x|, max|x|] the windows [middle − i, middle + i], i = groups/2 …
# bins/2, are merged into groups of ⌊width/groups⌋ bins. Unlike MXNet's, a group's count per bin
# is cut to a whole number and given to empty bins too, and the rest after the last group gets
# none. Its defaults, 128 and 128, leave one window: all that was seen. Source:
# onnxruntime/python/tools/quantization/calibrate.py.


@dataclass(frozen=True, slots=True)
class OrtEntropy:
    """``bins`` of the histogram, merged into so many groups as the second number says; with
    fewer bins the range is kept (a warning).

    Raises:
        ValueError: either number below 2, or bins not below 10000.
    """

    bins: int = 128
    levels: int = 128  # stored name

    def __post_init__(self) -> None:
        demand_whole("bins", self.bins, 2)
        demand_whole("levels", self.levels, 2)  # stored name
        demand(self.bins < MOST_BINS, "bins", self.bins, f"below {MOST_BINS}")

    def of_distribution(self, distribution: Distribution, kind: QParamsKind) -> Interval:  # noqa: ARG002
        """The range for one tensor, inside what was seen."""
        groups = self.levels  # stored name
        low, high, largest = distribution.low, distribution.high, distribution.absmax
        if self.bins < groups:
            warn_of_few_bins(self, self.bins, groups)
        if self.bins < groups or largest == 0:
            return Interval(np.asarray(low), np.asarray(high))
        histogram = distribution.equal_width(self.bins, -largest, largest)
        middle, width = self.bins // 2, 2 * largest / self.bins
        windows = [
            (middle - i, min(middle + i + 1, self.bins)) for i in range(groups // 2, middle + 1)
        ]
        start, end = windows[
            int(np.argmin([_divergence(histogram, window, groups) for window in windows]))
        ]
        if start > 0:
            low = max(min(low, 0.0), start * width - largest)
            high = min(max(high, 0.0), end * width - largest)
        return Interval(np.asarray(low), np.asarray(high))

    def of_rows(self, rows: npt.NDArray[Any], kind: QParamsKind) -> Interval:
        """Of every row, one after the other."""
        return each_row(self.of_distribution, rows, kind)

    def __str__(self) -> str:
        return spelled("ort_entropy", self)


def _divergence(histogram: Counts, window: tuple[int, int], groups: int) -> float:
    """Σ P·ln(P/Q) of the bins of ``window``, its end excluded; infinite where no count is left."""
    start, end = window
    inside = histogram[start:end]
    p = inside.copy()
    p[0] += histogram[:start].sum()
    p[-1] += histogram[end:].sum()
    width = len(inside) // groups
    merged = inside[: groups * width].reshape(groups, width).sum(axis=1)
    merged[-1] += inside[groups * width :].sum()
    filled = (p[: groups * width] != 0).reshape(groups, width).sum(axis=1)
    q = np.zeros_like(p)
    q[: groups * width] = np.repeat(np.where(filled > 0, merged // np.maximum(filled, 1), 0), width)
    smooth_p, smooth_q = _smoothed(p), _smoothed(q)
    if smooth_p is None or smooth_q is None:
        return float("inf")
    p_share, q_share = smooth_p / smooth_p.sum(), smooth_q / smooth_q.sum()
    return float((p_share * np.log(p_share / q_share)).sum())


def _smoothed(counts: Counts) -> npt.NDArray[np.float32] | None:
    filled = counts != 0
    some = int(filled.sum())
    if not some:
        return None
    part = SMOOTHING * (len(counts) - some) / some
    return counts.astype(np.float32) + np.where(filled, -part, SMOOTHING).astype(np.float32)


# ONNX Runtime's percentile calibrator: the left edge of the bin of |x| in which the counts reach p
# percent.
#
#     T = edge of the first bin with Σ counts / N ≥ p/100, of 2048 bins over [min|x|, max|x|];
#     [−T, T] in what was seen
#
# Its default settings: p = 99.999 and symmetric. Even p = 100 cuts the top bin. Source:
# onnxruntime/python/tools/ quantization/calibrate.py.


@dataclass(frozen=True, slots=True)
class OrtPercentile:
    """``p`` percent in ``bins`` bins.

    Raises:
        ValueError: p outside (0, 100], no bins.
    """

    p: float = 99.999
    bins: int = 2048

    def __post_init__(self) -> None:
        demand(0 < self.p <= 100, "p", self.p, "in (0, 100]")
        demand_whole("bins", self.bins, 1)

    def of_distribution(self, distribution: Distribution, kind: QParamsKind) -> Interval:  # noqa: ARG002
        """The range for one tensor; it holds zero."""
        magnitudes = distribution.magnitudes()
        start, end = float(magnitudes.points[0]), distribution.absmax
        histogram = magnitudes.equal_width(self.bins, start, end)
        reached = np.cumsum(histogram / histogram.sum())
        threshold = start + int(np.searchsorted(reached, self.p / 100)) * (
            (end - start) / self.bins
        )
        low, high = min(distribution.low, 0.0), max(distribution.high, 0.0)
        return Interval(np.asarray(max(low, -threshold)), np.asarray(min(high, threshold)))

    def of_rows(self, rows: npt.NDArray[Any], kind: QParamsKind) -> Interval:
        """Of every row, one after the other."""
        return each_row(self.of_distribution, rows, kind)

    def __str__(self) -> str:
        return spelled("ort_percentile", self)
