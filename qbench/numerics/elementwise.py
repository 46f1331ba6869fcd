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
from qbench.numerics.requantization import Grids, centred, clamped, operands, refused, require_per_tensor, scaler
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
    whole_levels,
)

# Sums and differences of levels of two grids by integers: y ≈ z_y + (s_a c_a ± s_b c_b) / s_y, c = q − z.
#
#     EXACT       round((A c_a ± B c_b) / D), A : B : D = s_a : s_b : s_y in whole numbers, half to even
#     HEADROOM    r(r_o(2ʰ c_a) ± r_o(2ʰ c_b)), r_o to t = 2 · max(s_a, s_b), r from 2⁻ʰ t to s_y; h = 20, of 16 bits 15
#     WEIGHTED    (m_a c_a ± m_b c_b) >> n, m = rne(s / s_y · 2ⁿ), n so that the larger m has ``bits`` bits
#     EACH        r(c_a) ± r(c_b), each at the output's scale
#     FINEST      r(r'(c_a) ± r'(c_b)), r' to the smaller scale
#
# A second operand is negated behind its rounding, so that what rounds half up is not mirrored. Sources: TFLite
# kernels/add.cc and sub.cc (left_shift), XNNPACK and QNNPACK operators/add (weights, and the ratios that they take).

_BYTE, _WORD = 8, 16
_HEADROOM, _HEADROOM_OF_WORDS = 20, 15
_HIGHEST_POWER = 8


def exact_sum(a: Ints, b: Ints, grids: Grids, sign: int) -> Ints:
    """``a`` ± ``b``, centred levels of any width, rounded once; cut to ±2⁴⁰, behind every grid."""
    scales = [Fraction(float(grid.scale)) for grid in grids]
    ratios = [scale / scales[2] for scale in scales[:2]]
    down = math.lcm(*(ratio.denominator for ratio in ratios))
    left, right = (int(ratio * down) for ratio in ratios)
    # Whole numbers of any length are vectors of Python's where int64 has no room for the sum, or for twice the rest.
    reach = left * max(_largest(a), 1) + right * max(_largest(b), 1)
    counting = np.int64 if max(reach, 2 * down) < 1 << 62 else object
    sums = a.astype(counting) * left + sign * right * b.astype(counting)
    levels, limit = half_even_quotients(np.asarray(sums, counting), np.asarray(down, counting)), int(WIDEST)
    return np.asarray(np.clip(levels, -limit, limit)).astype(np.int64) + int(grids[2].zero_point)


def integer_sum(a: Ints, b: Ints, grids: Grids, arithmetic: Arithmetic, sign: int) -> Ints:
    """``a`` ± ``b``, centred levels, by the arithmetic's HEADROOM, WEIGHTED, EACH or FINEST.

    Raises:
        InputError: levels so wide that a product of 64 bits has no room for them, or scales that the arithmetic does
            not bring together.
    """
    bits = max(grid.qtype.bits for grid in grids[:2])
    if bits > _WORD:
        raise refused(f"operands of {bits} bits", f"up to {_WORD}")
    if arithmetic.adding.scheme is AddScheme.WEIGHTED:
        return _weighted(a, b, grids, arithmetic, sign)
    left, right, out = (float(grid.scale) for grid in grids)
    first, up = arithmetic.scaling, 0
    match arithmetic.adding.scheme:
        case AddScheme.HEADROOM:
            middle, up = 2 * max(left, right), _HEADROOM if bits <= _BYTE else _HEADROOM_OF_WORDS
            first = arithmetic.adding.operands or arithmetic.scaling
        case AddScheme.FINEST:
            middle = min(left, right)
        case _:
            middle = out
    sums = scaler((left, 1.0, middle), first)(a << up) + sign * scaler((right, 1.0, middle), first)(b << up)
    if arithmetic.adding.scheme is AddScheme.EACH:
        return sums + int(grids[2].zero_point)
    return scaler((middle, 2.0**-up, out), arithmetic.scaling, int(grids[2].zero_point))(sums)


