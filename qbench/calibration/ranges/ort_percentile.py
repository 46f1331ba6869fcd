"""ONNX Runtime's percentile calibrator: the left edge of the bin of |x| in which the counts reach p percent.

    T = edge of the first bin with Σ counts / N ≥ p/100, of 2048 bins over [min|x|, max|x|]; [−T, T] in what was seen

Its default settings: p = 99.999 and symmetric. Even p = 100 cuts the top bin. Source: onnxruntime/python/tools/
quantization/calibrate.py.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.distribution import Distribution
from qbench.calibration.ranges.each_row import each_row
from qbench.calibration.ranges.spelling import demand, demand_whole, spelled
from qbench.numerics import GridKind, Interval


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

    def of_distribution(self, distribution: Distribution, kind: GridKind) -> Interval:  # noqa: ARG002
        """The range for one tensor; it holds zero."""
        magnitudes = distribution.magnitudes()
        start, end = float(magnitudes.points[0]), distribution.absmax
        histogram = magnitudes.equal_width(self.bins, start, end)
        reached = np.cumsum(histogram / histogram.sum())
        threshold = start + int(np.searchsorted(reached, self.p / 100)) * ((end - start) / self.bins)
        low, high = min(distribution.low, 0.0), max(distribution.high, 0.0)
        return Interval(np.asarray(max(low, -threshold)), np.asarray(min(high, threshold)))

    def of_rows(self, rows: npt.NDArray[Any], kind: GridKind) -> Interval:
        """Of every row, one after the other."""
        return each_row(self.of_distribution, rows, kind)

    def __str__(self) -> str:
        return spelled("ort_percentile", self)
