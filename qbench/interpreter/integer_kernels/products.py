"""Matrix products of quantized values: accumulate, add the bias, requantize."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.graph import INTEGER_FORMS, float_attribute, int_attribute, word_attribute
from qbench.interpreter.accumulate import (
    RAISE,
    Accumulate,
    accumulator,
    both_signed,
    largest_sum,
    multiplied,
    raised,
    summed_by_steps,
)
from qbench.interpreter.arrays import Array, BatchError
from qbench.interpreter.finish import Epilogue, Finish, finish_in_blocks
from qbench.interpreter.gemm import Operands
from qbench.interpreter.kernel import KernelContext, KernelFunction
from qbench.interpreter.windows import behind_clip, onward
from qbench.numerics import MultiplierForm, OwnBias, QParams, Ranges, SumShape, held

# What every product of integers does around its sums: its bias, how large they can be, a register
# of int32, codes.
#
# reach = max_n Σ_k |w[k, n] − z_w[n]| · (qmax − qmin of x)

Ints64 = npt.NDArray[np.int64]

_REGISTER = 32
"""Bits of the integers that ONNX's integer products give."""


def optional(making: KernelContext, index: int) -> Array | None:
    """The constant at input ``index``; None where it is left out.

    Raises:
        ValueError: it is computed.
    """
    return None if making.absent(index) else making.needed(index)


def zero_points(making: KernelContext, index: int) -> Ints64:
    """The constant zero points at input ``index``, 1-d; 0 where they are left out.

    Raises:
        ValueError: they are computed.
    """
    found = optional(making, index)
    return np.zeros(1, np.int64) if found is None else found.astype(np.int64).reshape(-1)


def accumulating(
    making: KernelContext,
    weight: Array,
    zeros: Ints64,
    data: tuple["np.dtype[Any]", int],
    pairs: int,
) -> Accumulate:
    """What accumulates codes against a constant ``weight``, (K, N), less ``zeros``.

    Args:
        making: of the node.
        weight: codes.
        zeros: (N,) or (1,).
        data: dtype and zero point of the codes.
        pairs: bits to which neighbouring products saturate, or 0.
    """
    codes, zero = data
    register = making.arithmetic.accumulator
    if pairs and register.raised and both_signed(codes, weight.dtype):
        unsigned = accumulating(making, weight, zeros, (np.dtype(np.uint8), zero + RAISE), pairs)
        return lambda x: unsigned(raised(x))
    if register.by_steps(reach(weight, zeros, codes, 0)):
        centred = weight.astype(np.int64) - zeros

        def by_steps(x: Array) -> npt.NDArray[Any]:
            if x.shape[1] != len(centred):
                raise BatchError(f"{x.shape[1]} values per row where the weight has {len(centred)}")
            return summed_by_steps(
                x.astype(np.int64) - zero, centred, register.bits, making.counters
            )

        return by_steps
    operands = Operands(np.ascontiguousarray(weight), zeros, zero, codes)
    return accumulator(operands, pairs, making.means, making.counters)


