"""Operators of two quantized operands as tables, by the machine's own rule: Add, Sub, Mul, Div.

Two operands that vary have 8 bits each and a table of all 65,536 pairs; next to a constant of one value, an operand of
up to 16 bits has a table of its own values. A table is exact by construction, whatever rule it was built with.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from qbench.interpreter.arrays import Array
from qbench.interpreter.integer_kernels.functions import function, shaped
from qbench.interpreter.integer_kernels.lookups import all_levels, lookup, lookup_pair
from qbench.interpreter.integer_kernels.operands import given_operands
from qbench.interpreter.kernel import Making, Run
from qbench.numerics import (
    AddScheme,
    Arithmetic,
    QParams,
    add_quantized,
    divide_quantized,
    scaler,
    scaling_of_levels,
    subtract_quantized,
)

_BYTE = 8
_OF_INTEGERS = frozenset(
    {AddScheme.EXACT, AddScheme.HEADROOM, AddScheme.WEIGHTED, AddScheme.EACH, AddScheme.GRID, AddScheme.FINEST}
)
"""Schemes that take any two grids; others are of one operator of one engine."""
Rule = Callable[[npt.ArrayLike, npt.ArrayLike, QParams, QParams, QParams, Arithmetic], Array]
"""Levels of both operands, their grids and the result's → levels."""


def add(making: Making) -> Run:
    """QLinearAdd: a s_a z_a b s_b z_b s_y z_y."""
    return _pairs(making, add_quantized)


def mul(making: Making) -> Run:
    """QLinearMul: (a − z_a)(b − z_b) at s_a · s_b / s_y."""
    return _pairs(making, _multiplied)


def own_add(making: Making) -> Run:
    """An Add that ONNX Runtime has no operator for, of two types or with a number: it adds in floats."""
    of_integers = making.arithmetic.adding.scheme in _OF_INTEGERS
    return add(making) if of_integers and _both_on_grids(making) else function(making)


def own_mul(making: Making) -> Run:
    """A Mul of such operands, likewise."""
    in_floats = scaling_of_levels(making.arithmetic) is None
    return function(making) if in_floats or not _both_on_grids(making) else mul(making)


def sub(making: Making) -> Run:
    """QLinearSub: as QLinearAdd; with a real number in floats."""
    return _pairs(making, subtract_quantized) if _both_on_grids(making) else function(making)


def div(making: Making) -> Run:
    """QLinearDiv: as QLinearAdd; quotients by zero are counted where loops are not compiled."""
    if not _both_on_grids(making):
        return function(making)
    divided, zero, counters = _pairs(making, divide_quantized), int(making.grid(4, 5).zero_point), making.counters
    if making.means.compiled:
        return divided

    def run(inputs: Sequence[Array | None]) -> Sequence[Array]:
        (result,) = divided(inputs)
        assert inputs[3] is not None
        counters.overflowed += int(np.count_nonzero(np.broadcast_to(inputs[3] == zero, result.shape)))
        return (result,)

    return run


def _pairs(making: Making, rule: Rule) -> Run:
    a, b, y = making.grid(1, 2), making.grid(4, 5), making.grid(6, 7)
    compiled = making.means.compiled
    left, right = (_one_value(making, place) for place in (0, 3))
    if right is not None:
        table = rule(all_levels(a), right.reshape(-1), a, b, y, making.arithmetic)
        return shaped(lookup(table, a.qtype.qmin, compiled=compiled, place=0), 0, [right])
    if left is not None:
        table = rule(left.reshape(-1), all_levels(b), a, b, y, making.arithmetic)
        return shaped(lookup(table, b.qtype.qmin, compiled=compiled, place=3), 3, [left])
    if max(a.qtype.bits, b.qtype.bits) > _BYTE:
        raise ValueError(f"a table of {a.qtype} and {b.qtype} operands would be too large")
    table = rule(all_levels(a)[:, None], all_levels(b)[None, :], a, b, y, making.arithmetic)
    return lookup_pair(table, (a.qtype.qmin, b.qtype.qmin), compiled=compiled)


def _one_value(making: Making, place: int) -> Array | None:
    """The constant at input ``place`` where it has one value, int64 as ``all_levels`` is; None otherwise."""
    known = making.constant(place)
    return known.astype(np.int64) if known is not None and known.size == 1 else None


def _multiplied(  # noqa: PLR0917 - the order of add_quantized
    left: npt.ArrayLike, right: npt.ArrayLike, a: QParams, b: QParams, y: QParams, machine: Arithmetic
) -> Array:
    products = (np.asarray(left) - int(a.zero_point)) * (np.asarray(right) - int(b.zero_point))
    scaling = machine.multiplying or machine.scaling
    levels = scaler((a.scale, b.scale, y.scale), scaling, int(y.zero_point))(products.astype(np.int64))
    return np.clip(levels, *machine.limits(y)).astype(y.qtype.storage_dtype)


def _both_on_grids(making: Making) -> bool:
    operands, _ = given_operands(making)
    return len(operands) == 2 and all(one.grid is not None for one in operands)
