"""The real multiplier M = s_x · s_w / s_y in the forms that engines hold it in, and applying it
to accumulators.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError
from qbench.numerics.accumulator import Overflow, in_bits
from qbench.numerics.arithmetic import (
    WIDEST_FACTOR,
    Inverted,
    MultiplierForm,
    Precision,
    Scaling,
    ZeroPoint,
)
from qbench.numerics.qparams import QParams
from qbench.numerics.qtype import QType
from qbench.numerics.rounding import Ints, Reals, Rounding, fused_multiply_add, shift_right

# The real multiplier M = s_x · s_w / s_y in the forms in which arithmetics hold it.
#
# FIXED     M ≈ m · 2^(e − bits), M = f · 2^e with ½ ≤ f < 1, m = round_half_away(f · 2^bits);
#           0 where bits − e > 62: of 31 bits, where M < 2^−32 (gemmlowp, QuantizeMultiplier)
# FRACTION  M ≈ m · 2^−bits, m = round_half_even(M · 2^bits) (XNNPACK's conversions)
# SHORT     M ≈ m · 2^−(pre + post): doubled while M < ½ or (M < 256 and post < 15), then, pre
#           growing, while M < 255 and pre < post // 2; m = round_half_away(M). A power of two is a
#           shift alone (Glow, quantizeScaleOffset32To8)
# POWER     M = 2^−shift exactly

Floats = npt.NDArray[np.float64]
Scales = tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]
"""Of input, weight and output."""
LONGEST_SHIFT, LONGEST_LEFT_SHIFT = 62, 31


@dataclass(frozen=True, slots=True)
class Fixed:
    """M ≈ ``factor`` · 2^−``shift``, one pair per channel; a negative ``shift`` shifts left
    before the product.
    """

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
    """s_x · s_w / s_y as rationals, of scales at the given precision, in their common shape."""
    x, w, y = np.broadcast_arrays(*(np.asarray(scale, np.float64) for scale in scales))
    exact = [
        Fraction(a) * Fraction(b) / Fraction(c)
        for a, b, c in zip(*(p.reshape(-1).tolist() for p in (x, w, y)), strict=True)
    ]
    return np.array(exact, object).reshape(x.shape)


def fixed_multiplier(multiplier: Floats, scaling: Scaling) -> Fixed:
    """``multiplier`` as ``scaling`` (FIXED, FRACTION or POWER) holds it.

    Raises:
        InputError: it needs a shift that no 64-bit product has, or is no power of two where only
            shifts are.
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
                raise _beyond(
                    multiplier[lost], f"one of 1 … 2^{WIDEST_FACTOR} steps of 2^−{scaling.bits}"
                )
            factor, shift = rounded.astype(np.int64), np.full_like(exponent, scaling.bits, np.int64)
        case _:
            factor = np.floor(np.ldexp(fraction, scaling.bits) + 0.5).astype(np.int64)
            carried = factor == 1 << scaling.bits
            factor = np.where(carried, factor >> 1, factor)
            shift = scaling.bits - (exponent.astype(np.int64) + carried)
            # TFLite's QuantizeMultiplier makes 0 of what needs a longer shift. Sums times so little
            # round to 0 anyway, unless a stage rounds down.
            if all(stage.rounding is not Rounding.FLOOR for stage in scaling.stages):
                factor = np.where(shift > LONGEST_SHIFT, 0, factor)
                shift = np.minimum(shift, LONGEST_SHIFT)
    beyond = (shift > LONGEST_SHIFT) | (shift < -LONGEST_LEFT_SHIFT)
    if beyond.any():
        raise _beyond(multiplier[beyond], "one that shifts within 64 bits reach")
    return Fixed(factor, shift)


