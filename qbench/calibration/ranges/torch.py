"""torch's HistogramObserver."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.histogram import Counts, Distribution
from qbench.calibration.ranges.method import demand_whole, each_row, spelled
from qbench.numerics import Interval, QParamsKind

_STEP = 1e-5


@dataclass(frozen=True, slots=True)
class TorchHistogram:
    """``bins`` equal bins over what was seen; the cells are 2^bits of the type, whatever the
    ends of its codes.

    Raises:
        ValueError: fewer than two bins.
    """

    bins: int = 2048

    def __post_init__(self) -> None:
        demand_whole("bins", self.bins, 2)

    def of_distribution(self, distribution: Distribution, kind: QParamsKind) -> Interval:
        """The range for one tensor; what was seen, where it is one value."""
        low, high = distribution.low, distribution.high
        if low == high:
            return Interval(np.asarray(low), np.asarray(high))
        histogram = distribution.equal_width(self.bins, low, high)
        first, last = _searched(histogram, 2**kind.qtype.bits)
        width = (high - low) / self.bins
        end = high if last == self.bins - 1 else low + width * (last + 1)
        return Interval(np.asarray(low + width * first), np.asarray(end))

    def of_rows(self, rows: npt.NDArray[Any], kind: QParamsKind) -> Interval:
        """Of every row, one after the other."""
        return each_row(self.of_distribution, rows, kind)

    def __str__(self) -> str:
        return spelled("torch_histogram", self)


def _searched(histogram: Counts, cells: int) -> tuple[int, int]:
    """First and last of the bins kept."""
    cumulative = np.cumsum(histogram).tolist()
    total = cumulative[-1]
    density = histogram.astype(np.float64)
    alpha, beta = 0.0, 1.0
    first, last = 0, len(cumulative) - 1
    least = np.inf
    while alpha < beta:
        next_alpha, next_beta = alpha + _STEP, beta - _STEP
        left = min(max(bisect_left(cumulative, next_alpha * total), first), last)
        right = max(min(bisect_right(cumulative, next_beta * total) - 1, last), first)
        if left - first > last - right:
            alpha, kept = next_alpha, (left, last)
        else:
            beta, kept = next_beta, (first, right)
        if kept == (first, last):
            # Nothing moves until β comes below the last bin's quantile: most of the way there in
            # one step.
            steps = int((beta - cumulative[last] / total) / _STEP) - 1 if left == first else 0
            beta -= max(steps, 0) * _STEP
            continue
        error = _error(density, kept, cells)
        if error > least:
            break
        least, (first, last) = error, kept
    return first, last


def _error(density: npt.NDArray[np.float64], kept: tuple[int, int], cells: int) -> float:
    """The squared error of keeping the bins ``kept``, in bins cubed."""
    first, last = kept
    cell = (last - first + 1) / cells
    begins = np.arange(len(density), dtype=np.float64) - first
    ends = begins + 1
    begin_cells = np.clip(np.floor(begins / cell), 0, cells - 1)
    end_cells = np.clip(np.floor(ends / cell), 0, cells - 1)
    half = (cell / 2) ** 3
    # Three pieces: to the end of the first cell, the whole ones between, from the start of the last
    # one.
    pieces = half - (begins - (begin_cells + 0.5) * cell) ** 3
    pieces += (end_cells - begin_cells - 1) * 2 * half
    pieces += (ends - (end_cells + 0.5) * cell) ** 3 + half
    return float((density * pieces).sum() / 3)
