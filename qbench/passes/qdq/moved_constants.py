"""Quantized constants that are moved before they are used: integers, and the axis of their scales, move with them.

Transpose(DQ(w, s along axis)) = DQ(transpose(w), s along the place of axis)
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import constant_value
from qbench.numerics import QParams

_Array = npt.NDArray[Any]


def moved_constant(node: ir.Node, integers: _Array, grid: QParams) -> tuple[_Array, QParams] | None:
    """What ``node`` makes of constant ``integers`` on ``grid``; None where it does more than move them.

    A Reshape moves scales only where there is a single one.
    """
    if node.domain:
        return None
    match node.op_type:
        case "Transpose":
            return _transposed(node, integers, grid)
        case "Reshape" if grid.axis is None:
            shape = constant_value(node.inputs[1])
            return None if shape is None or not shape.all() else (integers.reshape(shape.tolist()), grid)
        case "Identity":
            return integers, grid
        case _:
            return None


def _transposed(node: ir.Node, integers: _Array, grid: QParams) -> tuple[_Array, QParams]:
    attribute = node.attributes.get("perm")
    order = list(range(integers.ndim))[::-1] if attribute is None else list(attribute.as_ints())
    moved = integers.transpose(order)
    if grid.axis is None:
        return moved, grid
    axis = order.index(grid.axis % integers.ndim)
    if grid.block_size is None:
        return moved, _along(grid, axis, grid.scale, grid.zero_point)
    return moved, _along(grid, axis, grid.scale.transpose(order), grid.zero_point.transpose(order))


def _along(grid: QParams, axis: int, scale: npt.NDArray[np.float32], zero_point: npt.NDArray[np.int64]) -> QParams:
    return QParams(scale, zero_point, grid.qtype, axis=axis, block_size=grid.block_size, narrow_range=grid.narrow_range)
