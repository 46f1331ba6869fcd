"""Softmax, sigmoid, tanh, hard swish and means of quantized arrays, as engines compute them."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError
from qbench.numerics.affine import dequantize, quantize
from qbench.numerics.arithmetic import (
    Arithmetic,
    Averaging,
    MultiplierForm,
    Precision,
    Scaling,
    Softmax,
)
from qbench.numerics.multiplier import fixed_multiplier, folded_multiplier, real_multiplier
from qbench.numerics.qparams import QParams
from qbench.numerics.requantization import fixed_scaler, scaler
from qbench.numerics.rounding import (
    Ints,
    MultiplyAdd,
    Rounding,
    Single,
    round_reals,
    separate_multiply_add,
    shift_right,
)

# Numbers of 32 bits with a binary point, as gemmlowp's functions count them: exp of negatives, and
# a reciprocal.
#
#     a ⊗ b = ⌊(a · b + 2³⁰) / 2³¹⌋        of Qm.(31−m) and Qn.(31−n), a result in Q(m+n).(31−m−n)
#
# Raw values are int64 arrays that hold 32-bit numbers. Source: gemmlowp fixedpoint/fixedpoint.h, as
# formulas.

ONE = (1 << 31) - 1
"""1 in Q0.31, which it cannot hold: the largest number there."""
_LOWEST = -(1 << 31)


def high_product(a: Ints, b: Ints | int) -> Ints:
    """Give a ⊗ b, which saturates where both are −2³¹."""
    return np.asarray(np.minimum((a * b + (1 << 30)) >> 31, ONE), np.int64)


def exp_of_negatives(a: Ints, integer_bits: int = 5) -> Ints:
    """exp(a) in Q0.31 for a ≤ 0 in Q``integer_bits``.

    a = r − Σ 2^k over the bits of what a lacks to the quarter above it: a polynomial on (−¼, 0],
    times exp(−2^k).
    """
    fraction = 31 - integer_bits
    quarter = 1 << (fraction - 2)
    within = (a & (quarter - 1)) - quarter
    result = _exp_within_a_quarter(within << integer_bits)
    lacking = within - a
    for power in range(-2, integer_bits):
        factor = _constant(math.exp(-(2.0**power)), 0)
        result = np.where(
            lacking & (1 << (fraction + power)) != 0, high_product(result, factor), result
        )
    return np.where(a == 0, ONE, result)


def reciprocal(sums: Ints, integer_bits: int) -> tuple[Ints, Ints]:
    """(r, e) with 1 / sum = r · 2⁻ᵉ, r in Q0.31 and ½ … 1, of positive sums in
    Q``integer_bits``: Newton, three steps.

    Each sum is shifted to 1 + f with 0 ≤ f < 1, of which 1 / (1 + f) is taken.
    """
    _, length = np.frexp(sums.astype(np.float64))  # exact: a sum has 31 bits
    headroom = 32 - length.astype(np.int64)
    rest = (sums << headroom) - (1 << 31)
    half = (rest + ONE + 1) >> 1  # (1 + f) / 2, half up: neither is negative
    x = _constant(48 / 17, 2) + high_product(half, _constant(-32 / 17, 2))
    for _ in range(3):
        left = (1 << 29) - high_product(half, x)
        x = x + np.clip(high_product(x, left) << 2, _LOWEST, ONE)
    return np.clip(x << 1, _LOWEST, ONE), integer_bits - headroom


def _exp_within_a_quarter(a: Ints) -> Ints:
    """exp(a) for −¼ ≤ a < 0, both in Q0.31: e^−⅛ · (1 + x + x²/2 + x³/6 + x⁴/24), x = a + ⅛."""
    x = a + (1 << 28)
    square = high_product(x, x)
    cube, fourth = high_product(square, x), high_product(square, square)
    tail = (
        high_product(shift_right(fourth, 2, Rounding.HALF_AWAY) + cube, _constant(1 / 3, 0))
        + square
    )
    at_eighth = _constant(math.exp(-0.125), 0)
    return at_eighth + high_product(x + shift_right(tail, 1, Rounding.HALF_AWAY), at_eighth)


def _constant(value: float, integer_bits: int) -> int:
    return round(value * (1 << (31 - integer_bits)))


# Softmax of codes, along the last axis: y_i = exp(s (q_i − max q)) / Σ_j exp(s (q_j − max q)), with
# other qparams.
#
# The schemes are those of ``Softmax`` (``arithmetic``); their formulas are at the functions below.
# TABLE is of one type of 8 bits; FIXED of 8 bits and of qparams with 256 codes from 0 to 1. Others
# are computed as REAL, which those engines would refuse or dequantize.

Codes = npt.NDArray[Any]
SoftmaxOfCodes = Callable[[Codes], tuple[Codes, int]]
"""(…, n) codes → (…, n) codes, and how many sums overflowed."""

_DIFFERENCE_BITS, _SUM_BITS = 5, 12
_FINEST = 2.0 ** (_DIFFERENCE_BITS - 31)
"""A scale of one step of the fixed-point differences: TFLite takes none as fine."""
_RESERVE = 5.0
_Q31 = Scaling(form=MultiplierForm.FIXED, bits=31)


def softmax_of_codes(x: QParams, y: QParams, length: int, arithmetic: Arithmetic) -> SoftmaxOfCodes:
    """Softmax of rows of ``length`` codes of ``x``, as codes of ``y``, under ``arithmetic``.

    Raises:
        ValueError: qparams per channel.
    """
    if x.axis is not None or y.axis is not None:
        raise ValueError("a softmax has qparams per tensor")
    one_type = x.qtype == y.qtype and x.qtype.bits == 8
    if arithmetic.softmax is Softmax.TABLE and one_type:
        return _by_table(x, y, length)
    of_fractions = y.scale == 1 / 256 and y.zero_point == y.qtype.qmin and x.scale > _FINEST
    if arithmetic.softmax is Softmax.FIXED and one_type and of_fractions:
        return _by_fixed_point(x, y)
    return lambda q: (_real(q, x, y, arithmetic), 0)


def _real(q: Codes, x: QParams, y: QParams, arithmetic: Arithmetic) -> Codes:
    """Dequantized; exp(x − max) / Σ in float32; quantized by the arithmetic's own rule."""
    real = dequantize(q, x)
    powers = np.exp(real - real.max(axis=-1, keepdims=True))
    return quantize(powers / powers.sum(axis=-1, keepdims=True), y, arithmetic)


