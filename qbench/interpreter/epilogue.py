"""What follows the sums of one node, and what of it is alike for every machine.

    level = clamp(clamp(round(v + before), inner) + behind, limits) = clamp(round(v + before), ends) + behind

The zero point is ``before`` or ``behind``; two clamps with a sum between them are one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.interpreter.arrays import Array
from qbench.numerics import QParams, Scales, Scaling, ZeroPoint

Finish = Callable[[npt.NDArray[Any]], Array]
"""(M, N) accumulators → levels."""


@dataclass(frozen=True, slots=True, eq=False)
class Epilogue:
    """What follows the sums of one node.

    Args:
        scales: of input, weight (a number or one a column) and output.
        output: the grid of the result.
        bias: one a column at s_x · s_w, or None.
        limits: levels to clamp to.
        columns: N.
        largest: what no exact sum exceeds in magnitude, bias left out.
    """

    scales: Scales
    output: QParams
    bias: npt.NDArray[np.int64] | None
    limits: tuple[int, int]
    columns: int
    largest: int

    @property
    def reach(self) -> int:
        """What no exact sum exceeds in magnitude, bias included."""
        return self.largest + (0 if self.bias is None else int(np.abs(self.bias).max(initial=0)))

    def bias_of(self, scaling: Scaling) -> npt.NDArray[np.int32]:
        """What is added to the sums as an integer, one a column."""
        given = None if scaling.real_bias else self.bias
        return self.each(np.zeros(1) if given is None else given, np.int32)

    def each(self, values: npt.ArrayLike, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """``values``, a number or one a column, as one a column.

        Always a copy: numba compiles a loop again for arrays that may not be written, as a broadcast view may not.
        """
        return np.array(np.broadcast_to(np.asarray(values, dtype), (self.columns,)), order="C")


@dataclass(frozen=True, slots=True)
class Ends:
    """How a rounded number becomes a level: clamped to ``low`` … ``high``, then ``behind`` is added.

    Args:
        before: the zero point where it is part of what is rounded, or 0.
        behind: the zero point where it is added afterwards, or 0.
        low, high: where to clamp in between.
    """

    before: int
    behind: int
    low: int
    high: int

    @classmethod
    def of(cls, epilogue: Epilogue, scaling: Scaling) -> "Ends":
        """clamp(clamp(v, ±inner) + z, low, high) = clamp(v, both) + z, each inner end clamped to the outer ones."""
        zero = int(epilogue.output.zero_point)
        before = zero if scaling.zero_point is ZeroPoint.BEFORE else 0
        low, high = (end - (zero - before) for end in epilogue.limits)
        if scaling.inner_bits:
            half = 1 << (scaling.inner_bits - 1)
            low, high = min(max(-half, low), high), min(max(half - 1, low), high)
        return cls(before, zero - before, low, high)

    def as_array(self, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """What comes behind the rounding: ``behind``, ``low``, ``high``."""
        return np.array([self.behind, self.low, self.high], dtype)
