"""Sums and means of levels along axes, by the machine's scheme for means: GlobalAveragePool, ReduceMean, ReduceSum.

    y = clamp(round(Σ (x − z_x) · s_x / (s_y · n)) + z_y),      n = 1 for a sum

The scheme of floats dequantizes, takes ONNX's mean or sum, and quantizes by the machine's own rule.
"""

import math
from collections.abc import Sequence

import numpy as np

from qbench.graph import int_attribute, ints_attribute
from qbench.interpreter.arrays import Array
from qbench.interpreter.integer_kernels.averaging import Averager, Averagers
from qbench.interpreter.kernel import Making, Run
from qbench.numerics import Averaging, QParams, dequantize, held, quantize

_AXES = 3
"""The place of the axes, where they are an input."""


def global_average(making: Making) -> Run:
    """QLinearGlobalAveragePool: x s z s_y z_y, over all axes but the batch and the channels."""
    last = bool(int_attribute(making.node, "channels_last", 0))
    mean = _Reduction(making, making.grid(3, 4), mean=True)
    known = _known_shape(making)
    if known is not None:
        mean.prepare([known[axis] for axis in (range(1, len(known) - 1) if last else range(2, len(known)))])

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        levels = inputs[0]
        assert levels is not None
        axes = tuple(range(1, levels.ndim - 1)) if last else tuple(range(2, levels.ndim))
        return (mean(levels, axes, keep=True),)

    return run


def reduce_mean(making: Making) -> Run:
    """QLinearReduceMean: x s z, axes in the place of a second operand or as an attribute, s_y z_y."""
    return _reduced(making, mean=True)


def reduce_sum(making: Making) -> Run:
    """QLinearReduceSum, likewise."""
    return _reduced(making, mean=False)


def _reduced(making: Making, *, mean: bool) -> Run:
    node, end = making.node, len(making.node.inputs)
    reduction = _Reduction(making, making.grid(end - 2, end - 1), mean=mean)
    keep = bool(int_attribute(node, "keepdims", 1))
    given = ints_attribute(node, "axes")
    if end > _AXES + 2 and not making.absent(_AXES):
        given = tuple(int(axis) for axis in making.needed(_AXES).reshape(-1))
    everything = not int_attribute(node, "noop_with_empty_axes", 0)
    known = _known_shape(making)
    if known is not None:
        reduction.prepare([known[axis] for axis in given or (range(len(known)) if everything else ())])

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        levels = inputs[0]
        assert levels is not None
        axes = given or (tuple(range(levels.ndim)) if everything else ())
        return (reduction(levels, tuple(axis % levels.ndim for axis in axes), keep=keep),)

    return run


def _known_shape(making: Making) -> tuple[int | None, ...] | None:
    """Of the data, None for every dimension that is free; None where not even the rank is known."""
    value = making.node.inputs[0]
    if value is None or value.shape is None:
        return None
    return tuple(size if isinstance(size, int) else None for size in value.shape)


class _Reduction:
    """The sums or means of a node; what depends on the number of elements is made once for each number."""

    def __init__(self, making: Making, y: QParams, *, mean: bool) -> None:
        self._x, self._y, self._mean = making.grid(1, 2), y, mean
        self._machine, self._counters = making.arithmetic, making.counters
        self._averagers = Averagers(making, self._x, y)
        self.prepare([])

    def prepare(self, sizes: Sequence[int | None]) -> None:
        """Make now what averages over axes of these ``sizes``, so that what cannot be done is told at once."""
        known = [size for size in sizes if size is not None]
        if self._machine.mean is not Averaging.REAL and len(known) == len(sizes):
            self._over(math.prod(known))

    def __call__(self, levels: Array, axes: tuple[int, ...], *, keep: bool) -> Array:
        if self._machine.mean is Averaging.REAL:
            real = dequantize(levels, self._x)
            reduced = real.mean(axes, np.float32, keepdims=keep) if self._mean else real.sum(axes, keepdims=keep)
            return quantize(reduced, self._y, self._machine)
        count = int(np.prod([levels.shape[axis] for axis in axes], dtype=np.int64))
        totals = np.asarray(levels.sum(axis=axes, keepdims=keep, dtype=np.int64)) - count * int(self._x.zero_point)
        sums = np.asarray(totals).reshape(-1)  # one number too is an array
        kept = held(sums, self._machine.accumulator)
        rounded, (low, high) = self._over(count)(kept), self._machine.limits(self._y)
        self._counters.overflowed += int(np.count_nonzero(kept != sums))
        return np.asarray(self._counters.clip(rounded, low, high).astype(self._y.qtype.storage_dtype)).reshape(
            totals.shape
        )

    def _over(self, count: int) -> Averager:
        return self._averagers.of(self._machine.mean, np.asarray(max(count, 1) if self._mean else 1, np.int64))
