"""The mean and its surroundings, inside what was seen: [mean − k·σ, mean + k·σ].

σ = √(Σ (x − mean)² / N)      over all N elements
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.distribution import Distribution
from qbench.calibration.ranges.spelling import demand, spelled
from qbench.numerics import GridKind, Interval


@dataclass(frozen=True, slots=True)
class Sigma:
    """``k`` standard deviations to either side, never beyond the extremes.

    Raises:
        ValueError: k is not positive and finite.
    """

    k: float = 3.0

    def __post_init__(self) -> None:
        demand(self.k > 0 and math.isfinite(self.k), "k", self.k, "positive and finite")

    def of_distribution(self, distribution: Distribution, kind: GridKind) -> Interval:  # noqa: ARG002
        """Of all values of a tensor; [c, c] of a constant c."""
        low, high = np.asarray(distribution.low), np.asarray(distribution.high)
        return self._inside(np.asarray(distribution.mean), np.asarray(distribution.deviation), low, high)

    def of_rows(self, rows: npt.NDArray[Any], kind: GridKind) -> Interval:  # noqa: ARG002
        """Of the values of every row."""
        mean = rows.mean(axis=1, dtype=np.float64)
        low, high = rows.min(axis=1).astype(np.float64), rows.max(axis=1).astype(np.float64)
        return self._inside(mean, rows.std(axis=1, dtype=np.float64), low, high)

    def _inside(
        self,
        mean: npt.NDArray[np.float64],
        deviation: npt.NDArray[np.float64],
        low: npt.NDArray[np.float64],
        high: npt.NDArray[np.float64],
    ) -> Interval:
        spread = self.k * deviation
        return Interval(np.clip(mean - spread, low, high), np.clip(mean + spread, low, high))

    def __str__(self) -> str:
        return spelled("sigma", self)
