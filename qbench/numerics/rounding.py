"""Rounding real numbers, shifting integers, and float32 multiply-add, each as processors do it."""

import enum
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

# Rounding real numbers and shifting integers: five rules, each the same for floats and for shifts.
#
#     half_even   nearest, a tie to the even neighbour
#     half_up     floor(v + 1/2)
#     half_away   nearest, a tie away from zero
#     truncate    towards zero
#     floor       downwards
#
# A shift by n divides by 2ⁿ and rounds by the rule; it never overflows int64 for |x| < 2⁶² and 0 ≤
# n ≤ 62.

Ints = npt.NDArray[np.int64]
WIDEST = 2.0**40
"""Outputs have at most 32 bits: what lies beyond this is clamped anyway, and an int64 holds it."""
Reals = npt.NDArray[np.floating[Any]]


class Rounding(enum.Enum):
    """What becomes of the part that a narrower type cannot hold."""

    HALF_EVEN = "half_even"
    HALF_AWAY = "half_away"
    HALF_UP = "half_up"
    TRUNCATE = "truncate"
    FLOOR = "floor"


def round_reals(values: Reals, rounding: Rounding) -> Reals:
    """``values`` (float32 or float64) rounded to whole numbers, in their type.

    Half up and half away look at the fraction, not at v + 1/2, which would be rounded itself.
    """
    return _REALS[rounding](values)


def whole_codes(values: Reals, rounding: Rounding) -> Ints:
    """``values`` rounded to int64; infinities and what lies beyond ±2⁴⁰ become that."""
    return round_reals(np.asarray(np.clip(values, -WIDEST, WIDEST)), rounding).astype(np.int64)


def half_even_quotients(up: npt.NDArray[Any], down: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """``up`` / ``down`` to the nearest whole numbers, a tie to the even one; exact.

    Args:
        up, down: int64 or Python's integers (object), of shapes that broadcast; ``down`` positive,
            in int64 below 2⁶².
    """
    shape = np.broadcast_shapes(up.shape, down.shape)
    # Python's integers leave arrays of no dimension
    up, down = np.atleast_1d(up), np.atleast_1d(down)
    whole = up // down
    twice = 2 * (up - whole * down)
    return np.asarray(whole + ((twice > down) | ((twice == down) & (whole % 2 == 1)))).reshape(
        shape
    )


def shift_right(values: Ints, shift: npt.ArrayLike, rounding: Rounding) -> Ints:
    """``values`` / 2^``shift``, rounded; ``shift`` (0 … 62) broadcasts against ``values``,
    which are int64.
    """
    by = np.asarray(shift, np.int64)
    whole = values >> by
    rest = values - (whole << by)  # 0 ≤ rest < 2^shift
    # Doubled comparison would overflow at 62 bits: compare with the half, which does not exist for
    # a shift by 0.
    half = np.where(by > 0, np.int64(1) << np.maximum(by - 1, 0), np.iinfo(np.int64).max)
    match rounding:
        case Rounding.FLOOR:
            return whole
        case Rounding.TRUNCATE:
            return whole + ((values < 0) & (rest > 0))
        case Rounding.HALF_UP:
            return whole + (rest >= half)
        case Rounding.HALF_AWAY:
            return whole + np.where(values >= 0, rest >= half, rest > half)
        case Rounding.HALF_EVEN:
            return np.asarray(
                whole + ((rest > half) | ((rest == half) & (whole & 1 == 1))), np.int64
            )


def _half_up(values: Reals) -> Reals:
    low = np.floor(values)
    return np.asarray(low + (values - low >= 0.5), values.dtype)


def _half_away(values: Reals) -> Reals:
    size = np.abs(values)
    low = np.floor(size)
    return np.asarray(np.copysign(low + (size - low >= 0.5), values), values.dtype)


_REALS: Mapping[Rounding, Callable[[Reals], Reals]] = MappingProxyType(
    {
        Rounding.HALF_EVEN: np.rint,
        Rounding.HALF_AWAY: _half_away,
        Rounding.HALF_UP: _half_up,
        Rounding.TRUNCATE: np.trunc,
        Rounding.FLOOR: np.floor,
    }
)


# Multiply and add of float32 numbers, as processors do it: fused (one rounding) or separate (two).
#
#     fused      f32(a · b + c)                separate      f32(f32(a · b) + c)
#
# A product of two float32 is exact in float64; the sum is rounded there to odd, which a second
# rounding to float32 cannot tell from the exact one. Source: Boldo and Melquiond, "Emulation of FMA
# and correctly rounded sums", 2008.

Single = npt.NDArray[np.float32]
MultiplyAdd = Callable[[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike], Single]
"""a, b, c (float32, of shapes that broadcast) → a · b + c."""


def fused_multiply_add(a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike) -> Single:
    """Gives a · b + c, rounded once; float32 arrays of shapes that broadcast, results above
    2⁻¹²⁶ or zero.
    """
    product = np.asarray(_single(a).astype(np.float64) * _single(b).astype(np.float64))
    added = _single(c).astype(np.float64)
    total = np.asarray(product + added)
    rest = _lost(product, added, total)
    even = (total.view(np.int64) & 1) == 0
    towards = np.where(rest > 0, np.inf, -np.inf)
    odd = np.where((rest != 0) & even, np.nextafter(total, towards), total)
    return np.asarray(odd.astype(np.float32))


def separate_multiply_add(a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike) -> Single:
    """Gives a · b + c, the product rounded first; float32 arrays of shapes that broadcast."""
    return np.asarray(_single(a) * _single(b) + _single(c), np.float32)


def _single(values: npt.ArrayLike) -> Single:
    return np.asarray(values, np.float32)


def _lost(
    left: npt.NDArray[Any], right: npt.NDArray[Any], total: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """What rounding took from ``left`` + ``right`` = ``total`` (Knuth's TwoSum), exactly."""
    back = total - left
    return np.asarray((left - (total - back)) + (right - back))
