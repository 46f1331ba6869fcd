"""What is remembered of one value: extremes, counts, sums and a histogram, of all samples; extremes sample by sample.

Every field is a minimum, a maximum or an integer sum, so that folding is exact in any order:
statistics(a ∪ b) = merge(statistics(a), statistics(b)), bit for bit.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.cells import CELL_BITS, keys_of
from qbench.calibration.distribution import Counts, Distribution
from qbench.calibration.histogram import Histogram

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """Statistics of one value over all samples of a profile.

    Args:
        low, high: exact extremes of the finite numbers; +inf and −inf while there are none.
        zeros: how many of them were zero, of either sign.
        histogram: of the finite numbers.
        infinite: how many numbers were ±Inf, or NaN where an IsNaN reads the value; they count nowhere else. (Any
            other NaN is refused where it is seen.)
        not_negative: how many of ``infinite`` were +Inf or NaN; the others were −Inf, as an attention mask has it.
        sample_lows, sample_highs: (n,) extremes of each of the profile's n samples, in its order, +inf and −inf of a
            sample without a finite number; None where the value has no sample axis.
        channel_lows, channel_highs: (c,) extremes of every index of axis 1; None unless asked for, and where there is
            no such axis or it changes its length.

    Raises:
        ValueError: the numbers contradict each other.
    """

    low: float
    high: float
    zeros: int
    histogram: Histogram
    infinite: int = 0
    not_negative: int = 0
    sample_lows: Floats | None = None
    sample_highs: Floats | None = None
    channel_lows: Floats | None = None
    channel_highs: Floats | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.not_negative <= self.infinite or not 0 <= self.zeros <= self.histogram.zero_cell:
            infinite = f"{self.infinite} infinite numbers, {self.not_negative} of them +Inf or NaN"
            raise ValueError(f"{self.zeros} zeros or {infinite}, which cannot be")
        if self.count:
            largest = float(np.finfo(np.float32).max)
            if not -largest <= self.low <= self.high <= largest:
                raise ValueError(f"extremes {self.low} … {self.high} are not those of finite numbers")
            ends = keys_of(np.array([self.low, self.high], np.float32)).tolist()
            if ends != self.histogram.keys[[0, -1]].tolist():
                raise ValueError(f"extremes {self.low} … {self.high} outside of the histogram's ends")
        for name in ("sample_lows", "sample_highs", "channel_lows", "channel_highs"):
            if (given := getattr(self, name)) is not None:
                copy = np.array(given, np.float64)
                copy.setflags(write=False)
                object.__setattr__(self, name, copy)
        for lows, highs in ((self.sample_lows, self.sample_highs), (self.channel_lows, self.channel_highs)):
            if (lows is None) != (highs is None):
                raise ValueError("lows and highs come together")
            if lows is not None and highs is not None and len(lows) != len(highs):
                raise ValueError("lows and highs of different number")

    @classmethod
    def of(cls, array: npt.NDArray[Any]) -> "Statistics":
        """Those of a whole tensor, with no samples told apart; finite numbers, rounded to float32."""
        floats = np.asarray(array, np.float32)
        if not floats.size:
            return cls(np.inf, -np.inf, 0, Histogram.empty())
        zeros = int(np.count_nonzero(floats == 0))
        return cls(float(floats.min()) + 0.0, float(floats.max()) + 0.0, zeros, Histogram.of(floats))

    @property
    def count(self) -> int:
        """Finite numbers seen."""
        return self.histogram.count

    @property
    def negative_infinite(self) -> int:
        """How many numbers were −Inf."""
        return self.infinite - self.not_negative

    @property
    def sum(self) -> float:
        """Their sum, exact before it is rounded once."""
        return self.histogram.sum

    @property
    def square_sum(self) -> float:
        """The sum of their squares, as ``Histogram.square_sum`` has it."""
        return self.histogram.square_sum

    @property
    def mean(self) -> float:
        """Their mean, exact before it is rounded once; NaN of none."""
        return float(self.histogram.exact_sum / Fraction(self.count)) if self.count else float("nan")

    def distribution(self) -> Distribution:
        """What is known of the values, for range methods.

        Raises:
            ValueError: no finite number was seen.
        """
        return Distribution(
            self.low,
            self.high,
            np.clip(self.histogram.points(), self.low, self.high),
            self.histogram.counts,
            self.sample_lows,
            self.sample_highs,
            mantissa_bits=CELL_BITS,
        )

    def equal_width(self, bins: int = 2000) -> Counts:
        """Counts of the finite numbers, at least one, in ``bins`` equal bins over [low, high]; they sum up to all."""
        return self.distribution().equal_width(bins, self.low, self.high)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Statistics):
            return NotImplemented
        return self._numbers == other._numbers and all(
            _same(mine, theirs) for mine, theirs in zip(self._ends, other._ends, strict=True)
        )

    def __hash__(self) -> int:
        return hash(self._numbers)

    @property
    def _numbers(self) -> tuple[object, ...]:
        return self.low, self.high, self.zeros, self.infinite, self.not_negative, self.histogram

    @property
    def _ends(self) -> tuple[Floats | None, ...]:
        return self.sample_lows, self.sample_highs, self.channel_lows, self.channel_highs


def _same(a: Floats | None, b: Floats | None) -> bool:
    if a is None or b is None:
        return a is b
    return np.array_equal(a, b)
