"""TVM's global scale: one range for all activations of a network, 8.0 unless said otherwise (4.0 for MobileNet).

[−scale, scale], without the side on which the tensor has nothing. TVM's own int8 grid has the step scale/128 and ends
at ±127 steps; a grid of ours covers the range, so that its step is scale/127.
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


@dataclass(frozen=True, slots=True)
class TvmGlobal:
    """``scale`` is the range, whatever was seen.

    Raises:
        ValueError: scale is not positive and finite as float32.
    """

    scale: float = 8.0

    def __post_init__(self) -> None:
        finite = math.isfinite(self.scale) and self.scale <= float(np.finfo(np.float32).max)
        demand(finite and self.scale > 0, "scale", self.scale, "positive and finite as float32")

    def of_distribution(self, distribution: Distribution, kind: GridKind) -> Interval:  # noqa: ARG002
        """The range given, on the sides where the tensor has values."""
        return around_zero(self.scale, distribution.low, distribution.high)

    def of_rows(self, rows: npt.NDArray[Any], kind: GridKind) -> Interval:  # noqa: ARG002
        """The same for every row."""
        return around_zero(np.full(len(rows), self.scale), rows.min(axis=1), rows.max(axis=1))

    def __str__(self) -> str:
        return spelled("tvm_global", self)
