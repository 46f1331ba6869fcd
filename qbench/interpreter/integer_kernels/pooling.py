"""Pools, sums and means of quantized values."""

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError, UnsupportedError
from qbench.graph import int_attribute, ints_attribute, node_key
from qbench.interpreter.arrays import Array
from qbench.interpreter.float_kernels.reference import reference
from qbench.interpreter.kernel import KernelContext, KernelFunction
from qbench.interpreter.windows import Windows, channels_first, channels_last
from qbench.numerics import Averaging, QParams, averager, dequantize, held, quantize

# What makes means of sums, once for every number of elements: y = clamp(round(Σ (x − z_x) · s_x /
# (s_y · n)) + z_y).
#
# An arithmetic may hold the multiplier between two scales and not that over n: shifts alone do not
# where n is no power of two.

Ints64 = npt.NDArray[np.int64]
Averager = Callable[[Ints64], Ints64]
"""Σ (x − z_x) → codes, not yet clamped."""


class Averagers:
    """The averagers of one node.

    Args:
        making: of the node.
        x, y: qparams of the data and of the result.
        beyond: whether they are of the channels beyond the arithmetic's blocks (``Remainder``).

    Raises:
        InputError: a multiplier between the scales that the arithmetic cannot hold.
    """

    def __init__(
        self, making: KernelContext, x: QParams, y: QParams, *, beyond: bool = False
    ) -> None:
        self._making, self._x, self._y = making, x, y
        self._arithmetic = making.arithmetic.beyond_blocks if beyond else making.arithmetic
        self._made: dict[tuple[Averaging, tuple[int, ...], bytes], Averager] = {}

    def of(self, scheme: Averaging, counts: Ints64) -> Averager:
        """By ``scheme`` over ``counts`` elements each, broadcast against the sums.

        Raises:
            UnsupportedError: a multiplier over so many elements that the arithmetic cannot hold.
        """
        key = scheme, counts.shape, counts.tobytes()
        if key not in self._made:
            self._made[key] = self._new(scheme, counts)
        return self._made[key]

    def _new(self, scheme: Averaging, counts: Ints64) -> Averager:
        arithmetic = self._arithmetic
        averager(scheme, self._x, self._y, counts * 0 + 1, arithmetic)
        try:
            return averager(scheme, self._x, self._y, counts, arithmetic)
        except InputError as error:
            least, most = int(counts.min()), int(counts.max())
            raise UnsupportedError(
                f"Averaging at '{node_key(self._making.node)}' by the arithmetic "
                f"'{arithmetic.name}'",
                found=(
                    f"{error.found}, over {least if least == most else f'{least} to {most}'} "
                    "elements"
                ),
                expected=error.expected,
                remedy="Keep the node in float, or choose another backend.",
            ) from error


# Pools over codes: the largest one moves; an average is a sum that is scaled.


def max_pool(making: KernelContext) -> KernelFunction:
    """MaxPool of codes, or of floats: padding never wins. One with indices is a float kernel's.

    NaN wins wherever it is, as in PyTorch; ONNX Runtime 1.31 on x64 keeps one that is last in its
    window, no other.
    """
    window = ints_attribute(making.node, "kernel_shape")
    if not window or len(making.node.outputs) > 1:
        return reference(making)
    windows = Windows.of(making.node, window)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        last = channels_last(x)
        lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
        counts, padded = windows.outputs_for(last.shape[1:-1]), windows.padded(last, lowest)
        first, *rest = windows.offsets()
        best = windows.tap(padded, first, counts).copy()
        for offset in rest:
            np.maximum(best, windows.tap(padded, offset, counts), out=best)
        return (channels_first(best),)

    return run


