"""What holds of an operator everywhere, as one value."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFacts:
    """One operator.

    Args:
        weight, bias: index of the input that holds them, in operators that have such.
        moved: indices of inputs whose values, unchanged, are all that the outputs hold (Reshape, Slice, MaxPool, …):
            one grid serves input and output. A constant may be mixed in (Pad's value).
        real: indices of inputs that carry real numbers, the others being shapes, axes or indices; None: all do.
        low, high: what the result cannot leave, whatever the inputs.
    """

    weight: int | None = None
    bias: int | None = None
    moved: tuple[int, ...] = ()
    real: tuple[int, ...] | None = None
    low: float = -math.inf
    high: float = math.inf
