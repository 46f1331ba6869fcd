"""From an accumulator to a quantized value: y = clamp(round((acc + bias) · M) + z), M = s_x ·
s_w / s_y.
"""

from __future__ import annotations  # help() shows npt.ArrayLike, and not the union behind it

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError
from qbench.numerics.accumulator import Overflow, held, in_bits
from qbench.numerics.affine import dequantize, quantize
from qbench.numerics.arithmetic import (
    Arithmetic,
    Dequantizing,
    MultiplierForm,
    Precision,
    Scaling,
    ZeroPoint,
    arithmetic_for,
)
from qbench.numerics.multiplier import (
    Fixed,
    Ranges,
    Scales,
    exact_multipliers,
    float_steps,
    real_codes,
    real_multiplier,
    shift_steps,
    short_steps,
    steps_of,
)
from qbench.numerics.qparams import QParams
from qbench.numerics.qtype import QType, qtype_of
from qbench.numerics.rounding import WIDEST, Ints, Rounding, whole_codes

Wholes = npt.NDArray[np.object_]
"""Integers of Python, which have any size."""

_NUMERATOR: Any = np.frompyfunc(lambda one: one.numerator, 1, 1)
_DENOMINATOR: Any = np.frompyfunc(lambda one: one.denominator, 1, 1)

# What operators of two quantized arrays begin and end with: codes as int64, qparams per tensor,
# codes clamped.

QParamsOfThree = tuple[QParams, QParams, QParams]
"""Of both operands and the result; each per tensor."""


def require_per_tensor(qparams: QParamsOfThree) -> None:
    """Refuse qparams per channel.

    Raises:
        ValueError: there is one.
    """
    if any(one.axis is not None for one in qparams):
        raise ValueError("operators of two quantized operands have qparams per tensor")


def centred(codes: npt.ArrayLike, qparams: QParams) -> Ints:
    """``codes`` less the zero point of ``qparams``, int64."""
    return np.asarray(np.asarray(codes).astype(np.int64) - int(qparams.zero_point))


def clamped(codes: Ints, out: QParams, arithmetic: Arithmetic) -> npt.NDArray[Any]:
    """``codes`` as ``arithmetic`` gives them on ``out``, in its storage dtype."""
    return np.clip(codes, *arithmetic.limits(out)).astype(out.qtype.storage_dtype)


def refused(found: str, expected: str) -> InputError:
    """Operands that an arithmetic cannot bring together."""
    remedy = "Choose other qparams, or another arithmetic."
    return InputError(
        "Bringing two quantized operands together", found=found, expected=expected, remedy=remedy
    )


# What callers hand to ``requantize`` and to operators of two operands, looked at before anything is
# counted.
#
# Codes are in the range of their type, accumulators are integers that an int64 holds, a zero point
# and limits are codes of the output, scales are positive and finite as the arithmetic reads them,
# and all shapes belong together.

REQUANTIZING = "Requantizing accumulators"
_COUNTING = "Counting with quantized arrays"
_NAMES = ("input", "weight", "output")
_LARGEST = int(np.iinfo(np.int64).max)


def integers(values: npt.ArrayLike, what: str, doing: str = REQUANTIZING) -> Ints:
    """``values`` as int64; floats that are whole numbers below 2⁵³ are integers too.

    Raises:
        InputError: they are no integers, or beyond an int64.
    """
    array = np.asarray(values)
    if array.dtype.kind == "f" and bool(
        ((np.rint(array) == array) & (np.abs(array) < 2**53)).all()
    ):
        return array.astype(np.int64)
    if array.size and array.dtype.kind not in "iu":
        raise _refused(doing, f"{what} of {array.dtype}", "integers that an int64 holds")
    if array.size and array.dtype.kind == "u" and int(array.max()) > _LARGEST:
        raise _refused(doing, f"{what} up to {array.max()}", "integers that an int64 holds")
    return array.astype(np.int64)