def folded_multiplier(fixed: Fixed, counts: npt.ArrayLike) -> Fixed:
    """``fixed`` divided by ``counts`` (≥ 1), truncated: m' = (m · 2^k) // n, k = min(⌊log₂ n⌋,
    32, 62 − shift).

    So TFLite's MEAN makes one multiplier of the scales and the number of elements
    (kernels/reduce.cc).
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
    pre, factor, post = (
        np.array(part, np.int64).reshape(multiplier.shape) for part in zip(*triples, strict=True)
    )
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
        "Bringing a multiplier to the form in which the arithmetic holds it",
        found=f"{float(multipliers.reshape(-1)[0])!r}",
        expected=expected,
        remedy="Choose other scales, or another arithmetic.",
    )


# From accumulators to codes by integers alone, under arithmetics that multiply by m and shift.
#
#     FIXED, FRACTION, POWER    v₀ = (acc · 2^left) · m
#                               v ← v / 2^shift, rounded: once a stage
#     SHORT                     ((acc ⌊/⌋ 2^pre) · m + 2^(post − 1)) ⌊/⌋ 2^post
#
# A register of 32 bits holds acc · 2^left, and wraps.

_SUMS = 32
"""Bits of the register in which sums are shifted left."""


@dataclass(frozen=True, slots=True, eq=False)
class ShiftSteps:
    """The integers by which an arithmetic scales the sums of one node; every array broadcasts
    against them.

    Args:
        left: by how much sums are shifted left.
        factor: m.
        stages: rounding, and by how much that stage shifts.
    """

    left: Ints
    factor: Ints
    stages: tuple[tuple[Rounding, Ints], ...]

    def codes(self, sums: Ints) -> Ints:
        """``sums`` on the output's scale, without its zero point."""
        if np.any(self.left):
            sums = np.where(self.left > 0, in_bits(sums << self.left, _SUMS, Overflow.WRAP), sums)
        values = sums * self.factor
        for rounding, shift in self.stages:
            values = shift_right(values, shift, rounding)
        return values


def shift_steps(scales: Scales, scaling: Scaling) -> ShiftSteps:
    """The steps of a FIXED, FRACTION or POWER multiplier.

    Raises:
        InputError: a multiplier that ``scaling`` cannot hold.
    """
    real = real_multiplier(scales, scaling.precision)
    steps = steps_of(fixed_multiplier(real, scaling), scaling)
    if not scaling.shift_powers:
        return steps
    fraction, exponent = np.frexp(real)
    power, right = fraction == 0.5, np.minimum(1 - exponent.astype(np.int64), LONGEST_SHIFT)
    (rounding, shift), *others = steps.stages
    return ShiftSteps(
        np.where(power, np.maximum(-right, 0), steps.left),
        np.where(power, 1, steps.factor),
        (
            (rounding, np.where(power, np.maximum(right, 0), shift)),
            *((each, np.where(power, 0, by)) for each, by in others),
        ),
    )


def steps_of(fixed: Fixed, scaling: Scaling) -> ShiftSteps:
    """The steps of a multiplier that is there already."""
    planned = sum(stage.bits or 0 for stage in scaling.stages)
    left = np.maximum(planned - fixed.shift, 0)
    rest = fixed.shift + left - planned
    shifts = tuple(
        (stage.rounding, rest if stage.bits is None else np.full_like(rest, stage.bits))
        for stage in scaling.stages
    )
    return ShiftSteps(left, fixed.factor, shifts)


@dataclass(frozen=True, slots=True, eq=False)
class ShortSteps:
    """As ``ShiftSteps``, of Glow's form.

    Args:
        short: pre-shift, factor and post-shift.
        nudge: half of what the post-shift takes, or 0 where it takes nothing.
        bits: width in which product and nudge are summed, which wraps.
    """

    short: Short
    nudge: Ints
    bits: int

    def codes(self, sums: Ints) -> Ints:
        """``sums`` on the output's scale, without its zero point."""
        product = shift_right(sums, self.short.pre, Rounding.FLOOR) * self.short.factor
        return in_bits(product + self.nudge, self.bits, Overflow.WRAP) >> self.short.post


def short_steps(scales: Scales, scaling: Scaling) -> ShortSteps:
    """The steps of a SHORT multiplier.

    Raises:
        InputError: a multiplier that has no such form.
    """
    short = short_multiplier(real_multiplier(scales, scaling.precision))
    nudge = np.where(short.post > 0, np.int64(1) << np.maximum(short.post - 1, 0), 0)
    return ShortSteps(short, nudge, scaling.product_bits or 64)


# From accumulators to real numbers on the output's scale, under arithmetics that multiply in
# floats.
#
#     FLOAT32, FLOAT64    v = f(acc) · f(M)
#     CHAIN               v = ((f32(acc) · s_x · s_w) + b) · f32(1 / s_y), rounded to float32 after
#                         every step
#     RANGE               v = fma(f32(acc) · f32(s_x · s_w) + b, F, G), F = L / (h − l),
#                         G = −l · L / (h − l), where l and h are the real numbers of the lowest and
#                         the highest code, and L is their distance in codes; v counts from the
#                         lowest code. Without a bias l and h are divided by s_x · s_w instead of
#                         multiplying the sums. (OpenVINO: FakeQuantize behind a product.)
#                         Where the codes go to another operator on codes, F is one number and G is
#                         0 (the zero point is the lowest code), F is f32(1 / f32(1 / F)): OpenVINO
#                         hands oneDNN the scale 1 / F of the result. Signed codes behind which
#                         comes a Clip of codes, or a DequantizeLinear with a zero point, stay
#                         signed: G is G + lowest code then, and v counts from 0. With AMX all
#                         signed codes stay so, but those of zero point 0 that go to reals.
#
# A bias that stays a real number b = f32(B · s), s = f32(s_x · s_w), joins a FLOAT32 arithmetic's
# sums before the product: as f32(acc) + f32(b / s) where scales are per channel, and by one fused
# step, f32(acc + b · f32(1 / s)), where there is one scale (FBGEMM, requantizeOutputProcessingAvx2,
# whose product and sum the compiler fuses). oneDNN adds b itself.