def _weighted(a: Ints, b: Ints, grids: Grids, arithmetic: Arithmetic, sign: int) -> Ints:
    adding = arithmetic.adding
    with np.errstate(over="ignore", under="ignore"):
        ratios = [float(grid.scale / grids[2].scale) for grid in grids[:2]]
    for ratio in ratios:
        if not 2.0**adding.least_power <= ratio < 2.0**_HIGHEST_POWER:
            expected = f"a ratio in [2^{adding.least_power}, 2^{_HIGHEST_POWER})"
            raise refused(f"a scale that is {ratio:g} times the result's", expected)
    _, exponent = np.frexp(max(ratios))
    shift = adding.bits - int(exponent)
    left, right = (int(np.rint(np.ldexp(ratio, shift))) for ratio in ratios)
    return shift_right(left * a + sign * right * b, shift, adding.rounding) + int(grids[2].zero_point)


def _largest(levels: Ints) -> int:
    return max(-int(levels.min(initial=0)), int(levels.max(initial=0)))


# Sums of levels of two grids in float32, by an engine's own order of steps; r = s / s_y, c = q − z.
#
#     FUSED       rne(fma(a, r_a, fma(b, r_b, F))), F = z_y − fma(r_a, z_a, r_b · z_b)
#     SEPARATE    rne(b · r_b + (a · r_a + F)), F = z_y − (r_a · z_a + r_b · z_b), every step rounded
#     REAL        rne(f32(f_a + f_b) · f32(1 / s_y)) + z_y, f = fma(s, q, −f32(s · z))
#     GRID       rha((rha(c_a · s_a / 2⁻¹⁵) + rha(c_b · s_b / 2⁻¹⁵)) · 2⁻¹⁵ / s_y + z_y); a difference has no such grid:
#                 rha(r_a · c_a − r_b · c_b + z_y)
#
# Sources: ONNX Runtime's MLAS qladd, PyTorch's vectorized add, Glow's interpreter.

_GRID = 2.0**-15
_LARGEST = 2.0**100
"""Of scales and their ratios: products with levels of 16 bits stay numbers that can be subtracted."""


def float_sum(a: Ints, b: Ints, grids: Grids, arithmetic: Arithmetic) -> Ints:
    """``a`` + ``b``, levels, by the arithmetic's FUSED, SEPARATE, REAL or GRID; not yet clamped.

    Raises:
        InputError: scales whose sums leave float32.
    """
    require_float_scales(grids)
    match arithmetic.adding.scheme:
        case AddScheme.FUSED:
            real = _fused(a, b, grids)
        case AddScheme.SEPARATE:
            real = _separate(a, b, grids)
        case AddScheme.REAL:
            return whole_levels(_real(a, b, grids), Rounding.HALF_EVEN) + int(grids[2].zero_point)
        case _:
            return whole_levels(_on_grid(a, b, grids), Rounding.HALF_AWAY)
    return whole_levels(real, Rounding.HALF_EVEN)


def float_difference(a: Ints, b: Ints, grids: Grids) -> Ints:
    """``a`` − ``b``, levels, as GRID has it; not yet clamped.

    Raises:
        InputError: scales whose sums leave float32.
    """
    require_float_scales(grids)
    left, right = (
        centred(levels, grid).astype(np.float32) * ratio
        for levels, grid, ratio in zip((a, b), grids, _ratios(grids), strict=False)
    )
    return whole_levels(_single(left - right + _zero_points(grids)[2]), Rounding.HALF_AWAY)


def require_float_scales(grids: Grids) -> None:
    """Refuse scales whose sums leave float32.

    Raises:
        InputError: these do.
    """
    left, right, out = (float(grid.scale) for grid in grids)
    largest, highest = max(left, right), float(np.finfo(np.float32).max)
    if largest >= _LARGEST or largest / out >= _LARGEST or 1 / out > highest:
        raise refused(
            f"scales {left:g}, {right:g} and {out:g}",
            "scales whose sums float32 holds: below 2^100, and so their ratios to the result's",
        )


