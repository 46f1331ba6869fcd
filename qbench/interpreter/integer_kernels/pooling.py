"""Pools over levels: the largest one moves; an average is a sum that is scaled."""

import functools
from collections.abc import Sequence

import numpy as np

from qbench.graph import int_attribute, ints_attribute
from qbench.interpreter.arrays import Array
from qbench.interpreter.float_kernels.reference import reference
from qbench.interpreter.integer_kernels.averaging import Averagers
from qbench.interpreter.kernel import Making, Run
from qbench.interpreter.windows import Windows, channels_first, channels_last
from qbench.numerics import Averaging, QParams


def max_pool(making: Making) -> Run:
    """MaxPool of levels, or of floats: padding never wins. One with indices is a float kernel's.

    NaN wins wherever it stands, as in PyTorch; ONNX Runtime 1.31 on x64 keeps one that is last in its window, no other.
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


def average_pool(making: Making) -> Run:
    """QLinearAveragePool: x s_x z_x s_y z_y."""
    x, y, machine = making.grid(1, 2), making.grid(3, 4), making.arithmetic
    window = ints_attribute(making.node, "kernel_shape")
    if not window or int_attribute(making.node, "channels_last", 0):
        raise ValueError("an average pool without a kernel shape, or with channels last")
    windows = Windows.of(making.node, window)
    padding_counts = bool(int_attribute(making.node, "count_include_pad", 0))
    averagers = Averagers(making, x, y)

    @functools.cache
    def scheme_and_sizes(spatial: tuple[int, ...]) -> tuple[Averaging, Array]:
        sizes = _sizes(windows, spatial, padding_counts=padding_counts)
        # ONNX Runtime hands a window that is the whole input to its global average, which sums integers.
        of_all = windows.sizes == spatial and not np.any(windows.pads_for(spatial))
        scaled = (machine.averaging is Averaging.REAL and of_all) or (
            machine.averaging is Averaging.DIVIDED and padding_counts
        )
        return Averaging.SCALED if scaled else machine.averaging, sizes

    data = making.node.inputs[0]
    known = [size for size in data.shape[2:] if isinstance(size, int)] if data is not None and data.shape else []
    if len(known) == len(windows.sizes):
        scheme, sizes = scheme_and_sizes(tuple(known))
        if scheme is not Averaging.REAL:
            averagers.of(scheme, sizes)  # a multiplier that the machine cannot hold is told now

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        levels = inputs[0]
        assert levels is not None
        last = channels_last(levels)
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
        clipped = making.counters.clip(rounded, *machine.limits(y))
        return (channels_first(clipped.astype(y.qtype.storage_dtype)),)

    return run


def _sizes(windows: Windows, spatial: tuple[int, ...], *, padding_counts: bool) -> Array:
    """How many elements every window has: of the input, or of it and its padding; never of what lies behind both."""
    padded = windows.padded(np.ones((1, *spatial, 1), np.int64), 0)
    if padding_counts:
        pads = windows.pads_for(spatial)
        ends = (slice(before + size + after) for size, (before, after) in zip(spatial, pads, strict=True))
        padded = padded.copy()
        padded[(slice(None), *ends)] = 1
    counts = windows.outputs_for(spatial)
    return np.asarray(sum(windows.tap(padded, offset, counts) for offset in windows.offsets()))


def _real_mean(taps: list[Array], sizes: Array, x: QParams, y: QParams) -> Array:
    """In float32, in the order of the window, the zero point within what is rounded."""
    total = np.zeros(taps[0].shape, np.float32)
    for tap in taps:
        total += (tap.astype(np.float32) - np.float32(x.zero_point)) * x.scale
    return np.rint(total / sizes.astype(np.float32) / y.scale + np.float32(y.zero_point)).astype(np.int64)