def _by_table(x: QParams, y: QParams, length: int) -> SoftmaxOfCodes:
    """t_d = f32(exp(s (d + b))), b = max(0, ln(f32 max / n) − 5) / s;  y = rne(t_d · ⌊1/s_y⌋ /
    Σ t) + z_y.

    d ≤ 0 is the difference to the row's largest code; sums in float32 run along the row. ⌊1/s_y⌋
    makes 254 of the usual 1/255 in float32. Source: ONNX Runtime, qlinear_softmax.cc.

    A short row has t near the largest float32: for one code and ⌊1/s_y⌋ > 148 their product is
    infinite. Of that x64 makes 0 as an unsigned integer and −2³¹ as a signed one, to which it adds
    the zero point in 32 bits, which wrap.
    """
    scale = float(x.scale)
    room = math.log(np.float32(np.finfo(np.float32).max) / np.float32(length))
    raised = max(0.0, room - _RESERVE) / scale
    table = np.exp((np.arange(-255, 1) + raised) * scale).astype(np.float32)
    infinite = float(_LOWEST) if y.qtype.signed else 0.0
    steps, zero = np.floor(np.float32(1) / np.float32(y.scale)), int(y.zero_point)

    def run(q: Codes) -> tuple[Codes, int]:
        codes = q.astype(np.int32)
        powers = table[codes - codes.max(axis=-1, keepdims=True) + 255]
        sums = np.add.accumulate(powers, axis=-1, dtype=np.float32)[..., -1:]
        with np.errstate(over="ignore"):
            shares = np.rint(powers * steps / sums)
        whole = np.where(np.isinf(shares), infinite, shares).astype(np.int64) + zero
        wrapped = np.where(whole < _LOWEST, whole + (1 << 32), whole)
        return np.clip(wrapped, y.qtype.qmin, y.qtype.qmax).astype(y.qtype.storage_dtype), 0

    return run