def scales_read(scales: Scales, scaling: Scaling) -> tuple[float, npt.NDArray[np.float64], float]:
    """``scales`` of input, weight (a number, or 1-d) and output, as float64.

    Raises:
        InputError: one is not positive and finite as ``scaling`` reads it, or has another shape.
    """
    single = (
        scaling.precision is not Precision.DOUBLE
        or scaling.form is MultiplierForm.CHAIN
        or scaling.real_bias
    )
    found = [np.asarray(scale, np.float64) for scale in scales]
    for name, scale in zip(_NAMES, found, strict=True):
        dimensions = 1 if name == "weight" else 0
        if scale.ndim > dimensions:
            expected = "a number" if not dimensions else "a number, or one per channel"
            raise _refused(REQUANTIZING, f"scales of the {name} of shape {scale.shape}", expected)
        with np.errstate(over="ignore", under="ignore"):
            read = scale.astype(np.float32) if single else scale
        wrong = ~(np.isfinite(read) & (read > 0))
        if wrong.any():
            expected = "one that is positive and finite" + (
                " as float32, as it is read here" if single else ""
            )
            raise _refused(
                REQUANTIZING, f"a scale of {float(scale[wrong][0])!r} of the {name}", expected
            )
    return float(found[0]), found[1], float(found[2])


def code(value: object, qtype: QType, what: str) -> int:
    """``value``, an integer that is a code of ``qtype``.

    Raises:
        InputError: it is not.
    """
    array = np.asarray(value)
    if array.ndim or array.dtype.kind not in "iu" or not qtype.qmin <= int(array) <= qtype.qmax:
        raise _refused(
            REQUANTIZING, f"{what} {value!s}", f"a code of {qtype}: {qtype.qmin} … {qtype.qmax}"
        )
    return int(array)


def clamps(limits: tuple[int, int], qtype: QType) -> tuple[int, int]:
    """``limits``, two codes of ``qtype`` in order.

    Raises:
        InputError: they are not.
    """
    low, high = (code(one, qtype, "the limit") for one in limits)
    if low > high:
        raise _refused(REQUANTIZING, f"limits {low} … {high}", "the lower one first")
    return low, high


def along_axis(
    values: npt.NDArray[Any], shape: tuple[int, ...], axis: int, what: str
) -> npt.NDArray[Any]:
    """``values``, a number or one per channel, in a form that broadcasts against ``shape``.

    Raises:
        InputError: there is no such axis, or it has another number of channels.
    """
    if not values.ndim:
        return values
    if (
        values.ndim > 1
        or not -len(shape) <= axis < len(shape)
        or values.size not in (1, shape[axis])
    ):
        raise _refused(
            REQUANTIZING,
            f"{what} of shape {values.shape} along axis {axis} of accumulators of shape {shape}",
            "a number, or one per channel of that axis",
        )
    return values.reshape(
        tuple(-1 if index == axis % len(shape) else 1 for index in range(len(shape)))
    )


def operands(a: npt.ArrayLike, b: npt.ArrayLike, qparams: QParamsOfThree) -> tuple[Ints, Ints]:
    """Codes ``a`` and ``b`` as int64, which are on their qparams and broadcast.

    Raises:
        InputError: they are no such codes.
    """
    left, right = codes_on(a, qparams[0].qtype, "'a'"), codes_on(b, qparams[1].qtype, "'b'")
    try:
        np.broadcast_shapes(left.shape, right.shape)
    except ValueError as error:
        shapes = f"'a' of shape {left.shape} and 'b' of shape {right.shape}"
        raise _refused(_COUNTING, shapes, "shapes that broadcast") from error
    return left, right


def codes_on(values: npt.ArrayLike, qtype: QType, what: str) -> Ints:
    """``values``, codes of ``qtype``, as int64.

    Raises:
        InputError: they are none.
    """
    codes = integers(values, what, _COUNTING)
    if codes.size and (codes.min() < qtype.qmin or codes.max() > qtype.qmax):
        found = f"{what} of {codes.min()} … {codes.max()}"
        expected = f"codes of {qtype}: {qtype.qmin} … {qtype.qmax}"
        raise _refused(_COUNTING, found, expected)
    return codes


