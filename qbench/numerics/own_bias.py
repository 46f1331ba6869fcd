"""A bias at a scale of its own: accumulators and bias are brought to one scale, and added there.

    s    = min(s_x·s_w, s_b), or s_b where the graph rounds the product to the bias's scale
    sum  = wrap(r(acc, s_x·s_w → s) + r(q_b, s_b → s))
           both r and the sum in the accumulator's register
    code = clamp(round(sum · s / s_y) + z_y)

r is what the arithmetic multiplies by everywhere: of a ratio 2ⁿ a shift to the left, which drops
the bits on top; of 2⁻ⁿ one to the right, rounded; of any other ratio its fixed multiplier. Source:
TVM v0.8, src/relay/quantize/realize.cc: ChooseDomScale takes the smaller scale of both operands of
an AddRealize, UnifyDTypeScale brings both to it in int32 (``dtype_activation``) by MulAndDiv:
left_shift, or FixedPointMultiply where the ratio is no power of two. An int32 left_shift of TVM is
LLVM's shl, which wraps.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qbench.numerics.accumulator import held
from qbench.numerics.arithmetic import Arithmetic
from qbench.numerics.requantization import scaler
from qbench.numerics.rounding import Ints

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class OwnBias:
    """The scales at which a product and its bias meet, one per column or one for all.

    Args:
        product: s_x · s_w, a float32 product.
        bias: s_b.
        at: the scale of their sum.
    """

    product: Floats
    bias: Floats
    at: Floats

    @classmethod
    def of(
        cls, x_scale: npt.ArrayLike, weight: npt.ArrayLike, bias: npt.ArrayLike, *, ruled: bool
    ) -> "OwnBias":
        """Of the scales of data, weight and bias; ``ruled``: the product is rounded to the
        bias's scale.
        """
        product = np.multiply(
            np.asarray(x_scale, np.float32), np.asarray(weight, np.float32), dtype=np.float32
        )
        wide, own = np.broadcast_arrays(product.astype(np.float64), np.asarray(bias, np.float64))
        return cls(np.array(wide), np.array(own), np.array(own if ruled else np.minimum(wide, own)))

    @property
    def on_product(self) -> bool:
        """Whether every sum stays at the scale of its product."""
        return bool(np.array_equal(self.at, self.product))

    def bias_codes(self, codes: Ints, arithmetic: Arithmetic) -> Ints:
        """The bias at the scale of the sum, in the accumulator's register.

        Raises:
            InputError: a ratio of scales that the arithmetic does not hold.
        """
        return _brought(self.bias, self.at, arithmetic)(codes)

    def sums(self, arithmetic: Arithmetic) -> Callable[[Ints], Ints]:
        """What brings accumulators (…, N) to the scale of the sum, in their register.

        Raises:
            InputError: a ratio of scales that the arithmetic does not hold.
        """
        return _brought(self.product, self.at, arithmetic)

    def beyond(self, sums: Ints, arithmetic: Arithmetic) -> npt.NDArray[np.bool_]:
        """Which accumulators leave the register on the way to the scale of the sum."""
        half = 2.0 ** (arithmetic.accumulator.bits - 1)
        reals = np.rint(sums * (self.product / self.at))
        return np.asarray((reals < -half) | (reals >= half))


def _brought(old: Floats, new: Floats, arithmetic: Arithmetic) -> Callable[[Ints], Ints]:
    bring = scaler((old, 1.0, new), arithmetic.scaling)
    return lambda codes: held(bring(codes), arithmetic.accumulator)
