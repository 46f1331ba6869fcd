"""What a register of some width keeps of a whole number: all of it, its low bits, or the nearest that it can hold."""

import numpy as np

from qbench.numerics.accumulation import Accumulator, Overflow
from qbench.numerics.rounding import Ints


def held(sums: Ints, accumulator: Accumulator) -> Ints:
    """``sums`` as a register of the accumulator's width holds them."""
    return in_bits(sums, accumulator.bits, accumulator.overflow)


def in_bits(values: Ints, bits: int, overflow: Overflow) -> Ints:
    """``values`` as a register of ``bits`` (1 … 64) holds them."""
    half = 1 << (bits - 1)
    if overflow is Overflow.SATURATE:
        return np.clip(values, -half, half - 1)
    return values if bits >= 64 else ((values + half) & ((1 << bits) - 1)) - half
