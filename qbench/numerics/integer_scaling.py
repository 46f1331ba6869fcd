"""From accumulators to levels by integers alone, as machines do it that multiply by m and shift.

    FIXED, FRACTION, POWER    v₀ = (acc · 2^left) · m        v ← v / 2^shift, rounded: once a stage
    SHORT                     ((acc ⌊/⌋ 2^pre) · m + 2^(post − 1)) ⌊/⌋ 2^post

A register of 32 bits holds acc · 2^left, and wraps.
"""

from dataclasses import dataclass

import numpy as np

from qbench.numerics.accumulation import Overflow
from qbench.numerics.multiplier import (
    LONGEST_SHIFT,
    Fixed,
    Scales,
    Short,
    fixed_multiplier,
    real_multiplier,
    short_multiplier,
)
from qbench.numerics.register import in_bits
from qbench.numerics.rounding import Ints, Rounding, shift_right
from qbench.numerics.scaling import Scaling

_SUMS = 32
"""Bits of the register in which sums are shifted left."""


@dataclass(frozen=True, slots=True, eq=False)
class ShiftSteps:
    """The integers by which a machine scales the sums of one node; every array broadcasts against them.

    Args:
        left: by how much sums are shifted left.
        factor: m.
        stages: rounding, and by how much that stage shifts.
    """

    left: Ints
    factor: Ints
    stages: tuple[tuple[Rounding, Ints], ...]

    def levels(self, sums: Ints) -> Ints:
        """``sums`` on the output's scale, without its zero point."""
        if np.any(self.left):
            sums = np.where(self.left > 0, in_bits(sums << self.left, _SUMS, Overflow.WRAP), sums)
        values = sums * self.factor
        for rounding, shift in self.stages:
            values = shift_right(values, shift, rounding)
        return values


def shift_steps(scales: Scales, scaling: Scaling) -> ShiftSteps:
    """The steps of a FIXED, FRACTION or POWER multiplier.

    Raises:
        InputError: a multiplier that ``scaling`` cannot hold.
    """
    real = real_multiplier(scales, scaling.precision)
    steps = steps_of(fixed_multiplier(real, scaling), scaling)
    if not scaling.shift_powers:
        return steps
    fraction, exponent = np.frexp(real)
    power, right = fraction == 0.5, np.minimum(1 - exponent.astype(np.int64), LONGEST_SHIFT)
    (rounding, shift), *others = steps.stages
    return ShiftSteps(
        np.where(power, np.maximum(-right, 0), steps.left),
        np.where(power, 1, steps.factor),
        (
            (rounding, np.where(power, np.maximum(right, 0), shift)),
            *((each, np.where(power, 0, by)) for each, by in others),
        ),
    )


def steps_of(fixed: Fixed, scaling: Scaling) -> ShiftSteps:
    """The steps of a multiplier that is there already."""
    planned = sum(stage.bits or 0 for stage in scaling.stages)
    left = np.maximum(planned - fixed.shift, 0)
    rest = fixed.shift + left - planned
    shifts = tuple(
        (stage.rounding, rest if stage.bits is None else np.full_like(rest, stage.bits)) for stage in scaling.stages
    )
    return ShiftSteps(left, fixed.factor, shifts)


@dataclass(frozen=True, slots=True, eq=False)
class ShortSteps:
    """As ``ShiftSteps``, of Glow's form.

    Args:
        short: pre-shift, factor and post-shift.
        nudge: half of what the post-shift takes, or 0 where it takes nothing.
        bits: width in which product and nudge are summed, which wraps.
    """

    short: Short
    nudge: Ints
    bits: int

    def levels(self, sums: Ints) -> Ints:
        """``sums`` on the output's scale, without its zero point."""
        product = shift_right(sums, self.short.pre, Rounding.FLOOR) * self.short.factor
        return in_bits(product + self.nudge, self.bits, Overflow.WRAP) >> self.short.post


def short_steps(scales: Scales, scaling: Scaling) -> ShortSteps:
    """The steps of a SHORT multiplier.

    Raises:
        InputError: a multiplier that has no such form.
    """
    short = short_multiplier(real_multiplier(scales, scaling.precision))
    nudge = np.where(short.post > 0, np.int64(1) << np.maximum(short.post - 1, 0), 0)
    return ShortSteps(short, nudge, scaling.product_bits or 64)
