"""What is remembered of one value: exact extremes and counts, of all samples and sample by sample.

Every field is a minimum, a maximum or an integer sum, so that folding is exact in any order:
statistics(a ∪ b) = merge(statistics(a), statistics(b)), bit for bit.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """Statistics of one value over all samples of a profile.

    Args:
        low, high: exact extremes; +inf and −inf while ``count`` is 0.
        count: elements seen.
        zeros: how many of them were zero.
        sample_lows, sample_highs: (n,) extremes of each of the profile's n samples, in its order; None where the
            value has no sample axis.

    Raises:
        ValueError: the numbers contradict each other.
    """

    low: float
    high: float
    count: int
    zeros: int
    sample_lows: Floats | None = None
    sample_highs: Floats | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.zeros <= self.count:
            raise ValueError(f"{self.zeros} zeros among {self.count} elements")
        if self.count and not -np.inf < self.low <= self.high < np.inf:
            raise ValueError(f"extremes {self.low} … {self.high} are not those of finite numbers")
        if (self.sample_lows is None) != (self.sample_highs is None):
            raise ValueError("lows and highs of samples come together")
        for ends in (self.sample_lows, self.sample_highs):
            if ends is not None:
                ends.setflags(write=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Statistics):
            return NotImplemented
        mine, theirs = (self.low, self.high, self.count, self.zeros), (other.low, other.high, other.count, other.zeros)
        return (
            mine == theirs
            and _same(self.sample_lows, other.sample_lows)
            and _same(self.sample_highs, other.sample_highs)
        )

    def __hash__(self) -> int:
        return hash((self.low, self.high, self.count, self.zeros))


def _same(a: Floats | None, b: Floats | None) -> bool:
    if a is None or b is None:
        return a is b
    return np.array_equal(a, b)
