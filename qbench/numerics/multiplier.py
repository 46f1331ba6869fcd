"""The real multiplier M = s_x · s_w / s_y in the forms that machines hold it in.

FIXED   M ≈ m · 2^(e − bits), M = f · 2^e with ½ ≤ f < 1, m = round_half_away(f · 2^bits)   gemmlowp, QuantizeMultiplier
        0 where bits − e > 62: of 31 bits, where M < 2^−32
FRACTION M ≈ m · 2^−bits, m = round_half_even(M · 2^bits)                                     XNNPACK's conversions
SHORT   M ≈ m · 2^−(pre + post): doubled while M < ½ or (M < 256 and post < 15), then, pre growing, while M < 255 and
        pre < post // 2; m = round_half_away(M). A power of two is a shift alone.       Glow, quantizeScaleOffset32To8
POWER   M = 2^−shift exactly
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError
from qbench.numerics.rounding import Ints, Rounding
from qbench.numerics.scaling import WIDEST_FACTOR, MultiplierForm, Precision, Scaling

Floats = npt.NDArray[np.float64]
Scales = tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]
"""Of input, weight and output."""
LONGEST_SHIFT, LONGEST_LEFT_SHIFT = 62, 31


@dataclass(frozen=True, slots=True)
class Fixed:
    """M ≈ ``factor`` · 2^−``shift``, one pair a channel; a negative ``shift`` shifts left before the product."""

    factor: Ints
    shift: Ints


@dataclass(frozen=True, slots=True)
class Short:
    """M ≈ ``factor`` · 2^−(``pre`` + ``post``), one triple a channel."""

    pre: Ints
    factor: Ints
    post: Ints


def real_multiplier(scales: Scales, precision: Precision) -> Floats:
    """s_x · s_w / s_y computed in ``precision``, as float64; of the shape of the weight's scales.

    Raises:
        InputError: it is beyond that precision's largest number.
    """
    with np.errstate(over="ignore", divide="ignore"):
        found = _real(scales, precision)
    if not np.isfinite(found).all():
        raise _beyond(found[~np.isfinite(found)], "a finite number")
    return found


def _real(scales: Scales, precision: Precision) -> Floats:
    if precision is Precision.DOUBLE:
        x, w, y = (np.asarray(scale, np.float64) for scale in scales)
        return np.asarray(x * w / y)
    x32, w32, y32 = (np.asarray(scale, np.float32) for scale in scales)
    product = np.asarray(x32 * w32, np.float32)
    if precision is Precision.PRODUCT:
        return np.asarray(product.astype(np.float64) / y32.astype(np.float64))
    if precision is Precision.RECIPROCAL:
        return np.asarray(product * (np.float32(1) / y32), np.float32).astype(np.float64)
    return np.asarray(product / y32, np.float32).astype(np.float64)


def exact_multipliers(scales: Scales) -> npt.NDArray[np.object_]:
    """s_x · s_w / s_y as rationals, of the scales at the precision given and of the shape they broadcast to."""
    x, w, y = np.broadcast_arrays(*(np.asarray(scale, np.float64) for scale in scales))
    exact = [
        Fraction(a) * Fraction(b) / Fraction(c)
        for a, b, c in zip(*(p.reshape(-1).tolist() for p in (x, w, y)), strict=True)
    ]
    return np.array(exact, object).reshape(x.shape)


def fixed_multiplier(multiplier: Floats, scaling: Scaling) -> Fixed:
    """``multiplier`` as ``scaling`` (FIXED, FRACTION or POWER) holds it.

    Raises:
        InputError: it needs a shift that no 64-bit product has, or is no power of two where only shifts are.
    """
    fraction, exponent = np.frexp(multiplier)
    match scaling.form:
        case MultiplierForm.POWER:
            if (fraction != 0.5).any():
                raise _beyond(multiplier[fraction != 0.5], "a power of two")
            factor, shift = np.ones_like(exponent, np.int64), 1 - exponent.astype(np.int64)
        case MultiplierForm.FRACTION:
            rounded = np.rint(np.ldexp(multiplier, scaling.bits))
            lost = ~((rounded >= 1) & (rounded < 1 << WIDEST_FACTOR))
            if lost.any():
                raise _beyond(multiplier[lost], f"one of 1 … 2^{WIDEST_FACTOR} steps of 2^−{scaling.bits}")
            factor, shift = rounded.astype(np.int64), np.full_like(exponent, scaling.bits, np.int64)
        case _:
            factor = np.floor(np.ldexp(fraction, scaling.bits) + 0.5).astype(np.int64)
            carried = factor == 1 << scaling.bits
            factor = np.where(carried, factor >> 1, factor)
            shift = scaling.bits - (exponent.astype(np.int64) + carried)
            # TFLite's QuantizeMultiplier makes 0 of what needs a longer shift. Sums times so little round to 0 anyway,
            # unless a stage rounds down.
            if all(stage.rounding is not Rounding.FLOOR for stage in scaling.stages):
                factor, shift = np.where(shift > LONGEST_SHIFT, 0, factor), np.minimum(shift, LONGEST_SHIFT)
    beyond = (shift > LONGEST_SHIFT) | (shift < -LONGEST_LEFT_SHIFT)
    if beyond.any():
        raise _beyond(multiplier[beyond], "one that shifts within 64 bits reach")
    return Fixed(factor, shift)


def folded_multiplier(fixed: Fixed, counts: npt.ArrayLike) -> Fixed:
    """``fixed`` divided by ``counts`` (≥ 1), truncated: m' = (m · 2^k) // n, k = min(⌊log₂ n⌋, 32, 62 − shift).

    So TFLite's MEAN makes one multiplier of the scales and the number of elements (kernels/reduce.cc).
    """
    count = np.asarray(counts, np.int64)
    _, length = np.frexp(count.astype(np.float64))
    more = np.clip(np.minimum(length.astype(np.int64) - 1, LONGEST_SHIFT - fixed.shift), 0, 32)
    return Fixed((fixed.factor << more) // count, fixed.shift + more)


def short_multiplier(multiplier: Floats) -> Short:
    """``multiplier`` in Glow's form, from its float32 value.

    Raises:
        InputError: it needs a shift beyond an int32, or a factor.
    """
    if not (np.isfinite(multiplier).all() and (multiplier.astype(np.float32) > 0).all()):
        raise _beyond(multiplier, "positive float32 numbers")
    if (multiplier >= 2.0**WIDEST_FACTOR).any():
        raise _beyond(multiplier[multiplier >= 2.0**WIDEST_FACTOR], f"one below 2^{WIDEST_FACTOR}")
    triples = [_short(float(np.float32(one))) for one in multiplier.reshape(-1)]
    pre, factor, post = (np.array(part, np.int64).reshape(multiplier.shape) for part in zip(*triples, strict=True))
    if (post > 31).any():
        raise _beyond(multiplier[post > 31], "one whose shift an int32 has")
    return Short(pre, factor, post)


def _short(scale: float) -> tuple[int, int, int]:
    fraction, exponent = np.frexp(scale)
    if fraction == 0.5:
        power = int(exponent) - 1
        return (0, 1 << power, 0) if power > 0 else (0, 1, -power)
    pre = post = 0
    while scale < 0.5 or (scale < 256 and post < 15):
        scale, post = scale * 2, post + 1
    while scale < 255 and pre < post // 2:
        scale, pre = scale * 2, pre + 1
    return pre, int(np.floor(scale + 0.5)), post


def _beyond(multipliers: Floats, expected: str) -> InputError:
    return InputError(
        "Bringing a multiplier to the form that a machine holds it in",
        found=f"{float(multipliers.reshape(-1)[0])!r}",
        expected=expected,
        remedy="Choose other scales, or another arithmetic.",
    )
