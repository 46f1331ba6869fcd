"""Types of quantized values: bits, sign, the format of floats, storage dtype."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from qbench.errors import InputError
from qbench.numerics.float_format import FLOAT_FORMATS, FloatFormat, float_format

_PATTERN = re.compile(r"(u?)int(\d+)")
_BLOCK_FORMAT = re.compile(r"mxfp8e4m3|mxfp8e5m2|mxfp6e2m3|mxfp6e3m2|mxfp4|nvfp4")
"""The names in ``BLOCK_FORMATS``, which reads types here, that no type has."""
_WIDTHS = frozenset({*range(2, 17), 32})
_STORED_WIDTHS = (8, 16, 32)


@dataclass(frozen=True, slots=True)
class QType:
    """An integer type of ``bits`` (2 to 16, or 32) bits, or one of floats of few bits.

    The codes of integers are these integers; those of floats are the bits of their format, and
    have no order that is of use. What holds for integers alone (``qmin``, ``qmax``, ``middle``)
    raises for floats, so that no integer rule is applied to them unseen.

    Args:
        bits: of a code.
        signed: whether there are negative values.
        floating: the format of floats; None: the type is one of integers.

    Raises:
        ValueError: a width that no arithmetic here has, or that is not the format's.
    """

    bits: int
    signed: bool
    floating: FloatFormat | None = None

    def __post_init__(self) -> None:
        if self.floating is not None:
            if (self.bits, self.signed) != (self.floating.bits, self.floating.signed):
                raise ValueError(f"{self.floating.name} has {self.floating.bits} bits")
        elif self.bits not in _WIDTHS:
            raise ValueError(f"an integer type has 2 to 16 or 32 bits, not {self.bits}")

    @classmethod
    def parse(cls, name: object) -> "QType":
        """The type called ``name``, as in ``int8``, ``uint4``, ``float8e4m3fn``.

        Floats go by ONNX's names in lower case and by those of ml_dtypes (``float8_e4m3fn``).

        Raises:
            InputError: no type has that name.
        """
        match = _PATTERN.fullmatch(name) if isinstance(name, str) else None
        if match is not None and int(match[2]) in _WIDTHS:
            return cls(int(match[2]), signed=not match[1])
        floating = float_format(name) if isinstance(name, str) else None
        if floating is not None and floating.signed:
            return cls(floating.bits, signed=True, floating=floating)
        if isinstance(name, str) and _BLOCK_FORMAT.fullmatch(name):
            raise InputError(
                "Reading the name of a quantized type",
                found=f"{name!r}, which names a block format: elements and the scales they share",
                expected="the type of one number, such as 'int8' or 'float4e2m1'",
                remedy=f"Look up qbench.numerics.BLOCK_FORMATS[{name!r}], a BlockFormat; its qtype "
                "names the type of its elements.",
            )
        raise InputError(
            "Reading the name of a quantized type",
            found=repr(name) if floating is None else f"{name!r}, a type of scales",
            expected="an integer type, int or uint with 2 to 16 or 32 bits, as in 'int8', or one "
            f"of {', '.join(_listed(FLOAT_FORMATS.values()))}",
            remedy="Name a type of that kind.",
        )

    @property
    def name(self) -> str:
        """Its word, as in ``int8``, ``uint4`` or ``float8e4m3fn``."""
        if self.floating is not None:
            return self.floating.name
        return f"{'' if self.signed else 'u'}int{self.bits}"

    @property
    def is_float(self) -> bool:
        """Whether its values are floats: no zero point, no order of codes."""
        return self.floating is not None

    @property
    def qmin(self) -> int:
        """The lowest code.

        Raises:
            TypeError: a type of floats.
        """
        if self.floating is not None:
            raise self._no_integers()
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def qmax(self) -> int:
        """The highest code.

        Raises:
            TypeError: a type of floats.
        """
        if self.floating is not None:
            raise self._no_integers()
        return (1 << (self.bits - 1)) - 1 if self.signed else (1 << self.bits) - 1

    @property
    def middle(self) -> int:
        """The zero point of the symmetric families: 0, or 2^(bits−1) in an unsigned type."""
        return 0 if self.signed else 1 << (self.bits - 1)

    @property
    def storage_dtype(self) -> "np.dtype[Any]":
        """The narrowest numpy integer that holds every code."""
        width = next(width for width in _STORED_WIDTHS if self.bits <= width)
        return np.dtype(f"{'' if self.signed and self.floating is None else 'u'}int{width}")

    def _no_integers(self) -> TypeError:
        return TypeError(f"the codes of {self.name} have no ends: they are no integers")

    def __str__(self) -> str:
        return self.name


def _listed(formats: Iterable[FloatFormat]) -> list[str]:
    """The names of those that hold values: e8m0, which has no zero, holds scales."""
    return [one.name for one in formats if one.signed]


def qtype_of(qtype: QType | str) -> QType:
    """``qtype``, or the type of that name.

    Raises:
        InputError: no type has that name, or it is neither.
    """
    return qtype if isinstance(qtype, QType) else QType.parse(qtype)
