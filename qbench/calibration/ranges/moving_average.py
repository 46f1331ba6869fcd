"""The moving average of the extremes of samples, replayed in the order of sample keys.

    m ← m + c · (extreme of the next sample − m)        the first sample's is taken as it is

torch's MovingAverageMinMaxObserver, with single samples in place of batches, so that the result depends neither on the
batch size nor on the order of arrival. A tensor without samples (a constant, a value without a sample axis) counts as
one sample: its very extremes. Samples without a finite number are passed over.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.distribution import Distribution
from qbench.calibration.ranges.minmax import MinMax
from qbench.calibration.ranges.spelling import demand, spelled
from qbench.numerics import GridKind, Interval


@dataclass(frozen=True, slots=True)
class MovingAverage:
    """``constant`` c is the weight of the newest sample; 1 remembers the last one only.

    Raises:
        ValueError: c outside (0, 1].
    """

    constant: float = 0.01

    def __post_init__(self) -> None:
        demand(0 < self.constant <= 1, "constant", self.constant, "in (0, 1]")

    def of_distribution(self, distribution: Distribution, kind: GridKind) -> Interval:
        """The averages after the last sample."""
        lows, highs = distribution.sample_lows, distribution.sample_highs
        if lows is None or highs is None or not np.isfinite(lows).any():
            return MinMax().of_distribution(distribution, kind)
        low = self._replayed(lows[np.isfinite(lows)].tolist())
        high = self._replayed(highs[np.isfinite(highs)].tolist())
        return Interval(np.asarray(low), np.asarray(max(low, high)))

    def of_rows(self, rows: npt.NDArray[Any], kind: GridKind) -> Interval:
        """The extremes of every row: a constant is one sample."""
        return MinMax().of_rows(rows, kind)

    def _replayed(self, extremes: list[float]) -> float:
        average = extremes[0]
        for extreme in extremes[1:]:
            average += self.constant * (extreme - average)
        return average

    def __str__(self) -> str:
        return spelled("moving_average", self)
