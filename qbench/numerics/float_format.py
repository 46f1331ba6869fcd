"""Floating-point formats of few bits: their codes, their numbers, and rounding to them."""

from __future__ import annotations  # help() shows npt.ArrayLike, and not the union behind it

import enum
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

# Floating-point formats of 4 to 8 bits. With the fields s (sign), e (exponent) and m (mantissa of M
# bits) of a code, and the bias b of the format,
#
#     value = (−1)^s · 2^(e − b) · (1 + m / 2^M)        e > 0
#     value = (−1)^s · 2^(1 − b) · m / 2^M              e = 0 (subnormal; zero where m = 0)
#
# e8m0fnu, the type of shared scales, has neither sign nor mantissa nor zero: 2^(e − 127) for
# every e below 255, which is NaN.
#
# Rounding goes to the nearest number; a tie goes to the even code, whose last bit is that of the
# mantissa (in e8m0fnu up, as in ml_dtypes: the OCP text has no rule for it). Both follow from the
# table of numbers: the codes of one sign ascend as their numbers do.
#
# Sources: OCP 8-bit Floating Point Specification 1.0 (e4m3fn, e5m2); Noune et al., "8-bit Numerical
# Formats for Deep Neural Networks", 2022 (fnuz); OCP Microscaling Formats 1.0, section 5.3 (6 and 4
# bits, e8m0).

Codes = npt.NDArray[np.uint8]
Reals = npt.NDArray[np.float32]