def _by_fixed_point(x: QParams, y: QParams) -> SoftmaxOfCodes:
    """E(d) = exp(d · s) in Q0.31, d · s in Q5.26;  r · 2⁻ᵉ = 1 / Σ E, sums in Q12.19;  y = (r ⊗
    E) >> (e + 23) + z_y.

    Differences below −⌊31 · 2²⁶ / 2^shift⌋ count as nothing. A sum beyond 12 integer bits, which
    takes more than 4,095 codes, saturates. Source: TFLite reference/softmax.h.
    """
    beta = min(float(x.scale) * 2.0 ** (31 - _DIFFERENCE_BITS), 2.0**31 - 1)
    fixed = fixed_multiplier(np.asarray(beta), _Q31)
    factor, left = int(fixed.factor), 31 - int(fixed.shift)
    lowest = -math.floor(((1 << _DIFFERENCE_BITS) - 1) * 2.0 ** (31 - _DIFFERENCE_BITS) / 2.0**left)
    differences = np.arange(-255, 1, dtype=np.int64)
    known = differences >= lowest
    scaled = high_product(np.where(known, differences, 0) << left, factor)
    powers = np.where(known, exp_of_negatives(scaled, _DIFFERENCE_BITS), 0)
    addends = np.where(known, shift_right(powers, _SUM_BITS, Rounding.HALF_AWAY), 0)
    low, high, dtype = y.qtype.qmin, y.qtype.qmax, y.qtype.storage_dtype
    highest = (1 << 31) - 1

    def run(q: Codes) -> tuple[Codes, int]:
        codes = q.astype(np.int64)
        places = codes - codes.max(axis=-1, keepdims=True) + 255
        sums: Ints = addends[places].sum(axis=-1, keepdims=True)
        inverse, over_unit = reciprocal(np.minimum(sums, highest), _SUM_BITS)
        shares = (
            shift_right(
                high_product(powers[places], inverse), over_unit + 31 - 8, Rounding.HALF_AWAY
            )
            + low
        )
        return np.clip(shares, low, high).astype(dtype), int(np.count_nonzero(sums > highest))

    return run


# Sigmoid and tanh as quotients of polynomials in float32, which is how ONNX Runtime's kernels
# compute them.
#
#     x' = clamp(x, ±bound)    p = x' · P(x'²)    q = Q(x'²)
#     tanh = p / q             sigmoid = max(p / q + ½, 0)
#
# Both polynomials by Horner's rule, every step one multiply-add: fused where the processor has it.
# Source: ONNX Runtime 1.31, MLAS logistic and tanh; the coefficients are theirs (after Eigen),
# every result was compared with theirs.


@dataclass(frozen=True, slots=True)
class _Quotient:
    """Bound of the argument; coefficients, those of the highest power first."""

    bound: float
    upper: tuple[float, ...]
    lower: tuple[float, ...]


_SIGMOID = _Quotient(
    18.0,
    (
        4.37031012579801e-11,
        1.15627324459942e-07,
        6.08574864600143e-05,
        8.51377133304701e-03,
        2.48287947061529e-01,
    ),
    (
        *(6.10247389755681e-13, 5.76102136993427e-09, 6.29106785017040e-06),
        *(1.70198817374094e-03, 1.16817656904453e-01, 9.93151921023180e-01),
    ),
)
_TANH = _Quotient(
    9.0,
    (
        *(-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08),
        *(1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03),
    ),
    (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03),
)


def rational_sigmoid(x: npt.ArrayLike, multiply_add: MultiplyAdd) -> Single:
    """Sigmoid of float32 ``x``, of its shape; by fused steps up to 1 + 2⁻²³, which only the
    other kernel cuts off.
    """
    value = _divided(_SIGMOID, np.asarray(x, np.float32), multiply_add) + np.float32(0.5)
    highest = np.float32(1 if multiply_add is separate_multiply_add else 2)
    return np.asarray(np.clip(value, np.float32(0), highest), np.float32)


def rational_tanh(x: npt.ArrayLike, multiply_add: MultiplyAdd) -> Single:
    """Hyperbolic tangent of float32 ``x``, of its shape."""
    return _divided(_TANH, np.asarray(x, np.float32), multiply_add)


def _divided(quotient: _Quotient, x: Single, multiply_add: MultiplyAdd) -> Single:
    held = np.clip(x, np.float32(-quotient.bound), np.float32(quotient.bound))
    square = held * held
    upper, lower = (
        _polynomial(square, parts, multiply_add) for parts in (quotient.upper, quotient.lower)
    )
    return np.asarray(upper * held / lower, np.float32)


