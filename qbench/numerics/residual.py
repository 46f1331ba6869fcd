"""A sum whose first operand is a product that was not rounded: OpenVINO fuses it into the
convolution.

    c = clamp(fma(v, F · o, G · o + p), p, 255 · o + p)        v, F, G: of the product as RANGE has
    it y = rne(fma(c + r, F', G'))                               r: codes of the other operand

o and p bring codes of the product to the scale and the zero point of the other operand: o = s_c /
s_r, p = (lowest − z_c − s_r · z_r / s_c) · o. F' and G' are those of the sum's range divided by
s_r. All in float32. Where the codes of the sum go to another operator on codes and G' is 0, F' is
f32(1 / f32(1 / F')), as of a product.
Source: OpenVINO 2026.4, FakeQuantize fused without rounding (measured, bit for bit).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qbench.numerics.multiplier import (
    FloatSteps,
    Onward,
    Ranges,
    Scales,
    Single,
    between,
    range_steps,
    twice_inverted,
    without_negligible,
)
from qbench.numerics.qparams import QParams
from qbench.numerics.rounding import Ints, fused_multiply_add


@dataclass(frozen=True, slots=True, eq=False)
class ResidualSteps:
    """The float32 numbers by which a product joins a sum; arrays are one per column.

    Args:
        product: the steps of the product by itself.
        factor, offset, low, high: to the scale of the other operand, and where it is clamped there.
        last_factor, last_offset: from the sum to codes of the result.
    """

    product: FloatSteps
    factor: Single
    offset: Single
    low: np.float32
    high: np.float32
    last_factor: Single
    last_offset: Single

    def codes(self, sums: Ints, other: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
        """Accumulators (…, N) and codes of the other operand, alike in shape → rounded codes,
        not yet clamped.
        """
        real = (
            np.multiply(sums.astype(np.float32), self.product.first, dtype=np.float32)
            + self.product.bias
        )
        joined = np.clip(fused_multiply_add(real, self.factor, self.offset), self.low, self.high)
        total = np.asarray(joined + other.astype(np.float32), np.float32)
        return np.rint(fused_multiply_add(total, self.last_factor, self.last_offset))


def residual_steps(
    scales: Scales,
    bias: Ints | None,
    ranges: Ranges,
    qparams: tuple[QParams, QParams, QParams],
    *,
    onward: Onward = Onward.REALS,
) -> ResidualSteps:
    """The steps of one convolution and the sum behind it.

    Args:
        scales: of input, weight (a number, or one per column) and output of the convolution.
        bias: one per column at s_x · s_w, or None.
        ranges: of the convolution.
        qparams: of its result, of the other operand, of the sum; all of one type of 8 bits.
        onward: where the codes of the sum go.
    """
    own, other, result = qparams
    span, lowest = ranges.span, np.float32(ranges.low)
    product = range_steps(scales, bias, ranges, int(own.zero_point))
    mine, theirs = (
        np.float32(Ranges.of(one, one.qtype, signed=ranges.signed).input_scale)
        for one in (own, other)
    )
    ratio = np.float32(mine / theirs)
    zero = np.float32(
        np.float32(own.zero_point) + np.float32(theirs * np.float32(other.zero_point)) / mine
    )
    low, high = (np.float32((end - zero) * ratio) for end in (lowest, lowest + span))
    each = np.float32((high - low) / span)
    ends = (np.float32(0 * each + low), np.float32(span * each + low))
    offset = np.asarray(np.asarray(product.second * each, np.float32) + low, np.float32)
    reals = [
        np.float32(result.scale) * np.float32(end - int(result.zero_point))
        for end in (ranges.low, ranges.high)
    ]
    last_low, last_high = (np.asarray(real / theirs, np.float32) for real in reals)
    factor, shift = between(last_low, last_high, span)
    shift = without_negligible(np.asarray(shift + lowest, np.float32), span)
    factor = twice_inverted(factor) if onward is Onward.CODES and not shift else factor
    return ResidualSteps(
        product=product,
        factor=np.asarray(product.multiplier * each, np.float32),
        offset=without_negligible(offset, np.float32(ends[1] - ends[0])),
        low=ends[0],
        high=ends[1],
        last_factor=factor,
        last_offset=shift,
    )
