"""TVM's percentile: T is the k-th smallest of the magnitudes (counted from 0), k = ⌊N · p / 100⌋, p = 99.999.

In float64, as theirs: 0.99999 · N. [−T, T], without the side on which the tensor has nothing.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.distribution import Distribution
from qbench.calibration.ranges.spelling import demand, spelled
from qbench.calibration.ranges.threshold import around_zero
from qbench.numerics import GridKind, Interval

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

    def of_distribution(self, distribution: Distribution, kind: GridKind) -> Interval:  # noqa: ARG002
        """Of all values of a tensor."""
        magnitudes, rank = distribution.magnitudes(), self._rank(distribution.count)
        below = np.cumsum(magnitudes.counts)
        found = float(magnitudes.points[np.searchsorted(below, rank, side="right")])
        threshold = distribution.absmax if rank == distribution.count - 1 else found
        return around_zero(threshold, distribution.low, distribution.high)

    def of_rows(self, rows: npt.NDArray[Any], kind: GridKind) -> Interval:  # noqa: ARG002
        """Of the values of every row."""
        rank = self._rank(rows.shape[1])
        at_once = max(1, _ELEMENTS_AT_ONCE // max(1, rows.shape[1]))
        found = np.empty(len(rows))
        for i in range(0, len(rows), at_once):
            found[i : i + at_once] = np.partition(np.abs(rows[i : i + at_once]), rank, axis=1)[:, rank]
        return around_zero(found, rows.min(axis=1), rows.max(axis=1))

    def __str__(self) -> str:
        return spelled("tvm_percentile", self)
