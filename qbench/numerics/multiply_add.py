"""Multiply and add of float32 numbers, as processors do it: fused (one rounding) or separate (two).

    fused      f32(a · b + c)                separate      f32(f32(a · b) + c)

A product of two float32 is exact in float64; the sum is rounded there to odd, which a second rounding to float32 cannot
tell from the exact one. Source: Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Single = npt.NDArray[np.float32]
MultiplyAdd = Callable[[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike], Single]
"""a, b, c (float32, of shapes that broadcast) → a · b + c."""


def fused_multiply_add(a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike) -> Single:
    """Gives a · b + c, rounded once; float32 arrays of shapes that broadcast, results above 2⁻¹²⁶ or zero."""
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


def _lost(left: npt.NDArray[Any], right: npt.NDArray[Any], total: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """What rounding took from ``left`` + ``right`` = ``total`` (Knuth's TwoSum), exactly."""
    back = total - left
    return np.asarray((left - (total - back)) + (right - back))
