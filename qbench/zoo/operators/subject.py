"""One operator between grids, as plain numbers: what is computed, on which levels, and which levels are fed.

    x ─Q─DQ─┐
    w ───DQ─┼─ operator ─Q─DQ─ y              w, bias: constant integers; the bias at s_x · s_w
    b ───DQ─┘

Fed reals lie on the grid exactly, so that the first Q rounds nothing, whatever its rule.
"""

import enum
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qbench.numerics import QParams

Attribute = int | float | str | tuple[int, ...]
Shape = tuple[int, ...]
_ENDS = MappingProxyType({"int8": (-128, 127), "uint8": (0, 255)})


class Feed(enum.Enum):
    """Which levels the samples hold.

    SPREAD: all ends, the zero point, levels that make ties, and random ones. EVERY_LEVEL: each level of the one
    operand, in a few orders. EVERY_PAIR: all 65,536 pairs of levels of two operands.
    """

    SPREAD = "spread"
    EVERY_LEVEL = "every level"
    EVERY_PAIR = "every pair"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperandGrid:
    """The levels of one tensor: r = scale · (q − zero_point).

    Args:
        qtype: ``int8`` or ``uint8``. scales: one, or one a slice along ``axis``; exact as float32.
        zero_point: of all slices. axis: None where there is one scale.
    """

    qtype: str
    scales: tuple[float, ...]
    zero_point: int = 0
    axis: int | None = None

    @property
    def ends(self) -> tuple[int, int]:
        """The lowest and the highest level."""
        return _ENDS[self.qtype]

    def qparams(self) -> "QParams":
        """The same as arrays."""
        from qbench.numerics import QParams

        scale = self.scales[0] if self.axis is None else self.scales
        return QParams(scale, self.zero_point, self.qtype, axis=self.axis)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One input of the operator.

    Args:
        grid: its levels. shape: without the batch where it is fed, whole where it is constant.
        step: levels that make ties are the zero point and multiples of ``step`` away; one number, or one a slice.
    """

    grid: OperandGrid
    shape: Shape
    step: tuple[int, ...] = (1,)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSubject:
    """One operator, its grids and its data; what the id does not say, the fields do.

    Args:
        id: name in suites. operator: as ONNX calls it; ``Requantize``: from one grid to another, no operator between.
        inputs: the operands that are fed. output: the grid of the result.
        weight: a constant second operand, if any. bias: how many numbers a constant bias has; 0: none.
        attributes: of the ONNX node. constants: further constant inputs behind the operands, reals or integers.
        feed: which levels are fed.
    """

    id: str
    operator: str
    inputs: tuple[Operand, ...]
    output: OperandGrid
    weight: Operand | None = None
    bias: int = 0
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    constants: tuple[tuple[str, tuple[float, ...] | tuple[int, ...] | float], ...] = ()
    feed: Feed = Feed.SPREAD

    @property
    def counts_products(self) -> bool:
        """Whether the operator is Σ x·w over computed ``x`` and constant ``w``: an accumulator, then a multiplier."""
        return self.weight is not None

    @property
    def multipliers(self) -> tuple[float, ...]:
        """s_x · s_w / s_y, one or one a channel, of an operator that counts products; else s_x / s_y."""
        weights = (1.0,) if self.weight is None else self.weight.grid.scales
        return tuple(self.inputs[0].grid.scales[0] * scale / self.output.scales[0] for scale in weights)


def single(value: float) -> float:
    """``value`` as float32 has it."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])
