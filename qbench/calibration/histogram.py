"""A histogram that needs no range: how many numbers fell into each cell of float32 (``cells``), and their exact sum.

merge(a, b) = the histogram of the numbers of both, bit for bit, since all that is kept are integers
Σx  = Σ_cells ± (n · top + Σ low) · 2^e        exact; as float64 correctly rounded
Σx² ≈ Σ_cells n · mean²                        too small by at most 2^-22 of itself where |x| ≥ 2^-126
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.cells import FINITE_MAGNITUDES, LOW_BITS, Ints, exponents_of, keys_of, signs_of, tops_of
from qbench.calibration.cells import magnitudes_of as _magnitudes
from qbench.storage import digest_arrays

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
        if (self.counts < 1).any() or (self.lows < 0).any() or (self.lows > self.counts * ((1 << LOW_BITS) - 1)).any():
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
        """The mean of the numbers in each cell, ascending; between the least and the greatest of them."""
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
        """Σx² by the means of cells: the true one, or less by at most 2^-22 of it where |x| ≥ 2^-126."""
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
