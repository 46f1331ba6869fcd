"""From accumulators to quantized values for one node: bias, multiplier, rounding, zero point,
clamp.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.interpreter.arrays import Array
from qbench.interpreter.kernel import Counters
from qbench.numerics import (
    Arithmetic,
    FloatOrder,
    MultiplierForm,
    QParams,
    Ranges,
    Rounding,
    Scales,
    Scaling,
    ZeroPoint,
    exact_multipliers,
    float_steps,
    held,
    real_multiplier,
    scaler,
    shift_steps,
    short_steps,
)

# What follows the sums of one node, and what of it is the same for every arithmetic.
#
#     code = clamp(clamp(round(v + before), inner) + behind, limits)
#          = clamp(round(v + before), ends) + behind
#
# The zero point is ``before`` or ``behind``; two clamps with a sum between them are one.

Finish = Callable[[npt.NDArray[Any]], Array]
"""(M, N) accumulators → codes."""


@dataclass(frozen=True, slots=True, eq=False)
class Epilogue:
    """What follows the sums of one node.

    Args:
        scales: of input, weight (a number or one per column) and output.
        output: the qparams of the result.
        bias: one per column at s_x · s_w, or None.
        limits: codes to clamp to.
        columns: N.
        largest: what no exact sum exceeds in magnitude, bias left out.
        ranges: what a multiplier of the form RANGE is computed from besides; None: from these
            scales and codes.
    """

    scales: Scales
    output: QParams
    bias: npt.NDArray[np.int64] | None
    limits: tuple[int, int]
    columns: int
    largest: int
    ranges: Ranges | None = None

    def part(self, columns: slice) -> "Epilogue":
        """The same of ``columns`` alone."""
        x, weight, y = self.scales
        some = len(range(self.columns)[columns])
        bias = None if self.bias is None else np.asarray(_of_columns(self.bias, columns), np.int64)
        return replace(self, scales=(x, _of_columns(weight, columns), y), bias=bias, columns=some)

    @property
    def ends(self) -> Ranges:
        """What a multiplier of the form RANGE is computed from besides."""
        return self.ranges or Ranges(
            float(np.asarray(self.scales[0])), self.output.qtype.qmin, self.output.qtype.qmax
        )

    @property
    def reach(self) -> int:
        """What no exact sum exceeds in magnitude, bias included."""
        return self.largest + (0 if self.bias is None else int(np.abs(self.bias).max(initial=0)))

    def bias_of(self, scaling: Scaling) -> npt.NDArray[np.int32]:
        """What is added to the sums as an integer, one per column."""
        given = None if scaling.real_bias else self.bias
        return self.each(np.zeros(1) if given is None else given, np.int32)

    def each(self, values: npt.ArrayLike, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """``values``, a number or one per column, as one per column.

        Always a copy: numba compiles a loop again for arrays that may not be written, as a
            broadcast view may not.
        """
        return np.array(np.broadcast_to(np.asarray(values, dtype), (self.columns,)), order="C")


def _of_columns(values: npt.ArrayLike, columns: slice) -> npt.NDArray[Any]:
    """``values``, a number or one per column, of ``columns`` alone."""
    each = np.asarray(values)
    return each[columns] if each.size > 1 else each


@dataclass(frozen=True, slots=True)
class Ends:
    """How a rounded number becomes a code: clamped to ``low`` … ``high``, then ``behind`` is added.

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
    def of(cls, epilogue: Epilogue, scaling: Scaling, base: int = 0) -> "Ends":
        """clamp(clamp(v, ±inner) + z, low, high) = clamp(v, both) + z, each inner end clamped
        to the outer ones.

        ``base`` is the code that a RANGE counts from.
        """
        zero = int(epilogue.output.zero_point)
        before = zero if scaling.zero_point is ZeroPoint.BEFORE else 0
        if scaling.form is MultiplierForm.RANGE:  # its offset is part of the steps
            before, zero = 0, base
        low, high = (end - (zero - before) for end in epilogue.limits)
        if scaling.inner_bits:
            half = 1 << (scaling.inner_bits - 1)
            low, high = min(max(-half, low), high), min(max(half - 1, low), high)
        return cls(before, zero - before, low, high)

    def as_array(self, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """What comes behind the rounding: ``behind``, ``low``, ``high``."""
        return np.array([self.behind, self.low, self.high], dtype)


# The last step of one node as one compiled pass: the numbers that the loop of each form of
# multiplier is given.
#
# The caller has shown that no sum, bias included, leaves an int32, and that a code has up to 16
# bits.

Pass = Callable[[npt.NDArray[np.int32], npt.NDArray[Any]], int | None]
"""Sums, and room for the bits of their codes → how many of them are in doubt (None: no code
ever is).
"""

_ROUNDINGS, _ORDERS = tuple(Rounding), tuple(FloatOrder)
"""Their places are what the loops call them by."""
_HALVES = (Rounding.HALF_EVEN, Rounding.HALF_AWAY, Rounding.HALF_UP)


def in_one_pass(epilogue: Epilogue, scaling: Scaling, stepwise: Finish) -> Finish:
    """The compiled twin of ``stepwise``, which computes a batch again that has codes in doubt.

    Raises:
        InputError: a multiplier that the arithmetic cannot hold.
    """
    run = _pass(epilogue, scaling)
    if run is None:
        return stepwise
    dtype = epilogue.output.qtype.storage_dtype
    bits = np.dtype(f"u{dtype.itemsize}")

    def finish(sums: npt.NDArray[Any]) -> Array:
        codes = np.empty(sums.shape, dtype)
        doubtful = run(np.ascontiguousarray(sums, np.int32), codes.view(bits))
        return stepwise(sums) if doubtful else codes

    return finish


def _pass(epilogue: Epilogue, scaling: Scaling) -> Pass | None:
    match scaling.form:
        case (
            MultiplierForm.FLOAT32
            | MultiplierForm.FLOAT64
            | MultiplierForm.CHAIN
            | MultiplierForm.RANGE
        ):
            return _by_floats(epilogue, scaling)
        case MultiplierForm.EXACT:
            return (
                _by_rationals(epilogue, scaling) if scaling.stages[-1].rounding in _HALVES else None
            )
        case MultiplierForm.SHORT:
            return _by_short(epilogue, scaling)
        case MultiplierForm.FIXED | MultiplierForm.FRACTION | MultiplierForm.POWER:
            return _by_shifts(epilogue, scaling)


def _by_floats(epilogue: Epilogue, scaling: Scaling) -> Pass:
    from qbench.interpreter.compiled import float_codes

    zero = int(epilogue.output.zero_point)
    steps = float_steps(
        epilogue.scales, scaling, epilogue.bias if scaling.real_bias else None, epilogue.ends, zero
    )
    dtype, ends = steps.multiplier.dtype, Ends.of(epilogue, scaling, steps.base)
    numbers = (
        epilogue.each(part, dtype)
        for part in (steps.bias, steps.first, steps.second, steps.multiplier)
    )
    given = (epilogue.bias_of(scaling), *numbers, dtype.type(ends.before), ends.as_array(dtype))
    run = float_codes(_ORDERS.index(steps.order), _ROUNDINGS.index(scaling.stages[-1].rounding))
    return lambda sums, bits: run(sums, *given, bits)


def _by_rationals(epilogue: Epilogue, scaling: Scaling) -> Pass:
    """In float64, with a certificate.

    With M' the float64 nearest to M, f(f(acc · M') + z) is within 4 · 2⁻⁵³ · W of acc · M + z for
    |acc · M| + |z| < W: only with a tie so near can one round otherwise than the other. And what is
    no tie is 1 / 2q or more away from all, q being the denominator of M.
    """
    from qbench.interpreter.compiled import nearest_codes

    real_multiplier(epilogue.scales, scaling.precision)  # refuses what is beyond float64
    ends, rationals = Ends.of(epilogue, scaling), exact_multipliers(epilogue.scales)
    near = 2.0**-51 * (max(abs(ends.low), abs(ends.high)) + abs(ends.before) + 1)
    certain = np.array([4 * near * one.denominator < 1 for one in rationals.reshape(-1)]).reshape(
        rationals.shape
    )
    numbers = (epilogue.each(rationals, np.float64), epilogue.each(certain, np.uint8))
    given = (
        epilogue.bias_of(scaling),
        *numbers,
        near,
        float(ends.before),
        ends.as_array(np.float64),
    )
    run = nearest_codes(_ROUNDINGS.index(scaling.stages[-1].rounding))
    return lambda sums, bits: int(run(sums, *given, bits))


def _by_shifts(epilogue: Epilogue, scaling: Scaling) -> Pass:
    from qbench.interpreter.compiled import shifted_codes

    steps = shift_steps(epilogue.scales, scaling)
    left, factor = epilogue.each(steps.left, np.int32), epilogue.each(steps.factor, np.int32)
    first, *others = (epilogue.each(shift, np.int64) for _, shift in steps.stages)
    later = np.array(others, np.int64).reshape(len(others), epilogue.columns)
    sums = np.where(left > 0, 2.0**31, float(epilogue.reach))
    largest = (
        float((sums * factor * 2.0**-first).max(initial=0)) + 2.0 ** int(later.max(initial=0)) + 1
    )
    register = np.int32 if largest < 2.0**31 else np.int64
    numbers = (*_shifts(first), *(part.astype(register) for part in _shifts(later)))
    given = (
        epilogue.bias_of(scaling),
        left,
        factor,
        *numbers,
        Ends.of(epilogue, scaling).as_array(_room(epilogue, scaling)),
    )
    run = shifted_codes(tuple(_ROUNDINGS.index(stage.rounding) for stage in scaling.stages))
    return lambda sums, bits: run(sums, *given, bits)


def _by_short(epilogue: Epilogue, scaling: Scaling) -> Pass:
    from qbench.interpreter.compiled import short_codes

    steps = short_steps(epilogue.scales, scaling)
    pre, post = (epilogue.each(part, np.int32) for part in (steps.short.pre, steps.short.post))
    factor, nudge = (epilogue.each(part, np.int64) for part in (steps.short.factor, steps.nudge))
    given = (epilogue.bias_of(scaling), pre, factor, nudge, post, np.int64(64 - steps.bits))
    ends = Ends.of(epilogue, scaling).as_array(_room(epilogue, scaling))
    return lambda sums, bits: short_codes(sums, *given, ends, bits)


def _shifts(by: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], ...]:
    """By how much to shift, half of what that takes (0 of nothing), and whether it takes
    something.
    """
    some = (by > 0).astype(np.int64)
    return by, some << np.maximum(by - 1, 0), some


