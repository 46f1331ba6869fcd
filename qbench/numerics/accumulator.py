"""Accumulators: the width of the register, and which sums lose something before they reach it.

Processors without wide dot products sum two neighbouring products in 16 bits, with saturation
(Intel's vpmaddubsw). Whether a sum is made that way depends on the kernel that an engine chooses
by the shape of a node.
"""

import enum
from dataclasses import dataclass

import numpy as np

from qbench.numerics.rounding import Ints

_NARROWEST, _WIDEST, _WIDEST_PAIR = 2, 64, 32


class Overflow(enum.Enum):
    """What a full register does."""

    WRAP = "wrap"
    SATURATE = "saturate"


class Saturates(enum.Enum):
    """When a saturating register is clamped: once, to the whole sum (END), or after every
    product (EACH).
    """

    END = "end"
    EACH = "each"


@dataclass(frozen=True, slots=True, kw_only=True)
class SumShape:
    """The properties of a sum by which engines choose a kernel for it.

    Args:
        depthwise: a convolution with one filter for each channel.
        fast_depthwise: one that FBGEMM's depthwise kernels take (``takeDepthWiseFastPath``).
        channels: how many channels each tap of the window has, of an ungrouped convolution; 0:
            another operator.
        taps: how many taps the window of a convolution has; 0: another operator.
        pointwise: a convolution that is a product of matrices: it has one group, windows of one tap
            and no padding, and either stride 1 or one or two dimensions whose sizes are multiples
            of the stride.
        clipped: whether its data are codes that a Clip bounds, moved or not.
        transposed: a transposed convolution.
    """

    depthwise: bool = False
    fast_depthwise: bool = False
    channels: int = 0
    taps: int = 0
    pointwise: bool = False
    clipped: bool = False
    transposed: bool = False


class PairsIn(enum.Enum):
    """The sums in which neighbouring products are first added in pairs.

    DENSE           all but those of depthwise convolutions (ONNX Runtime)
    FORWARD         as DENSE without transposed convolutions, which OpenVINO runs in floats on AVX2
    DEPTHWISE       those of depthwise convolutions
    FAST_DEPTHWISE  those of FBGEMM's depthwise kernels
    ALL             every sum
    """

    DENSE = "dense"
    FORWARD = "forward"
    DEPTHWISE = "depthwise"
    FAST_DEPTHWISE = "fast_depthwise"
    ALL = "all"


class PairsAlong(enum.Enum):
    """What neighbours of a convolution lie along: rows first, channels fastest.

    WINDOW: the whole window; of an odd number of products the last is alone (ONNX Runtime).
    TAPS: the channels of each tap of an ungrouped window; of an odd number the last of each tap is
        alone. A grouped convolution is as WINDOW (oneDNN on AVX2, where grouped ones are matrix
        products).
    """

    WINDOW = "window"
    TAPS = "taps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulator:
    """Where products are summed.

    Args:
        bits: width of the register, 2 to 64.
        overflow: when a sum does not fit it.
        pair_bits: two neighbours' products are first summed in so many bits (2 to 32), saturating;
            0: they are not. Only unsigned data times signed weights of 8 bits can leave 16.
        pairs_in: the sums that do so.
        pairs_along: where neighbours lie.
        raised: int8 data and their zero point are raised by 128 before pairs are summed, so that
            they saturate as unsigned ones do.
        halved: a convolution over int8 data that a Clip of codes bounds takes rne(w / 2) for its
            weights, and its sums twice; a pointwise one does not (oneDNN on AVX2, where OpenVINO
            keeps them signed).
        saturates: when sums are clamped. EACH: acc ← clamp(acc + (x − z_x)(w − z_w)), one product
            after another from 0, in the order of pairs; a bias comes last. The correction for a
            zero point that comes with the batch is added to the whole sums after that.

    Raises:
        ValueError: a width that no register here has; steps that wrap, or whose products are summed
            in pairs.
    """

    bits: int = 32
    overflow: Overflow = Overflow.WRAP
    pair_bits: int = 0
    pairs_in: PairsIn = PairsIn.ALL
    pairs_along: PairsAlong = PairsAlong.WINDOW
    raised: bool = False
    halved: bool = False
    saturates: Saturates = Saturates.END

    def __post_init__(self) -> None:
        if not _NARROWEST <= self.bits <= _WIDEST:
            raise ValueError(f"an accumulator has {_NARROWEST} to {_WIDEST} bits, not {self.bits}")
        if self.pair_bits and not _NARROWEST <= self.pair_bits <= _WIDEST_PAIR:
            raise ValueError(
                f"'pair_bits' is 0 or {_NARROWEST} to {_WIDEST_PAIR}, not {self.pair_bits}"
            )
        if self.saturates is Saturates.EACH and self.overflow is not Overflow.SATURATE:
            raise ValueError("'saturates' is of registers whose 'overflow' saturates")
        if self.saturates is Saturates.EACH and self.pair_bits:
            raise ValueError(
                "a register that saturates at each product sums no pairs: 'pair_bits' is 0"
            )

    def by_steps(self, largest: int) -> bool:
        """Whether sums that do not exceed ``largest`` in magnitude depend on the order of their
        products.
        """
        return self.saturates is Saturates.EACH and largest >= 1 << (self.bits - 1)

    def pairs(self, shape: SumShape) -> int:
        """``pair_bits`` of such a sum."""
        match self.pairs_in:
            case PairsIn.DENSE:
                paired = not shape.depthwise
            case PairsIn.FORWARD:
                paired = not shape.depthwise and not shape.transposed
            case PairsIn.DEPTHWISE:
                paired = shape.depthwise
            case PairsIn.FAST_DEPTHWISE:
                paired = shape.fast_depthwise
            case PairsIn.ALL:
                paired = True
        return self.pair_bits if paired else 0

    def halves(self, shape: SumShape) -> bool:
        """Whether weights of int8 are halved for such a sum over int8 data."""
        return self.halved and shape.clipped and shape.taps > 0 and not shape.pointwise

    def odd_channels(self, shape: SumShape) -> int:
        """The number of channels of each tap where it is odd, so that the last one is in no pair;
        0: no tap has a single one.
        """
        return shape.channels if self.pairs_along is PairsAlong.TAPS and shape.channels % 2 else 0


# A register keeps of an integer all of it, its low bits, or the nearest number that it can hold.


def held(sums: Ints, accumulator: Accumulator) -> Ints:
    """``sums`` as a register of the accumulator's width holds them."""
    return in_bits(sums, accumulator.bits, accumulator.overflow)


def in_bits(values: Ints, bits: int, overflow: Overflow) -> Ints:
    """``values`` as a register of ``bits`` (1 … 64) holds them."""
    half = 1 << (bits - 1)
    if overflow is Overflow.SATURATE:
        return np.clip(values, -half, half - 1)
    return values if bits >= 64 else ((values + half) & ((1 << bits) - 1)) - half
