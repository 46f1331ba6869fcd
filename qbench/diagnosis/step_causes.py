"""Two results of one value on a grid, level for level: how many differ, and why.

Let t be the real value in front of rounding in steps of its grid, zero point left out, by the float QDQ formula (all
optimizations off, float32), in front of a Relu or Clip too where one stands before the grid. A level that differs is

    clamp      t lies beyond an end: that of the Clip or Relu, or that of the grid by more than half a step
    tie        else, by one step, and t lies within 2⁻¹⁰ of a step of halfway between two levels
    one step   else, by one step
    real       else: by more

A tie is a matter of rounding only: what is added, and in which order, decides it. The width admits what float32 does
to a value of some hundred steps (a few times 2⁻²⁴ · 255 = 1.5·10⁻⁵) and to a sum of products (some 10⁻⁴).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

TIE_WIDTH = 2.0**-10
"""Steps from halfway up to which a value counts as a tie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCauses:
    """``elements`` were compared; those that differ by their cause, and the ``largest`` difference in steps."""

    elements: int = 0
    tie: int = 0
    one_step: int = 0
    clamp: int = 0
    real: int = 0
    largest: int = 0

    @property
    def differing(self) -> int:
        """How many differ."""
        return self.tie + self.one_step + self.clamp + self.real


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Between which values, in steps with the zero point left out, nothing is clamped."""

    low: float
    high: float

    @classmethod
    def of_grid(cls, qmin: int, qmax: int, zero_point: int) -> "Ends":
        """A value up to half a step beyond an end is rounded to it, not clamped."""
        return cls(low=qmin - zero_point - 0.5, high=qmax - zero_point + 0.5)

    def within(self, low: float, high: float) -> "Ends":
        """The intersection with what a Clip or Relu lets through."""
        return Ends(low=max(self.low, low), high=min(self.high, high))


def count_causes(ours: Array, theirs: Array, real: Array, ends: Ends) -> StepCauses:
    """The differences of one value by cause.

    Args:
        ours, theirs: levels, integers of one shape.
        real: t of their shape, float64.
        ends: of the grid, and of a clip in front of it.

    Raises:
        ValueError: the shapes differ.
    """
    if not ours.shape == theirs.shape == real.shape:
        raise ValueError(f"the shapes {ours.shape}, {theirs.shape} and {real.shape}")
    steps = np.abs(ours.astype(np.int64) - theirs.astype(np.int64))
    apart = steps > 0
    steps, t = steps[apart], real[apart]
    clamp = (t < ends.low) | (t > ends.high)
    single = ~clamp & (steps == 1)
    tie = single & (np.abs(t - np.floor(t) - 0.5) <= TIE_WIDTH)
    return StepCauses(
        elements=ours.size,
        tie=int(tie.sum()),
        one_step=int((single & ~tie).sum()),
        clamp=int(clamp.sum()),
        real=int((~clamp & (steps > 1)).sum()),
        largest=int(steps.max(initial=0)),
    )