def _room(epilogue: Epilogue, scaling: Scaling) -> type[np.signedinteger[Any]]:
    """Of 32 bits, where they hold every code before it is clamped; else of 64."""
    multiplier = real_multiplier(epilogue.scales, scaling.precision)
    return np.int32 if epilogue.reach * float(multiplier.max(initial=0)) < 2.0**30 else np.int64


# From accumulators to codes, made for one node: bias, register, multiplier, rounding, zero point,
# clamp.
#
# Where numba is there and no sum can leave the register, one pass over memory does all of it; else
# numpy does the same, step by step, by ``numerics.requantization``. Both give the same bits.

_SUMS = 32
"""Bits of the sums that compiled loops take."""
_CODE_BYTES = 2
"""Bytes of the widest codes that they make."""


def finish(
    epilogue: Epilogue, arithmetic: Arithmetic, counters: Counters, *, compiled: bool
) -> Finish:
    """What finishes accumulators under ``arithmetic``; ``compiled`` where it can be.

    Raises:
        InputError: a multiplier that the arithmetic cannot hold.
    """
    stepwise = _stepwise(epilogue, arithmetic, counters)
    safe = epilogue.reach < 1 << (min(arithmetic.accumulator.bits, _SUMS) - 1)
    if not (compiled and safe and epilogue.output.qtype.storage_dtype.itemsize <= _CODE_BYTES):
        return stepwise

    return in_one_pass(epilogue, arithmetic.scaling, stepwise)


