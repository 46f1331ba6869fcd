"""A tensor's values as weighted points: what every range method reads, of a watched value and of weights alike.

    points p₁ < p₂ < …    counts c₁, c₂, …    low ≤ p₁, p_last ≤ high

Of weights the points are the very values. Of a watched value they are the means of the cells of its histogram, each
narrower than a thousandth of its distance from zero, and ``low`` and ``high`` are exact. Bins finer than these cells
would find every other one empty: ``equal_width`` spreads a cell evenly about its mean.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """The values of one tensor.

    Args:
        low, high: exact extremes.
        points, counts: (n,) ascending values and how often each was seen; at least one.
        sample_lows, sample_highs: extremes of every sample, in the order of sample keys; None where there are none.
        mantissa_bits: of the cells whose means the points are, floats cut (towards zero) to so many bits of fraction;
            None: the points are the very values.

    Raises:
        ValueError: no points, or points out of order.
    """

    low: float
    high: float
    points: Floats
    counts: Counts
    sample_lows: Floats | None = None
    sample_highs: Floats | None = None
    mantissa_bits: int | None = None

    def __post_init__(self) -> None:
        if not len(self.points) or len(self.points) != len(self.counts):
            raise ValueError(f"{len(self.points)} points with {len(self.counts)} counts")
        if (np.diff(self.points) <= 0).any():
            raise ValueError("points ascend")

    @classmethod
    def of(cls, array: npt.NDArray[Any]) -> "Distribution":
        """That of the elements of ``array`` (at least one, all finite)."""
        points, counts = np.unique(array.astype(np.float64).reshape(-1), return_counts=True)
        return cls(float(points[0]), float(points[-1]), points, counts.astype(np.int64))

    @property
    def count(self) -> int:
        """Elements seen."""
        return int(self.counts.sum())

    @property
    def absmax(self) -> float:
        """The largest magnitude, exact."""
        return max(-self.low, self.high, 0.0)

    @property
    def mean(self) -> float:
        """Σ c·p / Σ c."""
        return float((self.counts * self.points).sum() / self.count)

    @property
    def deviation(self) -> float:
        """The standard deviation, √(Σ c·(p − mean)² / Σ c)."""
        return float(np.sqrt((self.counts * (self.points - self.mean) ** 2).sum() / self.count))

    def magnitudes(self) -> "Distribution":
        """The distribution of |x|; without samples, whose extremes do not tell their magnitudes' lower ends."""
        points, where = np.unique(np.abs(self.points), return_inverse=True)
        counts = np.zeros(len(points), np.int64)
        np.add.at(counts, where, self.counts)
        least = 0.0 if self.low <= 0.0 <= self.high else min(abs(self.low), abs(self.high))
        return Distribution(least, self.absmax, points, counts, mantissa_bits=self.mantissa_bits)

    def equal_width(self, bins: int, low: float, high: float) -> Counts:
        """Counts of the points in ``bins`` equal bins over [low, high]; what lies outside goes into the end bins."""
        width = (high - low) / bins
        if width <= 0:
            return np.bincount([0], weights=[self.count], minlength=bins).astype(np.int64)
        points, weights = self.points, self.counts.astype(np.float64)
        if self.mantissa_bits is not None:
            points, weights = self._spread(self.mantissa_bits)
        where = np.clip(((points - low) / width).astype(np.int64), 0, bins - 1)
        found = np.bincount(where, weights=weights, minlength=bins)
        return np.asarray(np.diff(np.rint(np.cumsum(found)), prepend=0.0).astype(np.int64))

    def _spread(self, mantissa_bits: int) -> tuple[Floats, Floats]:
        """Every cell as eighths of its count, evenly about its mean as far as its nearer end; a single value stays."""
        mantissas, exponents = np.frexp(np.abs(self.points))
        steps = mantissas * 2.0 ** (mantissa_bits + 1)
        inside = np.minimum(steps - np.floor(steps), np.floor(steps) + 1 - steps)
        reach = np.where(self.counts > 1, np.ldexp(inside, exponents - mantissa_bits - 1), 0.0)
        points = self.points[:, np.newaxis] + reach[:, np.newaxis] * (np.arange(-7, 8, 2) / 8)
        return np.clip(points, self.low, self.high).ravel(), np.repeat(self.counts / 8.0, 8)
