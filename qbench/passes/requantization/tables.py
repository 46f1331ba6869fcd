"""A function of quantized values as a table, the thresholds of a quantizer, and what two tables
differ in.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.numerics import Arithmetic, QParams, dequantize, get_arithmetic, quantize, rescaler
from qbench.passes.contract import QDQ, Effect

# A function of codes as the table of all its values: what a chain of requantizations does under
# each arithmetic.
#
# A type of 8 bits has 256 codes, one of 16 bits 65,536: a function of one code is known whole, so
# that two ways of computing it are compared by trying all codes, not by reasoning about scales.

Array = npt.NDArray[Any]
_KEPT = 256
"""Tables remembered: a chain needs each once per arithmetic, and again for its limits."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Qparams that codes are requantized to, and the limits there."""

    qparams: QParams
    low: int
    high: int


def all_codes(stop: Stop) -> Array:
    """(high − low + 1,) int64: every code between the limits."""
    return np.arange(stop.low, stop.high + 1, dtype=np.int64)


def brought(codes: Array, start: QParams, stops: tuple[Stop, ...], arithmetic: str) -> Array:
    """``codes`` of the qparams ``start`` after every stop, int64, as ``arithmetic`` requantizes
    them.

    Raises:
        InputError: an unknown arithmetic, or a ratio of scales that it cannot hold.
    """
    qparams = start
    for stop in stops:
        there = _table(qparams, stop.qparams, arithmetic)[codes - qparams.qtype.qmin]
        codes, qparams = np.clip(there, stop.low, stop.high), stop.qparams
    return codes


def brought_reals(reals: Array, first: Stop, stops: tuple[Stop, ...], arithmetic: str) -> Array:
    """Float32 ``reals`` quantized on ``first``, then as ``brought``."""
    codes = np.clip(quantize(reals, first.qparams).astype(np.int64), first.low, first.high)
    return brought(codes, first.qparams, stops, arithmetic)


@lru_cache(maxsize=_KEPT)
def _table(start: QParams, qparams: QParams, arithmetic: str) -> Array:
    """What becomes of every code of ``start`` on ``qparams``, int64, read-only."""
    stored = np.arange(start.qtype.qmin, start.qtype.qmax + 1).astype(start.qtype.storage_dtype)
    if arithmetic == QDQ:
        there = quantize(dequantize(stored, start), qparams)
    else:
        there = rescaler(start, qparams, _requantizing(arithmetic))(stored)
    table = there.astype(np.int64)
    table.setflags(write=False)
    return np.asarray(table)


@lru_cache(maxsize=16)
def _requantizing(arithmetic: str) -> Arithmetic:
    return get_arithmetic(arithmetic).at("Requantize", "")


# Where a quantizer steps: the float32 numbers on both sides of every step of q = clamp(round(x / s)
# + z).
#
# Two monotone functions of a real that agree at both sides of every step of either agree
# everywhere: between two steps both are constant. So a few hundred numbers prove what holds for all
# of float32.
#
# An exact arithmetic has other reals than float32: sums of products that it never rounds. There the
# steps lie at s · (k + ½ − z) itself, which float64 holds for any type of 16 bits, and one number
# between two steps is enough.

_STEPS = 8
"""Floats looked at on each side of a step: division and product are right to half a unit in the
last place.
"""


def critical_reals(qparams: QParams) -> Array:
    """Float32, ascending: −∞, the last float below and the first above every step of
    ``qparams``, +∞.

    Raises:
        ValueError: qparams per channel.
    """
    if qparams.axis is not None:
        raise ValueError("steps are those of qparams per tensor")
    below = np.arange(qparams.qmin, qparams.qmax, dtype=np.int64)  # the code under each step
    near = np.sort(_neighbours(_middles(qparams).astype(np.float32)), axis=1)
    above = quantize(near, qparams).astype(np.int64) > below[:, None]
    first = above.argmax(axis=1)
    if not (above.any(axis=1) & (first > 0)).all():
        raise ArithmeticError(
            "a step of a quantizer lies further from its middle than rounding explains"
        )
    rows = np.arange(len(below))
    found = np.concatenate(
        [near[rows, first - 1], near[rows, first], np.array([-np.inf, np.inf], np.float32)]
    )
    return np.asarray(np.unique(found))


def exact_reals(*all_qparams: QParams) -> Array:
    """Float64, ascending: −∞, every step of the ``all_qparams``, per tensor, and one number
    between any two, +∞.
    """
    steps = np.unique(np.concatenate([_middles(qparams) for qparams in all_qparams]))
    return np.asarray(
        np.sort(np.concatenate([[-np.inf], steps, (steps[:-1] + steps[1:]) / 2, [np.inf]]))
    )


