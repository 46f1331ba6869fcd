"""Choosing quantization parameters for a range, and quantizing by them."""

from __future__ import annotations  # help() shows npt.ArrayLike, and not the union behind it

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError, unknown_name
from qbench.numerics.arithmetic import (
    Arithmetic,
    Dequantizing,
    NotANumber,
    ZeroPoint,
    arithmetic_for,
)
from qbench.numerics.float_format import FLOAT_FORMATS, FloatFormat
from qbench.numerics.multiplier import range_factors
from qbench.numerics.qparams import Floats, QParams
from qbench.numerics.qtype import QType, qtype_of
from qbench.numerics.rounding import fused_multiply_add, round_reals

# Choosing qparams for a range, and quantizing by it.
#
#     scale = (high − low) / (qmax − qmin)
#             asymmetric, after widening [low, high] to hold zero
#     scale = max(low / (qmin − z), high / (qmax − z))
#             symmetric: the smallest that covers both ends, z the middle
#     q     = clip(round_half_even(x / scale) + z, qmin, qmax)
#     x̂     = scale · (q − z)
#
# Of floats, ``largest`` their largest number:
#
#     scale = max |end| / largest
#     e8m0    2^(⌊log₂ max |end|⌋ − ⌊log₂ largest⌋)       OCP Microscaling Formats 1.0, 6.3
#     e4m3    s · e4m3fn(max |end| / (largest · s)),
#             s = max over all blocks of |end| / (largest · 448)    NVFP4, as NVIDIA has it
#     q     = nearest code of x / scale, saturated
#     x̂     = scale · number of q
#
# All in float64, the scale then rounded to float32. A range whose scale is below the smallest
# normal float32 (2⁻¹²⁶), [0, 0] above all, gets scale 1: zero stays exact and later products of
# scales do not vanish.

Symmetry = Literal["asymmetric", "symmetric", "symmetric_unsigned"]
ScaleKind = Literal["real", "pow2", "pow2_nearest", "e8m0", "e4m3"]
FloatArray = npt.NDArray[np.float32]

SMALLEST_SCALE = 2.0**-126
_LARGEST_POW2 = 2.0**127


def choose_qparams(
    low: npt.ArrayLike,
    high: npt.ArrayLike,
    /,
    qtype: QType | str,
    *,
    symmetry: Symmetry,
    narrow_range: bool = False,
    scale_kind: ScaleKind = "real",
    axis: int | None = None,
    block_size: int | None = None,
) -> QParams:
    """The qparams with the smallest scale whose codes cover [low, high] and zero.

    Args:
        low: the lower end, a number, or an array: 1-d per channel, the blocks' shape per block.
        high: the upper end, of the same shape.
        qtype: the type, or its name; one of floats is ``symmetric``, with its zero point at 0.
        symmetry: ``symmetric`` keeps the zero point at 0 (2^(bits−1) if unsigned);
            ``symmetric_unsigned`` puts it at qmin where low ≥ 0 and is symmetric elsewhere.
        narrow_range: leave out the lowest code.
        scale_kind: ``pow2`` rounds the scale up to a power of two (at most 2¹²⁷), ``pow2_nearest``
            to the nearest in ratio (the ends may then saturate), before the zero point is chosen.
            ``e8m0`` and ``e4m3`` are the shared scales of MX and NVFP4, of floats per block.
        axis: of the channels or blocks, as in ``QParams``.
        block_size: elements of a block, as in ``QParams``.

    Raises:
        InputError: a range that is not finite or runs backwards, an unknown type or family, arrays
            without an axis, one range with an axis.
    """
    lows, highs = _ends(low, high)
    if symmetry not in get_args(Symmetry):
        raise unknown_name(
            "Choosing quantization parameters", "symmetry", symmetry, get_args(Symmetry)
        )
    if scale_kind not in get_args(ScaleKind):
        raise unknown_name(
            "Choosing quantization parameters", "scale kind", scale_kind, get_args(ScaleKind)
        )
    if lows.ndim and axis is None:
        raise _refused("arrays of ranges without an axis", "an axis that they run along")
    if not lows.ndim and (axis is not None or block_size is not None):
        raise _refused(
            "one range with an axis or a block_size", "arrays of ranges, or neither of the two"
        )
    qtype = qtype_of(qtype)
    if qtype.floating is not None or scale_kind in _SHARED_SCALES:
        kind = QParamsKind(qtype, symmetry, narrow_range, scale_kind)
        return choose_float_scales(np.maximum(-lows, highs), kind, axis, block_size)
    qmin = qtype.qmin + int(narrow_range)
    spans = _spans(lows, highs, (qmin, qtype.middle, qtype.qmax), symmetry)
    scale = np.where(spans < SMALLEST_SCALE, 1.0, spans)
    if scale_kind != "real":
        scale = _power_of_two_above(scale) if scale_kind == "pow2" else _nearest_power_of_two(scale)
    scale = scale.astype(np.float32).astype(np.float64)
    if symmetry == "asymmetric":
        point = np.rint(qmin - lows / scale)
    else:
        point = np.where((lows < 0) | (symmetry == "symmetric"), float(qtype.middle), float(qmin))
    point = np.clip(point, qmin, qtype.qmax).astype(np.int64)
    return QParams(scale, point, qtype, axis=axis, block_size=block_size, narrow_range=narrow_range)


