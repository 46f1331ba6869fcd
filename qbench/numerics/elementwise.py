"""Sum, difference and quotient of two quantized arrays, as any engine computes them."""

from __future__ import annotations  # help() shows npt.ArrayLike, and not the union behind it

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.numerics.affine import dequantize, quantize
from qbench.numerics.arithmetic import AddScheme, Arithmetic, MultiplierForm, arithmetic_for
from qbench.numerics.qparams import QParams
from qbench.numerics.requantization import (
    QParamsOfThree,
    centred,
    clamped,
    operands,
    refused,
    require_per_tensor,
    scaler,
)
from qbench.numerics.rounding import (
    WIDEST,
    Ints,
    Rounding,
    Single,
    fused_multiply_add,
    half_even_quotients,
    round_reals,
    separate_multiply_add,
    shift_right,
    whole_codes,
)

# Sums and differences of codes with different qparams by integers: y ≈ z_y + (s_a c_a ± s_b c_b) /
# s_y, c = q − z.
#
#     EXACT       round((A c_a ± B c_b) / D), A : B : D = s_a : s_b : s_y in whole numbers, half to
#                 even
#     HEADROOM    r(r_o(2ʰ c_a) ± r_o(2ʰ c_b)), r_o to t = 2 · max(s_a, s_b), r from 2⁻ʰ t to s_y;
#                 h = 20, of 16 bits 15
#     WEIGHTED    (m_a c_a ± m_b c_b) >> n, m = rne(s / s_y · 2ⁿ), n so that the larger m has
#                 ``bits`` bits
#     EACH        r(c_a) ± r(c_b), each at the output's scale
#     FINEST      r(r'(c_a) ± r'(c_b)), r' to the smaller scale
#
# A second operand is negated behind its rounding, so that what rounds half up is not mirrored.
# Sources: TFLite kernels/add.cc and sub.cc (left_shift), XNNPACK and QNNPACK operators/add
# (weights, and the ratios that they take).

_BYTE, _WORD = 8, 16
_HEADROOM, _HEADROOM_OF_WORDS = 20, 15
_HIGHEST_POWER = 8


def exact_sum(a: Ints, b: Ints, qparams: QParamsOfThree, sign: int) -> Ints:
    """``a`` ± ``b``, centred codes of any width, rounded once; cut to ±2⁴⁰, beyond every code."""
    scales = [Fraction(float(one.scale)) for one in qparams]
    ratios = [scale / scales[2] for scale in scales[:2]]
    down = math.lcm(*(ratio.denominator for ratio in ratios))
    left, right = (int(ratio * down) for ratio in ratios)
    # Whole numbers of any length are vectors of Python's where int64 has no room for the sum, or
    # for twice the rest.
    reach = left * max(_largest(a), 1) + right * max(_largest(b), 1)
    counting = np.int64 if max(reach, 2 * down) < 1 << 62 else object
    sums = a.astype(counting) * left + sign * right * b.astype(counting)
    codes = half_even_quotients(np.asarray(sums, counting), np.asarray(down, counting))
    limit = int(WIDEST)
    return np.asarray(np.clip(codes, -limit, limit)).astype(np.int64) + int(qparams[2].zero_point)


def integer_sum(
    a: Ints, b: Ints, qparams: QParamsOfThree, arithmetic: Arithmetic, sign: int
) -> Ints:
    """``a`` ± ``b``, centred codes, by the arithmetic's HEADROOM, WEIGHTED, EACH or FINEST.

    Raises:
        InputError: codes so wide that a product of 64 bits has no room for them, or scales that the
            arithmetic does not bring together.
    """
    bits = max(one.qtype.bits for one in qparams[:2])
    if bits > _WORD:
        raise refused(f"operands of {bits} bits", f"up to {_WORD}")
    if arithmetic.adding.scheme is AddScheme.WEIGHTED:
        return _weighted(a, b, qparams, arithmetic, sign)
    left, right, out = (float(one.scale) for one in qparams)
    first, up = arithmetic.scaling, 0
    match arithmetic.adding.scheme:
        case AddScheme.HEADROOM:
            middle, up = 2 * max(left, right), _HEADROOM if bits <= _BYTE else _HEADROOM_OF_WORDS
            first = arithmetic.adding.operands or arithmetic.scaling
        case AddScheme.FINEST:
            middle = min(left, right)
        case _:
            middle = out
    sums = scaler((left, 1.0, middle), first)(a << up) + sign * scaler((right, 1.0, middle), first)(
        b << up
    )
    if arithmetic.adding.scheme is AddScheme.EACH:
        return sums + int(qparams[2].zero_point)
    return scaler((middle, 2.0**-up, out), arithmetic.scaling, int(qparams[2].zero_point))(sums)


