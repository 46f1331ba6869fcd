"""Rows one after the other, for methods whose search looks at one tensor at a time.

of_rows(rows)[i] = of_distribution(Distribution.of(rows[i]))
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.distribution import Distribution
from qbench.numerics import GridKind, Interval


def each_row(
    of_distribution: Callable[[Distribution, GridKind], Interval], rows: npt.NDArray[Any], kind: GridKind
) -> Interval:
    """One interval a row of ``rows`` (n, elements), each from the distribution of that row alone."""
    found = [of_distribution(Distribution.of(row), kind) for row in rows]
    return Interval(np.array([i.low for i in found], np.float64), np.array([i.high for i in found], np.float64))