class Specials(enum.Enum):
    """Which codes are no finite numbers."""

    NONE = "none"  # every code is finite
    LAST = "last"  # all bits of exponent and mantissa set: NaN; there is no infinity
    IEEE = "ieee"  # the highest exponent: infinity, and NaN where the mantissa is not zero
    NEGATIVE_ZERO = "negative zero"  # the code of −0 is NaN; there is no infinity


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatFormat:
    """A format of at most 8 bits; its codes are uint8, the format's bits the lowest of the byte.

    Args:
        name: as ONNX spells it, in lower case.
        exponent_bits, mantissa_bits: of a code.
        bias: of the exponent.
        specials: which codes are no finite numbers.
        signed: whether there is a sign bit, and a zero; only e8m0fnu has neither.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    specials: Specials
    signed: bool = True

    @property
    def bits(self) -> int:
        """Of a code."""
        return self.exponent_bits + self.mantissa_bits + self.signed

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return float(_magnitudes(self)[-1])

    @property
    def smallest(self) -> float:
        """The smallest number above zero: the smallest subnormal, where the format has those."""
        magnitudes = _magnitudes(self)
        return float(magnitudes[1] if self.signed else magnitudes[0])

    @property
    def largest_exponent(self) -> int:
        """Of the largest finite number, ⌊log₂ largest⌋: ``emax`` of the OCP texts."""
        return int(np.frexp(self.largest)[1]) - 1

    @property
    def numbers(self) -> Reals:
        """The number of every code, float32, ascending codes; NaN and infinities included."""
        return _numbers(self)

    @property
    def nan(self) -> int | None:
        """The code that NaN becomes; None where the format has no NaN."""
        if self.specials is Specials.NONE:
            return None
        return int(self.encode(np.float32(np.nan)))

    @property
    def _nan_below_sign(self) -> int:
        """The code of NaN without its sign bit."""
        ones = (1 << self.exponent_bits) - 1
        if self.specials is Specials.LAST:
            return (ones << self.mantissa_bits) | ((1 << self.mantissa_bits) - 1)
        if self.specials is Specials.IEEE:  # the quiet one: of the mantissa the highest bit alone
            return (ones << self.mantissa_bits) | (1 << (self.mantissa_bits - 1))
        return 0

    def decode(self, codes: npt.ArrayLike) -> Reals:
        """The numbers of ``codes`` (integers of any type and shape, or numbers of the format in one
        byte each), float32, exact.

        Raises:
            ValueError: a code beyond the bits of the format.
        """
        found = np.asarray(codes)
        if found.dtype.kind not in "iu" and found.dtype.itemsize == 1:
            found = found.view(np.uint8)  # an array of ml_dtypes' type, as constants of files are
        if found.size and not (found.min() >= 0 and found.max() < 1 << self.bits):
            raise ValueError(
                f"codes of {self.name} lie in 0 … {(1 << self.bits) - 1}, not "
                f"{found.min()} … {found.max()}"
            )
        return np.asarray(_numbers(self)[found])

    def encode(self, x: npt.ArrayLike, *, saturate: bool = True) -> Codes:
        """The codes of ``x``, taken as float32: the nearest number, a tie to the even code.

        Args:
            x: reals of any shape.
            saturate: numbers beyond the largest, and infinities, become the largest, as
                QuantizeLinear and the OCP text for blocks have it. Otherwise infinity where the
                format has one, else NaN, as a cast has it; the largest in a format with neither.

        Returns:
            uint8 of x's shape. NaN stays NaN. In a format without NaN it becomes zero of the other
            sign, as in ml_dtypes. A negative number, which e8m0fnu lacks, becomes NaN there, and so
            does zero.
        """
        shape = np.shape(x)
        real = np.atleast_1d(np.asarray(x, np.float32))
        size, negative = np.abs(real), np.signbit(real)
        table = _thresholds(self)
        codes = np.searchsorted(table, size).astype(np.uint8)
        absent = np.isnan(real)
        if saturate or self.specials is Specials.NONE:
            codes = np.minimum(codes, np.uint8(len(table) - 1))
        elif self.specials is not Specials.IEEE:
            absent |= codes == len(table)
        if not self.signed:
            absent |= negative | (size == 0)
        codes[absent] = self._nan_below_sign
        if self.signed:
            codes[self._signed(codes, negative, absent)] |= np.uint8(1 << (self.bits - 1))
        return codes.reshape(shape)

    def saturates(self, x: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Which of ``x`` (reals, taken as float32) are rounded beyond the largest number."""
        return np.asarray(np.abs(np.asarray(x, np.float32)) > _thresholds(self)[-1])

    def _signed(
        self, codes: Codes, negative: npt.NDArray[np.bool_], absent: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        """Which codes get the sign bit; ``absent`` are those of NaN."""
        if self.specials is Specials.NEGATIVE_ZERO:
            return np.asarray(absent | (negative & (codes > 0)))
        return np.asarray(negative ^ absent) if self.specials is Specials.NONE else negative


def _formats() -> Mapping[str, FloatFormat]:
    rows = (
        ("float8e4m3fn", 4, 3, 7, Specials.LAST),
        ("float8e5m2", 5, 2, 15, Specials.IEEE),
        ("float8e4m3fnuz", 4, 3, 8, Specials.NEGATIVE_ZERO),
        ("float8e5m2fnuz", 5, 2, 16, Specials.NEGATIVE_ZERO),
        ("float6e2m3", 2, 3, 1, Specials.NONE),
        ("float6e3m2", 3, 2, 3, Specials.NONE),
        ("float4e2m1", 2, 1, 1, Specials.NONE),
    )
    signed = {
        name: FloatFormat(name=name, exponent_bits=e, mantissa_bits=m, bias=bias, specials=specials)
        for name, e, m, bias, specials in rows
    }
    scale = FloatFormat(
        name="float8e8m0",
        exponent_bits=8,
        mantissa_bits=0,
        bias=127,
        specials=Specials.LAST,
        signed=False,
    )
    return MappingProxyType({**signed, scale.name: scale})


FLOAT_FORMATS = _formats()
"""By ONNX's names in lower case."""

_OTHER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "float8_e4m3fn": "float8e4m3fn",
        "float8_e5m2": "float8e5m2",
        "float8_e4m3fnuz": "float8e4m3fnuz",
        "float8_e5m2fnuz": "float8e5m2fnuz",
        "float6_e2m3fn": "float6e2m3",
        "float6_e3m2fn": "float6e3m2",
        "float4_e2m1fn": "float4e2m1",
        "float8_e8m0fnu": "float8e8m0",
        "float6e2m3fn": "float6e2m3",
        "float6e3m2fn": "float6e3m2",
        "float4e2m1fn": "float4e2m1",
        "float8e8m0fnu": "float8e8m0",
    }
)
"""Those of ml_dtypes, and those without its underscore → ours."""


