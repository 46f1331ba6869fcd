"""From an accumulator to a level, as any machine does it: y = clamp(round((acc + bias) · M) + z), M = s_x · s_w / s_y.

The forms of M are in ``multiplier``, the rounding rules in ``rounding``; which of them, how often and in what order is
an ``Arithmetic``. ``exact`` is the yardstick: M a rational, one rounding, nothing overflows. Everything that depends on
the scales alone is computed once, by ``scaler``.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.numerics import requests
from qbench.numerics.accumulation import Overflow
from qbench.numerics.arithmetic import Arithmetic
from qbench.numerics.float_scaling import real_levels
from qbench.numerics.integer_scaling import shift_steps, short_steps, steps_of
from qbench.numerics.multiplier import Fixed, Scales, exact_multipliers, real_multiplier
from qbench.numerics.named import machine_for
from qbench.numerics.qtype import QType, qtype_of
from qbench.numerics.register import held, in_bits
from qbench.numerics.rounding import WIDEST, Ints, Rounding, whole_levels
from qbench.numerics.scaling import MultiplierForm, Scaling, ZeroPoint

Scaler = Callable[[Ints], Ints]
"""Accumulators (int64) → round(acc · M) + z, not yet clamped."""


def requantize(
    acc: npt.ArrayLike,
    scales: Scales,
    zero_point: int,
    qtype: QType | str,
    arithmetic: Arithmetic | str,
    *,
    bias: npt.ArrayLike | None = None,
    axis: int = -1,
    limits: tuple[int, int] | None = None,
) -> npt.NDArray[Any]:
    """``acc`` on the output's grid.

    Args:
        acc: accumulators, integers of any shape.
        scales: of input, weight and output; the weight's a number or 1-d along ``axis``. Kept at the precision given: a
            machine that counts in float32 rounds them itself.
        zero_point: of the output.
        qtype: the output's grid, or its name.
        arithmetic: a machine or its name; as it counts convolutions: other products can be counted otherwise
            (gemmlowp's Gemm is), which ``arithmetic.at("Gemm", "")`` gives.
        bias: integers at s_x · s_w, a number or 1-d along ``axis``.
        axis: of ``acc``, that channels run along.
        limits: levels to clamp to, (lo, hi); None: the ends of the grid.

    Returns:
        An array of acc's shape and the grid's storage dtype.

    Raises:
        InputError: an unknown machine or grid, a multiplier that this one cannot hold, or arguments that are not as
            said here.
    """
    machine = machine_for(arithmetic, "Conv")
    qtype = qtype_of(qtype)
    sums = requests.integers(acc, "accumulators")
    shape = sums.shape
    x, weight, y = requests.scales_read(scales, machine.scaling)
    along: Scales = (x, requests.along_axis(weight, shape, axis, "scales of the weight"), y)
    added = None if bias is None else requests.along_axis(requests.integers(bias, "a bias"), shape, axis, "a bias")
    offset = requests.level(zero_point, qtype, "the zero point")
    low, high = (
        (qtype.qmin + int(machine.narrow and qtype.signed), qtype.qmax)
        if limits is None
        else requests.clamps(limits, qtype)
    )
    real = added if machine.scaling.real_bias else None
    if added is not None and real is None:
        sums = sums + added
    levels = scaler(along, machine.scaling, offset, real)(held(np.atleast_1d(sums), machine.accumulator))
    return np.clip(levels, low, high).astype(qtype.storage_dtype).reshape(shape)


def scaler(scales: Scales, scaling: Scaling, zero_point: int = 0, real_bias: Ints | None = None) -> Scaler:
    """What multiplies accumulators by M, rounds and adds ``zero_point``.

    Args:
        scales: of input, weight and output; broadcast against the accumulators.
        scaling: how.
        zero_point: of the output.
        real_bias: integers at s_x · s_w, for a scaling whose bias stays a real number; broadcast too.

    Raises:
        InputError: a multiplier that this scaling cannot hold.
        ValueError: a real bias for a scaling whose bias is an integer.
    """
    if real_bias is not None and not scaling.real_bias:
        raise ValueError("this machine adds a bias to its sums, as an integer")
    match scaling.form:
        case MultiplierForm.EXACT:
            return _in_rationals(scales, scaling, zero_point)
        case MultiplierForm.FLOAT32 | MultiplierForm.FLOAT64 | MultiplierForm.CHAIN:
            return _in_floats(scales, scaling, zero_point, real_bias)
        case MultiplierForm.SHORT:
            rounded = short_steps(scales, scaling).levels
        case MultiplierForm.FIXED | MultiplierForm.FRACTION | MultiplierForm.POWER:
            rounded = shift_steps(scales, scaling).levels
    return lambda sums: _inner(rounded(sums), scaling) + zero_point


def fixed_scaler(fixed: Fixed, scaling: Scaling, zero_point: int = 0) -> Scaler:
    """As ``scaler``, of a FIXED multiplier that is there already."""
    rounded = steps_of(fixed, scaling).levels
    return lambda sums: _inner(rounded(sums), scaling) + zero_point


def _inner(levels: Ints, scaling: Scaling) -> Ints:
    return in_bits(levels, scaling.inner_bits, Overflow.SATURATE) if scaling.inner_bits else levels


def _in_rationals(scales: Scales, scaling: Scaling, zero_point: int) -> Scaler:
    """float64 wherever its error cannot reach a tie or a step, rationals where it could."""
    rounding, offset = scaling.stages[-1].rounding, zero_point if scaling.zero_point is ZeroPoint.BEFORE else 0
    multiplier = real_multiplier(scales, scaling.precision)
    exact = exact_multipliers(scales)

    def scale(sums: Ints) -> Ints:
        with np.errstate(over="ignore"):
            real = np.clip(sums * multiplier + offset, -WIDEST, WIDEST)
        levels = whole_levels(real, rounding)
        step = real - np.floor(real)
        near = np.minimum(np.abs(step - 0.5), np.minimum(step, 1 - step)) <= np.abs(real) * 2.0**-50 + 2.0**-60
        near &= np.abs(real) < WIDEST
        if near.any():
            where = np.nonzero(near)
            rationals = np.broadcast_to(exact, sums.shape)[where].tolist()
            levels[where] = [
                _round_fraction(int(s) * m + offset, rounding)
                for s, m in zip(sums[where].tolist(), rationals, strict=True)
            ]
        return _inner(levels, scaling) + (zero_point - offset)

    return scale


def _in_floats(scales: Scales, scaling: Scaling, zero_point: int, bias: Ints | None) -> Scaler:
    reals, rounding = real_levels(scales, scaling, zero_point, bias), scaling.stages[-1].rounding
    behind = zero_point if scaling.zero_point is ZeroPoint.AFTER else 0

    def scale(sums: Ints) -> Ints:
        with np.errstate(over="ignore"):  # what leaves a float is clamped like all that leaves the grid
            values = reals(sums)
        return _inner(whole_levels(values, rounding), scaling) + behind

    return scale


def _round_fraction(value: Fraction, rounding: Rounding) -> int:
    low = value.numerator // value.denominator
    rest = value - low
    half = Fraction(1, 2)
    match rounding:
        case Rounding.FLOOR:
            return low
        case Rounding.TRUNCATE:
            return low + (value < 0 and rest > 0)
        case Rounding.HALF_UP:
            return low + (rest >= half)
        case Rounding.HALF_AWAY:
            return low + (rest >= half if value >= 0 else rest > half)
        case Rounding.HALF_EVEN:
            return low + (rest > half or (rest == half and low % 2 == 1))