def _refused(doing: str, found: str, expected: str) -> InputError:
    return InputError(doing, found=found, expected=expected, remedy="Correct what is handed in.")


# From an accumulator to a code, under any arithmetic: y = clamp(round((acc + bias) · M) + z), M =
# s_x · s_w / s_y.
#
# The forms of M are in ``multiplier``, the rounding rules in ``rounding``; which of them, how often
# and in what order is an ``Arithmetic``. ``exact`` is the yardstick: M a rational, one rounding,
# nothing overflows. Everything that depends on the scales alone is computed once, by ``scaler``.

Scaler = Callable[[Ints], Ints]
"""Accumulators (int64) → round(acc · M) + z, not yet clamped."""


def requantize(
    acc: npt.ArrayLike,
    scales: Scales,
    zero_point: int,
    qtype: QType | str,
    arithmetic: Arithmetic | str,
    *,
    bias: npt.ArrayLike | None = None,
    axis: int = -1,
    limits: tuple[int, int] | None = None,
) -> npt.NDArray[Any]:
    """``acc`` as codes of the output.

    Args:
        acc: accumulators, integers of any shape.
        scales: of input, weight and output; the weight's a number or 1-d along ``axis``. They keep
            the precision that they are given in: an arithmetic that counts in float32 rounds them
            itself.
        zero_point: of the output.
        qtype: of the output, or its name.
        arithmetic: an arithmetic or its name; its rules for convolutions are used. Other products
            can have rules of their own, as gemmlowp's Gemm has: ``arithmetic.at("Gemm", "")`` gives
            them.
        bias: integers at s_x · s_w, a number or 1-d along ``axis``.
        axis: of ``acc``, that channels run along.
        limits: codes to clamp to, (lo, hi); None: the ends of the type.

    Returns:
        An array of acc's shape and the type's storage dtype.

    Raises:
        InputError: an unknown arithmetic or type, a multiplier that this one cannot hold, or
            arguments that are not as said here.
    """
    arithmetic = arithmetic_for(arithmetic, "Conv")
    qtype = qtype_of(qtype)
    sums = integers(acc, "accumulators")
    shape = sums.shape
    x, weight, y = scales_read(scales, arithmetic.scaling)
    along: Scales = (x, along_axis(weight, shape, axis, "scales of the weight"), y)
    added = None if bias is None else along_axis(integers(bias, "a bias"), shape, axis, "a bias")
    offset = code(zero_point, qtype, "the zero point")
    low, high = (
        (qtype.qmin + int(arithmetic.narrow and qtype.signed), qtype.qmax)
        if limits is None
        else clamps(limits, qtype)
    )
    real = added if arithmetic.scaling.real_bias else None
    if added is not None and real is None:
        sums = sums + added
    ranges = Ranges(x, qtype.qmin, qtype.qmax)
    codes = scaler(along, arithmetic.scaling, offset, real, ranges)(
        held(np.atleast_1d(sums), arithmetic.accumulator)
    )
    return np.clip(codes, low, high).astype(qtype.storage_dtype).reshape(shape)


