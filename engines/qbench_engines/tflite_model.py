"""A TFLite file as a model: a graph of one node that holds the file, for cells that run it as
it is.

Only LiteRT runs such a graph. Its inputs and outputs are real where the file quantizes them. The
products of the file and their types are read when it is loaded, so that planned and executed shares
are known for it as for an ONNX file.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx_ir as ir

from qbench.backends import Array
from qbench.errors import InputError
from qbench.graph import FileProduct, graph_of_file
from qbench_engines.tflite_file import tflite_libraries

SUFFIX = "tflite"
"""Of the files, and so the name of their format."""
_IDENTIFIER = b"TFL3"
_IDENTIFIER_AT = slice(4, 8)
_NCHW_TO_NHWC, _NHWC_TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)
_IMAGE = 4


def load_tflite(path: Path | str) -> ir.Model:
    """The TFLite file at ``path`` as a graph of one node.

    Names of inputs and outputs are those of the file's first signature, or of its tensors. The
    batch is free where the file's is.

    Raises:
        InputError: no such file, one that is no TFLite file, or one of several subgraphs.
        UnavailableError: the packages that read it are not installed.
    """
    path = Path(path)
    doing = f"Loading the model '{path}'"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(
            doing,
            found=error.strerror or str(error),
            expected="a TFLite file",
            remedy="Check the path.",
        ) from error
    remedy = "Give the file that the converter wrote."
    if data[_IDENTIFIER_AT] != _IDENTIFIER:
        raise InputError(
            doing, found="another kind of file", expected="a TFLite file", remedy=remedy
        )
    schema, _ = tflite_libraries(doing)
    try:
        file = schema.ModelT.InitFromPackedBuf(data)
        return _model(file, schema, data, path)
    except InputError:
        raise
    except Exception as error:  # the reader checks no offset: a damaged file ends in any exception
        raise InputError(
            doing, found="a damaged file", expected="a whole TFLite file", remedy=remedy
        ) from error


def _model(file: Any, schema: Any, data: bytes, path: Path) -> ir.Model:  # noqa: ANN401 - a module without types
    if len(file.subgraphs) != 1:
        raise InputError(
            f"Loading the model '{path}'",
            found=f"{len(file.subgraphs)} subgraphs",
            expected="one",
            remedy="Export the model without control flow.",
        )
    (graph,) = file.subgraphs
    signature = (file.signatureDefs or [None])[0]
    inputs = [_value(graph, at, signature and signature.inputs) for at in graph.inputs]
    outputs = [_value(graph, at, signature and signature.outputs) for at in graph.outputs]
    return graph_of_file(
        SUFFIX,
        data,
        name=path.stem,
        inputs=inputs,
        outputs=outputs,
        products=tuple(_products(file, graph, schema)),
    )


def _text(name: bytes | str | None) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name or ""


def _value(graph: Any, at: int, signature: Any) -> ir.Value:  # noqa: ANN401
    """A graph input or output: real where it is quantized, of any layout."""
    tensor = graph.tensors[at]
    named = {one.tensorIndex: _text(one.name) for one in signature or ()}
    shape = [] if tensor.shape is None else list(tensor.shape)
    free = (
        tensor.shapeSignature is not None
        and len(tensor.shapeSignature)
        and tensor.shapeSignature[0] < 0
    )
    dims: list[int | None] = [None] * len(shape)
    if dims and not free:
        dims[0] = int(shape[0])
    quantized = tensor.quantization is not None and tensor.quantization.scale is not None
    # TFLite numbers its types so that 0 is float32; others keep no declared type
    dtype = ir.DataType.FLOAT if quantized or tensor.type == 0 else _TYPES.get(tensor.type)
    kind = None if dtype is None else ir.TensorType(dtype)
    return ir.Value(name=named.get(at) or _text(tensor.name), shape=ir.Shape(dims), type=kind)


_TYPES = MappingProxyType(
    {2: ir.DataType.INT32, 3: ir.DataType.UINT8, 4: ir.DataType.INT64, 9: ir.DataType.INT8}
)
"""schema.fbs, enum TensorType."""


def _products(file: Any, graph: Any, schema: Any) -> list[FileProduct]:  # noqa: ANN401
    kinds = schema.BuiltinOperator
    integers = {schema.TensorType.INT8, schema.TensorType.UINT8, schema.TensorType.INT16}
    found = []
    for operator in graph.operators:
        code = file.operatorCodes[operator.opcodeIndex]
        kind = max(code.builtinCode, code.deprecatedBuiltinCode)
        operands = [None if at < 0 else graph.tensors[at] for at in operator.inputs]
        result = graph.tensors[operator.outputs[0]]
        sizes = [
            () if one is None or one.shape is None else tuple(map(int, one.shape))
            for one in operands
        ]
        out = math.prod(map(int, result.shape))
        batch = max(int(result.shape[0]), 1) if len(result.shape) else 1
        data = operands[0]
        if kind == kinds.CONV_2D:
            count = out * math.prod(sizes[1][1:])
        elif kind == kinds.DEPTHWISE_CONV_2D:
            count = out * math.prod(sizes[1][1:3])
        elif kind == kinds.FULLY_CONNECTED:
            count = out * sizes[1][1]
        elif kind == kinds.BATCH_MATMUL:
            count = (
                out
                * sizes[0][-2 if operator.builtinOptions and operator.builtinOptions.adjX else -1]
            )
        elif kind == kinds.TRANSPOSE_CONV:
            # its data are the third operand, after the shape of the result
            data = operands[2]
            count = math.prod(sizes[2]) * math.prod(sizes[1][:3])
        else:
            continue
        is_integer = data is not None and data.type in integers
        found.append(FileProduct(_text(result.name), count // batch, is_integer))
    return found


# What LiteRT feeds such a file, and returns of it.


def fed(array: Array, detail: Any) -> Array:  # noqa: ANN401 - LiteRT's record of a tensor
    """``array`` as an input of the file takes it: in its order of axes, quantized as it is.

    Codes are round(x / s) + z, halves away from zero, as LiteRT's own QUANTIZE rounds.

    Raises:
        ValueError: the shape is neither the file's, nor that with channels first.
    """
    shape = tuple(map(int, detail["shape"]))
    if is_first(array.shape, shape):
        array = array.transpose(_NCHW_TO_NHWC)
    if array.shape[1:] != shape[1:]:
        raise ValueError(
            f"an input of shape {array.shape[1:]} a sample where the file takes {shape[1:]}"
        )
    scale, zero = detail["quantization"]
    dtype = np.dtype(detail["dtype"])
    if not scale or array.dtype != np.float32 or dtype.kind not in "iu":
        return np.ascontiguousarray(array)
    real = array / np.float32(scale)
    rounded = np.copysign(np.floor(np.abs(real) + np.float32(0.5)), real) + zero
    ends = np.iinfo(dtype)
    codes: Array = np.clip(rounded, ends.min, ends.max).astype(dtype)
    return codes


def is_first(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether arrays of ``shape`` are pictures with channels first, where the file wants them
    last.
    """
    is_image = len(shape) == len(wanted) == _IMAGE
    return (
        is_image
        and tuple(shape[1:]) != tuple(wanted[1:])
        and (*shape[2:], shape[1]) == tuple(wanted[1:])
    )


def returned(array: Array, detail: Any, *, channels_first: bool) -> Array:  # noqa: ANN401
    """A result of the file as reals, s (q − z) in float32, and with channels first where its
    data came so.
    """
    scale, zero = detail["quantization"]
    if scale and array.dtype.kind in "iu":
        array = np.asarray(np.float32(scale) * (array.astype(np.int32) - zero).astype(np.float32))
    return array.transpose(_NHWC_TO_NCHW) if channels_first and array.ndim == _IMAGE else array
