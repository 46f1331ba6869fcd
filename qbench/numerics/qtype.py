"""Integer types of quantized values: bits, sign, storage dtype."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from qbench.errors import InputError

_PATTERN = re.compile(r"(u?)int(\d+)")
_WIDTHS = frozenset({*range(2, 17), 32})
_STORED_WIDTHS = (8, 16, 32)


@dataclass(frozen=True, slots=True)
class QType:
    """An integer type of ``bits`` (2 to 16, or 32) bits.

    Raises:
        ValueError: a width that no arithmetic here has.
    """

    bits: int
    signed: bool

    def __post_init__(self) -> None:
        if self.bits not in _WIDTHS:
            raise ValueError(f"an integer type has 2 to 16 or 32 bits, not {self.bits}")

    @classmethod
    def parse(cls, name: object) -> "QType":
        """The type called ``name``, as in ``int8``, ``uint4``, ``int32``.

        Raises:
            InputError: no type has that name.
        """
        match = _PATTERN.fullmatch(name) if isinstance(name, str) else None
        if match is None or int(match[2]) not in _WIDTHS:
            raise InputError(
                "Reading the name of an integer type",
                found=repr(name),
                expected="int or uint with 2 to 16 or 32 bits, as in 'int8'",
                remedy="Name a type of that kind.",
            )
        return cls(int(match[2]), signed=not match[1])

    @property
    def name(self) -> str:
        """Its word, as in ``int8`` or ``uint4``."""
        return f"{'' if self.signed else 'u'}int{self.bits}"

    @property
    def qmin(self) -> int:
        """The lowest code."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def qmax(self) -> int:
        """The highest code."""
        return (1 << (self.bits - 1)) - 1 if self.signed else (1 << self.bits) - 1

    @property
    def middle(self) -> int:
        """The zero point of the symmetric families: 0, or 2^(bits−1) in an unsigned type."""
        return 0 if self.signed else 1 << (self.bits - 1)

    @property
    def storage_dtype(self) -> "np.dtype[Any]":
        """The narrowest numpy integer that holds every code."""
        width = next(width for width in _STORED_WIDTHS if self.bits <= width)
        return np.dtype(f"{'' if self.signed else 'u'}int{width}")

    def __str__(self) -> str:
        return self.name


def qtype_of(qtype: QType | str) -> QType:
    """``qtype``, or the type of that name.

    Raises:
        InputError: no type has that name, or it is neither.
    """
    return qtype if isinstance(qtype, QType) else QType.parse(qtype)
