"""The ONNX element types that hold levels, and levels as tensors of them.

constants      the narrowest of 4, 8, 16 and 32 bits
activations    the narrowest of 8, 16 and 32: optimized sessions of ONNX Runtime (1.31) fail on a QuantizeLinear to 4
               bits or drop a Relu before it, whatever its zero point; in 8 bits they count them in integers

A grid narrower than its element type needs a clip, which ONNX Runtime has of 8 bits, not of 4 and 16.
"""

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.numerics import QParams, QType

_CLIPPED = frozenset({ir.DataType.INT8, ir.DataType.UINT8})


def constant_dtype(qtype: QType) -> ir.DataType:
    """The element type that stores a constant's levels."""
    return _dtype(qtype, (4, 8, 16, 32))


def activation_dtype(qtype: QType) -> ir.DataType:
    """The element type that a QuantizeLinear onto the grid gives; of 32 bits there is no such operator."""
    return _dtype(qtype, (8, 16, 32))


def saturates_at(dtype: ir.DataType) -> tuple[int, int]:
    """The ends of ``dtype``, where a QuantizeLinear onto it saturates."""
    signed = dtype.name.startswith("INT")
    ends = QType(dtype.bitwidth, signed)
    return ends.qmin, ends.qmax


def clips_levels(dtype: ir.DataType) -> bool:
    """Whether levels of ``dtype`` can be clipped as integers."""
    return dtype in _CLIPPED


def stored(levels: npt.NDArray[Any], dtype: ir.DataType) -> ir.TensorProtocol:
    """Levels as a tensor of ``dtype``, packed where that is narrower than a byte."""
    if dtype.bitwidth < 8:
        narrow = getattr(ml_dtypes, dtype.name.lower())
        return ir.tensor(levels.astype(narrow), dtype=dtype)
    return ir.tensor(levels.astype(dtype.numpy(), copy=False), dtype=dtype)


def end_values(qparams: QParams, levels: tuple[int, int], rank: int | None) -> tuple[npt.NDArray[np.float32], ...]:
    """The real values of two levels, float32; per channel in a form that broadcasts against ``rank`` dimensions."""
    shape: tuple[int, ...] = ()
    if qparams.axis is not None:
        assert rank is not None
        shape = tuple(qparams.scale.size if i == qparams.axis % rank else 1 for i in range(rank))
    centred = (np.asarray(level - qparams.zero_point).reshape(shape) for level in levels)
    return tuple(np.asarray(c.astype(np.float32) * qparams.scale.reshape(shape), np.float32) for c in centred)


def _dtype(qtype: QType, widths: tuple[int, ...]) -> ir.DataType:
    width = next(width for width in widths if qtype.bits <= width)
    return ir.DataType[f"{'' if qtype.signed else 'U'}INT{width}"]
