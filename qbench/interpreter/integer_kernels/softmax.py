"""Softmax of levels along any axis, by the machine's scheme (``numerics.softmax``): x s z s_y z_y.

Before opset 13 (an attribute, as ONNX Runtime's QLinearSoftmax has it) everything from the axis on is one row.
"""

import functools
from collections.abc import Sequence

import numpy as np

from qbench.graph import int_attribute
from qbench.interpreter.arrays import Array
from qbench.interpreter.kernel import Making, Run
from qbench.numerics import softmax_of_levels

_ONE_AXIS = 13
"""The opset since which a softmax is along one axis."""


def softmax(making: Making) -> Run:
    """QLinearSoftmax."""
    x, y, machine, counters = making.grid(1, 2), making.grid(3, 4), making.arithmetic, making.counters
    along_one = int_attribute(making.node, "opset", _ONE_AXIS) >= _ONE_AXIS
    axis = int_attribute(making.node, "axis", -1)

    @functools.cache
    def of_length(length: int):  # type: ignore[no-untyped-def]  # noqa: ANN202
        return softmax_of_levels(x, y, length, machine)

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        levels = inputs[0]
        assert levels is not None
        if not levels.size:
            return (np.empty(levels.shape, y.qtype.storage_dtype),)
        place = axis % levels.ndim
        rows = np.moveaxis(levels, place, -1) if along_one else levels.reshape(*levels.shape[:place], -1)
        result, overflowed = of_length(rows.shape[-1])(rows)
        counters.overflowed += overflowed
        return (np.moveaxis(result, -1, place) if along_one else result.reshape(levels.shape),)

    return run