def _polynomial(x: Single, coefficients: tuple[float, ...], multiply_add: MultiplyAdd) -> Single:
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = multiply_add(total, x, np.float32(coefficient))
    return total


# Hard swish of codes in 16-bit fixed point, as TFLite counts it: y ≈ x · clamp(x + 3, 0, 6) / 6.
#
#     h = (q − z_x) · 2⁷                            16 bits, at s_x / 128
#     v = h ⊗ m_y                                   at the output's scale but for 2^e_y,
#                                                   m_y · 2^e_y = s_x / 128 / s_y
#     g = (h · 2^(e_g − 1), saturated ⊗ m_g) · 2    x / 3 in Q0.15, saturated,
#                                                   m_g · 2^e_g = s_x / 128 / (3 / 2¹⁵)
#     y = (((g + 2¹⁵) >> 1) · v / 2¹⁵, truncated) >> −e_y, half away, + z_y
#
# a ⊗ b = ⌊(a · b + 2¹⁴) / 2¹⁵⌋; multipliers are Q31 of float32 ratios, brought to 15 bits half up.
# Source: TFLite reference/hard_swish.h, as formulas.

_HARD_SWISH_LOWEST, _HIGHEST = -(1 << 15), (1 << 15) - 1
_EXTRA_BITS = 7


def hard_swish_in_16_bits(q: Ints, x: QParams, y: QParams) -> Ints:
    """Hard swish of codes ``q`` (int64, 8 bits) with qparams ``x`` as codes of ``y``, not yet
    clamped; both per tensor.

    Raises:
        InputError: an output finer than the input's 128th part, which this scheme cannot hold.
    """
    fine = np.float32(np.float32(1 / (1 << _EXTRA_BITS)) * np.float32(x.scale))
    factor, up = _short(np.float32(fine / np.float32(y.scale)))
    gate_factor, gate_up = _short(np.float32(fine / np.float32(3 / 32768)))
    if up > 0:
        raise InputError(
            "Preparing a hard swish in 16-bit fixed point",
            found=f"an output scale of {float(y.scale):g} for an input scale of {float(x.scale):g}",
            expected="an output scale of at least a 128th of the input's",
            remedy="Choose other scales, or another arithmetic.",
        )
    codes = (q - int(x.zero_point)) << _EXTRA_BITS
    product = _high_product(codes, factor)
    gate = _saturated(codes << (gate_up - 1)) if gate_up > 0 else codes
    gate = _high_product(gate, gate_factor)
    gate = _saturated(gate << 1) if gate_up > 0 else shift_right(gate, -gate_up, Rounding.HALF_AWAY)
    share = (gate + (1 << 15)) >> 1
    whole = shift_right(share * product, 15, Rounding.TRUNCATE)
    return shift_right(whole, -up, Rounding.HALF_AWAY) + int(y.zero_point)


def _short(ratio: np.float32) -> tuple[int, int]:
    """(m, e) with ratio ≈ m · 2^(e − 15), m of 15 bits."""
    fixed = fixed_multiplier(np.asarray(ratio, np.float64), _Q31)
    return min((int(fixed.factor) + (1 << 15)) >> 16, _HIGHEST), 31 - int(fixed.shift)


def _high_product(a: Ints, b: int) -> Ints:
    return np.asarray(np.minimum((a * b + (1 << 14)) >> 15, _HIGHEST), np.int64)


def _saturated(values: Ints) -> Ints:
    return np.asarray(np.clip(values, _HARD_SWISH_LOWEST, _HIGHEST), np.int64)


# From the sum of n codes to their mean with other qparams: y = clamp(round(Σ (x − z_x) · s_x / (s_y
# · n)) + z_y).
#
# The schemes are those of ``Averaging`` (``arithmetic``). Those that need nothing but the sum are
# here; REAL, whose result depends on the order in which floats are summed, belongs to the code that
# has the order.

Averager = Callable[[Ints], Ints]
"""Σ (x − z_x), int64 → codes, not yet clamped."""