def exact_codes(reals: Array, qparams: QParams) -> Array:
    """Float64 ``reals`` on ``qparams``, int64, rounded once: the result of an exact arithmetic."""
    codes = np.rint(reals / np.float64(qparams.scale)) + int(qparams.zero_point)
    return np.asarray(np.clip(codes, qparams.qmin, qparams.qmax), np.int64)


def _middles(qparams: QParams) -> Array:
    """Float64: where the steps of ``qparams`` would be if nothing rounded."""
    below = np.arange(qparams.qmin, qparams.qmax, dtype=np.int64)  # the code under each step
    return np.asarray((below - int(qparams.zero_point) + 0.5) * np.float64(qparams.scale))


def _neighbours(middle: Array) -> Array:
    """(n, 2·8 + 1) float32: every number with its nearest floats."""
    columns = [middle]
    for towards in (-np.inf, np.inf):
        near = middle
        for _ in range(_STEPS):
            near = np.nextafter(near, np.float32(towards))
            columns.append(near)
    return np.asarray(np.stack(columns, axis=1))


# How two ways to make codes differ: how many move, how far, and where both saturate.

_DIFFERENCE_KEPT = 4096
"""Differences remembered: every round of a pipeline needs those again that were too large in
the last.
"""


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two functions whose results have the same qparams.

    Args:
        steps: the farthest that any code moves. moved, of: how many do, of how many inputs looked
            at.
        arithmetic: under which the farthest was seen.
    """

    steps: int
    moved: int
    of: int
    arithmetic: str

    def __str__(self) -> str:
        steps = "1 step" if self.steps == 1 else f"{self.steps} steps"
        return f"{self.moved} of {self.of} inputs would move, by up to {steps} ({self.arithmetic})"


@lru_cache(maxsize=_DIFFERENCE_KEPT)
def chain_against(
    start: Stop | None,
    before: tuple[Stop, ...],
    after: tuple[Stop, ...],
    arithmetics: tuple[str, ...],
) -> Difference:
    """How the results over the stops ``before`` and over the stops ``after`` differ.

    Args:
        start: the qparams and limits of the input codes; None: reals, quantized at the first stop
            of either.
        before, after: stops; the last of both have the same qparams.
        arithmetics: under which both are tried; the worst is given.

    Raises:
        InputError: an unknown arithmetic, or a ratio of scales that it cannot hold.
    """
    found = [_difference(start, before, after, arithmetic) for arithmetic in arithmetics]
    return max(found, key=lambda one: (one.steps, one.moved))


def admits(effect: Effect, difference: Difference) -> bool:
    """Whether a site with this ``difference`` keeps to the declared ``effect``."""
    return difference.steps <= effect.steps


def merged_limits(start: Stop | None, stops: tuple[Stop, ...], arithmetic: str) -> tuple[int, int]:
    """Where everything saturates that was brought over ``stops``: the intersection of all
    limits, on the last qparams.

    A chain is monotone, so that its ends are where the ends of what comes are brought.
    """
    if start is None:
        ends = np.array([stops[0].low, stops[0].high], np.int64)
        low, high = brought(ends, stops[0].qparams, stops[1:], arithmetic)
    else:
        low, high = brought(
            np.array([start.low, start.high], np.int64), start.qparams, stops, arithmetic
        )
    return int(low), int(high)


def _difference(
    start: Stop | None, before: tuple[Stop, ...], after: tuple[Stop, ...], arithmetic: str
) -> Difference:
    if start is None:
        (one, other), of = _of_reals(before, after, arithmetic)
    else:
        inputs = all_codes(start)
        of = len(inputs)
        one, other = (
            brought(inputs, start.qparams, stops, arithmetic) for stops in (before, after)
        )
    apart = np.abs(one - other)
    return Difference(int(apart.max(initial=0)), int((apart > 0).sum()), of, arithmetic)


def _of_reals(
    before: tuple[Stop, ...], after: tuple[Stop, ...], arithmetic: str
) -> tuple[tuple[Array, Array], int]:
    """What becomes of reals by either way, and of how many: float32, and exact ones where an
    arithmetic has them.
    """
    all_qparams = (before[0].qparams, after[0].qparams)
    floats = np.unique(np.concatenate([critical_reals(qparams) for qparams in all_qparams]))
    one, other = (
        brought_reals(floats, stops[0], stops[1:], arithmetic) for stops in (before, after)
    )
    if arithmetic == QDQ:
        return (one, other), len(floats)
    exact = exact_reals(*all_qparams)
    found = [_of_exact(exact, stops, arithmetic) for stops in (before, after)]
    return (np.concatenate([one, found[0]]), np.concatenate([other, found[1]])), len(floats) + len(
        exact
    )


def _of_exact(reals: Array, stops: tuple[Stop, ...], arithmetic: str) -> Array:
    first = stops[0]
    codes = np.clip(exact_codes(reals, first.qparams), first.low, first.high)
    return brought(codes, first.qparams, stops[1:], arithmetic)
