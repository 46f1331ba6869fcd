"""The range whose grid represents the values with the least Σ c·|x − x̂|ᵖ.

x̂ is x on the very grid that the kind chooses for the range: rounding and saturation both count. p = 2 is the squared
error (``mse``), p = 1 the absolute one; a larger p spares the tails, which makes it the min/max range in the end.
"""

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from qbench.calibration.distribution import Distribution
from qbench.calibration.ranges.least_error import least_error_of_distribution, least_error_of_rows
from qbench.calibration.ranges.spelling import demand, spelled
from qbench.numerics import GridKind, Interval


@dataclass(frozen=True, slots=True)
class Lp:
    """``p`` is the exponent; 2.4 by default, as BRECQ and its kin search weights (Li et al. 2021, their code).

    Raises:
        ValueError: p outside [0.1, 100].
    """

    p: float = 2.4

    def __post_init__(self) -> None:
        demand(0.1 <= self.p <= 100, "p", self.p, "in [0.1, 100]")

    def of_distribution(self, distribution: Distribution, kind: GridKind) -> Interval:
        """Of one tensor; it holds zero."""
        return least_error_of_distribution(distribution, kind, self.p)

    def of_rows(self, rows: npt.NDArray[Any], kind: GridKind) -> Interval:
        """Of every row, all rows at once."""
        return least_error_of_rows(rows, kind, self.p)

    def __str__(self) -> str:
        return spelled("lp", self)
