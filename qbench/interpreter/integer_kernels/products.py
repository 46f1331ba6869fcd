"""Convolutions and matrix products: accumulate, add the bias, requantize.

    QLinearConv    x s_x z_x w s_w z_w s_y z_y [bias]        QLinearMatMul   a s_a z_a b s_b z_b s_y z_y
    QGemm          a s_a z_a b s_b z_b [bias] [s_y z_y]      (com.microsoft)

Weights are constant, per tensor or per output channel; the bias is int32 at s_x · s_w.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from qbench.graph import float_attribute, int_attribute
from qbench.interpreter.accumulate import Accumulate, accumulator
from qbench.interpreter.arrays import Array
from qbench.interpreter.finish import Epilogue, Finish, finish
from qbench.interpreter.gemm import Operands
from qbench.interpreter.kernel import Making, Run
from qbench.interpreter.windows import Windows, channels_first, channels_last
from qbench.numerics import QParams

Ints64 = npt.NDArray[np.int64]


def conv(making: Making) -> Run:
    """QLinearConv with any groups, strides, dilations and pads."""
    weight, zeros = making.needed(3), making.needed(5).astype(np.int64).reshape(-1)
    x = making.grid(1, 2)
    groups, filters = int_attribute(making.node, "group", 1), len(weight)
    windows = Windows.of(making.node, tuple(weight.shape[2:]))
    columns = channels_last(weight).reshape(filters, -1).T
    finished = _finish(making, x, columns, making.grid(6, 7), making.constant(8))
    if groups == 1:
        accumulate = _accumulate(making, columns, zeros, x, depthwise=False)

        def dense(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
            levels = inputs[0]
            assert levels is not None
            rows, counts = windows.rows(channels_last(levels), int(x.zero_point))
            return (channels_first(finished(accumulate(rows)).reshape(len(levels), *counts, filters)),)

        return dense
    depthwise = weight.shape[1] == 1
    pairs = making.arithmetic.accumulator.pairs(depthwise=depthwise)
    if weight.shape[:2] == (groups, 1) and weight.ndim == 4 and making.means.compiled and not pairs:
        centred = weight.astype(np.int32) - zeros.astype(np.int32).reshape(-1, *[1] * (weight.ndim - 1))
        return _depthwise(centred, windows, x, finished)
    each = filters // groups
    by_column = np.broadcast_to(zeros, (filters,))
    parts = [slice(group * each, (group + 1) * each) for group in range(groups)]
    accumulates = [_accumulate(making, columns[:, p], by_column[p], x, depthwise=depthwise) for p in parts]
    return _grouped(accumulates, weight.shape[1], windows, x, finished)


def matmul(making: Making) -> Run:
    """QLinearMatMul by constant weights of two dimensions."""
    weight = making.needed(3)
    if weight.ndim != 2:
        raise ValueError("weights of a matrix product have two dimensions here")
    a, zeros = making.grid(1, 2), making.needed(5).astype(np.int64).reshape(-1)
    finished, accumulate = (
        _finish(making, a, weight, making.grid(6, 7), None),
        _accumulate(making, weight, zeros, a, depthwise=False),
    )

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        levels = inputs[0]
        assert levels is not None
        sums = accumulate(levels.reshape(-1, levels.shape[-1]))
        return (finished(sums).reshape(*levels.shape[:-1], weight.shape[1]),)

    return run


def gemm(making: Making) -> Run:
    """QGemm, α = 1, with levels or (without an output's grid) reals as its result."""
    if float_attribute(making.node, "alpha", 1.0) != 1.0:
        raise ValueError("a QGemm with alpha")
    weight = making.needed(3)
    weight = weight.T if int_attribute(making.node, "transB", 0) else weight
    a, zeros = making.grid(1, 2), making.needed(5).astype(np.int64).reshape(-1)
    bias = making.constant(6)
    if making.constant(7) is None:
        finished = _as_reals(making, a, bias)
    else:
        finished = _finish(making, a, weight, making.grid(7, 8), bias)
    turned = bool(int_attribute(making.node, "transA", 0))
    accumulate = _accumulate(making, weight, zeros, a, depthwise=False)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        levels = inputs[0]
        assert levels is not None
        return (finished(accumulate(levels.T if turned else levels)),)

    return run


def _finish(making: Making, x: QParams, weight: Array, y: QParams, bias: Array | None) -> Finish:
    """What finishes the sums of ``weight``, (K, N); its scales stand at input 4 of all these operators."""
    scales = making.needed(4).astype(np.float64)
    centred = np.abs(weight.astype(np.int64) - making.needed(5).astype(np.int64).reshape(-1))
    largest = int(centred.sum(axis=0).max(initial=0)) * 255
    epilogue = Epilogue(
        scales=(x.scale, scales.reshape(-1) if scales.size > 1 else scales.reshape(()), y.scale),
        output=y,
        bias=None if bias is None else bias.astype(np.int64).reshape(-1),
        limits=making.arithmetic.limits(y),
        columns=weight.shape[1],
        largest=largest,
    )
    return finish(epilogue, making.arithmetic, making.counters, compiled=making.means.compiled)


def _as_reals(making: Making, x: QParams, bias: Array | None) -> Finish:
    """f32(acc + bias) · f32(s_x · s_w): sums that leave the integers here."""
    scale = np.asarray(x.scale * making.needed(4).reshape(-1).astype(np.float32), np.float32)
    added = np.int32(0) if bias is None else bias.reshape(-1)
    return lambda sums: (sums + added).astype(np.float32) * scale


def _accumulate(making: Making, weight: Array, zeros: Ints64, x: QParams, *, depthwise: bool) -> Accumulate:
    """What accumulates levels of ``x`` against ``weight``, (K, N)."""
    operands = Operands(np.ascontiguousarray(weight), zeros, int(x.zero_point), x.qtype.storage_dtype)
    pairs = making.arithmetic.accumulator.pairs(depthwise=depthwise)
    return accumulator(operands, pairs, making.means.gemm, making.counters)


def _depthwise(centred: Array, windows: Windows, x: QParams, finished: Finish) -> Run:
    """One filter a channel, in one compiled pass."""
    from qbench.interpreter.compiled import depthwise

    weight, zero = np.ascontiguousarray(np.moveaxis(centred[:, 0], 0, -1)), int(x.zero_point)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        levels = inputs[0]
        assert levels is not None
        last = channels_last(levels)
        counts, padded = windows.outputs_for(last.shape[1:-1]), np.ascontiguousarray(windows.padded(last, zero))
        sums = np.empty((len(last), *counts, len(centred)), np.int32)
        depthwise(padded, weight, np.int32(zero), counts, windows.strides, windows.dilations, sums)
        return (channels_first(finished(sums.reshape(-1, len(centred))).reshape(sums.shape)),)

    return run


def _grouped(accumulates: Sequence[Accumulate], depth: int, windows: Windows, x: QParams, finished: Finish) -> Run:
    """Group by group, each a product over its own ``depth`` channels."""

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        levels = inputs[0]
        assert levels is not None
        last, sums = channels_last(levels), []
        counts: tuple[int, ...] = ()
        for index, accumulate in enumerate(accumulates):
            rows, counts = windows.rows(last[..., index * depth : (index + 1) * depth], int(x.zero_point))
            sums.append(accumulate(np.ascontiguousarray(rows)))
        whole = finished(np.concatenate(sums, axis=1))
        return (channels_first(whole.reshape(len(last), *counts, whole.shape[1])),)

    return run
