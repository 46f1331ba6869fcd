"""TQT's start value for the thresholds of weights: T = |mean| + k·σ, k = 3 (Jain et al. 2020, table 2; Graffitist).

[−T, T], without the side on which the tensor has nothing; T may lie beyond what was seen. For their grids take a kind
of power-of-two scales.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.distribution import Distribution
from qbench.calibration.ranges.spelling import demand, spelled
from qbench.calibration.ranges.threshold import around_zero
from qbench.numerics import GridKind, Interval

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

    def of_distribution(self, distribution: Distribution, kind: GridKind) -> Interval:  # noqa: ARG002
        """Of all values of a tensor."""
        threshold = abs(distribution.mean) + self.k * distribution.deviation
        return around_zero(min(threshold, _LARGEST), distribution.low, distribution.high)

    def of_rows(self, rows: npt.NDArray[Any], kind: GridKind) -> Interval:  # noqa: ARG002
        """Of the values of every row."""
        threshold = np.abs(rows.mean(axis=1, dtype=np.float64)) + self.k * rows.std(axis=1, dtype=np.float64)
        return around_zero(np.minimum(threshold, _LARGEST), rows.min(axis=1), rows.max(axis=1))

    def __str__(self) -> str:
        return spelled("tqt_3sd", self)
