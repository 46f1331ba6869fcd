"""Real intervals [low, high]: what a range method gives and a grid has to represent, one or one a channel."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """Ends of one interval (0-d) or of many (any shape), float64, read-only.

    Raises:
        ValueError: an end is not finite, ``low`` exceeds ``high``, or the shapes differ.
    """

    low: Floats
    high: Floats

    def __post_init__(self) -> None:
        low, high = np.array(self.low, np.float64), np.array(self.high, np.float64)
        if low.shape != high.shape:
            raise ValueError(f"the ends of an interval have one shape, not {low.shape} and {high.shape}")
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise ValueError("the ends of an interval are finite")
        if (low > high).any():
            raise ValueError("an interval's low end does not exceed its high end")
        low.setflags(write=False)
        high.setflags(write=False)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Interval):
            return NotImplemented
        return np.array_equal(self.low, other.low) and np.array_equal(self.high, other.high)

    def __hash__(self) -> int:
        return hash((self.low.tobytes(), self.high.tobytes()))

    def union(self, other: "Interval") -> "Interval":
        """The smallest interval that holds both."""
        return Interval(np.minimum(self.low, other.low), np.maximum(self.high, other.high))

    def mirrored(self) -> "Interval":
        """The smallest interval [−a, a] that holds it."""
        ends = np.maximum(np.abs(self.low), np.abs(self.high))
        return Interval(-ends, ends)
