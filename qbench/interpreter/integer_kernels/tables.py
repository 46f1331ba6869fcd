"""Operators of one or two 8-bit operands as tables: every function of them has 256 or 65,536 values.

    unary    table[q] = quantize(f(dequantize(q)))            binary    table[a, b], by the machine's own rule

A table is exact by construction, whatever rule it was built with.
"""

from collections.abc import Callable, Sequence

import numpy as np

from qbench.graph import float_attribute, int_attribute
from qbench.interpreter.arrays import Array
from qbench.interpreter.kernel import Making, Run
from qbench.numerics import MultiplierForm, QParams, add_quantized, dequantize, quantize, scaler

Function = Callable[[Array], Array]


def lookup(table: Array, low: int, *, compiled: bool) -> Run:
    """A table over one operand whose lowest level is ``low``."""
    if compiled:
        return _compiled_lookup(table, low)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        levels = inputs[0]
        assert levels is not None
        return (table[levels.astype(np.intp) - low],)

    return run


def lookup_pair(table: Array, lows: tuple[int, int], *, compiled: bool) -> Run:
    """A table over two operands, with broadcasting."""
    if compiled:
        return _compiled_lookup_pair(table, lows)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        left, right = inputs[0], inputs[3]
        assert left is not None
        assert right is not None
        return (table[left.astype(np.intp) - lows[0], right.astype(np.intp) - lows[1]],)

    return run


def all_levels(grid: QParams) -> Array:
    """Every level of an 8-bit grid, ascending.

    Raises:
        ValueError: a grid of more bits.
    """
    if grid.qtype.bits > 8:
        raise ValueError(f"a table of {grid.qtype} operands would be too large")
    return np.arange(grid.qtype.qmin, grid.qtype.qmax + 1)


def unary(making: Making, x: QParams, y: QParams, function: Function) -> Run:
    """The table of ``function`` from grid ``x`` to grid ``y``, built in float32."""
    real = dequantize(all_levels(x), x)
    table = quantize(function(real), y, making.arithmetic)
    return lookup(table, x.qtype.qmin, compiled=making.means.compiled)


def add(making: Making) -> Run:
    """QLinearAdd: a s_a z_a b s_b z_b s_y z_y."""
    a, b, y = making.grid(1, 2), making.grid(4, 5), making.grid(6, 7)
    table = add_quantized(all_levels(a)[:, None], all_levels(b)[None, :], a, b, y, making.arithmetic)
    return lookup_pair(table, (a.qtype.qmin, b.qtype.qmin), compiled=making.means.compiled)


def mul(making: Making) -> Run:
    """QLinearMul: (a − z_a)(b − z_b) at s_a · s_b / s_y."""
    a, b, y = making.grid(1, 2), making.grid(4, 5), making.grid(6, 7)
    left, right = all_levels(a)[:, None] - int(a.zero_point), all_levels(b)[None, :] - int(b.zero_point)
    scaling = making.arithmetic.multiplying or making.arithmetic.scaling
    levels = scaler((a.scale, b.scale, y.scale), scaling, int(y.zero_point))((left * right).astype(np.int64))
    table = np.clip(levels, *making.arithmetic.limits(y)).astype(y.qtype.storage_dtype)
    return lookup_pair(table, (a.qtype.qmin, b.qtype.qmin), compiled=making.means.compiled)


def sigmoid(making: Making) -> Run:
    """QLinearSigmoid."""
    return unary(making, making.grid(1, 2), making.grid(3, 4), _sigmoid)


def leaky_relu(making: Making) -> Run:
    """QLinearLeakyRelu."""
    slope = np.float32(float_attribute(making.node, "alpha", 0.01))
    return unary(making, making.grid(1, 2), making.grid(3, 4), lambda x: np.where(x >= 0, x, slope * x))


def concat(making: Making) -> Run:
    """QLinearConcat: s_y z_y, then x s_x z_x of every part; a part on another grid is brought to the output's."""
    node, y = making.node, making.grid(0, 1)
    axis = int_attribute(node, "axis", 0)
    places = range(2, len(node.inputs), 3)
    tables = [_rescaling(making, making.grid(place + 1, place + 2), y) for place in places]

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        parts = [
            inputs[place] if table is None else table([inputs[place]])[0]
            for place, table in zip(places, tables, strict=True)
        ]
        return (np.concatenate([part for part in parts if part is not None], axis=axis),)

    return run


def _rescaling(making: Making, x: QParams, y: QParams) -> Run | None:
    """From grid to grid: machines with float multipliers dequantize and quantize, others multiply; None: one grid."""
    if (x.scale, x.zero_point, x.qtype) == (y.scale, y.zero_point, y.qtype):
        return None
    if making.arithmetic.scaling.form in (MultiplierForm.FLOAT32, MultiplierForm.FLOAT64):
        return unary(making, x, y, lambda real: real)
    centred = (all_levels(x) - int(x.zero_point)).astype(np.int64)
    levels = scaler((x.scale, 1.0, y.scale), making.arithmetic.scaling, int(y.zero_point))(centred)
    table = np.clip(levels, *making.arithmetic.limits(y)).astype(y.qtype.storage_dtype)
    return lookup(table, x.qtype.qmin, compiled=making.means.compiled)


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x.astype(np.float64))), np.float32)


def _compiled_lookup(table: Array, low: int) -> Run:
    from qbench.interpreter.compiled import looked_up

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        levels = inputs[0]
        assert levels is not None
        if not _dense(levels):
            levels = np.ascontiguousarray(levels)
        result = np.empty_like(levels, table.dtype)
        looked_up(levels.ravel(order="K"), table, low, result.ravel(order="K"))
        return (result,)

    return run


def _compiled_lookup_pair(table: Array, lows: tuple[int, int]) -> Run:
    from qbench.interpreter.compiled import looked_up_pair

    flat, plain = np.ascontiguousarray(table).reshape(-1), lookup_pair(table, lows, compiled=False)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        left, right = inputs[0], inputs[3]
        assert left is not None
        assert right is not None
        if left.strides != right.strides or left.shape != right.shape or not _dense(left):
            return (plain(inputs)[0],)
        result = np.empty_like(left, table.dtype)
        looked_up_pair(left.ravel(order="K"), right.ravel(order="K"), flat, lows, result.ravel(order="K"))
        return (result,)

    return run


def _dense(array: Array) -> bool:
    """Whether ``array`` fills a block of memory in some order of its axes, so that raveling it is no copy."""
    return bool(np.shares_memory(array, array.ravel(order="K")))