def _weighted(a: Ints, b: Ints, qparams: QParamsOfThree, arithmetic: Arithmetic, sign: int) -> Ints:
    adding = arithmetic.adding
    with np.errstate(over="ignore", under="ignore"):
        ratios = [float(one.scale / qparams[2].scale) for one in qparams[:2]]
    for ratio in ratios:
        if not 2.0**adding.least_power <= ratio < 2.0**_HIGHEST_POWER:
            expected = f"a ratio in [2^{adding.least_power}, 2^{_HIGHEST_POWER})"
            raise refused(f"a scale that is {ratio:g} times the result's", expected)
    _, exponent = np.frexp(max(ratios))
    shift = adding.bits - int(exponent)
    left, right = (int(np.rint(np.ldexp(ratio, shift))) for ratio in ratios)
    return shift_right(left * a + sign * right * b, shift, adding.rounding) + int(
        qparams[2].zero_point
    )


def _largest(codes: Ints) -> int:
    return max(-int(codes.min(initial=0)), int(codes.max(initial=0)))


# Sums of codes with different qparams in float32, by an engine's own order of steps; r = s / s_y, c
# = q − z.
#
#     FUSED       rne(fma(a, r_a, fma(b, r_b, F))), F = z_y − fma(r_a, z_a, r_b · z_b)
#     SEPARATE    rne(b · r_b + (a · r_a + F)), F = z_y − (r_a · z_a + r_b · z_b), every step
#                 rounded
#     REAL        rne(f32(f_a + f_b) · f32(1 / s_y)) + z_y, f = fma(s, q, −f32(s · z))
#     STEPS       rha((rha(c_a · s_a / 2⁻¹⁵) + rha(c_b · s_b / 2⁻¹⁵)) · 2⁻¹⁵ / s_y + z_y);
#                 a difference has no such step: rha(r_a · c_a − r_b · c_b + z_y)
#
# Sources: ONNX Runtime's MLAS qladd, PyTorch's vectorized add, Glow's interpreter.

_FIXED_STEP = 2.0**-15
_LARGEST = 2.0**100
"""Of scales and their ratios: products with codes of 16 bits stay numbers that can be
subtracted.
"""


def float_sum(a: Ints, b: Ints, qparams: QParamsOfThree, arithmetic: Arithmetic) -> Ints:
    """``a`` + ``b``, codes, by the arithmetic's FUSED, SEPARATE, REAL or STEPS; not yet clamped.

    Raises:
        InputError: scales whose sums leave float32.
    """
    require_float_scales(qparams)
    match arithmetic.adding.scheme:
        case AddScheme.FUSED:
            real = _fused(a, b, qparams)
        case AddScheme.SEPARATE:
            real = _separate(a, b, qparams)
        case AddScheme.REAL:
            return whole_codes(_real(a, b, qparams), Rounding.HALF_EVEN) + int(
                qparams[2].zero_point
            )
        case _:
            return whole_codes(_on_fixed_steps(a, b, qparams), Rounding.HALF_AWAY)
    return whole_codes(real, Rounding.HALF_EVEN)


def float_difference(a: Ints, b: Ints, qparams: QParamsOfThree) -> Ints:
    """``a`` − ``b``, codes, as STEPS has it; not yet clamped.

    Raises:
        InputError: scales whose sums leave float32.
    """
    require_float_scales(qparams)
    left, right = (
        centred(codes, one).astype(np.float32) * ratio
        for codes, one, ratio in zip((a, b), qparams, _ratios(qparams), strict=False)
    )
    return whole_codes(_single(left - right + _zero_points(qparams)[2]), Rounding.HALF_AWAY)


def require_float_scales(qparams: QParamsOfThree) -> None:
    """Refuse scales whose sums leave float32.

    Raises:
        InputError: these do.
    """
    left, right, out = (float(one.scale) for one in qparams)
    largest, highest = max(left, right), float(np.finfo(np.float32).max)
    if largest >= _LARGEST or largest / out >= _LARGEST or 1 / out > highest:
        raise refused(
            f"scales {left:g}, {right:g} and {out:g}",
            "scales whose sums float32 holds: below 2^100, and so their ratios to the result's",
        )


