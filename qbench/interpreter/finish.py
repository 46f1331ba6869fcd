"""From accumulators to levels, compiled for one node: bias, register, multiplier, rounding, zero point, clamp.

Where numba is there and no sum can leave the register, one pass over memory does all of it; else numpy does the same,
step by step, by ``numerics.requantization``. Both give the same bits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.interpreter.arrays import Array
from qbench.interpreter.kernel import Counters
from qbench.numerics import (
    Arithmetic,
    MultiplierForm,
    QParams,
    Rounding,
    Scales,
    Scaling,
    Stage,
    ZeroPoint,
    fixed_multiplier,
    held,
    real_multiplier,
    scaler,
)

Finish = Callable[[npt.NDArray[Any]], Array]
"""(M, N) accumulators → levels."""

_CODES = (Rounding.HALF_EVEN, Rounding.HALF_AWAY, Rounding.HALF_UP)
"""Their places are what ``compiled`` calls them by."""

_ROOM = 2.0**30


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


def finish(epilogue: Epilogue, machine: Arithmetic, counters: Counters, *, compiled: bool) -> Finish:
    """What finishes accumulators under ``machine``; ``compiled`` where it can be.

    Raises:
        InputError: a multiplier that the machine cannot hold.
    """
    reach = epilogue.largest + (0 if epilogue.bias is None else int(np.abs(epilogue.bias).max(initial=0)))
    safe = reach < 1 << (min(machine.accumulator.bits, 32) - 1)
    if compiled and safe:
        made = _float_pass(epilogue, machine.scaling) or _fixed_pass(epilogue, machine.scaling, reach)
        if made is not None:
            return made
    return _stepwise(epilogue, machine, counters)


def _stepwise(epilogue: Epilogue, machine: Arithmetic, counters: Counters) -> Finish:
    real = epilogue.bias if machine.scaling.real_bias else None
    scale = scaler(epilogue.scales, machine.scaling, int(epilogue.output.zero_point), real)
    bias = epilogue.bias if real is None else None
    (low, high), dtype = epilogue.limits, epilogue.output.qtype.storage_dtype

    def run(sums: npt.NDArray[Any]) -> Array:
        total = sums.astype(np.int64)
        if bias is not None:
            total += bias
        kept = held(total, machine.accumulator)
        counters.overflowed += int(np.count_nonzero(kept != total))
        levels = scale(kept)
        return counters.clip(levels, low, high).astype(dtype)

    return run


def _columns(epilogue: Epilogue) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]:
    """Bias and a 1 for every column, to broadcast against."""
    bias = np.zeros(epilogue.columns, np.int32) if epilogue.bias is None else epilogue.bias.astype(np.int32)
    return np.ascontiguousarray(np.broadcast_to(bias, (epilogue.columns,))), np.ones(epilogue.columns)


def _float_pass(epilogue: Epilogue, scaling: Scaling) -> Finish | None:
    half_even = scaling.stages[-1].rounding is Rounding.HALF_EVEN
    if scaling.form is not MultiplierForm.FLOAT32 or not half_even or not _holds(scaling.inner_bits, epilogue):
        return None
    if scaling.real_bias and epilogue.bias is not None:
        return None
    from qbench.interpreter.compiled import float_levels

    bias, ones = _columns(epilogue)
    multiplier = (real_multiplier(epilogue.scales, scaling.precision) * ones).astype(np.float32)
    zero, dtype = int(epilogue.output.zero_point), epilogue.output.qtype.storage_dtype
    before = zero if scaling.zero_point is ZeroPoint.BEFORE else 0
    behind = zero - before
    low, high = (np.float32(end - behind) for end in epilogue.limits)

    def run(sums: npt.NDArray[Any]) -> Array:
        levels = np.empty(sums.shape, dtype)
        float_levels(sums, bias, multiplier, np.float32(before), np.int32(behind), low, high, levels)
        return levels

    return run


def _fixed_pass(epilogue: Epilogue, scaling: Scaling, reach: int) -> Finish | None:
    """One pass of 32-bit factors and shifts; None where a product, a shift or a level could leave its register."""
    if scaling.form not in (MultiplierForm.FIXED, MultiplierForm.POWER):
        return None
    real = real_multiplier(epilogue.scales, scaling.precision)
    if scaling.shift_powers and (np.frexp(real)[0] == 0.5).any():
        return None
    fixed = fixed_multiplier(real, scaling)
    *first, last = scaling.stages
    shift = fixed.shift - (31 if first else 0)
    levels_fit = reach * float(real.max()) < _ROOM and _holds(scaling.inner_bits, epilogue)
    if (shift < 0).any() or not levels_fit or last.rounding not in _CODES:
        return None
    from qbench.interpreter.compiled import one_shift, two_shifts

    if first and (first != [Stage(Rounding.HALF_UP, 31)] or last.rounding is Rounding.HALF_EVEN):
        return None
    code = _CODES.index(last.rounding)
    levels_of, width = (two_shifts(code), np.int32) if first else (one_shift(code), np.int64)
    bias, ones = _columns(epilogue)
    factor = np.ascontiguousarray(fixed.factor * ones, np.int32)
    shifts = (shift * ones).astype(np.int64)
    some = shifts > 0
    half = np.where(some, np.int64(1) << np.clip(shifts - 1, 0, None), 0)
    by, nudge, moves = (np.ascontiguousarray(part.astype(width)) for part in (shifts, half, some))
    low, high, zero = (np.int32(end) for end in (*epilogue.limits, int(epilogue.output.zero_point)))
    dtype = epilogue.output.qtype.storage_dtype

    def run(sums: npt.NDArray[Any]) -> Array:
        levels = np.empty(sums.shape, dtype)
        levels_of(sums, bias, factor, by, nudge, moves, zero, low, high, levels)
        return levels

    return run


def _holds(bits: int, epilogue: Epilogue) -> bool:
    """Whether a register of so many bits (0: any) holds every level before its zero point, clamped or not."""
    zero = int(epilogue.output.zero_point)
    return not bits or all(-(1 << (bits - 1)) <= end - zero < 1 << (bits - 1) for end in epilogue.limits)
