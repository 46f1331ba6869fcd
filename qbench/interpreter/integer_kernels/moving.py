"""Operators that move or combine quantized values: Concat, Max, Min, Where, Pad, and movers."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from qbench.graph import int_attribute, ints_attribute, word_attribute
from qbench.interpreter.arrays import Array, BatchError, broadcast
from qbench.interpreter.float_kernels.reference import reference
from qbench.interpreter.integer_kernels.functions import all_codes, lookup
from qbench.interpreter.integer_kernels.operands import given_operands
from qbench.interpreter.kernel import KernelContext, KernelFunction
from qbench.numerics import QParams, quantize, rescaler

# Movers that ONNX's evaluator computes one element at a time, or engines not at all on integers: of
# any element type.
#
# Flatten makes a matrix of an empty batch too, which ONNX's evaluator refuses. Resize to
# the nearest picks along every axis by itself, x = f(o) and rounded:
#
#     asymmetric o / s       half_pixel (o + ½) / s − ½       align_corners o (n − 1) / (m − 1)
#
# in float32, as ONNX Runtime does; s is the scale given or m / n. Other modes are ONNX's own.

Single = npt.NDArray[np.float32]
_SCALES, _SIZES = 2, 3
_HALF = np.float32(0.5)
_ROI_IS_INPUT = 11


def flatten(making: KernelContext) -> KernelFunction:
    """Flatten to a matrix, of an empty batch too."""
    axis = int_attribute(making.node, "axis", 1)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        cut = axis + x.ndim if axis < 0 else axis
        return (x.reshape(math.prod(x.shape[:cut]), math.prod(x.shape[cut:])),)

    return run


def resize(making: KernelContext) -> KernelFunction:
    """Resize to the nearest by constant scales or sizes; anything else as ONNX's evaluator does
    it.
    """
    node = making.node
    place = _POSITIONS.get(word_attribute(node, "coordinate_transformation_mode", "half_pixel"))
    pick = _PICKS.get(word_attribute(node, "nearest_mode", "round_prefer_floor"))
    scales, sizes = making.constant(_SCALES), making.constant(_SIZES)
    scales = None if scales is None or not scales.size else scales
    stretched = word_attribute(node, "keep_aspect_ratio_policy", "stretch") == "stretch"
    nearest = word_attribute(node, "mode", "nearest") == "nearest" and making.opset >= _ROI_IS_INPUT
    if (
        place is None
        or pick is None
        or not stretched
        or not nearest
        or (scales is None) == (sizes is None)
    ):
        return reference(making)
    given = ints_attribute(node, "axes") if "axes" in node.attributes else None

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        result = x
        for index, axis in enumerate(
            range(x.ndim) if given is None else [axis % x.ndim for axis in given]
        ):
            old = x.shape[axis]
            if scales is not None:
                scale = np.float32(scales[index])
                new = int(np.floor(np.float32(old) * scale))
            else:
                assert sizes is not None
                new = int(sizes[index])
                scale = np.float32(new) / np.float32(old)
            if scale == 1:
                continue
            where = pick(place(np.arange(new, dtype=np.float32), scale, new, old)).astype(np.int64)
            result = np.take(result, np.clip(where, 0, old - 1), axis=axis)
        return (result,)

    return run


def _half_pixel(o: Single, scale: np.float32, new: int, old: int) -> Single:  # noqa: ARG001
    return (o + _HALF) / scale - _HALF


def _half_pixel_symmetric(o: Single, scale: np.float32, new: int, old: int) -> Single:
    adjustment = np.float32(new) / (scale * np.float32(old))
    offset = np.float32(old) / np.float32(2) * (np.float32(1) - adjustment)
    # ONNX Runtime computes the last step in float64.
    return np.asarray(float(offset) + (o.astype(np.float64) + 0.5) / float(scale) - 0.5, np.float32)


def _pytorch_half_pixel(o: Single, scale: np.float32, new: int, old: int) -> Single:
    return _half_pixel(o, scale, new, old) if new > 1 else np.zeros_like(o)


def _align_corners(o: Single, scale: np.float32, new: int, old: int) -> Single:  # noqa: ARG001
    return o * np.float32(old - 1) / np.float32(new - 1) if new > 1 else np.zeros_like(o)


def _asymmetric(o: Single, scale: np.float32, new: int, old: int) -> Single:  # noqa: ARG001
    return o / scale


_POSITIONS: Mapping[str, Callable[[Single, np.float32, int, int], Single]] = MappingProxyType(
    {
        "half_pixel": _half_pixel,
        "half_pixel_symmetric": _half_pixel_symmetric,
        "pytorch_half_pixel": _pytorch_half_pixel,
        "align_corners": _align_corners,
        "asymmetric": _asymmetric,
    }
)
_PICKS: Mapping[str, Callable[[Single], Single]] = MappingProxyType(
    {
        "round_prefer_floor": lambda x: np.ceil(x - _HALF),
        "round_prefer_ceil": lambda x: np.floor(x + _HALF),
        "floor": np.floor,
        "ceil": np.ceil,
    }
)


# Operands requantized to the qparams of the result, then combined: Concat, Max, Min, Where.
#
#     y = combine(round((x_i − z_i) · s_i / s_y) + z_y, …)
#
# Largest, smallest and chosen are the same before and after: rounding keeps the order.


def concat(making: KernelContext) -> KernelFunction:
    """QLinearConcat: s_y z_y, then x s_x z_x of every part."""
    node, y = making.node, making.qparams(0, 1)
    axis = int_attribute(node, "axis", 0)
    parts = [
        _bringing(making, place, making.qparams(place + 1, place + 2), y)
        for place in range(2, len(node.inputs), 3)
    ]

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        found = [part(inputs)[0] for part in parts]
        across = {np.delete(one.shape, axis).tobytes() for one in found}
        if len(across) > 1:
            raise BatchError(
                f"parts of {' and '.join(str(one.shape) for one in found)} along axis {axis}"
            )
        return (np.concatenate(found, axis=axis),)

    return run


def largest(making: KernelContext) -> KernelFunction:
    """QLinearMax: x s z of every operand, s_y z_y."""
    return _reduced(making, np.maximum)


def smallest(making: KernelContext) -> KernelFunction:
    """QLinearMin: as QLinearMax."""
    return _reduced(making, np.minimum)


def where(making: KernelContext) -> KernelFunction:
    """QLinearWhere: the condition in the place of a first operand, then as QLinearMax."""
    end = len(making.node.inputs)
    y = making.qparams(end - 2, end - 1)
    yes, no = (_operand(making, place, y) for place in (3, 6))

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        assert inputs[0] is not None
        chosen = yes(inputs)[0], no(inputs)[0]
        broadcast(inputs[0].shape, *(one.shape for one in chosen))
        return (np.where(inputs[0], *chosen),)

    return run


def requantize(making: KernelContext) -> KernelFunction:
    """QLinearRequantize: x s z s_y z_y, codes of one set of qparams to codes of another; x of
    up to 32 bits.
    """
    return _bringing(making, 0, making.qparams(1, 2), making.qparams(3, 4))


def _reduced(making: KernelContext, combine: "np.ufunc") -> KernelFunction:
    operands, y = given_operands(making)
    parts = [_operand(making, one.place, y) for one in operands]

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        found = [part(inputs)[0] for part in parts]
        broadcast(*(one.shape for one in found))
        return (reduce(combine, found),)

    return run


def _operand(making: KernelContext, place: int, y: QParams) -> KernelFunction:
    if not making.absent(place + 1):
        return _bringing(making, place, making.qparams(place + 1, place + 2), y)
    codes = quantize(making.needed(place), y, making.arithmetic)
    return lambda _: (codes,)


def _bringing(making: KernelContext, place: int, x: QParams, y: QParams) -> KernelFunction:
    """Requantizes the operand at ``place`` to ``y``: nothing where it has ``y``, a table where
    it has few codes.
    """
    bring = rescaler(x, y, making.arithmetic)
    if x.qtype.bits <= 16 and (x.scale, x.zero_point, x.qtype) != (y.scale, y.zero_point, y.qtype):
        return lookup(
            bring(all_codes(x)), x.qtype.qmin, compiled=making.means.compiled, place=place
        )

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        codes = inputs[place]
        assert codes is not None
        return (bring(codes),)

    return run
