"""The grid that a QuantizeLinear or DequantizeLinear from anywhere stands for, or one sentence when it means nothing.

Other tools leave the zero point out (then it is 0, and the type that of the integers, uint8 where nothing says), give
one scale as a list of one, repeat the zero point once for many scales, and use the domain com.microsoft.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.errors import InputError
from qbench.graph.operators import int_attribute
from qbench.graph.query import constant_value, input_at, node_key
from qbench.numerics import QParams, QType

_Array = npt.NDArray[Any]
_FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE})


def grid_of(node: ir.Node) -> QParams | None:
    """The grid of a Q or DQ ``node``; None where it is computed at run time, or no integer grid with float32 scales.

    Raises:
        InputError: it means nothing: a scale that is not positive and finite, an integer tensor that is float, a zero
            point off the grid, more scales than slices.
    """
    scale = constant_value(input_at(node, 1))
    point = constant_value(input_at(node, 2))
    if scale is None or (point is None and input_at(node, 2) is not None):
        return None
    qtype = _qtype(node)
    if qtype is None or scale.dtype != np.float32:
        return None
    _check_scale(node, scale)
    block = int_attribute(node, "block_size", 0)
    points = np.zeros(scale.shape, np.int64) if point is None else point.astype(np.int64)
    if not block and scale.size == 1:
        return _made(node, scale.reshape(()), points.reshape(-1)[:1].reshape(()), qtype, (None, None))
    if points.size == 1:
        points = np.broadcast_to(points.reshape(()), scale.shape)
    axis = int_attribute(node, "axis", 1)
    _check_axis(node, scale, axis, block)
    return _made(node, scale, points, qtype, (axis, block or None))


def grid_dtype(node: ir.Node) -> ir.DataType:
    """The type of the integers of a Q or DQ ``node``: that of its zero point, of the tensor, else what it is by itself.

    Raises:
        InputError: the tensor is float, or of another type than the zero point.
    """
    integers = node.outputs[0] if node.op_type == "QuantizeLinear" else input_at(node, 0)
    point = input_at(node, 2)
    said = None if point is None else point.dtype
    found = None if integers is None else integers.dtype
    if node.op_type == "DequantizeLinear" and found in _FLOATS:
        raise _meaningless(node, f"integers that are {found.name.lower()}", "a quantized tensor")
    if said is not None and found is not None and said != found:
        raise _meaningless(
            node, f"integers of {found.name.lower()} and a zero point of {said.name.lower()}", "one type"
        )
    written = int_attribute(node, "output_dtype", 0)
    return said or found or (ir.DataType(written) if written else ir.DataType.UINT8)


def _qtype(node: ir.Node) -> QType | None:
    dtype = grid_dtype(node)
    try:
        return QType.parse(dtype.name.lower())
    except InputError:
        return None  # float8 and its kin


def _check_scale(node: ir.Node, scale: _Array) -> None:
    good = np.isfinite(scale) & (scale > 0)
    if not good.all():
        raise _meaningless(node, f"a scale of {scale[~good].reshape(-1)[0]}", "scales that are positive and finite")


def _check_axis(node: ir.Node, scale: _Array, axis: int, block: int) -> None:
    source = input_at(node, 0)
    if source is None or source.shape is None or block:
        return
    rank = len(source.shape)
    if scale.ndim != 1 or not -rank <= axis < rank:
        raise _meaningless(node, f"scales of shape {scale.shape} along axis {axis} of {rank} dimensions", "one a slice")
    size = source.shape[axis]
    if isinstance(size, int) and size != scale.size:
        raise _meaningless(node, f"{scale.size} scales for {size} slices of axis {axis}", "one a slice")


def _made(
    node: ir.Node, scale: _Array, points: npt.NDArray[np.int64], qtype: QType, along: tuple[int | None, int | None]
) -> QParams:
    try:
        return QParams(scale, points, qtype, axis=along[0], block_size=along[1])
    except ValueError as error:
        raise _meaningless(node, str(error), "parameters of one grid") from error


def _meaningless(node: ir.Node, found: str, expected: str) -> InputError:
    return InputError(
        f"Reading the {node.op_type} '{node_key(node)}'",
        found=found,
        expected=expected,
        remedy="Export the model again; as it is, its numbers mean nothing.",
    )
