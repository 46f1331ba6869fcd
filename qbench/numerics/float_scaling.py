"""From accumulators to real numbers on the output's scale, as machines do it that multiply in floats.

    FLOAT32, FLOAT64    v = f(acc) · f(M)
    CHAIN               v = ((f32(acc) · s_x · s_w) + b) · f32(1 / s_y), rounded to float32 after every step

A bias that stays a real number b = f32(B · s), s = f32(s_x · s_w), joins a FLOAT32 machine's sums before the product:
as f32(acc) + f32(b / s) where scales are per channel, and by one fused step, f32(acc + b · f32(1 / s)), where there is
one scale (FBGEMM, requantizeOutputProcessingAvx2, whose product and sum the compiler fuses). oneDNN adds b itself.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError
from qbench.numerics.multiplier import Scales, real_multiplier
from qbench.numerics.multiply_add import fused_multiply_add
from qbench.numerics.rounding import Ints, Reals
from qbench.numerics.scaling import Inverted, MultiplierForm, Scaling, ZeroPoint

Single = npt.NDArray[np.float32]
_ONE = np.float32(1)


class FloatOrder(enum.Enum):
    """What is done to a sum f(acc) before it is multiplied for the last time.

    BARE: nothing. ADDED: + bias. FUSED: fma(bias, first, f(acc)). SCALED: · first · second + bias.
    """

    BARE = "bare"
    ADDED = "added"
    FUSED = "fused"
    SCALED = "scaled"


@dataclass(frozen=True, slots=True, eq=False)
class FloatSteps:
    """The numbers by which a machine of floats scales the sums of one node; every array broadcasts against them.

    Args:
        order: what is done first.
        multiplier: the last factor; its dtype is the one that all is computed in.
        bias, first, second: as ``order`` says.
    """

    order: FloatOrder
    multiplier: Reals
    bias: Single = field(default_factory=lambda: np.zeros((), np.float32))
    first: Single = field(default_factory=lambda: np.ones((), np.float32))
    second: Single = field(default_factory=lambda: np.ones((), np.float32))

    def reals(self, sums: Ints) -> Reals:
        """``sums`` on the output's scale, without its zero point."""
        dtype = self.multiplier.dtype
        values = sums.astype(dtype)
        match self.order:
            case FloatOrder.ADDED:
                values = values + self.bias
            case FloatOrder.FUSED:
                values = fused_multiply_add(self.bias, self.first, values)
            case FloatOrder.SCALED:
                values = np.multiply(values, self.first, dtype=dtype)
                values = np.multiply(values, self.second, dtype=dtype) + self.bias
        return np.asarray(np.multiply(values, self.multiplier, dtype=dtype))


def real_levels(
    scales: Scales,
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
    steps = float_steps(scales, scaling, bias)
    if scaling.zero_point is ZeroPoint.AFTER:
        return steps.reals
    return lambda sums: _with_offset(steps.reals(sums), zero_point)


def float_steps(scales: Scales, scaling: Scaling, bias: Ints | None) -> FloatSteps:
    """The steps of ``scaling``; arguments as of ``real_levels``.

    Raises:
        InputError: a multiplier, a reciprocal or a bias beyond its float's largest number.
    """
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        steps = (
            _chain(scales, scaling, bias) if scaling.form is MultiplierForm.CHAIN else _product(scales, scaling, bias)
        )
    if not all(np.isfinite(part).all() for part in (steps.multiplier, steps.bias, steps.first, steps.second)):
        raise InputError(
            "Bringing scales to the floats that a machine multiplies by",
            found="scales of which one, a product, a reciprocal or a bias leaves them",
            expected=f"finite numbers of {steps.multiplier.dtype}",
            remedy="Choose other scales, or another arithmetic.",
        )
    return steps


def _product(scales: Scales, scaling: Scaling, bias: Ints | None) -> FloatSteps:
    dtype: np.dtype[Any] = np.dtype(np.float32 if scaling.form is MultiplierForm.FLOAT32 else np.float64)
    multiplier = real_multiplier(scales, scaling.precision).astype(dtype)
    if bias is None:
        return FloatSteps(FloatOrder.BARE, multiplier)
    scale = _scale(scales)
    real = _real_bias(bias, scale)
    if np.ndim(scales[1]):
        return FloatSteps(FloatOrder.ADDED, multiplier, np.divide(real, scale, dtype=np.float32))
    return FloatSteps(FloatOrder.FUSED, multiplier, real, np.divide(_ONE, scale, dtype=np.float32))


def _with_offset(values: Reals, zero_point: int) -> Reals:
    return np.asarray(values + values.dtype.type(zero_point), values.dtype)


def _chain(scales: Scales, scaling: Scaling, bias: Ints | None) -> FloatSteps:
    x, w, y = (np.asarray(scale, np.float32) for scale in scales)
    real = np.zeros((), np.float32) if bias is None else _real_bias(bias, _scale(scales))
    x = x if scaling.inverted is Inverted.NONE else _twice_inverted(x)
    w = _twice_inverted(w) if scaling.inverted is Inverted.BOTH else w
    return FloatSteps(FloatOrder.SCALED, np.divide(_ONE, y, dtype=np.float32), real, x, w)


def _scale(scales: Scales) -> Single:
    return np.multiply(np.asarray(scales[0], np.float32), np.asarray(scales[1], np.float32), dtype=np.float32)


def _real_bias(bias: Ints, scale: Single) -> Single:
    """The float32 number that ``bias`` levels at ``scale`` stand for."""
    return np.asarray(bias.astype(np.float64) * scale, np.float32)


def _twice_inverted(scale: Single) -> Single:
    return np.asarray(np.divide(_ONE, np.divide(_ONE, scale, dtype=np.float32), dtype=np.float32))