def _fused(a: Ints, b: Ints, grids: Grids) -> Single:
    (ratio_a, ratio_b), (za, zb, zy) = _ratios(grids), _zero_points(grids)
    constant = zy - fused_multiply_add(ratio_a, za, ratio_b * zb)
    return fused_multiply_add(a, ratio_a, fused_multiply_add(b, ratio_b, constant))


def _separate(a: Ints, b: Ints, grids: Grids) -> Single:
    (ratio_a, ratio_b), (za, zb, zy) = _ratios(grids), _zero_points(grids)
    constant = zy - separate_multiply_add(ratio_a, za, ratio_b * zb)
    return separate_multiply_add(b, ratio_b, separate_multiply_add(a, ratio_a, constant))


def _real(a: Ints, b: Ints, grids: Grids) -> Single:
    parts = []
    for levels, grid in zip((a, b), grids, strict=False):
        scale = np.float32(grid.scale)
        parts.append(fused_multiply_add(levels, scale, -(scale * np.float32(grid.zero_point))))
    with np.errstate(over="ignore"):  # what leaves a float is clamped like all that leaves the grid
        return _single((parts[0] + parts[1]) * (np.float32(1) / np.float32(grids[2].scale)))


def _on_grid(a: Ints, b: Ints, grids: Grids) -> Single:
    # Whole numbers in float64: exact as an int64 is, up to 2⁵³, and no end of the range beyond.
    left, right = (
        round_reals(
            _single(centred(levels, grid).astype(np.float32) * np.float32(grid.scale / np.float32(_GRID))),
            Rounding.HALF_AWAY,
        ).astype(np.float64)
        for levels, grid in zip((a, b), grids, strict=False)
    )
    total = _single(left + right)
    return _single(total * np.float32(np.float32(_GRID) / grids[2].scale) + np.float32(grids[2].zero_point))


def _ratios(grids: Grids) -> tuple[np.float32, np.float32]:
    left, right = (np.float32(grid.scale / grids[2].scale) for grid in grids[:2])
    return left, right


def _zero_points(grids: Grids) -> list[np.float32]:
    return [np.float32(grid.zero_point) for grid in grids]


def _single(values: npt.ArrayLike) -> Single:
    return np.asarray(values, np.float32)


# Adding two quantized arrays, under any arithmetic: y ≈ z_y + (s_a (a − z_a) + s_b (b − z_b)) / s_y.
#
# The schemes are those of ``AddScheme`` (``arithmetic``); the formulas of both kinds, in integers and in float32, are
# above.


def add_quantized(  # noqa: PLR0917 - the order that users rely on
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    a_qparams: QParams,
    b_qparams: QParams,
    out_qparams: QParams,
    arithmetic: Arithmetic | str,
) -> npt.NDArray[Any]:
    """The sum on the output's grid.

    Args:
        a: quantized values, of a shape that broadcasts with that of ``b``.
        b: quantized values.
        a_qparams: per tensor, of ``a``.
        b_qparams: per tensor, of ``b``.
        out_qparams: per tensor, of the sum.
        arithmetic: an arithmetic or its name; of its overrides, those of Add hold.

    Returns:
        An array of the broadcast shape and the output grid's storage dtype.

    Raises:
        InputError: an unknown arithmetic, grids that this one cannot bring together, or levels that are none of their
            grid or do not broadcast.
        ValueError: a grid per channel.
    """
    arithmetic, grids = arithmetic_for(arithmetic, "Add"), (a_qparams, b_qparams, out_qparams)
    require_per_tensor(grids)
    left, right = operands(a, b, grids)
    match arithmetic.adding.scheme:
        case AddScheme.EXACT:
            levels = exact_sum(centred(left, a_qparams), centred(right, b_qparams), grids, 1)
        case AddScheme.HEADROOM | AddScheme.WEIGHTED | AddScheme.EACH | AddScheme.FINEST:
            levels = integer_sum(centred(left, a_qparams), centred(right, b_qparams), grids, arithmetic, 1)
        case AddScheme.FUSED | AddScheme.SEPARATE | AddScheme.REAL | AddScheme.GRID:
            levels = float_sum(left, right, grids, arithmetic)
    return clamped(levels, out_qparams, arithmetic)