def quantize(
    x: npt.ArrayLike, qparams: QParams, arithmetic: Arithmetic | str | None = None
) -> npt.NDArray[Any]:
    """``x`` as codes, as ONNX QuantizeLinear has it.

    Float32 division, half to even, then the zero point, saturated.

    Args:
        x: real array, taken as float32. Infinities saturate; NaN becomes qmin, as in ONNX Runtime,
            or what the arithmetic makes of it; of floats ``FloatFormat.encode`` says what.
        qparams: of the codes.
        arithmetic: an arithmetic or its name, whose ``quantizing`` replaces the rule above; None:
            that rule.

    Returns:
        An array of x's shape and the type's storage dtype.

    Raises:
        InputError: there is no such arithmetic.
        ValueError: the parameters do not fit the shape.
    """
    real = np.asarray(x, np.float32)
    if arithmetic is not None:
        return _quantized_by(real, qparams, arithmetic_for(arithmetic, "QuantizeLinear"))
    if qparams.qtype.floating is not None:
        return _rounded_to_floats(real, qparams, qparams.qtype.floating)
    scale, point = qparams.expanded(real.shape)
    # Rounded values beyond 2^24 saturate in a type of 16 bits, so that float32 holds every sum that
    # matters there.
    counting = np.float32 if qparams.qtype.bits <= 16 else np.float64
    with np.errstate(over="ignore", invalid="ignore"):
        codes = np.asarray(np.divide(real, scale, dtype=np.float32).astype(counting, copy=False))
        # In place: a constant of 1 GB must not be in memory four times.
        np.rint(codes, out=codes)
        np.add(codes, point.astype(counting), out=codes)
        np.fmax(codes, counting(qparams.qmin), out=codes)
        np.fmin(codes, counting(qparams.qmax), out=codes)
    return np.asarray(codes.astype(qparams.qtype.storage_dtype))