Single = npt.NDArray[np.float32]
_ONE = np.float32(1)


class FloatOrder(enum.Enum):
    """What is done to a sum f(acc) before it is multiplied for the last time.

    BARE: nothing. ADDED: + bias. FUSED: fma(bias, first, f(acc)). SCALED: · first · second + bias.
    RANGED: · first + bias; the last product is fma(…, multiplier, second).
    """

    BARE = "bare"
    ADDED = "added"
    FUSED = "fused"
    SCALED = "scaled"
    RANGED = "ranged"


class Onward(enum.Enum):
    """Where the codes of a product go: to reals, to other operators on codes, or into a Clip
    that is one of codes.
    """

    REALS = "reals"
    CODES = "codes"
    CLIP = "clip"


@dataclass(frozen=True, slots=True)
class Ranges:
    """What a RANGE is computed from besides the scales and the zero point of the output.

    Args:
        input_scale: of the data; of signed codes that become unsigned ones the float32 distance of
            both ends, divided by their number. low, high: ends of the output's codes.
        onward: where the codes go.
        signed: as of ``Scaling``.
    """

    input_scale: float
    low: int
    high: int
    onward: Onward = Onward.REALS
    signed: bool = False

    @classmethod
    def of(
        cls,
        x: QParams,
        y: QType,
        *,
        clipped: bool = False,
        onward: Onward = Onward.REALS,
        signed: bool = False,
    ) -> "Ranges":
        """Those of a product of data on ``x``, with codes of ``y``; the scale of codes that stay
        signed, behind a Clip or all, is as given.
        """
        if clipped or signed or not x.qtype.signed:
            return cls(float(x.scale), y.qmin, y.qmax, onward, signed)
        low, high = (
            np.float32(x.scale) * np.float32(end - int(x.zero_point))
            for end in (x.qtype.qmin, x.qtype.qmax)
        )
        return cls(
            float(np.float32(high - low) / np.float32(x.qtype.qmax - x.qtype.qmin)),
            y.qmin,
            y.qmax,
            onward,
            signed,
        )

    @property
    def span(self) -> np.float32:
        """L."""
        return np.float32(self.high - self.low)


@dataclass(frozen=True, slots=True, eq=False)
class FloatSteps:
    """The numbers by which an arithmetic of floats scales the sums of one node; every array
    broadcasts against them.

    Args:
        order: what is done first.
        multiplier: the last factor; its dtype is the one that all is computed in.
        bias, first, second: as ``order`` says.
        base: the code that results count from, of a RANGE.
    """

    order: FloatOrder
    multiplier: Reals
    bias: Single = field(default_factory=lambda: np.zeros((), np.float32))
    first: Single = field(default_factory=lambda: np.ones((), np.float32))
    second: Single = field(default_factory=lambda: np.ones((), np.float32))
    base: int = 0

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
            case FloatOrder.RANGED:
                values = np.multiply(values, self.first, dtype=dtype) + self.bias
                return fused_multiply_add(values, self.multiplier, self.second)
        return np.asarray(np.multiply(values, self.multiplier, dtype=dtype))