def _fused(a: Ints, b: Ints, qparams: QParamsOfThree) -> Single:
    (ratio_a, ratio_b), (za, zb, zy) = _ratios(qparams), _zero_points(qparams)
    constant = zy - fused_multiply_add(ratio_a, za, ratio_b * zb)
    return fused_multiply_add(a, ratio_a, fused_multiply_add(b, ratio_b, constant))


def _separate(a: Ints, b: Ints, qparams: QParamsOfThree) -> Single:
    (ratio_a, ratio_b), (za, zb, zy) = _ratios(qparams), _zero_points(qparams)
    constant = zy - separate_multiply_add(ratio_a, za, ratio_b * zb)
    return separate_multiply_add(b, ratio_b, separate_multiply_add(a, ratio_a, constant))


def _real(a: Ints, b: Ints, qparams: QParamsOfThree) -> Single:
    parts = []
    for codes, one in zip((a, b), qparams, strict=False):
        scale = np.float32(one.scale)
        parts.append(fused_multiply_add(codes, scale, -(scale * np.float32(one.zero_point))))
    with np.errstate(over="ignore"):  # what leaves a float is clamped like every code out of range
        return _single((parts[0] + parts[1]) * (np.float32(1) / np.float32(qparams[2].scale)))


def _on_fixed_steps(a: Ints, b: Ints, qparams: QParamsOfThree) -> Single:
    # Whole numbers in float64: exact as an int64 is, up to 2⁵³, and no end of the range beyond.
    left, right = (
        round_reals(
            _single(
                centred(codes, one).astype(np.float32)
                * np.float32(one.scale / np.float32(_FIXED_STEP))
            ),
            Rounding.HALF_AWAY,
        ).astype(np.float64)
        for codes, one in zip((a, b), qparams, strict=False)
    )
    total = _single(left + right)
    return _single(
        total * np.float32(np.float32(_FIXED_STEP) / qparams[2].scale)
        + np.float32(qparams[2].zero_point)
    )


def _ratios(qparams: QParamsOfThree) -> tuple[np.float32, np.float32]:
    left, right = (np.float32(one.scale / qparams[2].scale) for one in qparams[:2])
    return left, right


def _zero_points(qparams: QParamsOfThree) -> list[np.float32]:
    return [np.float32(one.zero_point) for one in qparams]


def _single(values: npt.ArrayLike) -> Single:
    return np.asarray(values, np.float32)


# Adding two quantized arrays, under any arithmetic: y ≈ z_y + (s_a (a − z_a) + s_b (b − z_b)) /
# s_y.
#
# The schemes are those of ``AddScheme`` (``arithmetic``); the formulas of both kinds, in integers
# and in float32, are above.


def add_quantized(  # noqa: PLR0917 - the order that users rely on
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    a_qparams: QParams,
    b_qparams: QParams,
    out_qparams: QParams,
    arithmetic: Arithmetic | str,
) -> npt.NDArray[Any]:
    """The sum, as codes of the output.

    Args:
        a: quantized values, of a shape that broadcasts with that of ``b``.
        b: quantized values.
        a_qparams: per tensor, of ``a``.
        b_qparams: per tensor, of ``b``.
        out_qparams: per tensor, of the sum.
        arithmetic: an arithmetic or its name; of its overrides, those of Add hold.

    Returns:
        An array of the broadcast shape and the storage dtype of the output's type.

    Raises:
        InputError: an unknown arithmetic, qparams that this one cannot bring together, or codes out
            of the range of their type, or that do not broadcast.
        ValueError: qparams per channel.
    """
    arithmetic, qparams = arithmetic_for(arithmetic, "Add"), (a_qparams, b_qparams, out_qparams)
    require_per_tensor(qparams)
    left, right = operands(a, b, qparams)
    match arithmetic.adding.scheme:
        case AddScheme.EXACT:
            codes = exact_sum(centred(left, a_qparams), centred(right, b_qparams), qparams, 1)
        case AddScheme.HEADROOM | AddScheme.WEIGHTED | AddScheme.EACH | AddScheme.FINEST:
            codes = integer_sum(
                centred(left, a_qparams), centred(right, b_qparams), qparams, arithmetic, 1
            )
        case AddScheme.FUSED | AddScheme.SEPARATE | AddScheme.REAL | AddScheme.STEPS:
            codes = float_sum(left, right, qparams, arithmetic)
    return clamped(codes, out_qparams, arithmetic)


