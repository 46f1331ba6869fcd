"""Large constants of a model taken out before a slow step, and put back after it."""

import math
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

SMALL = 1024
"""Bytes up to which a constant stays where others are taken out: inference reads its numbers,
as a shape or axes.
"""
HEAVY = 1 << 20
"""Bytes from which a constant is taken out."""

_DTYPES = MappingProxyType(
    {
        getattr(onnx.TensorProto, name.upper()): np.dtype(name).newbyteorder("<")
        for name in (
            "int8",
            "uint8",
            "int16",
            "uint16",
            "int32",
            "uint32",
            "int64",
            "uint64",
            "float16",
        )
    }
    | {onnx.TensorProto.FLOAT: np.dtype("<f4"), onnx.TensorProto.DOUBLE: np.dtype("<f8")}
)


def lightened(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, npt.NDArray[Any]]]:
    """A copy of ``proto`` without the bytes of large initializers of its main graph, and those
    as arrays by name.

    ``proto`` itself is spoilt: let it go, or its memory stays.
    """
    heavy: dict[str, npt.NDArray[Any]] = {}
    for tensor in proto.graph.initializer:
        dtype = _DTYPES.get(tensor.data_type)
        if dtype is None or not tensor.HasField("raw_data") or tensor.name in heavy:
            continue
        data = tensor.raw_data
        if len(data) < HEAVY or len(data) != math.prod(tensor.dims) * dtype.itemsize:
            continue
        heavy[tensor.name] = np.frombuffer(data, dtype).reshape(tuple(tensor.dims))
        tensor.ClearField("raw_data")
    if not heavy:
        return proto, heavy
    light = onnx.ModelProto()
    light.CopyFrom(proto)
    return light, heavy


def put_back(model: ir.Model, heavy: dict[str, npt.NDArray[Any]]) -> None:
    """Give the initializers of ``model`` the arrays that were taken out."""
    for name, array in heavy.items():
        model.graph.initializers[name].const_value = ir.Tensor(array, name=name)
