"""Convolutions and transposed convolutions of quantized values."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import int_attribute, ints_attribute, word_attribute
from qbench.interpreter.accumulate import Accumulate, both_signed, multiplied
from qbench.interpreter.arrays import Array, BatchError
from qbench.interpreter.integer_kernels.products import (
    Ints64,
    accumulating,
    finishing,
    in_register,
    optional,
    reach,
    zero_points,
)
from qbench.interpreter.kernel import KernelContext, KernelFunction
from qbench.interpreter.windows import Windows, channels_first, channels_last, summing, with_gaps
from qbench.numerics import SumShape

# Convolutions: windows as rows of a product, group by group.
#
#     QLinearConv    x s_x z_x w s_w z_w s_y z_y [bias]        ConvInteger   x w [z_x] [z_w]
#
# Weights are constant, per tensor or per output channel; a bias is int32 at s_x · s_w. The zero
# point of a ConvInteger's data may be computed; it is what its padding holds.

Sums = Callable[[Array, int], npt.NDArray[Any]]
"""Codes (N, C, …) and their zero point → accumulators (N, …, filters)."""

_SUMS_AT_ONCE = 1 << 18
"""1 MB of sums, which a cache holds until they are codes: where they leave it, memory takes
longer than counting.
"""


@dataclass(frozen=True, slots=True)
class ConvolutionSums:
    """What accumulates the windows of a QLinearConv, and what no sum exceeds in magnitude."""

    sums: Sums
    largest: int


def convolution_sums(making: KernelContext) -> ConvolutionSums:
    """The sums of a QLinearConv with any groups, strides, dilations and pads, as the arithmetic
    makes them.
    """
    weight, zeros, x = making.needed(3), zero_points(making, 5), making.qparams(1, 2)
    codes, zero = x.qtype.storage_dtype, int(x.zero_point)
    order = summing(making.node, weight.shape)
    register = making.arithmetic.accumulator
    paired = order.in_pairs(codes.name, weight.dtype.name, raised=register.raised)
    halved = both_signed(codes, weight.dtype) and not zeros.any() and register.halves(order.shape)
    weight = np.rint(weight / 2).astype(np.int8) if halved else weight
    pairs = register.pairs(order.shape) if paired and not halved else 0
    largest = reach(order.columns(weight), zeros, codes, pairs)
    if _is_depthwise(making, weight, largest) and not (pairs and zeros.any()):
        sums = _depthwise(making, weight, zeros, codes, pairs)
    else:
        sums = _grouped(
            making, weight, zeros, _data_first(making, (codes, zero), pairs, order.shape)
        )
    return (
        ConvolutionSums(_doubled(sums, 2 * largest), 2 * largest)
        if halved
        else ConvolutionSums(sums, largest)
    )


def conv(making: KernelContext) -> KernelFunction:
    """QLinearConv."""
    weight, x, y = making.needed(3), making.qparams(1, 2), making.qparams(6, 7)
    accumulated, zero = convolution_sums(making), int(x.zero_point)
    scales = (x, making.scales(4), y)
    remainder, largest = making.arithmetic.remainder, accumulated.largest
    left = (
        0
        if remainder is None
        else remainder.of_convolution(len(weight), weight.shape[1], _groups(making))
    )
    finished = finishing(
        making, scales, optional(making, 8), columns=len(weight), largest=largest, left=left
    )
    windows = Windows.of(making.node, tuple(weight.shape[2:]))

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        assert inputs[0] is not None
        _check_channels(making, weight, inputs[0])
        return (channels_first(_part_by_part(inputs[0], codes_of, windows, len(weight))),)

    def codes_of(samples: Array) -> Array:
        total = accumulated.sums(samples, zero)
        return finished(total.reshape(-1, len(weight))).reshape(total.shape)

    return run


def _doubled(sums: Sums, largest: int) -> Sums:
    """Twice the sums, none of which then exceeds ``largest``."""
    kind: Any = np.int32 if largest < 1 << 31 else np.int64
    return lambda x, zero: 2 * sums(x, zero).astype(kind)


def _part_by_part(
    x: Array, codes_of: Callable[[Array], Array], windows: Windows, filters: int
) -> Array:
    """``codes_of`` all samples of ``x``, of as many at once as have sums that stay in the cache."""
    each = math.prod(windows.outputs_for(x.shape[2:])) * filters
    step = max(_SUMS_AT_ONCE // max(each, 1), 1)
    if step >= len(x):
        return codes_of(x)
    return np.concatenate([codes_of(x[start : start + step]) for start in range(0, len(x), step)])


def conv_integer(making: KernelContext) -> KernelFunction:
    """ConvInteger.

    ONNX Runtime, whose operator it is, has the weights on the left here (``summing``): pairs
    saturate where those are unsigned and the data signed; u8 data by s8 weights is exact.
    """
    weight, zeros = making.needed(1), zero_points(making, 3)
    order = summing(making.node, weight.shape)
    bits = making.arithmetic.accumulator.pairs(order.shape)

    @functools.cache
    def made(codes: "np.dtype[Any]") -> tuple[Sums, int]:
        pairs = bits if order.in_pairs(codes.name, weight.dtype.name) else 0
        largest = reach(order.columns(weight), zeros, codes, pairs)
        if pairs:
            return _less_zero(
                weight, zeros, _grouped(making, weight, zeros, _weights_first(making, pairs))
            ), largest
        if _is_depthwise(making, weight, largest):
            return _depthwise(making, weight, zeros, codes, 0), largest
        raw = _grouped(making, weight, zeros, _data_first(making, (codes, 0), 0, order.shape))
        return _less_zero(weight, zeros, raw), largest

    data = making.node.inputs[0]
    if data is not None and data.dtype is not None:
        made(data.dtype.numpy())

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        codes, point = inputs[0], inputs[2] if len(inputs) > 2 else None
        assert codes is not None
        _check_channels(making, weight, codes)
        sums, largest = made(codes.dtype)
        zero = 0 if point is None else int(point.reshape(-1)[0])
        return (channels_first(in_register(making, sums(codes, zero), largest)),)

    return run


def _groups(making: KernelContext) -> int:
    return int_attribute(making.node, "group", 1)


def _check_channels(making: KernelContext, weight: Array, codes: Array) -> None:
    """What a loop over channels would not notice.

    Raises:
        BatchError: ``codes`` have other channels than the filters.
    """
    wanted = weight.shape[1] * _groups(making)
    if codes.shape[1] != wanted:
        raise BatchError(f"{codes.shape[1]} channels where the filters have {wanted}")


def _one_each(making: KernelContext, weight: Array) -> bool:
    """Whether there is one filter a channel; engines count several as they count dense products."""
    return weight.shape[:2] == (_groups(making), 1)


def _is_depthwise(making: KernelContext, weight: Array, largest: int) -> bool:
    """Whether there is one filter a channel, on a plane, to be counted by a compiled loop in
    int32.
    """
    whole = largest < 1 << 31 and not making.arithmetic.accumulator.by_steps(largest)
    return _one_each(making, weight) and weight.ndim == 4 and making.means.compiled and whole


def _depthwise(
    making: KernelContext, weight: Array, zeros: Ints64, codes: "np.dtype[Any]", pairs: int
) -> Sums:
    """One filter a channel, in one compiled pass; those that saturate pairs have weights
    without a zero point.
    """
    from qbench.interpreter.compiled import depthwise

    windows = Windows.of(making.node, tuple(weight.shape[2:]))
    centred = weight.astype(np.int32) - zeros.astype(np.int32).reshape(-1, 1, 1, 1)
    taps = np.ascontiguousarray(np.moveaxis(centred[:, 0], 0, -1))
    if codes.itemsize == 1 and np.abs(taps).max(initial=0) <= 128:
        taps = taps.astype(np.int16)  # which holds 255 · 128, and is faster
    (height, width, _), total = taps.shape, taps.sum(axis=(0, 1), dtype=np.int32)
    run = depthwise(height, width, pairs)

    def sums(x: Array, zero: int) -> npt.NDArray[Any]:
        last = channels_last(x)
        counts = windows.outputs_for(last.shape[1:-1])
        padded = np.ascontiguousarray(windows.padded(last, zero))
        found = np.empty((len(last), *counts, len(weight)), np.int32)
        run(padded, taps, np.int32(-zero) * total, windows.strides, windows.dilations, found)
        return found

    return sums


def _grouped(
    making: KernelContext, weight: Array, zeros: Ints64, make: Callable[[Array, Ints64], Accumulate]
) -> Sums:
    """Group by group, each a product over its own channels; the zero point given with a batch
    fills its padding.
    """
    groups, depth = _groups(making), weight.shape[1]
    windows, each = Windows.of(making.node, tuple(weight.shape[2:])), len(weight) // groups
    parts = [slice(start, start + each) for start in range(0, len(weight), each)]
    accumulates = [make(weight[part], zeros if zeros.size == 1 else zeros[part]) for part in parts]

    def sums(codes: Array, zero: int) -> npt.NDArray[Any]:
        last, found = channels_last(codes), []
        counts: tuple[int, ...] = ()
        for index, accumulate in enumerate(accumulates):
            rows, counts = windows.rows(last[..., index * depth : (index + 1) * depth], zero)
            found.append(accumulate(np.ascontiguousarray(rows)))
        whole = found[0] if groups == 1 else np.concatenate(found, axis=1)
        return whole.reshape(len(last), *counts, len(weight))

    return sums


def _less_zero(weight: Array, zeros: Ints64, raw: Sums) -> Sums:
    """Σ x (w − z_w), less z_x · Σ (w − z_w)."""
    totals = (weight.reshape(len(weight), -1).astype(np.int64) - zeros.reshape(-1, 1)).sum(axis=1)

    def sums(codes: Array, zero: int) -> npt.NDArray[Any]:
        found = raw(codes, zero)
        found -= (zero * totals).astype(found.dtype)
        return found

    return sums


def _data_first(
    making: KernelContext, data: tuple["np.dtype[Any]", int], pairs: int, shape: SumShape
) -> Callable[[Array, Ints64], Accumulate]:
    """Products with the data as left operand, channels fastest.

    Where the last channel of a tap is in no pair, a product of no effect is put next to it: raw 0
    times z_w.
    """
    odd = making.arithmetic.accumulator.odd_channels(shape) if pairs else 0
    least = np.iinfo(data[0]).min

    def make(weight: Array, zeros: Ints64) -> Accumulate:
        columns = channels_last(weight).reshape(len(weight), -1).T
        if not odd:
            return accumulating(making, columns, zeros, data, pairs)
        accumulate = accumulating(making, with_gaps(columns, odd, zeros), zeros, data, pairs)
        return lambda rows: accumulate(np.ascontiguousarray(with_gaps(rows.T, odd, least).T))

    return make


def _weights_first(making: KernelContext, pairs: int) -> Callable[[Array, Ints64], Accumulate]:
    """Products with the weights as left operand, whose pairs saturate."""

    def make(weight: Array, zeros: Ints64) -> Accumulate:
        left, channels = weight.reshape(len(weight), -1), weight.shape[1]

        def accumulate(rows: Array) -> npt.NDArray[Any]:
            slowest = rows.reshape(len(rows), -1, channels).swapaxes(1, 2).reshape(len(rows), -1)
            none = np.zeros(1, np.int64)
            raw = multiplied(left, slowest.T, (0, none), pairs, making)
            return np.asarray(
                raw.T - rows.sum(axis=1, dtype=raw.dtype)[:, None] * zeros.astype(raw.dtype)
            )

        return accumulate

    return make


# Transposed convolutions, which no engine counts in integers: an operator of our own.
#
#     QLinearConvTranspose   x s_x z_x w s_w z_w s_y z_y [bias]    (qbench.integer)
#                            attributes of ConvTranspose
#
#     acc[n, o, i · stride + k · dilation − pad] += Σ_c (x[n, c, i] − z_x) (w[c, o, k] − z_w)
#
# Each element is multiplied by every tap of the window, channels summed (pairs of neighbours are
# pairs of channels), and the products are added where they fall. Weights, (C_in, C_out / groups,
# …), have one scale or one an output channel.


@dataclass(frozen=True, slots=True)
class Spread:
    """Where products of a transposed convolution fall; the rules for its sizes are those of
    ONNX's ConvTranspose-11.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    added: tuple[int, ...]
    shape: tuple[int, ...] | None
    mode: str

    @classmethod
    def of(cls, node: ir.Node, sizes: tuple[int, ...]) -> "Spread":
        """Of a node with windows of ``sizes``."""
        rank = len(sizes)
        ones, zeros = (1,) * rank, (0,) * rank
        return cls(
            sizes=sizes,
            strides=ints_attribute(node, "strides", ones),
            dilations=ints_attribute(node, "dilations", ones),
            pads=ints_attribute(node, "pads", zeros * 2),
            added=ints_attribute(node, "output_padding", zeros),
            shape=ints_attribute(node, "output_shape") or None,
            mode=word_attribute(node, "auto_pad", "NOTSET"),
        )

    def full(self, spatial: tuple[int, ...]) -> tuple[int, ...]:
        """How far products of an input of these sizes reach along every axis."""
        spans = [(size - 1) * gap + 1 for size, gap in zip(self.sizes, self.dilations, strict=True)]
        return tuple(
            (count - 1) * step + span
            for count, step, span in zip(spatial, self.strides, spans, strict=True)
        )

    def cut(self, spatial: tuple[int, ...]) -> tuple[slice, ...]:
        """What of that, and of the padding behind it, is the output."""
        rank, cuts = len(spatial), []
        for axis, (length, more) in enumerate(zip(self.full(spatial), self.added, strict=True)):
            before, after = self.pads[axis], self.pads[axis + rank]
            size = length + more - before - after
            if self.mode == "VALID" and self.shape is None:
                before, size = 0, length + more
            elif self.mode.startswith("SAME") or self.shape is not None:
                size = (
                    spatial[axis] * self.strides[axis] if self.shape is None else self.shape[axis]
                )
                total = max(length + more - size, 0)
                before = total // 2 if self.mode == "SAME_UPPER" else total - total // 2
            cuts.append(slice(before, before + size))
        return tuple(cuts)