# The difference of two quantized arrays, under any arithmetic: y ≈ z_y + (s_a (a − z_a) − s_b (b − z_b)) / s_y.
#
# An arithmetic's scheme for sums is its scheme for differences. Those in whole numbers negate the second operand behind
# its rounding; Glow's interpreter subtracts products in float32; the other engines have no integer difference: levels
# are dequantized, subtracted in float32 and quantized.


def subtract_quantized(  # noqa: PLR0917 - the order of add_quantized
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    a_qparams: QParams,
    b_qparams: QParams,
    out_qparams: QParams,
    arithmetic: Arithmetic | str,
) -> npt.NDArray[Any]:
    """The difference a − b on the output's grid; all as of ``add_quantized``, but that overrides of Sub hold."""
    arithmetic, grids = arithmetic_for(arithmetic, "Sub"), (a_qparams, b_qparams, out_qparams)
    require_per_tensor(grids)
    left, right = operands(a, b, grids)
    match arithmetic.adding.scheme:
        case AddScheme.EXACT:
            levels = exact_sum(centred(left, a_qparams), centred(right, b_qparams), grids, -1)
        case AddScheme.HEADROOM | AddScheme.WEIGHTED | AddScheme.EACH | AddScheme.FINEST:
            levels = integer_sum(centred(left, a_qparams), centred(right, b_qparams), grids, arithmetic, -1)
        case AddScheme.GRID:
            levels = float_difference(left, right, grids)
        case AddScheme.FUSED | AddScheme.SEPARATE | AddScheme.REAL:
            require_float_scales(grids)
            return quantize(dequantize(left, a_qparams) - dequantize(right, b_qparams), out_qparams, arithmetic)
    return clamped(levels, out_qparams, arithmetic)


# The quotient of two quantized arrays: y = clamp(round(s_a (a − z_a) / (s_b (b − z_b) s_y)) + z_y).
#
# No engine of the presets but Glow divides integers, so an arithmetic dequantizes, divides in float32 and quantizes by
# its own rule; the exact one divides rationals. A quotient by zero saturates: it is the infinity of its dividend's
# sign, and 0 / 0 the level that the arithmetic makes of NaN (``Quantizing.nan``).


def divide_quantized(  # noqa: PLR0917 - the order of add_quantized
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    a_qparams: QParams,
    b_qparams: QParams,
    out_qparams: QParams,
    arithmetic: Arithmetic | str,
) -> npt.NDArray[Any]:
    """The quotient a / b on the output's grid; all as of ``add_quantized``, but that overrides of Div hold."""
    arithmetic, grids = arithmetic_for(arithmetic, "Div"), (a_qparams, b_qparams, out_qparams)
    require_per_tensor(grids)
    left, right = operands(a, b, grids)
    with np.errstate(divide="ignore", invalid="ignore"):
        real = np.divide(dequantize(left, a_qparams), dequantize(right, b_qparams), dtype=np.float32)
    levels = quantize(real, out_qparams, arithmetic)
    if arithmetic.scaling.form is not MultiplierForm.EXACT:
        return levels
    exact = _rational(left, right, grids)
    bounded = np.where(np.isfinite(real), exact, 0).astype(np.int64) + int(out_qparams.zero_point)
    return np.where(np.isfinite(real), clamped(bounded, out_qparams, arithmetic), levels)


def _rational(a: npt.NDArray[Any], b: npt.NDArray[Any], grids: Grids) -> npt.NDArray[Any]:
    """Half-even quotients as Python integers, cut to ±2⁴⁰; 0 by zero."""
    left, right, out = (Fraction(float(grid.scale)) for grid in grids)
    ratio = left / (right * out)
    up = centred(a, grids[0]).astype(object) * ratio.numerator
    down = centred(b, grids[1]).astype(object) * ratio.denominator
    up, down = np.broadcast_arrays(np.where(down < 0, -up, up), np.where(down == 0, 1, abs(down)))
    limit = int(WIDEST)
    return np.asarray(np.clip(half_even_quotients(up, down), -limit, limit), object)
