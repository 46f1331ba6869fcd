"""Where integers begin and end: QuantizeLinear, DequantizeLinear, and a Clip of quantized
values.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import axis_of, float_qparams, int_attribute
from qbench.interpreter.arrays import Array, BatchError
from qbench.interpreter.float_kernels.reference import reference
from qbench.interpreter.kernel import KernelContext, KernelFunction
from qbench.numerics import (
    Arithmetic,
    NotANumber,
    QParams,
    Rounding,
    ZeroPoint,
    dequantize,
    quantize,
    range_factors,
)

# Reals to codes of one set of qparams, made once: in one compiled pass where it is per tensor and
# of up to 16 bits.
#
#     q = clamp(round(x / s + before)) + behind
#     the zero point is ``before`` or ``behind`` what is rounded
#
# The bits are those of ``numerics.quantize``, which does the rest.

Quantize = Callable[[Array], Array]

_ROUNDINGS = tuple(Rounding)
"""Their places are what the loops call them by."""
_WIDEST = 16


def quantizer(qparams: QParams, arithmetic: Arithmetic, *, compiled: bool) -> Quantize:
    """What quantizes float32 arrays of any shape, as ``arithmetic`` does; ``compiled`` where it
    can be.
    """
    if not compiled or qparams.axis is not None or qparams.qtype.bits > _WIDEST:
        return lambda x: quantize(x, qparams, arithmetic)
    from qbench.interpreter.compiled import quantized_codes

    rule, scale, zero = arithmetic.quantizing, np.float32(qparams.scale), int(qparams.zero_point)
    offset = zero if rule.zero_point is ZeroPoint.BEFORE else 0
    before, behind = np.float32(offset), zero - offset
    with np.errstate(over="ignore"):
        factor = np.divide(np.float32(1), scale) if rule.reciprocal else scale
    if rule.ranged:
        (factor, before), behind = map(np.float32, range_factors(qparams)), qparams.qtype.qmin
    ends = np.array([behind, *(end - behind for end in arithmetic.limits(qparams))], np.float32)
    run = quantized_codes(
        _ROUNDINGS.index(rule.rounding),
        inverse=rule.reciprocal,
        fused=rule.ranged or (rule.reciprocal and rule.zero_point is ZeroPoint.BEFORE),
        highest=rule.nan is NotANumber.HIGHEST,
    )
    dtype = qparams.qtype.storage_dtype
    bits = np.dtype(f"u{dtype.itemsize}")

    def codes(x: Array) -> Array:
        flat = x.ravel(order="K")
        if not np.may_share_memory(x, flat):
            x = np.ascontiguousarray(x)
            flat = x.reshape(-1)
        found = np.empty_like(x, dtype)
        run(flat, factor, before, ends, found.ravel(order="K").view(bits))
        return found

    return codes


# Where integers begin and end: QuantizeLinear, DynamicQuantizeLinear, DequantizeLinear, and a Clip
# of codes.

_ENDS_ARE_INPUTS = 11
"""The opset since which a Clip has its ends as inputs."""
_OTHER_REALS = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE})


def quantize_linear(making: KernelContext) -> KernelFunction:
    """Reals to codes by the arithmetic's own rule.

    Raises:
        ValueError: scales of blocks, or reals that are no float32.
    """
    floats = float_qparams(making.node)
    if floats is not None:
        _check_reals(making, making.node.inputs[0])
        return _each(lambda x: quantize(x, floats))
    _check(making, making.node.inputs[0])
    qparams = making.qparams(1, 2, axis=axis_of(making.node))
    codes = quantizer(qparams, making.arithmetic, compiled=making.means.compiled)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        assert inputs[0] is not None
        return (codes(inputs[0]),)

    return run


def dynamic_quantize_linear(making: KernelContext) -> KernelFunction:
    """Reals to uint8 codes, their scale and their zero point; the parameters by ONNX, the codes
    by the arithmetic.

        s = (max(x, 0) − min(x, 0)) / 255 in float32, 1 where that is 0
        z = clamp(round(−min(x, 0) / s))

    NaN is left out of the range and becomes the lowest code, as in ONNX Runtime.
    """
    arithmetic, compiled = making.arithmetic, making.means.compiled

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        low, high = (np.float32(end.reduce(x, axis=None, initial=0)) for end in (np.fmin, np.fmax))
        with np.errstate(over="ignore"):
            scale = np.float32(high - low) / np.float32(255) or np.float32(1)
        if not np.isfinite(scale):
            raise BatchError(f"a range of {low:.6g} … {high:.6g} has no scale in float32")
        point = np.clip(np.rint(-low / scale), 0, 255).astype(np.uint8)
        codes = quantizer(QParams(scale, int(point), "uint8"), arithmetic, compiled=compiled)
        return codes(x), np.asarray(scale), np.asarray(point)

    return run


def dequantize_linear(making: KernelContext) -> KernelFunction:
    """Codes to reals, which is exact but for one float32 product; by parameters of the batch,
    ONNX's own.

    Without a zero point the integers are of whatever type comes. Constants with scales of blocks,
    which no product of integers takes, are dequantized when the kernel is made; what they are
    multiplied with is multiplied in float.

    Raises:
        ValueError: scales of blocks of what is computed, or reals that would be no float32.
    """
    stored, floats = making.constant(0), float_qparams(making.node)
    if floats is not None:
        _check_reals(making, making.node.outputs[0])
        if stored is None:
            return _each(lambda codes: dequantize(codes, floats))
        real = dequantize(stored, floats)
        return lambda _: (real,)
    if stored is not None and int_attribute(making.node, "block_size", 0):
        return _stored_blocks(making, stored)
    _check(making, making.node.outputs[0])
    if any(making.constant(index) is None and not making.absent(index) for index in (1, 2)):
        return reference(making)
    axis = axis_of(making.node)
    data = making.node.inputs[0]
    if making.absent(2) and (data is None or data.dtype is None):
        return _dequantizing_any(making.scales(1), axis)
    qparams = making.qparams(1, 2, axis=axis)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        assert inputs[0] is not None
        return (dequantize(inputs[0], qparams),)

    return run


def clip(making: KernelContext) -> KernelFunction:
    """Clip with constant ends, of codes or of reals; with computed ends, or ends in attributes,
    ONNX's own.
    """
    ends = [making.constant(index) for index in (1, 2)]
    if making.opset < _ENDS_ARE_INPUTS or any(
        end is None and not making.absent(index) for index, end in zip((1, 2), ends, strict=True)
    ):
        return reference(making)
    low, high = ends

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        assert inputs[0] is not None
        return (np.clip(inputs[0], low, high),)

    return run


def _each(function: Callable[[Array], Array]) -> KernelFunction:
    """The kernel that applies ``function`` to its first input."""

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        assert inputs[0] is not None
        return (function(inputs[0]),)

    return run


def _stored_blocks(making: KernelContext, stored: Array) -> KernelFunction:
    """Constants with scales of blocks, as reals."""
    _check_reals(making, making.node.outputs[0])
    along = int_attribute(making.node, "axis", 1)
    block = int_attribute(making.node, "block_size", 0)
    name = stored.dtype.name if making.absent(2) else making.needed(2).dtype.name
    scales = making.scales(1)
    points = (
        np.zeros(scales.shape, np.int64) if making.absent(2) else making.needed(2).astype(np.int64)
    )
    real = dequantize(stored, QParams(scales, points, name, axis=along, block_size=block))
    return lambda _: (real,)


def _dequantizing_any(scales: npt.NDArray[np.float32], axis: int) -> KernelFunction:
    """Integers of the type they come in, with a zero point of 0."""
    single = scales.size == 1

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        codes = inputs[0]
        assert codes is not None
        name = codes.dtype.name
        qparams = (
            QParams(scales.reshape(()), 0, name) if single else QParams(scales, 0, name, axis=axis)
        )
        return (dequantize(codes, qparams),)

    return run


def _check(making: KernelContext, real: ir.Value | None) -> None:
    """Refuse blocks of a border, and reals other than float32 on its side of them.

    Raises:
        ValueError: why there is no kernel.
    """
    if int_attribute(making.node, "block_size", 0):
        raise ValueError("scales of blocks")
    _check_reals(making, real)


def _check_reals(making: KernelContext, real: ir.Value | None) -> None:
    """Refuse reals other than float32.

    Raises:
        ValueError: why there is no kernel.
    """
    found = None if real is None else real.dtype
    if making.node.op_type == "DequantizeLinear" and (
        written := int_attribute(making.node, "output_dtype", 0)
    ):
        found = ir.DataType(written)
    if found in _OTHER_REALS:
        raise ValueError(f"reals of {found.name.lower()}: arithmetics are known for float32")