# The difference of two quantized arrays, under any arithmetic: y ≈ z_y + (s_a (a − z_a) − s_b (b −
# z_b)) / s_y.
#
# An arithmetic's scheme for sums is its scheme for differences. Those in whole numbers negate the
# second operand behind its rounding; Glow's interpreter subtracts products in float32; the other
# engines have no integer difference: codes are dequantized, subtracted in float32 and quantized.


def subtract_quantized(  # noqa: PLR0917 - the order of add_quantized
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    a_qparams: QParams,
    b_qparams: QParams,
    out_qparams: QParams,
    arithmetic: Arithmetic | str,
) -> npt.NDArray[Any]:
    """The difference a − b, as codes of the output; all as of ``add_quantized``, but that
    overrides of Sub hold.
    """
    arithmetic, qparams = arithmetic_for(arithmetic, "Sub"), (a_qparams, b_qparams, out_qparams)
    require_per_tensor(qparams)
    left, right = operands(a, b, qparams)
    match arithmetic.adding.scheme:
        case AddScheme.EXACT:
            codes = exact_sum(centred(left, a_qparams), centred(right, b_qparams), qparams, -1)
        case AddScheme.HEADROOM | AddScheme.WEIGHTED | AddScheme.EACH | AddScheme.FINEST:
            codes = integer_sum(
                centred(left, a_qparams), centred(right, b_qparams), qparams, arithmetic, -1
            )
        case AddScheme.STEPS:
            codes = float_difference(left, right, qparams)
        case AddScheme.FUSED | AddScheme.SEPARATE | AddScheme.REAL:
            require_float_scales(qparams)
            return quantize(
                dequantize(left, a_qparams) - dequantize(right, b_qparams), out_qparams, arithmetic
            )
    return clamped(codes, out_qparams, arithmetic)


# The quotient of two quantized arrays: y = clamp(round(s_a (a − z_a) / (s_b (b − z_b) s_y)) + z_y).
#
# No engine of the presets but Glow divides integers, so an arithmetic dequantizes, divides in
# float32 and quantizes by its own rule; the exact one divides rationals. A quotient by zero
# saturates: it is the infinity of its dividend's sign, and 0 / 0 the code that the arithmetic makes
# of NaN (``Quantizing.nan``).


def divide_quantized(  # noqa: PLR0917 - the order of add_quantized
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    a_qparams: QParams,
    b_qparams: QParams,
    out_qparams: QParams,
    arithmetic: Arithmetic | str,
) -> npt.NDArray[Any]:
    """The quotient a / b as codes of the output; as ``add_quantized``, with overrides of Div."""
    arithmetic, qparams = arithmetic_for(arithmetic, "Div"), (a_qparams, b_qparams, out_qparams)
    require_per_tensor(qparams)
    left, right = operands(a, b, qparams)
    with np.errstate(divide="ignore", invalid="ignore"):
        real = np.divide(
            dequantize(left, a_qparams), dequantize(right, b_qparams), dtype=np.float32
        )
    codes = quantize(real, out_qparams, arithmetic)
    if arithmetic.scaling.form is not MultiplierForm.EXACT:
        return codes
    exact = _rational(left, right, qparams)
    bounded = np.where(np.isfinite(real), exact, 0).astype(np.int64) + int(out_qparams.zero_point)
    return np.where(np.isfinite(real), clamped(bounded, out_qparams, arithmetic), codes)


def _rational(
    a: npt.NDArray[Any], b: npt.NDArray[Any], qparams: QParamsOfThree
) -> npt.NDArray[Any]:
    """Half-even quotients as Python integers, cut to ±2⁴⁰; 0 by zero."""
    left, right, out = (Fraction(float(one.scale)) for one in qparams)
    ratio = left / (right * out)
    up = centred(a, qparams[0]).astype(object) * ratio.numerator
    down = centred(b, qparams[1]).astype(object) * ratio.denominator
    up, down = np.broadcast_arrays(np.where(down < 0, -up, up), np.where(down == 0, 1, abs(down)))
    limit = int(WIDEST)
    return np.asarray(np.clip(half_even_quotients(up, down), -limit, limit), object)