def scaler(
    scales: Scales,
    scaling: Scaling,
    zero_point: int = 0,
    real_bias: Ints | None = None,
    ranges: Ranges | None = None,
) -> Scaler:
    """What multiplies accumulators by M, rounds and adds ``zero_point``.

    Args:
        scales: of input, weight and output; broadcast against the accumulators.
        scaling: how.
        zero_point: of the output.
        real_bias: integers at s_x · s_w, for a scaling whose bias stays a real number; broadcast
            too.
        ranges: of a RANGE; None: those of unsigned codes of 8 bits.

    Raises:
        InputError: a multiplier that this scaling cannot hold.
        ValueError: a real bias for a scaling whose bias is an integer.
    """
    if real_bias is not None and not scaling.real_bias:
        raise ValueError("this arithmetic adds a bias to its sums, as an integer")
    match scaling.form:
        case MultiplierForm.EXACT:
            return _in_rationals(scales, scaling, zero_point)
        case MultiplierForm.FLOAT32 | MultiplierForm.FLOAT64 | MultiplierForm.CHAIN:
            return _in_floats(scales, scaling, zero_point, real_bias)
        case MultiplierForm.RANGE:
            steps = float_steps(scales, scaling, real_bias, ranges, zero_point)
            rounding = scaling.stages[-1].rounding
            return lambda sums: (
                _inner(whole_codes(steps.reals(sums), rounding), scaling) + steps.base
            )
        case MultiplierForm.SHORT:
            rounded = short_steps(scales, scaling).codes
        case MultiplierForm.FIXED | MultiplierForm.FRACTION | MultiplierForm.POWER:
            rounded = shift_steps(scales, scaling).codes
    return lambda sums: _inner(rounded(sums), scaling) + zero_point


def fixed_scaler(fixed: Fixed, scaling: Scaling, zero_point: int = 0) -> Scaler:
    """As ``scaler``, of a FIXED multiplier that is there already."""
    rounded = steps_of(fixed, scaling).codes
    return lambda sums: _inner(rounded(sums), scaling) + zero_point


def _inner(codes: Ints, scaling: Scaling) -> Ints:
    return in_bits(codes, scaling.inner_bits, Overflow.SATURATE) if scaling.inner_bits else codes


def _in_rationals(scales: Scales, scaling: Scaling, zero_point: int) -> Scaler:
    """float64 wherever its error cannot reach a tie or a step, rationals where it could."""
    rounding = scaling.stages[-1].rounding
    offset = zero_point if scaling.zero_point is ZeroPoint.BEFORE else 0
    multiplier = real_multiplier(scales, scaling.precision)
    exact = exact_multipliers(scales)
    numerator = np.asarray(_NUMERATOR(exact), np.object_)
    denominator = np.asarray(_DENOMINATOR(exact), np.object_)

    def scale(sums: Ints) -> Ints:
        with np.errstate(over="ignore"):
            real = np.clip(sums * multiplier + offset, -WIDEST, WIDEST)
        codes = whole_codes(real, rounding)
        step = real - np.floor(real)
        near = (
            np.minimum(np.abs(step - 0.5), np.minimum(step, 1 - step))
            <= np.abs(real) * 2.0**-50 + 2.0**-60
        )
        near &= np.abs(real) < WIDEST
        if near.any():
            below = np.broadcast_to(denominator, sums.shape)[near]
            above = np.broadcast_to(numerator, sums.shape)[near] * sums[near] + below * offset
            codes[near] = _rounded_quotients(above, below, rounding)
        return _inner(codes, scaling) + (zero_point - offset)

    return scale


def _in_floats(scales: Scales, scaling: Scaling, zero_point: int, bias: Ints | None) -> Scaler:
    reals, rounding = real_codes(scales, scaling, zero_point, bias), scaling.stages[-1].rounding
    behind = zero_point if scaling.zero_point is ZeroPoint.AFTER else 0

    def scale(sums: Ints) -> Ints:
        with np.errstate(over="ignore"):
            # what leaves a float is clamped like every code out of range
            values = reals(sums)
        return _inner(whole_codes(values, rounding), scaling) + behind

    return scale