def real_codes(
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


def float_steps(
    scales: Scales,
    scaling: Scaling,
    bias: Ints | None,
    ranges: Ranges | None = None,
    zero_point: int = 0,
) -> FloatSteps:
    """The steps of ``scaling``; arguments as of ``real_codes``, and ``ranges`` and the output's
    zero point of RANGE.

    Raises:
        InputError: a multiplier, a reciprocal or a bias beyond its float's largest number.
    """
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        match scaling.form:
            case MultiplierForm.CHAIN:
                steps = _chain(scales, scaling, bias)
            case MultiplierForm.RANGE:
                ranges = ranges or Ranges(float(np.asarray(scales[0])), 0, 255)
                steps = _applied(range_steps(scales, bias, ranges, zero_point), ranges, zero_point)
            case _:
                steps = _product(scales, scaling, bias)
    if not all(
        np.isfinite(part).all()
        for part in (steps.multiplier, steps.bias, steps.first, steps.second)
    ):
        raise InputError(
            "Bringing scales to the floats by which the arithmetic multiplies",
            found="scales of which one, a product, a reciprocal or a bias leaves them",
            expected=f"finite numbers of {steps.multiplier.dtype}",
            remedy="Choose other scales, or another arithmetic.",
        )
    return steps


def _product(scales: Scales, scaling: Scaling, bias: Ints | None) -> FloatSteps:
    dtype: np.dtype[Any] = np.dtype(
        np.float32 if scaling.form is MultiplierForm.FLOAT32 else np.float64
    )
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
    x = x if scaling.inverted is Inverted.NONE else twice_inverted(x)
    w = twice_inverted(w) if scaling.inverted is Inverted.BOTH else w
    return FloatSteps(FloatOrder.SCALED, np.divide(_ONE, y, dtype=np.float32), real, x, w)


_DRIFT = np.float32(5e-5)
"""Offsets of channels that differ by less are that of the first."""
_NEGLIGIBLE = 1e-5
"""A smaller offset, as a share of all codes, counts as zero."""


def range_steps(scales: Scales, bias: Ints | None, ranges: Ranges, zero_point: int) -> FloatSteps:
    """The steps of a RANGE, its offset as it is computed."""
    y, span = np.asarray(scales[2], np.float32), ranges.span
    low, high = (
        np.asarray(y * np.float32(end - zero_point), np.float32)
        for end in (ranges.low, ranges.high)
    )
    first = _scale((ranges.input_scale, scales[1], 1.0))
    if bias is None or not np.any(bias):
        low, high = (np.divide(end, first, dtype=np.float32) for end in (low, high))
        first, real = np.ones((), np.float32), np.zeros((), np.float32)
    else:
        real = _real_bias(bias, _scale(scales))
    multiplier, offset = between(low, high, span)
    if (np.abs(offset - offset.flat[0]) < _DRIFT).all():
        offset = np.asarray(offset.flat[0])
    return FloatSteps(FloatOrder.RANGED, multiplier, real, first, offset)


def _applied(steps: FloatSteps, ranges: Ranges, zero_point: int) -> FloatSteps:
    """``steps`` of a range with factor and offset as they are applied, by where the codes go."""
    signed = ranges.low if _stay_signed(ranges, zero_point) else 0
    offset = without_negligible(
        np.asarray(steps.second + np.float32(signed), np.float32), ranges.span
    )
    handed = ranges.onward is Onward.CODES and steps.multiplier.size == 1 and not np.any(offset)
    factor = twice_inverted(steps.multiplier) if handed else steps.multiplier
    return replace(steps, multiplier=factor, second=offset, base=ranges.low - signed)


def _stay_signed(ranges: Ranges, zero_point: int) -> bool:
    """Whether signed codes stay so: others become unsigned ones, from 0 on."""
    if ranges.onward is Onward.REALS:
        return zero_point != 0
    return ranges.signed or ranges.onward is Onward.CLIP


def without_negligible(offset: Single, span: np.float32) -> Single:
    """``offset``, or 0 where there is one and it is a negligible share of ``span``."""
    return np.asarray(
        0 if offset.size == 1 and abs(offset) < span * _NEGLIGIBLE else offset, np.float32
    )


def range_factors(qparams: QParams) -> tuple[Single, Single]:
    """Factor and offset of a RANGE that quantizes real numbers by ``qparams``, codes counted
    from the lowest.
    """
    qtype, scale = qparams.qtype, np.asarray(qparams.scale, np.float32)
    points = np.asarray(qparams.zero_point, np.int64)
    low, high = (
        np.asarray(scale * (end - points).astype(np.float32)) for end in (qtype.qmin, qtype.qmax)
    )
    return between(low, high, np.float32(qtype.qmax - qtype.qmin))


def between(low: Single, high: Single, span: np.float32) -> tuple[Single, Single]:
    """Factor and offset that bring ``low`` … ``high`` to 0 … ``span``."""
    width = np.asarray(high - low, np.float32)
    return np.asarray(span / width, np.float32), np.asarray(-low * span / width, np.float32)


def _scale(scales: Scales) -> Single:
    return np.multiply(
        np.asarray(scales[0], np.float32), np.asarray(scales[1], np.float32), dtype=np.float32
    )


def _real_bias(bias: Ints, scale: Single) -> Single:
    """The float32 number of the quantized ``bias`` at ``scale``."""
    return np.asarray(bias.astype(np.float64) * scale, np.float32)


def twice_inverted(scale: Single) -> Single:
    """``scale`` handed over as its reciprocal, and inverted again."""
    return np.asarray(np.divide(_ONE, np.divide(_ONE, scale, dtype=np.float32), dtype=np.float32))
