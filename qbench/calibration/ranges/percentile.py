"""The smallest of ranges that keep p percent of the values, the rest cut at both sides alike.

    c = ⌊N · (100 − p) / 200⌋ values are cut at each end:  [x₍c₊₁₎, x₍N₋c₎]      asymmetric grids, values of both signs
    c = ⌊N · (100 − p) / 100⌋ magnitudes are cut:  [−T, T] inside what was seen,  T = |x|₍N₋c₎      all other cases

x₍i₎ is the i-th smallest of N values: an order statistic, never interpolated. Where the grid is symmetric a cut at one
side alone wins nothing, and where all values have one sign the other end is zero's. With c = 0 nothing is cut, so
that percentile(100) is exactly what was seen.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.distribution import Distribution, Floats
from qbench.calibration.ranges.spelling import demand, spelled
from qbench.numerics import GridKind, Interval

_ELEMENTS_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True)
class Percentile:
    """``p`` percent of the values lie inside, counted exactly: 99.9 means 999/1000.

    Raises:
        ValueError: p outside (0, 100].
    """

    p: float = 99.99

    def __post_init__(self) -> None:
        demand(0 < self.p <= 100, "p", self.p, "in (0, 100]")

    def _cut(self, count: int, sides: int) -> int:
        """How many of ``count`` values go at each of ``sides`` sides; the decimal text of p is what is meant."""
        return int(count * (100 - Fraction(repr(float(self.p)))) / (100 * sides))

    def of_distribution(self, distribution: Distribution, kind: GridKind) -> Interval:
        """Of all values of a tensor."""
        low, high, count = distribution.low, distribution.high, distribution.count
        if kind.symmetry == "asymmetric" and low < 0 < high:
            cut = self._cut(count, 2)
            if cut:
                low, high = _ranked(distribution, cut), _ranked(distribution, count - 1 - cut)
        else:
            cut = self._cut(count, 1)
            if cut:
                threshold = _ranked(distribution.magnitudes(), count - 1 - cut)
                low, high = max(low, -threshold), min(high, threshold)
        return Interval(np.asarray(low), np.asarray(high))

    def of_rows(self, rows: npt.NDArray[Any], kind: GridKind) -> Interval:
        """Of the values of every row."""
        count = rows.shape[1]
        at_once = max(1, _ELEMENTS_AT_ONCE // max(1, count))
        lows, highs = np.empty(len(rows)), np.empty(len(rows))
        for i in range(0, len(rows), at_once):
            lows[i : i + at_once], highs[i : i + at_once] = self._of_some(rows[i : i + at_once], kind)
        return Interval(lows, highs)

    def _of_some(self, rows: npt.NDArray[Any], kind: GridKind) -> tuple[Floats, Floats]:
        count = rows.shape[1]
        low, high = rows.min(axis=1).astype(np.float64), rows.max(axis=1).astype(np.float64)
        two_sided = (low < 0) & (high > 0) & (kind.symmetry == "asymmetric")
        one, two = self._cut(count, 1), self._cut(count, 2)
        if two and two_sided.any():
            ranked = np.partition(rows[two_sided], (two, count - 1 - two), axis=1)
            low[two_sided], high[two_sided] = ranked[:, two], ranked[:, count - 1 - two]
        if one and not two_sided.all():
            rest = ~two_sided
            magnitudes = np.abs(rows[rest].astype(np.float64, copy=False))
            threshold = np.partition(magnitudes, count - 1 - one, axis=1)[:, count - 1 - one]
            low[rest], high[rest] = np.maximum(low[rest], -threshold), np.minimum(high[rest], threshold)
        return low, high

    def __str__(self) -> str:
        return spelled("percentile", self)


def _ranked(distribution: Distribution, rank: int) -> float:
    """The value with ``rank`` values before it."""
    return float(distribution.points[np.searchsorted(np.cumsum(distribution.counts), rank, side="right")])