def _rounded_quotients(above: Wholes, below: Wholes, rounding: Rounding) -> Ints:
    """``above / below`` (integers of any size, ``below`` > 0) rounded to whole numbers."""
    low = above // below
    twice = 2 * (above - low * below)
    match rounding:
        case Rounding.FLOOR:
            goes_up = np.zeros(low.shape, np.bool_)
        case Rounding.TRUNCATE:
            goes_up = (above < 0) & (twice > 0)
        case Rounding.HALF_UP:
            goes_up = twice >= below
        case Rounding.HALF_AWAY:
            goes_up = (twice > below) | ((twice == below) & (above >= 0))
        case Rounding.HALF_EVEN:
            goes_up = (twice > below) | ((twice == below) & (low % 2 == 1))
    rounded: Ints = (low + goes_up).astype(np.int64)
    return rounded


# Requantizing codes to other qparams: y = clamp(round((q − z_x) · s_x / s_y) + z_y), under any
# arithmetic.
#
# An arithmetic with a scheme of its own (``Arithmetic.rescaling``) multiplies by it. Without one,
# arithmetics of float multipliers dequantize and quantize; those of integer multipliers, and the
# exact one, treat q − z_x as an accumulator.

Codes = npt.NDArray[Any]
_FLOATS = (
    MultiplierForm.FLOAT32,
    MultiplierForm.FLOAT64,
    MultiplierForm.CHAIN,
    MultiplierForm.RANGE,
)


def rescale_quantized(
    q: npt.ArrayLike, x: QParams, y: QParams, arithmetic: Arithmetic | str
) -> Codes:
    """Codes ``q``, which have the qparams ``x``, as codes of ``y``.

    Args:
        q: integers of any shape.
        x, y: qparams per tensor.
        arithmetic: an arithmetic or its name.

    Returns:
        An array of q's shape and the storage dtype of ``y``.

    Raises:
        InputError: an unknown arithmetic, a ratio of scales that this one cannot hold, or what is
            no code of ``x``.
        ValueError: qparams per channel.
    """
    return rescaler(x, y, arithmetic_for(arithmetic, "Requantize"))(codes_on(q, x.qtype, "codes"))


def rescaler(x: QParams, y: QParams, arithmetic: Arithmetic) -> Callable[[Codes], Codes]:
    """What brings codes from ``x`` to ``y``; all that depends on qparams alone is computed here.

    Raises:
        InputError: a ratio of scales that the arithmetic cannot hold.
        ValueError: qparams per channel.
    """
    if x.axis is not None or y.axis is not None:
        raise ValueError("codes are requantized from and to qparams per tensor")
    if (x.scale, x.zero_point, x.qtype) == (
        y.scale,
        y.zero_point,
        y.qtype,
    ) and not arithmetic.narrow:
        return lambda q: q
    if arithmetic.dequantizing is Dequantizing.FUSED and scaling_of_codes(arithmetic) is None:
        return lambda q: quantize(dequantize(q, x, arithmetic), y, arithmetic)
    bring, zero = centred_rescaler(x.scale, y, arithmetic), int(x.zero_point)
    return lambda q: bring(q.astype(np.int64) - zero)


def centred_rescaler(
    scale: npt.ArrayLike, y: QParams, arithmetic: Arithmetic
) -> Callable[[Codes], Codes]:
    """As ``rescaler``, of codes (int64, up to 32 bits) that have lost their zero point.

    Raises:
        InputError: a ratio of scales that the arithmetic cannot hold.
    """
    scaling = scaling_of_codes(arithmetic)
    if scaling is None:
        single = np.asarray(scale, np.float32)
        return lambda centred: quantize(
            np.asarray(centred.astype(np.float32) * single, np.float32), y, arithmetic
        )
    rounded = scaler((scale, 1.0, y.scale), scaling, int(y.zero_point))
    low, high = arithmetic.limits(y)
    return lambda centred: np.clip(rounded(centred), low, high).astype(y.qtype.storage_dtype)


def scaling_of_codes(arithmetic: Arithmetic) -> Scaling | None:
    """How the arithmetic multiplies codes without their zero point; None: it does so in floats."""
    return arithmetic.rescaling or (
        None if arithmetic.scaling.form in _FLOATS else arithmetic.scaling
    )