def conv_transpose(making: KernelContext) -> KernelFunction:
    """QLinearConvTranspose with any groups."""
    weight, x = making.needed(3), making.qparams(1, 2)
    codes, zero = x.qtype.storage_dtype, int(x.zero_point)
    groups = int_attribute(making.node, "group", 1)
    depth, each = weight.shape[:2]
    window = tuple(weight.shape[2:])
    spread = Spread.of(making.node, window)
    taps = [tuple(int(i) for i in tap) for tap in np.ndindex(*window)]
    depth //= groups
    zeros, scales = (
        _by_channel(found, each, groups) for found in (zero_points(making, 5), making.scales(4))
    )
    pairs = making.arithmetic.accumulator.pairs(
        SumShape(depthwise=depth == 1 < groups, transposed=True)
    )
    parts = [
        channels_last(weight[g * depth : (g + 1) * depth]).reshape(depth, -1, each)
        for g in range(groups)
    ]
    points = np.broadcast_to(zeros, (groups * each,)).reshape(groups, each)
    whole = np.concatenate([part.reshape(-1, each) for part in parts], axis=1)
    largest = reach(whole, zeros, codes, pairs)
    if making.arithmetic.accumulator.by_steps(largest):
        raise ValueError(
            "a transposed convolution, whose taps meet in no one order, and sums that saturate at "
            "each step"
        )
    accumulates = [
        accumulating(making, part.reshape(depth, -1), np.tile(own, len(taps)), (codes, zero), pairs)
        for part, own in zip(parts, points, strict=True)
    ]
    all_qparams = (x, scales, making.qparams(6, 7))
    finished = finishing(
        making, all_qparams, optional(making, 8), columns=groups * each, largest=largest
    )
    kind = np.int32 if largest < 1 << 31 else np.int64

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        assert inputs[0] is not None
        last = channels_last(inputs[0])
        if last.shape[-1] != len(weight):
            raise BatchError(f"{last.shape[-1]} channels where the filters have {len(weight)}")
        spatial = last.shape[1:-1]
        cuts = spread.cut(spatial)
        room = [max(full, cut.stop) for full, cut in zip(spread.full(spatial), cuts, strict=True)]
        sums = np.zeros((len(last), *room, groups * each), kind)
        for group, accumulate in enumerate(accumulates):
            rows = np.ascontiguousarray(last[..., group * depth : (group + 1) * depth]).reshape(
                -1, depth
            )
            products = accumulate(rows).reshape(*last.shape[:-1], len(taps), each)
            for index, tap in enumerate(taps):
                places = tuple(
                    slice(at * gap, at * gap + (count - 1) * step + 1, step)
                    for at, gap, count, step in zip(
                        tap, spread.dilations, spatial, spread.strides, strict=True
                    )
                )
                sums[(slice(None), *places, slice(group * each, (group + 1) * each))] += products[
                    ..., index, :
                ]
        kept = sums[(slice(None), *cuts)]
        return (channels_first(finished(kept.reshape(-1, kept.shape[-1])).reshape(kept.shape)),)

    return run


def _by_channel(values: Array, each: int, groups: int) -> Array:
    """One value an output channel: those of the weight's axis 1 serve every group alike."""
    flat = values.reshape(-1)
    return np.tile(flat, groups) if groups > 1 and flat.size == each > 1 else flat
