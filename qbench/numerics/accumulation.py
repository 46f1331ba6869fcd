"""Where a machine sums products: the width of its register, and which sums lose something before they reach it.

Processors without wide dot products sum two neighbouring products in 16 bits, with saturation (Intel's vpmaddubsw).
Whether a sum is made that way depends on the kernel that an engine chooses by the shape of a node.
"""

import enum
from dataclasses import dataclass

_NARROWEST, _WIDEST, _WIDEST_PAIR = 2, 64, 32


class Overflow(enum.Enum):
    """What a full register does."""

    WRAP = "wrap"
    SATURATE = "saturate"


class Saturates(enum.Enum):
    """When a saturating register is clamped: once, to the whole sum (END), or after every product (EACH)."""

    END = "end"
    EACH = "each"


@dataclass(frozen=True, slots=True, kw_only=True)
class SumShape:
    """What engines choose a kernel of their own by.

    Args:
        depthwise: a convolution with one filter a channel.
        fast_depthwise: one that FBGEMM's depthwise kernels take (``takeDepthWiseFastPath``).
    """

    depthwise: bool = False
    fast_depthwise: bool = False


class PairsIn(enum.Enum):
    """Which sums neighbouring products are summed in pairs for.

    DENSE: all but depthwise ones (ONNX Runtime). DEPTHWISE: those. FAST_DEPTHWISE: those of FBGEMM's depthwise kernels.
    ALL.
    """

    DENSE = "dense"
    DEPTHWISE = "depthwise"
    FAST_DEPTHWISE = "fast_depthwise"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulator:
    """Where products are summed.

    Args:
        bits: width of the register, 2 to 64.
        overflow: when a sum does not fit it.
        pair_bits: two neighbours' products are first summed in so many bits (2 to 32), saturating; 0: they are not.
            Neighbours lie along the window, rows first, channels fastest; of an odd number the last stands alone.
        pairs_in: the sums that do so.
        saturates: when sums are clamped. EACH: acc ← clamp(acc + (x − z_x)(w − z_w)), one product after another from 0,
            in the order of pairs; a bias comes last. A zero point that comes with the batch is corrected for behind
            them, as whole sums.

    Raises:
        ValueError: a width that no register here has; steps that wrap, or whose products are summed in pairs.
    """

    bits: int = 32
    overflow: Overflow = Overflow.WRAP
    pair_bits: int = 0
    pairs_in: PairsIn = PairsIn.ALL
    saturates: Saturates = Saturates.END

    def __post_init__(self) -> None:
        if not _NARROWEST <= self.bits <= _WIDEST:
            raise ValueError(f"an accumulator has {_NARROWEST} to {_WIDEST} bits, not {self.bits}")
        if self.pair_bits and not _NARROWEST <= self.pair_bits <= _WIDEST_PAIR:
            raise ValueError(f"'pair_bits' is 0 or {_NARROWEST} to {_WIDEST_PAIR}, not {self.pair_bits}")
        if self.saturates is Saturates.EACH and self.overflow is not Overflow.SATURATE:
            raise ValueError("'saturates' is of registers whose 'overflow' saturates")
        if self.saturates is Saturates.EACH and self.pair_bits:
            raise ValueError("a register that saturates at each product sums no pairs: 'pair_bits' is 0")

    def by_steps(self, largest: int) -> bool:
        """Whether sums that do not exceed ``largest`` in magnitude depend on the order of their products."""
        return self.saturates is Saturates.EACH and largest >= 1 << (self.bits - 1)

    def pairs(self, shape: SumShape) -> int:
        """``pair_bits`` of such a sum."""
        match self.pairs_in:
            case PairsIn.DENSE:
                paired = not shape.depthwise
            case PairsIn.DEPTHWISE:
                paired = shape.depthwise
            case PairsIn.FAST_DEPTHWISE:
                paired = shape.fast_depthwise
            case PairsIn.ALL:
                paired = True
        return self.pair_bits if paired else 0
