"""From accumulators to real numbers on the output's scale, as machines do it that multiply in floats.

    FLOAT32, FLOAT64    v = f(acc) · f(M)
    CHAIN               v = ((f32(acc) · s_x · s_w) + b) · f32(1 / s_y), rounded to float32 after every step

A bias that stays a real number b = f32(B · s), s = f32(s_x · s_w), joins a FLOAT32 machine's sums before the product:
as f32(acc) + f32(b / s) where scales are per channel, and by one fused step, f32(acc + b · f32(1 / s)), where there is
one scale (FBGEMM, requantizeOutputProcessingAvx2, whose product and sum the compiler fuses). oneDNN adds b itself.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.numerics.multiplier import real_multiplier
from qbench.numerics.multiply_add import fused_multiply_add
from qbench.numerics.rounding import Ints, Reals
from qbench.numerics.scaling import Inverted, MultiplierForm, Scaling, ZeroPoint

Single = npt.NDArray[np.float32]
_ONE = np.float32(1)


def real_levels(
    scales: tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike],
    scaling: Scaling,
    zero_point: int,
    bias: Ints | None,
) -> Callable[[Ints], Reals]:
    """Accumulators (int64) → what is rounded, with the zero point in it where that joins before.

    Args:
        scales: of input, weight (a number, or an array that broadcasts) and output.
        scaling: FLOAT32, FLOAT64 or CHAIN.
        zero_point: of the output.
        bias: integers at s_x · s_w that stay a real number; broadcasts.
    """
    made = _chain if scaling.form is MultiplierForm.CHAIN else _product
    reals = made(scales, scaling, bias)
    if scaling.zero_point is ZeroPoint.AFTER:
        return reals
    return lambda sums: _with_offset(reals(sums), zero_point)


def _with_offset(values: Reals, zero_point: int) -> Reals:
    return np.asarray(values + values.dtype.type(zero_point), values.dtype)


def _product(
    scales: tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike], scaling: Scaling, bias: Ints | None
) -> Callable[[Ints], Reals]:
    dtype: np.dtype[Any] = np.dtype(np.float32 if scaling.form is MultiplierForm.FLOAT32 else np.float64)
    multiplier = real_multiplier(scales, scaling.precision).astype(dtype)
    if bias is None:
        return lambda sums: np.multiply(sums.astype(dtype), multiplier, dtype=dtype)
    scale = _scale(scales)
    real = _real_bias(bias, scale)
    if np.ndim(scales[1]):
        added = np.divide(real, scale, dtype=np.float32)
        return lambda sums: np.multiply(sums.astype(np.float32) + added, multiplier, dtype=np.float32)
    inverse = np.divide(_ONE, scale, dtype=np.float32)

    def reals(sums: Ints) -> Reals:
        return np.asarray(np.multiply(fused_multiply_add(real, inverse, sums), multiplier, dtype=np.float32))

    return reals


def _chain(
    scales: tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike], scaling: Scaling, bias: Ints | None
) -> Callable[[Ints], Single]:
    x, w, y = (np.asarray(scale, np.float32) for scale in scales)
    real = None if bias is None else _real_bias(bias, _scale(scales))
    x = x if scaling.inverted is Inverted.NONE else _twice_inverted(x)
    w = _twice_inverted(w) if scaling.inverted is Inverted.BOTH else w
    inverse = np.divide(_ONE, y, dtype=np.float32)

    def reals(sums: Ints) -> Single:
        values = np.multiply(np.multiply(sums.astype(np.float32), x, dtype=np.float32), w, dtype=np.float32)
        joined = values if real is None else values + real
        return np.asarray(np.multiply(joined, inverse, dtype=np.float32))

    return reals


def _scale(scales: tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]) -> Single:
    return np.multiply(np.asarray(scales[0], np.float32), np.asarray(scales[1], np.float32), dtype=np.float32)


def _real_bias(bias: Ints, scale: Single) -> Single:
    """The float32 number that ``bias`` levels at ``scale`` stand for."""
    return np.asarray(bias.astype(np.float64) * scale, np.float32)


def _twice_inverted(scale: Single) -> Single:
    return np.divide(_ONE, np.divide(_ONE, scale, dtype=np.float32), dtype=np.float32)