def average_pool(making: KernelContext) -> KernelFunction:
    """QLinearAveragePool: x s_x z_x s_y z_y."""
    x, y, arithmetic = making.qparams(1, 2), making.qparams(3, 4), making.arithmetic
    window = ints_attribute(making.node, "kernel_shape")
    if not window or int_attribute(making.node, "channels_last", 0):
        raise ValueError("an average pool without a kernel shape, or with channels last")
    windows = Windows.of(making.node, window)
    padding_counts = bool(int_attribute(making.node, "count_include_pad", 0))
    averagers = Averagers(making, x, y)

    @functools.cache
    def scheme_and_sizes(spatial: tuple[int, ...]) -> tuple[Averaging, Array]:
        sizes = _sizes(windows, spatial, padding_counts=padding_counts)
        # ONNX Runtime computes a window that is the whole input by its global average, which sums
        # integers.
        of_all = windows.sizes == spatial and not np.any(windows.pads_for(spatial))
        scaled = (arithmetic.averaging is Averaging.REAL and of_all) or (
            arithmetic.averaging is Averaging.DIVIDED and padding_counts
        )
        return Averaging.SCALED if scaled else arithmetic.averaging, sizes

    data = making.node.inputs[0]
    known = (
        [size for size in data.shape[2:] if isinstance(size, int)]
        if data is not None and data.shape
        else []
    )
    if len(known) == len(windows.sizes):
        scheme, sizes = scheme_and_sizes(tuple(known))
        if scheme is not Averaging.REAL:
            # a multiplier that the arithmetic cannot hold is reported now
            averagers.of(scheme, sizes)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        codes = inputs[0]
        assert codes is not None
        last = channels_last(codes)
        spatial = last.shape[1:-1]
        counts, padded = windows.outputs_for(spatial), windows.padded(last, int(x.zero_point))
        taps = [windows.tap(padded, offset, counts) for offset in windows.offsets()]
        scheme, sizes = scheme_and_sizes(spatial)
        if scheme is Averaging.REAL:
            rounded = _real_mean(taps, sizes, x, y)
        else:
            # Padding is at the zero point, so that it adds nothing.
            sums = np.asarray(sum(tap.astype(np.int64) - int(x.zero_point) for tap in taps))
            rounded = averagers.of(scheme, sizes)(sums)
        clipped = making.counters.clip(rounded, *arithmetic.limits(y))
        return (channels_first(clipped.astype(y.qtype.storage_dtype)),)

    return run


def _sizes(windows: Windows, spatial: tuple[int, ...], *, padding_counts: bool) -> Array:
    """How many elements every window has: of the input, or of it and its padding; never of what
    lies behind both.
    """
    padded = windows.padded(np.ones((1, *spatial, 1), np.int64), 0)
    if padding_counts:
        pads = windows.pads_for(spatial)
        ends = (
            slice(before + size + after)
            for size, (before, after) in zip(spatial, pads, strict=True)
        )
        padded = padded.copy()
        padded[(slice(None), *ends)] = 1
    counts = windows.outputs_for(spatial)
    return np.asarray(sum(windows.tap(padded, offset, counts) for offset in windows.offsets()))


def _real_mean(taps: list[Array], sizes: Array, x: QParams, y: QParams) -> Array:
    """In float32, in the order of the window, the zero point within what is rounded."""
    total = np.zeros(taps[0].shape, np.float32)
    for tap in taps:
        total += (tap.astype(np.float32) - np.float32(x.zero_point)) * x.scale
    return np.rint(total / sizes.astype(np.float32) / y.scale + np.float32(y.zero_point)).astype(
        np.int64
    )


# Sums and means of codes along axes, by the arithmetic's scheme for means: GlobalAveragePool,
# ReduceMean, ReduceSum.
#
#     y = clamp(round(Σ (x − z_x) · s_x / (s_y · n)) + z_y),      n = 1 for a sum
#
# The scheme of floats dequantizes, takes ONNX's mean or sum, and quantizes by the arithmetic's own
# rule.

_AXES = 3
"""The place of the axes, where they are an input."""


def global_average(making: KernelContext) -> KernelFunction:
    """QLinearGlobalAveragePool: x s z s_y z_y, over all axes but the batch and the channels."""
    last = bool(int_attribute(making.node, "channels_last", 0))
    mean = _Reduction(making, making.qparams(3, 4), mean=True, channels=-1 if last else 1)
    known = _known_shape(making)
    if known is not None:
        mean.prepare(
            [known[axis] for axis in (range(1, len(known) - 1) if last else range(2, len(known)))]
        )

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        codes = inputs[0]
        assert codes is not None
        axes = tuple(range(1, codes.ndim - 1)) if last else tuple(range(2, codes.ndim))
        return (mean(codes, axes, keep=True),)

    return run


