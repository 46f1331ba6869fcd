"""Pools over levels: the largest one moves; an average is a sum that is scaled."""

from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from qbench.graph import int_attribute
from qbench.interpreter.arrays import Array
from qbench.interpreter.kernel import Making, Run
from qbench.interpreter.windows import Windows, channels_first, channels_last
from qbench.numerics import Arithmetic, Averaging, QParams, averager, scaler


def max_pool(making: Making) -> Run:
    """MaxPool of levels (or of floats): padding never wins."""
    attribute = making.node.attributes.get("kernel_shape")
    if attribute is None or len(making.node.outputs) > 1:
        raise ValueError("a MaxPool with indices")
    windows = Windows.of(making.node, tuple(int(size) for size in attribute.as_ints()))

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
    attribute = making.node.attributes.get("kernel_shape")
    if attribute is None or int_attribute(making.node, "channels_last", 0):
        raise ValueError("an average pool without a kernel shape, or with channels last")
    windows = Windows.of(making.node, tuple(int(size) for size in attribute.as_ints()))
    padding_counts = bool(int_attribute(making.node, "count_include_pad", 0))
    same = (x.scale, x.zero_point, x.qtype) == (y.scale, y.zero_point, y.qtype)
    scheme = machine.averaging if same or machine.averaging is not Averaging.RAW else Averaging.SCALED
    mean = _MEANS[scheme]
    # ONNX Runtime hands a window that is the whole input to its global average, which sums integers.
    mean_of_all = _scaled_mean if scheme is Averaging.REAL else mean

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        levels = inputs[0]
        assert levels is not None
        last = channels_last(levels)
        spatial = last.shape[1:-1]
        counts, padded = windows.outputs_for(spatial), windows.padded(last, int(x.zero_point))
        taps = [windows.tap(padded, offset, counts) for offset in windows.offsets()]
        sizes = _sizes(windows, spatial, padding_counts=padding_counts)
        all_of_it = windows.sizes == spatial and not np.any(windows.pads_for(spatial))
        rounded = (mean_of_all if all_of_it else mean)(taps, sizes, (x, y), machine)
        return (channels_first(np.clip(rounded, *machine.limits(y)).astype(y.qtype.storage_dtype)),)

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


def _scaled_mean(taps: list[Array], sizes: Array, grids: tuple[QParams, QParams], machine: Arithmetic) -> Array:
    x, y = grids
    sums = sum(tap.astype(np.int64) - int(x.zero_point) for tap in taps)
    over = np.float32(y.scale) * sizes.astype(np.float32)
    return np.asarray(scaler((x.scale, 1.0, over), machine.scaling, int(y.zero_point))(np.asarray(sums)))


def _raw_mean(taps: list[Array], sizes: Array, grids: tuple[QParams, QParams], machine: Arithmetic) -> Array:  # noqa: ARG001
    """Padding adds nothing to a raw sum: what stands there is taken out again."""
    zero = int(grids[0].zero_point)
    sums = np.asarray(sum(tap.astype(np.int64) for tap in taps)) - (len(taps) - sizes) * zero
    half = np.where(sums >= 0, sizes // 2, -(sizes // 2))
    return np.asarray(np.trunc((sums + half) / sizes), np.int64)


def _real_mean(taps: list[Array], sizes: Array, grids: tuple[QParams, QParams], machine: Arithmetic) -> Array:  # noqa: ARG001
    x, y = grids
    total = np.zeros(taps[0].shape, np.float32)
    for tap in taps:
        total += (tap.astype(np.float32) - np.float32(x.zero_point)) * x.scale
    return np.rint(total / sizes.astype(np.float32) / y.scale + np.float32(y.zero_point)).astype(np.int64)


def _mean_within(taps: list[Array], sizes: Array, grids: tuple[QParams, QParams], machine: Arithmetic) -> Array:
    sums = np.asarray(sum(tap.astype(np.int64) - int(grids[0].zero_point) for tap in taps))
    return np.asarray(averager(Averaging.WITHIN, *grids, sizes, machine)(sums))


_MEANS = MappingProxyType(
    {
        Averaging.SCALED: _scaled_mean,
        Averaging.RAW: _raw_mean,
        Averaging.REAL: _real_mean,
        Averaging.WITHIN: _mean_within,
    }
)


def global_average(making: Making) -> Run:
    """QLinearGlobalAveragePool: Σ (x − z_x) at s_x / (s_y · count)."""
    x, y = making.grid(1, 2), making.grid(3, 4)
    last = bool(int_attribute(making.node, "channels_last", 0))
    machine = making.arithmetic

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        levels = inputs[0]
        assert levels is not None
        axes = tuple(range(1, levels.ndim - 1)) if last else tuple(range(2, levels.ndim))
        count = int(np.prod([levels.shape[axis] for axis in axes]))
        sums = levels.sum(axis=axes, keepdims=True, dtype=np.int64) - count * int(x.zero_point)
        if machine.averaging is Averaging.WITHIN:
            rounded = averager(Averaging.WITHIN, x, y, np.asarray(count), machine)(sums)
        else:  # the count divides in the same float32 step as the output's scale does
            over = np.float32(y.scale * np.float32(count))
            rounded = scaler((x.scale, 1.0, over), machine.scaling, int(y.zero_point))(sums)
        return (np.clip(rounded, *machine.limits(y)).astype(y.qtype.storage_dtype),)

    return run