def reach(weight: Array, zeros: Ints64, codes: "np.dtype[Any]", pairs: int) -> int:
    """The largest magnitude of a sum of ``codes`` less a zero point times ``weight``, (K, N),
    less ``zeros``.

    Pairs that saturate take up to 2^``pairs`` each from an exact sum.
    """
    ends = np.iinfo(codes)
    sizes = np.abs(weight.astype(np.int64) - zeros).sum(axis=0)
    lost = (len(weight) // 2) << pairs if pairs else 0
    return int(sizes.max(initial=0)) * (int(ends.max) - int(ends.min)) + lost


def finishing(
    making: KernelContext,
    scales: tuple[QParams, Array, QParams],
    bias: Array | None,
    *,
    columns: int,
    largest: int,
    left: int = 0,
) -> Finish:
    """What makes codes of sums.

    Args:
        making: of the node.
        scales: the qparams of the data, the scale or scales of the weight, the qparams of the
            result.
        bias: a number or one per column, int32 at s_x · s_w, or at the scale of its own that the
            node gives.
        columns: N.
        largest: what no exact sum exceeds in magnitude.
        left: how many of the last columns are beyond the arithmetic's blocks (``Remainder``).

    Raises:
        InputError: a multiplier that the arithmetic cannot hold.
    """
    x, weight, y = scales
    own = None if bias is None else own_bias(making, x)
    if own is not None and bias is not None:
        return _finishing_own(
            making, (scales, own), bias, columns=columns, largest=largest, left=left
        )
    each = weight.astype(np.float64)
    epilogue = Epilogue(
        scales=(x.scale, each.reshape(-1) if each.size > 1 else each.reshape(()), y.scale),
        output=y,
        bias=None if bias is None else bias.astype(np.int64).reshape(-1),
        limits=making.arithmetic.limits(y),
        columns=columns,
        largest=largest,
        ranges=Ranges.of(
            x,
            y.qtype,
            clipped=behind_clip(making.node),
            onward=onward(making.node),
            signed=making.arithmetic.scaling.signed,
        ),
    )
    compiled = making.means.compiled
    return finish_in_blocks(
        epilogue, making.arithmetic, making.counters, compiled=compiled, left=left
    )


def own_bias(making: KernelContext, x: QParams) -> OwnBias | None:
    """The scales of a product of data on ``x`` and its bias, where that has a scale of its own;
    else None.
    """
    form = INTEGER_FORMS.get((making.node.domain, making.node.op_type))
    if form is None or form.bias_scale is None or making.absent(form.bias_scale):
        return None
    ruled = word_attribute(making.node, "sum_scale", "finest") == "bias"
    weight, bias = (making.scales(index).reshape(-1) for index in (4, form.bias_scale))
    return OwnBias.of(
        x.scale,
        weight if weight.size > 1 else weight[0],
        bias if bias.size > 1 else bias[0],
        ruled=ruled,
    )


def _finishing_own(
    making: KernelContext,
    scales: tuple[tuple[QParams, Array, QParams], OwnBias],
    bias: Array,
    *,
    columns: int,
    largest: int,
    left: int,
) -> Finish:
    """As ``finishing``, of a bias at a scale of its own: both are brought to one scale, which
    their sum has.
    """
    (x, weight, y), own = scales
    arithmetic = making.arithmetic
    ends = making.arithmetic.limits(y)
    compiled = making.means.compiled
    added = own.bias_codes(bias.astype(np.int64).reshape(-1), arithmetic)
    if own.on_product:
        each = weight.astype(np.float64)
        at = (x.scale, each.reshape(-1) if each.size > 1 else each.reshape(()), y.scale)
        epilogue = Epilogue(
            scales=at, output=y, bias=added, limits=ends, columns=columns, largest=largest
        )
        return finish_in_blocks(epilogue, arithmetic, making.counters, compiled=compiled, left=left)
    bring, held_by = own.sums(arithmetic), 1 << (arithmetic.accumulator.bits - 1)
    reached = min(int(np.ceil(largest * float((own.product / own.at).max()))) + 1, held_by)
    epilogue = Epilogue(
        scales=(1.0, own.at, y.scale),
        output=y,
        bias=added,
        limits=ends,
        columns=columns,
        largest=reached,
    )
    finished = finish_in_blocks(epilogue, arithmetic, making.counters, compiled=compiled, left=left)

    def run(sums: npt.NDArray[Any]) -> Array:
        wide = sums.astype(np.int64)
        making.counters.overflowed += int(np.count_nonzero(own.beyond(wide, arithmetic)))
        return finished(bring(held(wide, arithmetic.accumulator)))

    return run


def in_register(
    making: KernelContext, sums: npt.NDArray[Any], largest: int
) -> npt.NDArray[np.int32]:
    """``sums`` as int32, put into the accumulator of the arithmetic or one of 32 bits,
    whichever is narrower.
    """
    register = making.arithmetic.accumulator
    register = replace(register, bits=min(register.bits, _REGISTER))
    if largest < 1 << (register.bits - 1):
        return np.asarray(sums, np.int32)
    total = sums.astype(np.int64)
    kept = held(total, register)
    making.counters.overflowed += int(np.count_nonzero(kept != total))
    return kept.astype(np.int32)


# Matrix products with static qparams: accumulate, add the bias, requantize.
#
#     QLinearMatMul   a s_a z_a b s_b z_b s_y z_y
#     QGemm           a s_a z_a b s_b z_b [bias] [s_y z_y]    (com.microsoft)
#
# The second operand is a constant matrix, prepared once, or anything else: computed, or a stack of
# constant matrices. Its parameters are those of the tensor, or one pair per column; the bias is
# int32 at s_x · s_w.

QParamsPair = tuple[QParams, QParams | None]
"""Of the data and of the result; None: the result is real."""


def matmul(making: KernelContext) -> KernelFunction:
    """QLinearMatMul, batched, with broadcasting, by any second operand."""
    weight = making.constant(3)
    if weight is None or weight.ndim != 2:
        return _computed_matmul(making)
    a, zeros = making.qparams(1, 2), zero_points(making, 5)
    finished, accumulate = _prepared(
        making, weight, zeros, (a, making.qparams(6, 7)), optional(making, 8)
    )

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        codes = inputs[0]
        assert codes is not None
        sums = accumulate(codes.reshape(-1, codes.shape[-1]))
        return (finished(sums).reshape(*codes.shape[:-1], weight.shape[1]),)

    return run


def gemm(making: KernelContext) -> KernelFunction:
    """QGemm, α = 1, with codes or (without an output's qparams) reals as its result."""
    if float_attribute(making.node, "alpha", 1.0) != 1.0:
        raise ValueError("a QGemm with alpha")
    left, right = (bool(int_attribute(making.node, name, 0)) for name in ("transA", "transB"))
    a, y = making.qparams(1, 2), None if making.absent(7) else making.qparams(7, 8)
    bias, weight = optional(making, 6), making.constant(3)
    if weight is None:
        return _computed_gemm(making, a, y, bias, (left, right))
    weight, zeros = weight.T if right else weight, zero_points(making, 5)
    finished, accumulate = _prepared(making, weight, zeros, (a, y), bias)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        codes = inputs[0]
        assert codes is not None
        return (finished(accumulate(codes.T if left else codes)),)

    return run


def _prepared(
    making: KernelContext,
    weight: Array,
    zeros: Ints64,
    all_qparams: QParamsPair,
    bias: Array | None,
) -> tuple[Finish, Accumulate]:
    """What finishes and what accumulates codes against a constant ``weight``, (K, N)."""
    a, pairs = all_qparams[0], making.arithmetic.accumulator.pairs(SumShape())
    codes = a.qtype.storage_dtype
    largest = reach(weight, zeros, codes, pairs)
    accumulate = accumulating(making, weight, zeros, (codes, int(a.zero_point)), pairs)
    return _finished(making, all_qparams, bias, weight.shape[1], largest), accumulate


def _finished(
    making: KernelContext, all_qparams: QParamsPair, bias: Array | None, columns: int, largest: int
) -> Finish:
    """From sums to codes of y, or to reals; a ``bias`` that differs from row to row is added to
    the sums.
    """
    a, y = all_qparams
    if y is None:
        return _as_reals(making, a, bias, largest)
    if bias is None or bias.ndim < 2 or len(bias) == 1:
        return finishing(making, (a, making.scales(4), y), bias, columns=columns, largest=largest)
    if making.arithmetic.scaling.real_bias:
        raise ValueError(
            "a bias that differs from row to row, and an arithmetic that adds biases as reals"
        )
    added = bias.astype(np.int64)
    largest += int(np.abs(added).max())
    finished = finishing(making, (a, making.scales(4), y), None, columns=columns, largest=largest)
    kind: Any = np.int32 if largest < 1 << 31 else np.int64
    return lambda sums: finished((sums + added).astype(kind))


def _as_reals(making: KernelContext, x: QParams, bias: Array | None, largest: int) -> Finish:
    """f32(acc + bias) · f32(s_x · s_w): sums that leave the integers here, out of the
    arithmetic's register.

    A bias that an arithmetic adds as reals is added behind the register; by RANGE behind the scale.
    """
    own = None if bias is None else own_bias(making, x)
    if own is not None and bias is not None:
        return _own_as_reals(making, own, bias)
    scale = np.asarray(x.scale * making.scales(4).reshape(-1).astype(np.float32), np.float32)
    register, added = making.arithmetic.accumulator, np.int32(0) if bias is None else bias
    most = largest + int(np.abs(added.astype(np.int64)).max(initial=0))
    if making.arithmetic.scaling.form is MultiplierForm.RANGE:
        real = np.asarray(added * scale, np.float32)
        return lambda sums: np.asarray(
            held(sums.astype(np.int64), register).astype(np.float32) * scale + real
        )
    if most < 1 << (min(register.bits, 32) - 1):
        return lambda sums: (sums + added).astype(np.float32) * scale
    inside, behind = (0, added) if making.arithmetic.scaling.real_bias else (added, 0)

    def run(sums: npt.NDArray[Any]) -> Array:
        total = sums.astype(np.int64) + inside
        kept = held(total, register)
        making.counters.overflowed += int(np.count_nonzero(kept != total))
        return np.asarray((kept + behind).astype(np.float32) * scale)

    return run


def _own_as_reals(making: KernelContext, own: OwnBias, bias: Array) -> Finish:
    """f32(sum) · f32(s), the sum of product and bias at one scale s."""
    arithmetic, bring = making.arithmetic, own.sums(making.arithmetic)
    added = own.bias_codes(bias.astype(np.int64).reshape(-1), arithmetic)
    scale = own.at.astype(np.float32)

    def run(sums: npt.NDArray[Any]) -> Array:
        wide = sums.astype(np.int64)
        total = bring(held(wide, arithmetic.accumulator)) + added
        kept = held(total, arithmetic.accumulator)
        making.counters.overflowed += int(
            np.count_nonzero(own.beyond(wide, arithmetic) | (kept != total))
        )
        return np.asarray(kept.astype(np.float32) * scale)

    return run


def _computed(
    making: KernelContext, a: QParams, y: QParams | None, bias: Array | None
) -> Callable[[Array, Array], Array]:
    """(…, M, K) and (…, K, N) codes → the result, (…, M, N), finished by what each K and N need."""
    points, pairs = optional(making, 5), making.arithmetic.accumulator.pairs(SumShape())
    right_codes = np.dtype(np.uint8) if points is None else points.dtype
    operands = int(a.zero_point), zero_points(making, 5)

    @functools.cache
    def finished(depth: int, columns: int) -> Finish:
        largest = largest_sum(depth, a.qtype.storage_dtype, right_codes, operands, pairs)
        return _finished(making, (a, y), bias, columns, largest)

    width = max(making.scales(4).size, 1 if bias is None or not bias.ndim else bias.shape[-1])
    finished(1, width)  # a multiplier that the arithmetic cannot hold is reported now

    def product(left: Array, right: Array) -> Array:
        sums = multiplied(left, right, operands, pairs, making)
        finish = finished(right.shape[-2], right.shape[-1])
        return finish(sums.reshape(-1, sums.shape[-1])).reshape(sums.shape)

    return product


def _computed_matmul(making: KernelContext) -> KernelFunction:
    product = _computed(making, making.qparams(1, 2), making.qparams(6, 7), optional(making, 8))

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        left, right = inputs[0], inputs[3]
        assert left is not None
        assert right is not None
        return (as_matrices(product, left, right),)

    return run


def _computed_gemm(
    making: KernelContext,
    a: QParams,
    y: QParams | None,
    bias: Array | None,
    turned: tuple[bool, bool],
) -> KernelFunction:
    product = _computed(making, a, y, bias)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        left, right = inputs[0], inputs[3]
        assert left is not None
        assert right is not None
        return (product(left.T if turned[0] else left, right.T if turned[1] else right),)

    return run


def as_matrices(product: Callable[[Array, Array], Array], left: Array, right: Array) -> Array:
    """``product`` of operands of any rank: a vector on the left is a row, on the right a
    column, as in MatMul.
    """
    result = product(
        left[None] if left.ndim == 1 else left, right[:, None] if right.ndim == 1 else right
    )
    result = result[..., 0, :] if left.ndim == 1 else result
    return result[..., 0] if right.ndim == 1 else result


# Matrix products whose parameters may be computed with every batch.
#
#     MatMulInteger          a b [z_a] [z_b]                   int32
#     MatMulIntegerToFloat   a b s_a s_b [z_a] [z_b] [bias]    f32(Σ) · f32(s_a · s_b) + bias
#                                                              (com.microsoft)
#
# A zero point of a is one number, or one per row; of b one number, or one per column.

Sums = Callable[[Array, Array, Array | None, Array | None], npt.NDArray[np.int32]]
"""Codes of a and b and their zero points, as they come → (…, M, N)."""


def matmul_integer(making: KernelContext) -> KernelFunction:
    """MatMulInteger."""
    sums = _integer_sums(making, 3)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        a, b, *points = (*inputs, None, None)[:4]
        assert a is not None
        assert b is not None
        return (sums(a, b, points[0], points[1]),)

    return run


def matmul_integer_to_float(making: KernelContext) -> KernelFunction:
    """MatMulIntegerToFloat."""
    sums = _integer_sums(making, 5)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        a, b, left, right, *rest = (*inputs, None, None, None)[:7]
        assert a is not None
        assert b is not None
        assert left is not None
        assert right is not None
        real = sums(a, b, rest[0], rest[1]).astype(np.float32) * np.multiply(
            left, right, dtype=np.float32
        )
        return (real if rest[2] is None else real + rest[2],)

    return run


def _integer_sums(making: KernelContext, right: int) -> Sums:
    """The accumulators of a node whose second zero point is input ``right``, held in int32."""
    weight = making.constant(1)
    if (
        weight is None
        or weight.ndim != 2
        or not (making.absent(right) or making.constant(right) is not None)
    ):
        return _by_computed(making)
    return _by_constant(making, weight, zero_points(making, right))


def _by_constant(making: KernelContext, weight: Array, zeros: Ints64) -> Sums:
    """Σ a (b − z_b), prepared, less z_a · Σ (b − z_b)."""
    pairs = making.arithmetic.accumulator.pairs(SumShape())
    totals = (weight.astype(np.int64) - zeros).sum(axis=0)

    @functools.cache
    def made(codes: "np.dtype[Any]") -> tuple[Accumulate, int]:
        return accumulating(making, weight, zeros, (codes, 0), pairs), reach(
            weight, zeros, codes, pairs
        )

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


def _by_computed(making: KernelContext) -> Sums:
    pairs = making.arithmetic.accumulator.pairs(SumShape())

    def sums(
        a: Array, b: Array, a_zero: Array | None, b_zero: Array | None
    ) -> npt.NDArray[np.int32]:
        rows = np.zeros(1, np.int64) if a_zero is None else _by_row(a_zero)
        columns = np.zeros(1, np.int64) if b_zero is None else b_zero.astype(np.int64)

        def product(left: Array, right: Array) -> Array:
            zeros = (int(rows.reshape(-1)[0]) if rows.size == 1 else 0), columns
            found = multiplied(left, right, zeros, pairs, making)
            if rows.size > 1:
                found = found - (
                    rows * (right.astype(np.int64) - columns).sum(axis=-2, keepdims=True)
                ).astype(found.dtype)
            return in_register(
                making, found, largest_sum(left.shape[-1], left.dtype, right.dtype, zeros, pairs)
            )

        return as_matrices(product, a, b)

    return sums


def _by_row(zero: Array) -> Ints64:
    """A zero point of a, to broadcast against (…, M, N): one number, or one number per row."""
    points = zero.astype(np.int64)
    if points.size == 1:
        return points.reshape(1)
    return points[:, None] if points.ndim == 1 else points
