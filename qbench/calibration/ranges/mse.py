"""The range whose grid represents the values with the least squared error, Σ c·(x − x̂)²: ``lp(2)``."""

from dataclasses import dataclass, field

from qbench.calibration.ranges.lp import Lp


@dataclass(frozen=True, slots=True)
class Mse(Lp):
    """The L₂ search."""

    p: float = field(default=2, init=False)

    def __str__(self) -> str:
        return "mse"