def finish_in_blocks(
    epilogue: Epilogue, arithmetic: Arithmetic, counters: Counters, *, compiled: bool, left: int
) -> Finish:
    """As ``finish``, the last ``left`` columns as the arithmetic counts those beyond its blocks.

    Raises:
        InputError: a multiplier that the arithmetic cannot hold.
    """
    whole = epilogue.columns - left
    if not left:
        return finish(epilogue, arithmetic, counters, compiled=compiled)
    if not whole:
        return finish(epilogue, arithmetic.beyond_blocks, counters, compiled=compiled)
    parts = slice(0, whole), slice(whole, epilogue.columns)
    rules = arithmetic, arithmetic.beyond_blocks
    finishes = [
        finish(epilogue.part(part), one, counters, compiled=compiled)
        for part, one in zip(parts, rules, strict=True)
    ]

    def run(sums: npt.NDArray[Any]) -> Array:
        return np.concatenate(
            [each(sums[:, part]) for part, each in zip(parts, finishes, strict=True)], axis=1
        )

    return run


def _stepwise(epilogue: Epilogue, arithmetic: Arithmetic, counters: Counters) -> Finish:
    real = epilogue.bias if arithmetic.scaling.real_bias else None
    scale = scaler(
        epilogue.scales, arithmetic.scaling, int(epilogue.output.zero_point), real, epilogue.ends
    )
    bias = epilogue.bias if real is None else None
    (low, high), dtype = epilogue.limits, epilogue.output.qtype.storage_dtype

    def run(sums: npt.NDArray[Any]) -> Array:
        total = sums.astype(np.int64)
        if bias is not None:
            total += bias
        kept = held(total, arithmetic.accumulator)
        counters.overflowed += int(np.count_nonzero(kept != total))
        codes = scale(kept)
        return counters.clip(codes, low, high).astype(dtype)

    return run
