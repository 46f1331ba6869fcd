"""A histogram that needs no range, and values as weighted points."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.float_bins import (
    FINITE_MAGNITUDES,
    LOW_BITS,
    Ints,
    exponents_of,
    keys_of,
    signs_of,
    tops_of,
)
from qbench.calibration.float_bins import magnitudes_of as _magnitudes
from qbench.storage import digest_arrays

# A histogram that needs no range: how many numbers fell into each cell of float32 (``float_bins``),
# and their exact sum.
#
# merge(a, b) = the histogram of the numbers of both, bit for bit,
#               since all that is kept are integers
# Σx  = Σ_cells ± (n · top + Σ low) · 2^e    exact; as float64 correctly rounded
# Σx² ≈ Σ_cells n · mean²                    too small by at most 2^-22 of itself where |x| ≥ 2^-126

Floats = npt.NDArray[np.float64]

_SMALLEST = 149
"""Every float32 is a whole multiple of 2^-149."""


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """Counts of finite float32 numbers by cell.

    Args:
        keys: (n,) int64, ascending: the cells that hold numbers.
        counts: (n,) int64 ≥ 1: how many each holds.
        lows: (n,) int64: the sum of the low 13 bits of the mantissas in it.

    Raises:
        ValueError: the arrays contradict each other.
    """

    keys: Ints
    counts: Ints
    lows: Ints

    def __post_init__(self) -> None:
        for name in ("keys", "counts", "lows"):
            array = np.array(getattr(self, name), np.int64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        if not len(self.keys) == len(self.counts) == len(self.lows):
            raise ValueError("cells, counts and sums of different number")
        if (np.diff(self.keys) <= 0).any() or (_magnitudes(self.keys) >= FINITE_MAGNITUDES).any():
            raise ValueError("cells that do not ascend, or hold no finite numbers")
        if (
            (self.counts < 1).any()
            or (self.lows < 0).any()
            or (self.lows > self.counts * ((1 << LOW_BITS) - 1)).any()
        ):
            raise ValueError("counts or sums that no numbers have")

    @classmethod
    def empty(cls) -> "Histogram":
        """That of no numbers."""
        none = np.zeros(0, np.int64)
        return cls(none, none, none)

    @classmethod
    def of(cls, values: npt.NDArray[Any]) -> "Histogram":
        """That of the elements of ``values`` (finite; rounded to float32 where they are not)."""
        floats = np.ascontiguousarray(values, np.float32).reshape(-1)
        lows = (floats.view(np.uint32) & np.uint32((1 << LOW_BITS) - 1)).astype(np.int64)
        keys, where, counts = np.unique(keys_of(floats), return_inverse=True, return_counts=True)
        sums = np.zeros(len(keys), np.int64)
        np.add.at(sums, where, lows)
        return cls(keys, counts, sums)

    @property
    def count(self) -> int:
        """How many numbers."""
        return int(self.counts.sum())

    @property
    def zero_cell(self) -> int:
        """How many numbers share the cell of zero: zeros, and positive ones below 2^-136."""
        return int(self.counts[self.keys == 0].sum())

    def merge(self, other: "Histogram") -> "Histogram":
        """The histogram of the numbers of both."""
        if not len(self.keys) or not len(other.keys):
            return self if len(self.keys) else other
        keys, where = np.unique(np.concatenate([self.keys, other.keys]), return_inverse=True)
        counts, lows = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
        np.add.at(counts, where, np.concatenate([self.counts, other.counts]))
        np.add.at(lows, where, np.concatenate([self.lows, other.lows]))
        return Histogram(keys, counts, lows)

    def points(self) -> Floats:
        """The mean of the numbers in each cell, ascending; between the least and the greatest
        of them.
        """
        mantissas = tops_of(self.keys) + self.lows / self.counts
        return np.ldexp(signs_of(self.keys) * mantissas, exponents_of(self.keys))

    @property
    def exact_sum(self) -> Fraction:
        """Σx."""
        exponents, signs = exponents_of(self.keys), signs_of(self.keys)
        tops, whole = tops_of(self.keys) >> LOW_BITS, 0
        for exponent in np.unique(exponents).tolist():
            these = exponents == exponent
            units = int((signs * self.counts * tops)[these].sum()) << LOW_BITS
            whole += units + int((signs * self.lows)[these].sum()) << exponent + _SMALLEST
        return Fraction(whole, 1 << _SMALLEST)

    @property
    def sum(self) -> float:
        """Σx, correctly rounded."""
        return float(self.exact_sum)

    @property
    def square_sum(self) -> float:
        """Σx² by the means of cells: the true one, or less by at most 2^-22 of it where |x| ≥
        2^-126.
        """
        return math.fsum((self.counts * self.points() ** 2).tolist())

    @property
    def digest(self) -> str:
        """The digest of the three arrays."""
        return digest_arrays({"keys": self.keys, "counts": self.counts, "lows": self.lows})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        mine, theirs = (self.keys, self.counts, self.lows), (other.keys, other.counts, other.lows)
        return all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))

    def __hash__(self) -> int:
        return hash(self.digest)


# A tensor's values as weighted points: what every range method reads, of a watched value and of
# weights alike.
#
#     points p₁ < p₂ < …    counts c₁, c₂, …    low ≤ p₁, p_last ≤ high
#
# Of weights the points are the very values. Of a watched value they are the means of the cells of
# its histogram, each narrower than a thousandth of its distance from zero, and ``low`` and ``high``
# are exact. Bins finer than these cells would find every other one empty: ``equal_width`` spreads a
# cell evenly about its mean.

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """The values of one tensor.

    Args:
        low, high: exact extremes.
        points, counts: (n,) ascending values and how often each was seen; at least one.
        sample_lows, sample_highs: extremes of every sample, in the order of sample keys; None where
            there are none.
        mantissa_bits: of the cells whose means the points are, floats cut (towards zero) to so many
            bits of fraction;
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
        """The distribution of |x|; without samples, whose extremes do not tell their
        magnitudes' lower ends.
        """
        points, where = np.unique(np.abs(self.points), return_inverse=True)
        counts = np.zeros(len(points), np.int64)
        np.add.at(counts, where, self.counts)
        least = 0.0 if self.low <= 0.0 <= self.high else min(abs(self.low), abs(self.high))
        return Distribution(least, self.absmax, points, counts, mantissa_bits=self.mantissa_bits)

    def equal_width(self, bins: int, low: float, high: float) -> Counts:
        """Counts of the points in ``bins`` equal bins over [low, high]; what lies outside goes
        into the end bins.
        """
        width = (high - low) / bins
        if width <= 0:
            return np.bincount([0], weights=[self.count], minlength=bins).astype(np.int64)
        points, weights = self.points, self.counts.astype(np.float64)
        if self.mantissa_bits is not None:
            points, weights = self._spread(self.mantissa_bits)
        # cut before the cast: masks of ±1e38 are further away than an integer can say
        where = np.clip((points - low) / width, 0, bins - 1).astype(np.int64)
        found = np.bincount(where, weights=weights, minlength=bins)
        return np.asarray(np.diff(np.rint(np.cumsum(found)), prepend=0.0).astype(np.int64))

    def _spread(self, mantissa_bits: int) -> tuple[Floats, Floats]:
        """Every cell as eighths of its count, evenly about its mean as far as its nearer end; a
        single value stays.
        """
        mantissas, exponents = np.frexp(np.abs(self.points))
        steps = mantissas * 2.0 ** (mantissa_bits + 1)
        inside = np.minimum(steps - np.floor(steps), np.floor(steps) + 1 - steps)
        reach = np.where(self.counts > 1, np.ldexp(inside, exponents - mantissa_bits - 1), 0.0)
        points = self.points[:, np.newaxis] + reach[:, np.newaxis] * (np.arange(-7, 8, 2) / 8)
        return np.clip(points, self.low, self.high).ravel(), np.repeat(self.counts / 8.0, 8)
