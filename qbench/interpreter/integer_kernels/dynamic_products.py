"""Matrix products whose parameters may be computed with every batch.

    MatMulInteger          a b [z_a] [z_b]                            int32
    MatMulIntegerToFloat   a b s_a s_b [z_a] [z_b] [bias]             f32(Σ) · f32(s_a · s_b) + bias    (com.microsoft)

A zero point of a is one number, or one a row; of b one number, or one a column.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.interpreter.accumulate import Accumulate
from qbench.interpreter.arrays import Array
from qbench.interpreter.computed_gemm import largest_sum, multiplied
from qbench.interpreter.integer_kernels.products import as_matrices
from qbench.interpreter.integer_kernels.sums import Ints64, accumulating, in_register, reach, zero_points
from qbench.interpreter.kernel import Making, Run
from qbench.numerics import SumShape

Sums = Callable[[Array, Array, Array | None, Array | None], npt.NDArray[np.int32]]
"""Levels of a and b and their zero points, as they come → (…, M, N)."""


def matmul_integer(making: Making) -> Run:
    """MatMulInteger."""
    sums = _integer_sums(making, 3)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        a, b, *points = (*inputs, None, None)[:4]
        assert a is not None
        assert b is not None
        return (sums(a, b, points[0], points[1]),)

    return run


def matmul_integer_to_float(making: Making) -> Run:
    """MatMulIntegerToFloat."""
    sums = _integer_sums(making, 5)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        a, b, left, right, *rest = (*inputs, None, None, None)[:7]
        assert a is not None
        assert b is not None
        assert left is not None
        assert right is not None
        real = sums(a, b, rest[0], rest[1]).astype(np.float32) * np.multiply(left, right, dtype=np.float32)
        return (real if rest[2] is None else real + rest[2],)

    return run


def _integer_sums(making: Making, right: int) -> Sums:
    """The accumulators of a node whose second zero point stands at input ``right``, held in int32."""
    weight = making.constant(1)
    if weight is None or weight.ndim != 2 or not (making.absent(right) or making.constant(right) is not None):
        return _by_computed(making)
    return _by_constant(making, weight, zero_points(making, right))


def _by_constant(making: Making, weight: Array, zeros: Ints64) -> Sums:
    """Σ a (b − z_b), prepared, less z_a · Σ (b − z_b)."""
    pairs = making.arithmetic.accumulator.pairs(SumShape())
    totals = (weight.astype(np.int64) - zeros).sum(axis=0)

    @functools.cache
    def made(levels: "np.dtype[Any]") -> tuple[Accumulate, int]:
        return accumulating(making, weight, zeros, (levels, 0), pairs), reach(weight, zeros, levels, pairs)

    data = making.node.inputs[0]
    if data is not None and data.dtype is not None:
        made(data.dtype.numpy())

    def sums(a: Array, _: Array, a_zero: Array | None, __: Array | None) -> npt.NDArray[np.int32]:
        accumulate, largest = made(a.dtype)
        found = accumulate(a.reshape(-1, a.shape[-1])).reshape(*a.shape[:-1], weight.shape[1])
        if a_zero is not None:
            found -= (_by_row(a_zero) * totals).astype(found.dtype)
        return in_register(making, found, largest)

    return sums


def _by_computed(making: Making) -> Sums:
    pairs = making.arithmetic.accumulator.pairs(SumShape())

    def sums(a: Array, b: Array, a_zero: Array | None, b_zero: Array | None) -> npt.NDArray[np.int32]:
        rows = np.zeros(1, np.int64) if a_zero is None else _by_row(a_zero)
        columns = np.zeros(1, np.int64) if b_zero is None else b_zero.astype(np.int64)

        def product(left: Array, right: Array) -> Array:
            zeros = (int(rows.reshape(-1)[0]) if rows.size == 1 else 0), columns
            found = multiplied(left, right, zeros, pairs, making)
            if rows.size > 1:
                found = found - (rows * (right.astype(np.int64) - columns).sum(axis=-2, keepdims=True)).astype(
                    found.dtype
                )
            return in_register(making, found, largest_sum(left.shape[-1], left.dtype, right.dtype, zeros, pairs))

        return as_matrices(product, a, b)

    return sums


def _by_row(zero: Array) -> Ints64:
    """A zero point of a, to broadcast against (…, M, N): a number, or one a row."""
    points = zero.astype(np.int64)
    return points.reshape(1) if points.size == 1 else points[:, None] if points.ndim == 1 else points
