"""A range that is given, whatever was seen: [low, high]."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.distribution import Distribution
from qbench.calibration.ranges.spelling import demand, spelled
from qbench.numerics import GridKind, Interval

_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always [low, high]; a grid widens it to hold zero.

    Raises:
        ValueError: low above high, or an end that is not finite as float32.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        for name, end in (("low", self.low), ("high", self.high)):
            demand(math.isfinite(end) and abs(end) <= _LARGEST, name, end, "finite as float32")
        demand(self.low <= self.high, "low", self.low, f"at most high = {self.high!r}")

    def of_distribution(self, distribution: Distribution, kind: GridKind) -> Interval:  # noqa: ARG002
        """The range given."""
        return Interval(np.asarray(self.low), np.asarray(self.high))

    def of_rows(self, rows: npt.NDArray[Any], kind: GridKind) -> Interval:  # noqa: ARG002
        """The range given, for every row."""
        return Interval(np.full(len(rows), self.low), np.full(len(rows), self.high))

    def __str__(self) -> str:
        return spelled("fixed", self)
