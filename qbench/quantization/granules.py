"""Cutting a constant into the parts that share one pair of parameters, and a grid for each.

per tensor    one row of all elements
per channel   one row for every index of an axis
per block     one row for every ``block_size`` elements along an axis, the last of which may be shorter
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.numerics import Interval, QParams
from qbench.quantization.spec import Spec

_Array = npt.NDArray[Any]


def constant_qparams(array: _Array, spec: Spec, *, axis: int | None, block_size: int | None = None) -> QParams:
    """The grid that ``spec`` asks of a constant, at the granularity that its operator allows.

    Args:
        array: real, finite, at least one element.
        spec: the grid and the range method; its granularity and fixed parameters are not looked at.
        axis: that channels or blocks run along; None: one pair for all.
        block_size: elements of a block; None: channels.
    """
    if axis is not None and block_size is not None:
        interval = _of_blocks(array, spec, axis, block_size)
        return spec.kind.choose(interval.low, interval.high, axis=axis, block_size=block_size)
    interval = _of_rows(rows_along(array, axis), spec)
    if axis is None:
        interval = Interval(interval.low[0], interval.high[0])
    return spec.kind.choose(interval.low, interval.high, axis=axis)


def rows_along(array: _Array, axis: int | None) -> _Array:
    """(channels, elements); one row without an axis."""
    return array.reshape(1, -1) if axis is None else np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)


def _of_rows(rows: _Array, spec: Spec) -> Interval:
    return spec.method.of_rows(rows, spec.kind)


def _of_blocks(array: _Array, spec: Spec, axis: int, size: int) -> Interval:
    """Intervals of the blocks' shape: that of ``array`` with ``axis`` divided by ``size`` and rounded up."""
    moved = np.moveaxis(array, axis, -1)
    around, length = moved.shape[:-1], moved.shape[-1]
    whole = length - length % size
    parts = []
    for part, width in ((moved[..., :whole], size), (moved[..., whole:], length - whole)):
        if part.size:
            found = _of_rows(part.reshape(-1, width), spec)
            parts.append((found.low.reshape(*around, -1), found.high.reshape(*around, -1)))
    low, high = (np.moveaxis(np.concatenate(ends, axis=-1), -1, axis) for ends in zip(*parts, strict=True))
    return Interval(low, high)
