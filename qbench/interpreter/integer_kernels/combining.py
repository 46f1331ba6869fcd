"""Operands brought to the grid of the result, then combined there: Concat, Max, Min, Where.

    y = combine(round((x_i − z_i) · s_i / s_y) + z_y, …)

Largest, smallest and chosen are the same before and after: rounding keeps the order.
"""

from collections.abc import Sequence
from functools import reduce

import numpy as np

from qbench.graph import int_attribute
from qbench.interpreter.arrays import Array
from qbench.interpreter.batch_error import BatchError, broadcast
from qbench.interpreter.integer_kernels.lookups import all_levels, lookup
from qbench.interpreter.integer_kernels.operands import given_operands
from qbench.interpreter.kernel import Making, Run
from qbench.numerics import QParams, quantize, rescaler


def concat(making: Making) -> Run:
    """QLinearConcat: s_y z_y, then x s_x z_x of every part."""
    node, y = making.node, making.grid(0, 1)
    axis = int_attribute(node, "axis", 0)
    parts = [_bringing(making, place, making.grid(place + 1, place + 2), y) for place in range(2, len(node.inputs), 3)]

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        found = [part(inputs)[0] for part in parts]
        across = {np.delete(one.shape, axis).tobytes() for one in found}
        if len(across) > 1:
            raise BatchError(f"parts of {' and '.join(str(one.shape) for one in found)} along axis {axis}")
        return (np.concatenate(found, axis=axis),)

    return run


def largest(making: Making) -> Run:
    """QLinearMax: x s z of every operand, s_y z_y."""
    return _reduced(making, np.maximum)


def smallest(making: Making) -> Run:
    """QLinearMin: as QLinearMax."""
    return _reduced(making, np.minimum)


def where(making: Making) -> Run:
    """QLinearWhere: the condition in the place of a first operand, then as QLinearMax."""
    end = len(making.node.inputs)
    y = making.grid(end - 2, end - 1)
    yes, no = (_operand(making, place, y) for place in (3, 6))

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        assert inputs[0] is not None
        chosen = yes(inputs)[0], no(inputs)[0]
        broadcast(inputs[0].shape, *(one.shape for one in chosen))
        return (np.where(inputs[0], *chosen),)

    return run


def requantize(making: Making) -> Run:
    """QLinearRequantize: x s z s_y z_y, levels from grid to grid and nothing else; x of up to 32 bits."""
    return _bringing(making, 0, making.grid(1, 2), making.grid(3, 4))


def _reduced(making: Making, combine: "np.ufunc") -> Run:
    operands, y = given_operands(making)
    parts = [_operand(making, one.place, y) for one in operands]

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        found = [part(inputs)[0] for part in parts]
        broadcast(*(one.shape for one in found))
        return (reduce(combine, found),)

    return run


def _operand(making: Making, place: int, y: QParams) -> Run:
    if not making.absent(place + 1):
        return _bringing(making, place, making.grid(place + 1, place + 2), y)
    levels = quantize(making.needed(place), y, making.arithmetic)
    return lambda _: (levels,)


def _bringing(making: Making, place: int, x: QParams, y: QParams) -> Run:
    """What brings the operand at ``place`` to ``y``: nothing where it is there, a table where it has few levels."""
    bring = rescaler(x, y, making.arithmetic)
    if x.qtype.bits <= 16 and (x.scale, x.zero_point, x.qtype) != (y.scale, y.zero_point, y.qtype):
        return lookup(bring(all_levels(x)), x.qtype.qmin, compiled=making.means.compiled, place=place)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        levels = inputs[place]
        assert levels is not None
        return (bring(levels),)

    return run