def averager(
    scheme: Averaging, x: QParams, y: QParams, counts: Ints, arithmetic: Arithmetic
) -> Averager:
    """What makes means of sums of ``counts`` codes each (≥ 1, broadcast against the sums).

    RAW and WITHIN hold where input and output have the same qparams; else they are SCALED. A FOLDED
    count needs a fixed multiplier; else it is SCALED too.

    Raises:
        InputError: a multiplier that the arithmetic cannot hold.
        ValueError: REAL, which is no function of the sum.
    """
    same = (x.scale, x.zero_point, x.qtype) == (y.scale, y.zero_point, y.qtype)
    if scheme is Averaging.REAL:
        raise ValueError("a mean in floats depends on their order")
    if scheme is Averaging.RAW and same:
        return _raw(x, counts)
    if scheme is Averaging.FOLDED and arithmetic.scaling.form is MultiplierForm.FIXED:
        return _folded(x, y, counts, arithmetic)
    if scheme is Averaging.BIASED:
        return _biased(x, y, counts, arithmetic)
    if scheme is Averaging.DIVIDED:
        return _averaging_divided(x, y, counts, arithmetic)
    if scheme is Averaging.WITHIN and same:
        return scaler((1.0, 1.0, counts), arithmetic.scaling, int(y.zero_point))
    return _scaled(x, y, counts, arithmetic)


def _scaled(x: QParams, y: QParams, counts: Ints, arithmetic: Arithmetic) -> Averager:
    """The count multiplies the output's scale, in the precision in which the multiplier is
    computed.
    """
    single = arithmetic.scaling.precision is not Precision.DOUBLE
    over = (
        np.float32(y.scale) * counts.astype(np.float32)
        if single
        else float(y.scale) * counts.astype(np.float64)
    )
    return scaler((x.scale, 1.0, over), arithmetic.scaling, int(y.zero_point))


def _folded(x: QParams, y: QParams, counts: Ints, arithmetic: Arithmetic) -> Averager:
    real = real_multiplier((x.scale, 1.0, y.scale), arithmetic.scaling.precision)
    folded = folded_multiplier(fixed_multiplier(real, arithmetic.scaling), counts)
    return fixed_scaler(folded, arithmetic.scaling, int(y.zero_point))


def _biased(x: QParams, y: QParams, counts: Ints, arithmetic: Arithmetic) -> Averager:
    """round(Σ x · M) + z_y − rha(z_x · s_x / s_y), the last in float32: LiteRT
    optimized/integer_ops/mean.h.

    M = s_x / (n · s_y) in float32. That kernel has int8 codes alone: unsigned ones are moved there
    by half their range.
    """
    zero, scale = int(x.zero_point) - _half_range(x), np.float32(x.scale)
    moved = round_reals(
        np.asarray(np.float32(zero) * scale / np.float32(y.scale)), Rounding.HALF_AWAY
    )
    over = np.float32(y.scale) * counts.astype(np.float32)
    scaling = replace(arithmetic.scaling, precision=Precision.SINGLE)
    rounded = scaler((x.scale, 1.0, over), scaling, int(y.zero_point) - int(moved))
    return lambda sums: rounded(sums + counts * zero)


def _averaging_divided(x: QParams, y: QParams, counts: Ints, arithmetic: Arithmetic) -> Averager:
    """round_half_away(S(Σ (x − z_x)) / n) + z_y, S brings sums to the output's scale:
    libjit_avg_pool of Glow.
    """
    rounded = scaler((x.scale, 1.0, y.scale), arithmetic.scaling)
    return lambda sums: _quotients(rounded(sums), counts) + int(y.zero_point)


def _raw(x: QParams, counts: Ints) -> Averager:
    """round_half_away(Σ x / n), the zero points left in the sum: not what rounding Σ (x − z) /
    n gives.

    LiteRT has int8 codes alone: unsigned ones are moved there by half their range, where other ties
        are below 0.
    """
    half = _half_range(x)
    zero = int(x.zero_point) - half
    return lambda sums: _quotients(sums + counts * zero, counts) + half


def _half_range(x: QParams) -> int:
    """By how much codes of ``x`` are above those of the signed type of their width."""
    return (x.qtype.qmax + x.qtype.qmin + 1) // 2


def _quotients(totals: Ints, counts: Ints) -> Ints:
    """round_half_away(totals / counts); 0 / 0, of a window without elements, is 0."""
    counts = np.maximum(counts, 1)
    size = (np.abs(totals) + counts // 2) // counts
    return np.asarray(np.where(totals >= 0, size, -size), np.int64)
