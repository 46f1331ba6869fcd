"""Tables over levels: what a kernel of 8-bit operands becomes once every value of it is known.

y = table[q − low]            y = table[a − low_a, b − low_b], broadcast
"""

from collections.abc import Sequence

import numpy as np

from qbench.interpreter.arrays import Array
from qbench.interpreter.batch_error import broadcast
from qbench.interpreter.kernel import Run
from qbench.numerics import QParams


def all_levels(grid: QParams) -> Array:
    """Every level of a grid of up to 16 bits, ascending.

    Raises:
        ValueError: a grid of more bits, or one per channel.
    """
    if grid.qtype.bits > 16 or grid.axis is not None:
        raise ValueError(f"a table of {grid.qtype} operands would be too large, or one a channel")
    return np.arange(grid.qtype.qmin, grid.qtype.qmax + 1)


def lookup(table: Array, low: int, *, compiled: bool, place: int = 0) -> Run:
    """A table over the operand at input ``place``, whose lowest level is ``low``."""
    if compiled:
        return _compiled_lookup(table, low, place)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        levels = inputs[place]
        assert levels is not None
        return (table[levels.astype(np.intp) - low],)

    return run


def lookup_pair(table: Array, lows: tuple[int, int], *, compiled: bool) -> Run:
    """A table over two operands of 8 bits, those at inputs 0 and 3, with broadcasting."""
    if compiled:
        return _compiled_lookup_pair(table, lows)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        left, right = inputs[0], inputs[3]
        assert left is not None
        assert right is not None
        broadcast(left.shape, right.shape)
        return (table[left.astype(np.intp) - lows[0], right.astype(np.intp) - lows[1]],)

    return run


def _compiled_lookup(table: Array, low: int, place: int) -> Run:
    from qbench.interpreter.compiled import looked_up

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        levels = inputs[place]
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
