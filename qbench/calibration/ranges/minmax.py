"""The range that was seen: [min, max]."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.distribution import Distribution
from qbench.numerics import GridKind, Interval


@dataclass(frozen=True, slots=True)
class MinMax:
    """Everything seen is inside, whatever the grid."""

    def of_distribution(self, distribution: Distribution, kind: GridKind) -> Interval:  # noqa: ARG002
        """The exact extremes."""
        return Interval(np.asarray(distribution.low), np.asarray(distribution.high))

    def of_rows(self, rows: npt.NDArray[Any], kind: GridKind) -> Interval:  # noqa: ARG002
        """The exact extremes of every row."""
        return Interval(rows.min(axis=1).astype(np.float64), rows.max(axis=1).astype(np.float64))

    def __str__(self) -> str:
        return "minmax"
