"""Matrix products on static grids: accumulate, add the bias, requantize.

    QLinearMatMul   a s_a z_a b s_b z_b s_y z_y        QGemm   a s_a z_a b s_b z_b [bias] [s_y z_y]   (com.microsoft)

The second operand is a constant matrix, prepared once, or anything else: computed, or a stack of constant matrices. Its
parameters are those of the tensor, or one pair a column; the bias is int32 at s_x · s_w.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.graph import float_attribute, int_attribute
from qbench.interpreter.accumulate import Accumulate
from qbench.interpreter.arrays import Array
from qbench.interpreter.computed_gemm import largest_sum, multiplied
from qbench.interpreter.epilogue import Finish
from qbench.interpreter.integer_kernels.sums import Ints64, accumulating, finishing, optional, reach, zero_points
from qbench.interpreter.kernel import Making, Run
from qbench.numerics import QParams, SumShape, held

Grids = tuple[QParams, QParams | None]
"""Of the data and of the result; None: the result is real."""


def matmul(making: Making) -> Run:
    """QLinearMatMul, batched, with broadcasting, by any second operand."""
    weight = making.constant(3)
    if weight is None or weight.ndim != 2:
        return _computed_matmul(making)
    a, zeros = making.grid(1, 2), zero_points(making, 5)
    finished, accumulate = _prepared(making, weight, zeros, (a, making.grid(6, 7)), None)

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
    left, right = (bool(int_attribute(making.node, name, 0)) for name in ("transA", "transB"))
    a, y = making.grid(1, 2), None if making.absent(7) else making.grid(7, 8)
    bias, weight = optional(making, 6), making.constant(3)
    if weight is None:
        return _computed_gemm(making, a, y, bias, (left, right))
    weight, zeros = weight.T if right else weight, zero_points(making, 5)
    finished, accumulate = _prepared(making, weight, zeros, (a, y), bias)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        levels = inputs[0]
        assert levels is not None
        return (finished(accumulate(levels.T if left else levels)),)

    return run


def _prepared(
    making: Making, weight: Array, zeros: Ints64, grids: Grids, bias: Array | None
) -> tuple[Finish, Accumulate]:
    """What finishes and what accumulates levels against a constant ``weight``, (K, N)."""
    a, pairs = grids[0], making.arithmetic.accumulator.pairs(SumShape())
    levels = a.qtype.storage_dtype
    largest = reach(weight, zeros, levels, pairs)
    accumulate = accumulating(making, weight, zeros, (levels, int(a.zero_point)), pairs)
    return _finished(making, grids, bias, weight.shape[1], largest), accumulate


def _finished(making: Making, grids: Grids, bias: Array | None, columns: int, largest: int) -> Finish:
    """From sums to levels of y, or to reals; a ``bias`` that differs from row to row is added to the sums."""
    a, y = grids
    if y is None:
        return _as_reals(making, a, bias, largest)
    if bias is None or bias.ndim < 2 or len(bias) == 1:
        return finishing(making, (a, making.scales(4), y), bias, columns=columns, largest=largest)
    if making.arithmetic.scaling.real_bias:
        raise ValueError("a bias that differs from row to row, and a machine that adds biases as reals")
    added = bias.astype(np.int64)
    largest += int(np.abs(added).max())
    finished = finishing(making, (a, making.scales(4), y), None, columns=columns, largest=largest)
    kind: Any = np.int32 if largest < 1 << 31 else np.int64
    return lambda sums: finished((sums + added).astype(kind))


def _as_reals(making: Making, x: QParams, bias: Array | None, largest: int) -> Finish:
    """f32(acc + bias) · f32(s_x · s_w): sums that leave the integers here, out of the machine's register.

    A bias that a machine adds as reals is added behind the register.
    """
    scale = np.asarray(x.scale * making.scales(4).reshape(-1).astype(np.float32), np.float32)
    register, added = making.arithmetic.accumulator, np.int32(0) if bias is None else bias
    most = largest + int(np.abs(added.astype(np.int64)).max(initial=0))
    if most < 1 << (min(register.bits, 32) - 1):
        return lambda sums: (sums + added).astype(np.float32) * scale
    inside, behind = (0, added) if making.arithmetic.scaling.real_bias else (added, 0)

    def run(sums: npt.NDArray[Any]) -> Array:
        total = sums.astype(np.int64) + inside
        kept = held(total, register)
        making.counters.overflowed += int(np.count_nonzero(kept != total))
        return np.asarray((kept + behind).astype(np.float32) * scale)

    return run


def _computed(making: Making, a: QParams, y: QParams | None, bias: Array | None) -> Callable[[Array, Array], Array]:
    """(…, M, K) and (…, K, N) levels → the result, (…, M, N), finished by what each K and N need."""
    points, pairs = optional(making, 5), making.arithmetic.accumulator.pairs(SumShape())
    right_levels = np.dtype(np.uint8) if points is None else points.dtype
    operands = int(a.zero_point), zero_points(making, 5)

    @functools.cache
    def finished(depth: int, columns: int) -> Finish:
        largest = largest_sum(depth, a.qtype.storage_dtype, right_levels, operands, pairs)
        return _finished(making, (a, y), bias, columns, largest)

    width = max(making.scales(4).size, 1 if bias is None or not bias.ndim else bias.shape[-1])
    finished(1, width)  # a multiplier that the machine cannot hold is told now

    def product(left: Array, right: Array) -> Array:
        sums = multiplied(left, right, operands, pairs, making)
        finish = finished(right.shape[-2], right.shape[-1])
        return finish(sums.reshape(-1, sums.shape[-1])).reshape(sums.shape)

    return product


def _computed_matmul(making: Making) -> Run:
    product = _computed(making, making.grid(1, 2), making.grid(6, 7), None)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        left, right = inputs[0], inputs[3]
        assert left is not None
        assert right is not None
        return (as_matrices(product, left, right),)

    return run


def _computed_gemm(making: Making, a: QParams, y: QParams | None, bias: Array | None, turned: tuple[bool, bool]) -> Run:
    product = _computed(making, a, y, bias)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        left, right = inputs[0], inputs[3]
        assert left is not None
        assert right is not None
        return (product(left.T if turned[0] else left, right.T if turned[1] else right),)

    return run


def as_matrices(product: Callable[[Array, Array], Array], left: Array, right: Array) -> Array:
    """``product`` of operands of any rank: a vector on the left is a row, on the right a column, as in MatMul."""
    result = product(left[None] if left.ndim == 1 else left, right[:, None] if right.ndim == 1 else right)
    result = result[..., 0, :] if left.ndim == 1 else result
    return result[..., 0] if right.ndim == 1 else result