def reduce_mean(making: KernelContext) -> KernelFunction:
    """QLinearReduceMean: x s z, axes in the place of a second operand or as an attribute, s_y
    z_y.
    """
    return _reduced(making, mean=True)


def reduce_sum(making: KernelContext) -> KernelFunction:
    """QLinearReduceSum, likewise."""
    return _reduced(making, mean=False)


def _reduced(making: KernelContext, *, mean: bool) -> KernelFunction:
    node, end = making.node, len(making.node.inputs)
    reduction = _Reduction(making, making.qparams(end - 2, end - 1), mean=mean)
    keep = bool(int_attribute(node, "keepdims", 1))
    given = ints_attribute(node, "axes")
    if end > _AXES + 2 and not making.absent(_AXES):
        given = tuple(int(axis) for axis in making.needed(_AXES).reshape(-1))
    everything = not int_attribute(node, "noop_with_empty_axes", 0)
    known = _known_shape(making)
    if known is not None:
        reduction.prepare(
            [known[axis] for axis in given or (range(len(known)) if everything else ())]
        )

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        codes = inputs[0]
        assert codes is not None
        axes = given or (tuple(range(codes.ndim)) if everything else ())
        return (reduction(codes, tuple(axis % codes.ndim for axis in axes), keep=keep),)

    return run


def _known_shape(making: KernelContext) -> tuple[int | None, ...] | None:
    """Of the data, None for every dimension that is free; None where not even the rank is known."""
    value = making.node.inputs[0]
    if value is None or value.shape is None:
        return None
    return tuple(size if isinstance(size, int) else None for size in value.shape)


class _Reduction:
    """The sums or means of a node; what depends on the number of elements is made once for each
    number.

    ``channels``: of means over planes, the axis along which an arithmetic may count in blocks.
    """

    def __init__(
        self, making: KernelContext, y: QParams, *, mean: bool, channels: int | None = None
    ) -> None:
        self._x, self._y, self._mean, self._channels = making.qparams(1, 2), y, mean, channels
        self._arithmetic, self._counters = making.arithmetic, making.counters
        self._averagers = Averagers(making, self._x, y)
        self._beyond = Averagers(making, self._x, y, beyond=True)
        self.prepare([])

    def prepare(self, sizes: Sequence[int | None]) -> None:
        """Make now what averages over axes of these ``sizes``, so that what cannot be done is
        reported at once.
        """
        known = [size for size in sizes if size is not None]
        if self._arithmetic.mean is not Averaging.REAL and len(known) == len(sizes):
            self._over(math.prod(known))

    def __call__(self, codes: Array, axes: tuple[int, ...], *, keep: bool) -> Array:
        if self._arithmetic.mean is Averaging.REAL:
            real = dequantize(codes, self._x)
            reduced = (
                real.mean(axes, np.float32, keepdims=keep)
                if self._mean
                else real.sum(axes, keepdims=keep)
            )
            return quantize(reduced, self._y, self._arithmetic)
        count = int(np.prod([codes.shape[axis] for axis in axes], dtype=np.int64))
        totals = np.asarray(codes.sum(axis=axes, keepdims=keep, dtype=np.int64)) - count * int(
            self._x.zero_point
        )
        sums = np.atleast_1d(totals)  # one number too is an array
        kept = held(sums, self._arithmetic.accumulator)
        rounded, (low, high) = self._codes(kept, count), self._arithmetic.limits(self._y)
        self._counters.overflowed += int(np.count_nonzero(kept != sums))
        return np.asarray(
            self._counters.clip(rounded, low, high).astype(self._y.qtype.storage_dtype)
        ).reshape(totals.shape)

    def _codes(self, sums: Ints64, count: int) -> Ints64:
        remainder, axis = self._arithmetic.remainder, self._channels
        if remainder is None or axis is None or not (left := remainder.of_planes(sums.shape[axis])):
            return self._over(count)(sums)
        whole, beyond = np.split(sums, [sums.shape[axis] - left], axis=axis)
        parts = self._over(count)(whole), self._over(count, self._beyond)(beyond)
        return np.concatenate(parts, axis=axis)

    def _over(self, count: int, averagers: Averagers | None = None) -> Averager:
        counts = np.asarray(max(count, 1) if self._mean else 1, np.int64)
        return (averagers or self._averagers).of(self._arithmetic.mean, counts)
