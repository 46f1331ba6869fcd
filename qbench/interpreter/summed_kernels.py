"""The kernels of MatMul, Gemm and Conv whose products are summed in a declared accumulator."""

from __future__ import annotations  # help() shows npt.ArrayLike, and not the union behind it

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from qbench.graph import constant_value, float_attribute, int_attribute
from qbench.interpreter.arrays import Array, BatchError, broadcast
from qbench.interpreter.kernel import KernelContext, KernelFunction
from qbench.interpreter.summed_columns import (
    Columns,
    Multiplying,
    columns_of,
    columns_of_constant,
    multiplier,
)
from qbench.interpreter.summed_products import Reals64, SummedProduct
from qbench.interpreter.windows import Windows, channels_first, channels_last

# Each brings its operands to rows and columns (``interpreter.summed_columns``), and the result to
# its shape. What an operator adds to the product (biases, C) is added in float32.


def summed_kernel(product: SummedProduct, making: KernelContext) -> KernelFunction:
    """That of the node of ``product``.

    Raises:
        ValueError: a constant of no shape that it multiplies.
    """
    return _KERNELS[making.node.op_type](product, making)


def _matmul(product: SummedProduct, making: KernelContext) -> KernelFunction:
    """MatMul: vectors, matrices and stacks of them."""
    whole, multiply = _right_columns(product, lambda x: x), multiplier(product.rules, making)
    scaled, factor = product.scales_operands, product.factor_of(product.left)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        left, other = inputs[0], inputs[1]
        assert left is not None
        assert other is not None
        rows = product.left.numbers(left, scaled=scaled)
        added = [-2] if rows.ndim == 1 else []
        rows = np.atleast_2d(rows)
        if whole is not None:
            lead, depth = rows.shape[:-1], rows.shape[-1]
            found = multiply(rows.reshape(math.prod(lead), depth), whole, factor)
            found = found.reshape(*lead, found.shape[-1])
        else:
            columns = product.right.numbers(other, scaled=scaled)
            added += [-1] if columns.ndim == 1 else []
            columns = columns.reshape(-1, 1) if columns.ndim == 1 else columns
            found = _stacked(rows, columns, multiply, (factor, product.factor_of(product.right)))
        return (found.squeeze(tuple(added)),)  # the axes that vectors do not have

    return run


def _stacked(
    rows: Reals64,
    columns: Reals64,
    multiply: Multiplying,
    factors: tuple[np.float32, np.float32],
) -> npt.NDArray[np.float32]:
    """Matrix by matrix, the axes in front of which broadcast."""
    lead = broadcast(rows.shape[:-2], columns.shape[:-2])
    rows = np.broadcast_to(rows, (*lead, *rows.shape[-2:]))
    columns = np.broadcast_to(columns, (*lead, *columns.shape[-2:]))
    found = np.empty((*lead, rows.shape[-2], columns.shape[-1]), np.float32)
    for place in np.ndindex(*lead):
        found[place] = multiply(rows[place], columns_of(columns[place], factors[1]), factors[0])
    return found


def _gemm(product: SummedProduct, making: KernelContext) -> KernelFunction:
    """Gemm; alpha and beta are multiplied in float32, and C is added in it."""
    node = making.node
    turn_left, turn_right = (
        np.transpose if int_attribute(node, name, 0) else np.asarray
        for name in ("transA", "transB")
    )
    alpha, beta = (np.float32(float_attribute(node, name, 1.0)) for name in ("alpha", "beta"))
    whole = _right_columns(product, turn_right)
    multiply = multiplier(product.rules, making)
    scaled, factor = product.scales_operands, product.factor_of(product.left)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        left, other = inputs[0], inputs[1]
        assert left is not None
        assert other is not None
        rows, columns = product.left.numbers(left, scaled=scaled), whole
        if columns is None:
            numbers = turn_right(product.right.numbers(other, scaled=scaled))
            columns = columns_of(numbers, product.factor_of(product.right))
        found = multiply(turn_left(rows), columns, factor) * alpha
        added = inputs[2] if len(inputs) > 2 else None
        return (found if added is None else found + beta * added,)

    return run


def _conv(product: SummedProduct, making: KernelContext) -> KernelFunction:
    """Conv with any groups, strides, dilations and pads; its bias is added in float32.

    Raises:
        ValueError: filters that are computed.
    """
    codes = constant_value(product.right.value)
    if codes is None:
        raise ValueError("the filters of a Conv are no constant")
    groups, filters = int_attribute(making.node, "group", 1), len(codes)
    windows = Windows.of(making.node, codes.shape[2:])
    depth, each = codes.shape[1], filters // groups
    multiply = multiplier(product.rules, making)
    scaled, factor = product.scales_operands, product.factor_of(product.left)
    whole = columns_of_constant(product, _filters_last)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        data, bias = inputs[0], inputs[2] if len(inputs) > 2 else None
        assert data is not None
        if data.shape[1] != depth * groups:
            raise BatchError(f"{data.shape[1]} channels where the filters have {depth * groups}")
        last, found = channels_last(product.left.numbers(data, scaled=scaled)), []
        counts: tuple[int, ...] = ()
        for group in range(groups):
            rows, counts = windows.rows(last[..., group * depth : (group + 1) * depth], 0)
            part = slice(group * each, (group + 1) * each)
            found.append(multiply(rows, whole.some(part), factor))
        total = np.concatenate(found, axis=1).reshape(len(data), *counts, filters)
        total = total if bias is None else total + bias
        return (channels_first(total),)

    return run


def _filters_last(filters: Array) -> Array:
    """(O, C, …) → (window, C, fastest; O)."""
    return np.moveaxis(filters, 1, -1).reshape(len(filters), -1).T


def _right_columns(product: SummedProduct, arrange: Callable[[Array], Array]) -> Columns | None:
    """The right factor where it is a constant matrix."""
    codes = constant_value(product.right.value)
    if codes is None or codes.ndim != 2:
        return None
    return columns_of_constant(product, arrange)


_KERNELS: Mapping[str, Callable[[SummedProduct, KernelContext], KernelFunction]] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
}