def float_format(name: str) -> FloatFormat | None:
    """The format called ``name``, by ONNX's spelling in lower case or that of ml_dtypes; None:
    no format is.
    """
    return FLOAT_FORMATS.get(_OTHER_NAMES.get(name, name))


@functools.cache
def _numbers(form: FloatFormat) -> Reals:
    codes = np.arange(1 << form.bits)
    mantissa = codes & ((1 << form.mantissa_bits) - 1)
    exponent = (codes >> form.mantissa_bits) & ((1 << form.exponent_bits) - 1)
    subnormal = (exponent == 0) & form.signed
    whole = mantissa + np.where(subnormal, 0, 1 << form.mantissa_bits)
    power = np.where(subnormal, 1, exponent) - form.bias - form.mantissa_bits
    numbers = np.ldexp(whole.astype(np.float64), power)
    sign = codes >> (form.exponent_bits + form.mantissa_bits)
    numbers = np.where(sign == 1, -numbers, numbers)
    numbers[_specials(form, exponent, mantissa, sign)] = np.nan
    if form.specials is Specials.IEEE:
        endless = (exponent == exponent.max()) & (mantissa == 0)
        numbers[endless] = np.where(sign[endless] == 1, -np.inf, np.inf)
    found: Reals = numbers.astype(np.float32)
    found.setflags(write=False)
    return found


def _specials(
    form: FloatFormat,
    exponent: npt.NDArray[Any],
    mantissa: npt.NDArray[Any],
    sign: npt.NDArray[Any],
) -> npt.NDArray[np.bool_]:
    """Which codes are NaN."""
    highest = exponent == exponent.max()
    masks = {
        Specials.NONE: np.zeros(len(sign), bool),
        Specials.LAST: highest & (mantissa == mantissa.max()),
        Specials.IEEE: highest & (mantissa != 0),
        Specials.NEGATIVE_ZERO: (sign == 1) & (exponent == 0) & (mantissa == 0),
    }
    return np.asarray(masks[form.specials])


@functools.cache
def _magnitudes(form: FloatFormat) -> npt.NDArray[np.float64]:
    """The finite numbers of the codes without a sign, ascending: the place of each is its code."""
    numbers = _numbers(form)[: 1 << (form.exponent_bits + form.mantissa_bits)]
    return np.asarray(numbers[np.isfinite(numbers)].astype(np.float64))


@functools.cache
def _thresholds(form: FloatFormat) -> Reals:
    """The largest float32 that is rounded to each code or a lower one, ascending; those above the
    last are beyond the format.

    Between two codes that is their middle where the lower code is even, which gets the tie, else
    the float32 below it. The middle has one bit more than the format and so is a float32.
    """
    magnitudes = _magnitudes(form)
    # One number more, as if the format went on: what is nearer to it than to the largest overflows.
    step = magnitudes[-1] - magnitudes[-2]
    if not form.mantissa_bits:
        step = magnitudes[-1]
    middles = (magnitudes + np.append(magnitudes[1:], magnitudes[-1] + step)) / 2
    ends = middles.astype(np.float32)
    upwards = np.arange(len(ends)) % 2 == 1
    if not form.mantissa_bits:
        # ml_dtypes rounds ties of e8m0fnu up, and all that is between the two lowest numbers.
        upwards[:] = True
        ends[0] = np.nextafter(np.float32(magnitudes[0]), np.float32(1))
    ends[upwards] = np.nextafter(ends[upwards], np.float32(0))
    ends.setflags(write=False)
    return np.asarray(ends, np.float32)
