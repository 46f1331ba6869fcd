"""The range that was seen: [min, max]."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.statistics import Statistics
from qbench.errors import InputError
from qbench.numerics import Interval, QType, Symmetry


@dataclass(frozen=True, slots=True)
class MinMax:
    """Everything seen is inside, whatever the grid."""

    name: str = "minmax"

    def of_statistics(self, statistics: Statistics, qtype: QType, symmetry: Symmetry) -> Interval:  # noqa: ARG002
        """The exact extremes.

        Raises:
            InputError: nothing was seen.
        """
        if not statistics.count:
            raise InputError(
                "Taking the range of a watched value",
                found="no elements",
                expected="at least one",
                remedy="Calibrate on samples that reach it.",
            )
        return Interval(np.asarray(statistics.low), np.asarray(statistics.high))

    def of_rows(self, rows: npt.NDArray[Any], qtype: QType, symmetry: Symmetry) -> Interval:  # noqa: ARG002
        """The exact extremes of every row."""
        return Interval(rows.min(axis=1).astype(np.float64), rows.max(axis=1).astype(np.float64))