def _rounded_to_floats(
    real: FloatArray, qparams: QParams, floating: FloatFormat
) -> npt.NDArray[np.uint8]:
    """By the rule of ONNX, which every arithmetic here has: x / s in float32, rounded half to even,
    saturated.
    """
    scale, _ = qparams.expanded(real.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        return floating.encode(np.divide(real, scale, dtype=np.float32))


def _quantized_by(real: FloatArray, qparams: QParams, arithmetic: Arithmetic) -> npt.NDArray[Any]:
    """In float32: x / s or x · (1 / s), the zero point before or behind the rounding."""
    if qparams.qtype.floating is not None:
        return _rounded_to_floats(real, qparams, qparams.qtype.floating)
    rule, (low, high) = arithmetic.quantizing, arithmetic.limits(qparams)
    if rule.ranged:
        return _ranged(real, qparams, arithmetic)
    scale, point = qparams.expanded(real.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = np.divide(real, scale, dtype=np.float32)
        if rule.reciprocal:
            inverse = np.divide(np.float32(1), scale, dtype=np.float32)
            ratio = np.multiply(real, inverse, dtype=np.float32)
        if rule.zero_point is ZeroPoint.BEFORE:
            if rule.reciprocal and qparams.axis is None:  # one fused step
                ratio = fused_multiply_add(real, inverse, point)
            else:
                ratio = np.add(ratio, point.astype(np.float32), dtype=np.float32)
        codes = round_reals(ratio.astype(np.float64), rule.rounding)
        if rule.zero_point is ZeroPoint.AFTER:
            codes = codes + point
        if rule.nan is NotANumber.HIGHEST:
            codes = np.fmax(np.fmin(codes, float(high)), float(low))
        codes = np.fmin(np.fmax(codes, float(low)), float(high))
    return np.asarray(codes.astype(qparams.qtype.storage_dtype))


def _ranged(real: FloatArray, qparams: QParams, arithmetic: Arithmetic) -> npt.NDArray[Any]:
    """By factor and offset of a RANGE, in one fused step."""
    low, high = arithmetic.limits(qparams)
    factor, offset = range_factors(qparams)
    if qparams.axis is not None:
        shape = [1] * real.ndim
        shape[qparams.axis] = -1
        factor, offset = factor.reshape(shape), offset.reshape(shape)
    with np.errstate(over="ignore", invalid="ignore"):
        reals = fused_multiply_add(real, factor, offset)
        codes = (
            round_reals(reals.astype(np.float64), arithmetic.quantizing.rounding)
            + qparams.qtype.qmin
        )
        codes = np.fmin(np.fmax(codes, float(low)), float(high))
    return np.asarray(codes.astype(qparams.qtype.storage_dtype))


def dequantize(
    q: npt.ArrayLike, qparams: QParams, arithmetic: Arithmetic | str | None = None
) -> FloatArray:
    """The real values of codes ``q``: float32(q − zero_point) · scale, float32.

    Args:
        q: codes; those of floats as bits, uint8.
        qparams: of the codes.
        arithmetic: an arithmetic or its name, whose ``dequantizing`` replaces the rule above; None:
            that rule.

    Raises:
        InputError: there is no such arithmetic.
        ValueError: numbers out of the range of the type, or parameters that do not fit the shape.
    """
    codes = np.asarray(q)
    if qparams.qtype.floating is not None:
        scale, _ = qparams.expanded(codes.shape)
        return np.asarray(qparams.qtype.floating.decode(codes) * scale, np.float32)
    _require_codes(codes, qparams.qtype)
    scale, point = qparams.expanded(codes.shape)
    dequantizing = (
        arithmetic_for(arithmetic, "DequantizeLinear").dequantizing
        if arithmetic
        else Dequantizing.CENTRED
    )
    if dequantizing is Dequantizing.FUSED:
        moved = np.asarray(scale * point.astype(np.float32), np.float32)
        return fused_multiply_add(codes.astype(np.float32), scale, -moved)
    counting = np.int32 if qparams.qtype.bits <= 16 else np.int64
    centred = codes.astype(counting) - point.astype(counting)
    return np.asarray(centred.astype(np.float32) * scale, np.float32)


def fake_quantize(x: npt.ArrayLike, qparams: QParams) -> FloatArray:
    """``x`` after a round trip over codes: real values, float32, of x's shape."""
    return dequantize(quantize(x, qparams), qparams)


def _require_codes(codes: npt.NDArray[Any], qtype: QType) -> None:
    if codes.size and codes.dtype.kind in "fcbO":
        raise ValueError(f"codes are integers, not {codes.dtype}")
    # A numpy type of the same name holds these codes and no others; types of 2 and 4 bits are none
    # of numpy's kinds.
    if codes.size and codes.dtype.kind in "iu" and codes.dtype.name != qtype.name:
        low, high = codes.min(), codes.max()
        if low < qtype.qmin or high > qtype.qmax:
            raise ValueError(
                f"codes of {qtype} lie in {qtype.qmin} … {qtype.qmax}, not {low} … {high}"
            )


def _ends(low: npt.ArrayLike, high: npt.ArrayLike) -> tuple[Floats, Floats]:
    lows, highs = np.asarray(low, np.float64), np.asarray(high, np.float64)
    if lows.shape != highs.shape:
        raise _refused(f"lows of shape {lows.shape} and highs of shape {highs.shape}", "one shape")
    largest = float(np.finfo(np.float32).max)
    if not ((np.abs(lows) <= largest).all() and (np.abs(highs) <= largest).all()):
        raise _refused("an end that is not finite as float32", "finite ends")
    if (lows > highs).any():
        raise _refused("a low end above its high end", "low ≤ high")
    return np.minimum(lows, 0.0), np.maximum(highs, 0.0)


def _spans(lows: Floats, highs: Floats, ends: tuple[int, int, int], symmetry: Symmetry) -> Floats:
    """The smallest covering scales, before any rounding; ``ends`` is (qmin, middle, qmax)."""
    qmin, middle, qmax = ends
    whole = (highs - lows) / (qmax - qmin)
    if symmetry == "asymmetric":
        return whole
    mirrored = np.maximum(lows / (qmin - middle), highs / (qmax - middle))
    return mirrored if symmetry == "symmetric" else np.where(lows < 0, mirrored, whole)


def _power_of_two_above(scale: Floats) -> Floats:
    fraction, exponent = np.frexp(scale)
    return np.asarray(np.minimum(np.ldexp(1.0, exponent - (fraction == 0.5)), _LARGEST_POW2))


def _nearest_power_of_two(scale: Floats) -> Floats:
    """2^round(log₂ scale), a tie (√2 exactly is no float) going up."""
    fraction, exponent = np.frexp(scale)
    return np.asarray(np.ldexp(1.0, np.minimum(exponent - (fraction < np.sqrt(0.5)), 127)))


def _refused(found: str, expected: str) -> InputError:
    return InputError(
        "Choosing quantization parameters",
        found=found,
        expected=expected,
        remedy="Correct the range.",
    )


# The scales of types of floats. Those of blocks that are zero throughout are 1 (2⁻⁹ where e4m3fn
# times a scale of the tensor stores them): the OCP text leaves them open.

_SHARED_SCALES = frozenset({"e8m0", "e4m3"})
_SMALLEST_WHOLE = 2.0**-100
"""Products with any number of e4m3fn are normal float32, which a quotient gives back."""
_E8M0, _E4M3 = FLOAT_FORMATS["float8e8m0"], FLOAT_FORMATS["float8e4m3fn"]


def choose_float_scales(
    reach: Floats, kind: QParamsKind, axis: int | None, block_size: int | None
) -> QParams:
    """The qparams of ``kind``, of floats, for values that reach ±``reach``.

    Raises:
        InputError: a kind that floats do not have.
    """
    floating, scale_kind = kind.qtype.floating, kind.scale_kind
    if floating is None:
        raise _refused(f"scales of {scale_kind} for {kind.qtype}", "a type of floats with them")
    if kind.symmetry != "symmetric" or kind.narrow_range:
        words = "a narrow range" if kind.narrow_range else f"'{kind.symmetry}' qparams"
        raise _refused(f"{words} of {kind.qtype}", "symmetric ones, as floats have no zero point")
    if scale_kind in _SHARED_SCALES and block_size is None:
        raise _refused(f"scales of {scale_kind} without blocks", "a block_size")
    tensor_scale = None
    if scale_kind == "e8m0":
        exponent = np.frexp(np.where(reach > 0, reach, 1.0))[1] - 1 - floating.largest_exponent
        exponent = np.where(reach > 0, np.clip(exponent, -127, 127), 0)
        scale = np.ldexp(1.0, exponent)
    elif scale_kind == "e4m3":
        scale, tensor_scale = _scaled_twice(reach, floating)
    else:
        spans = reach / floating.largest
        scale = np.where(spans < SMALLEST_SCALE, 1.0, spans)
        if scale_kind != "real":
            powers = {"pow2": _power_of_two_above, "pow2_nearest": _nearest_power_of_two}
            scale = powers[scale_kind](scale)
    return QParams(
        scale,
        0,
        kind.qtype,
        axis=axis,
        block_size=block_size,
        scale_type={"e8m0": _E8M0, "e4m3": _E4M3}.get(scale_kind),
        tensor_scale=tensor_scale,
    )


def _scaled_twice(reach: Floats, floating: FloatFormat) -> tuple[FloatArray, float]:
    """The scales of blocks as float32, and the scale of the tensor in them.

    A scale that e4m3fn would round to zero is its smallest number: no block vanishes.
    """
    whole = np.float32(float(reach.max(initial=0.0)) / (floating.largest * _E4M3.largest))
    whole = whole if whole >= _SMALLEST_WHOLE else np.float32(1)
    parts = (reach / floating.largest).astype(np.float32) / whole
    codes = np.maximum(_E4M3.encode(parts), np.uint8(1))
    return np.asarray(_E4M3.decode(codes) * whole, np.float32), float(whole)


@dataclass(frozen=True, slots=True)
class QParamsKind:
    """What is decided of qparams before a range is known; ``choose`` gives them a scale and a zero
    point. The fields are those of ``choose_qparams``.
    """

    qtype: QType
    symmetry: Symmetry
    narrow_range: bool = False
    scale_kind: ScaleKind = "real"

    @property
    def qmin(self) -> int:
        """The lowest code in use."""
        return self.qtype.qmin + int(self.narrow_range)

    @property
    def qmax(self) -> int:
        """The highest code in use."""
        return self.qtype.qmax

    @property
    def code_count(self) -> int:
        """How many codes there are."""
        return self.qmax - self.qmin + 1

    @property
    def zero_points(self) -> frozenset[int] | None:
        """Those that its family has; None: any of the type."""
        if self.symmetry == "symmetric":
            return frozenset({self.qtype.middle})
        if self.symmetry == "symmetric_unsigned":
            return frozenset({self.qmin, self.qtype.middle})
        return None

    def mirrors(self, low: float) -> bool:
        """Whether a range that begins at ``low`` is widened to [−a, a]: unsigned families do so
        for negative ones.
        """
        return self.symmetry == "symmetric" or (self.symmetry == "symmetric_unsigned" and low < 0)

    def choose(
        self,
        low: npt.ArrayLike,
        high: npt.ArrayLike,
        *,
        axis: int | None = None,
        block_size: int | None = None,
    ) -> QParams:
        """Parameters that represent [low, high]: numbers, or arrays along ``axis`` (of the
        blocks' shape per block).

        Raises:
            InputError: what ``choose_qparams`` refuses.
        """
        return choose_qparams(
            low,
            high,
            self.qtype,
            symmetry=self.symmetry,
            narrow_range=self.narrow_range,
            scale_kind=self.scale_kind,
            axis=axis,
            block_size=block_size,
        )


# A clip before Q equals a clip of quantized values after it, as rounding never changes order.
#
# Q(min(max(x, low), high)) = min(max(Q(x), Q(low)), Q(high))        for every x, exactly


def clip_codes(low: float, high: float, qparams: QParams) -> tuple[int, int]:
    """The codes that a clip to [low, high] (infinite ends allowed) becomes with qparams per tensor.

    Where they are the ends of the type, saturation does what the clip did.
    """
    ends = quantize([low, high], qparams)
    return int(ends[0]), int(ends[1])


# Gradients of fake quantization by straight-through rules.

Rule = Literal["tqt", "fakequant"]


@dataclass(frozen=True, slots=True, eq=False)
class FakeQuantizeGrad:
    """Gradients of a loss: ``x`` in x's shape, others in the parameters' shape; float32."""

    x: FloatArray
    scale: FloatArray
    zero_point: FloatArray
    log2_threshold: FloatArray


def fake_quantize_grad(
    x: npt.ArrayLike, qparams: QParams, upstream: npt.ArrayLike | None = None, *, rule: Rule = "tqt"
) -> FakeQuantizeGrad:
    """What ``fake_quantize(x, qparams)`` passes back.

    Args:
        x: real array, taken as float32.
        qparams: per tensor or per channel.
        upstream: gradient of the loss by x̂, of x's shape; None: ones.
        rule: ``tqt`` (TQT and LSQ), or ``fakequant``.

    Raises:
        InputError: an unknown rule.
        ValueError: the parameters or ``upstream`` do not fit the shape, or the parameters are per
            block.
    """
    if rule not in get_args(Rule):
        raise unknown_name(
            "Differentiating a fake quantization", "gradient rule", rule, get_args(Rule)
        )
    if qparams.qtype.is_float:
        raise ValueError(f"gradients are given for integers, not for {qparams.qtype}")
    if qparams.block_size is not None:
        raise ValueError("gradients are given per tensor and per channel, not per block")
    real = np.asarray(x, np.float32).astype(np.float64)
    back = np.ones_like(real) if upstream is None else np.asarray(upstream, np.float64)
    if back.shape != real.shape:
        raise ValueError(f"upstream has x's shape {real.shape}, not {back.shape}")
    scale, point = (part.astype(np.float64) for part in qparams.expanded(real.shape))
    # The division is the forward pass's own, in float32: the band that passes is the one that did
    # not saturate.
    with np.errstate(over="ignore"):
        ratio = np.divide(real.astype(np.float32), scale.astype(np.float32), dtype=np.float32)
    code = np.rint(ratio) + point
    below, above = code < qparams.qmin, code > qparams.qmax
    inside = ~(below | above)
    rounding = np.rint(ratio) - real / scale if rule == "tqt" else 0.0
    by_scale = np.where(
        inside, rounding, np.where(below, qparams.qmin - point, qparams.qmax - point)
    )
    by_point = np.where(inside, 0.0, -scale)
    scale_grad = _reduced(back * by_scale, qparams)
    return FakeQuantizeGrad(
        x=np.asarray(back * inside, np.float32),
        scale=scale_grad.astype(np.float32),
        zero_point=_reduced(back * by_point, qparams).astype(np.float32),
        log2_threshold=(scale_grad * qparams.scale.astype(np.float64) * np.log(2.0)).astype(
            np.float32
        ),
    )


def _reduced(gradient: npt.NDArray[np.float64], qparams: QParams) -> npt.NDArray[np.float64]:
    """Summed over everything that shares a pair of parameters."""
    if qparams.axis is None:
        return np.asarray(gradient.sum())
    axis = qparams.axis % gradient.ndim
    return np.asarray(gradient.sum(axis=tuple(i for i in range(gradient.ndim) if i != axis)))
