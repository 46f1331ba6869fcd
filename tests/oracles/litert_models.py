"""TFLite models of one operator, written as flatbuffers, and run by one of LiteRT's three sets of kernels.

reference    the plain C++ kernels                                OpResolverType.BUILTIN_REF
optimized    the built-in kernels without any delegate            OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
xnnpack      the XNNPACK delegate, which LiteRT applies itself    OpResolverType.BUILTIN
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.numerics import QParams

Array = npt.NDArray[Any]
Options = tuple[str, dict[str, object]] | None

# The first version of every operator that takes int8 (tensorflow/lite/tools/versioning/op_version.cc).
_VERSIONS = MappingProxyType(
    {"CONV_2D": 3, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 4, "HARD_SWISH": 1, "QUANTIZE": 1}
)
_OTHERS = 2
_TYPES = MappingProxyType({"float32": "FLOAT32", "int32": "INT32", "uint8": "UINT8", "int8": "INT8"})


class Kernels(enum.Enum):
    """One of the three sets, by the name of its resolver."""

    REFERENCE = "BUILTIN_REF"
    OPTIMIZED = "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
    XNNPACK = "BUILTIN"


MACHINES = MappingProxyType(
    {Kernels.REFERENCE: "gemmlowp", Kernels.OPTIMIZED: "litert-x64", Kernels.XNNPACK: "xnnpack"}
)
"""Whom each set counts like."""

BUILT_IN = [*list(MACHINES.items())[:2], (Kernels.OPTIMIZED, "xnnpack")]
"""Likewise, for operators that the delegate leaves to the built-in kernels."""


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A tensor of the model: its levels or reals, and its grid; ``data`` is what goes in, or a constant.

    Args:
        data: of an output an array of its shape and type, whatever it holds.
        grid: scales along ``grid.axis`` where there are many.
        constant: written into the model.
    """

    data: Array
    grid: QParams | None = None
    constant: bool = False


def run(
    operator: str,
    options: Options,
    inputs: Sequence[Tensor | None],
    output: Tensor,
    kernels: Kernels,
) -> Array:
    """What LiteRT gives for ``operator`` with ``options`` (their table's name, its fields), one thread."""
    interpreter = _prepared(written(operator, options, inputs, output), kernels)
    assert _delegates(interpreter) == (kernels is Kernels.XNNPACK), f"{operator} is run by other kernels"
    fed = [tensor for tensor in inputs if tensor is not None and not tensor.constant]
    for detail, tensor in zip(interpreter.get_input_details(), fed, strict=True):
        interpreter.set_tensor(detail["index"], tensor.data)
    interpreter.invoke()
    return np.asarray(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))


def is_delegated(operator: str, options: Options, inputs: Sequence[Tensor | None], output: Tensor) -> bool:
    """Whether XNNPACK takes ``operator`` over, where LiteRT is left to itself."""
    return _delegates(_prepared(written(operator, options, inputs, output), Kernels.XNNPACK))


def _prepared(model: bytes, kernels: Kernels) -> Any:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = OpResolverType[kernels.value]
    interpreter = Interpreter(model_content=model, experimental_op_resolver_type=resolver, num_threads=1)
    interpreter.allocate_tensors()
    return interpreter


def _delegates(interpreter: Any) -> bool:
    return any(detail["op_name"] == "DELEGATE" for detail in interpreter._get_ops_details())


def written(operator: str, options: Options, inputs: Sequence[Tensor | None], output: Tensor) -> bytes:
    """The flatbuffer of a model of one ``operator``; an absent input is None."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    present = [tensor for tensor in inputs if tensor is not None]
    tensors = [*present, output]
    stored = [np.ascontiguousarray(tensor.data).view(np.uint8).reshape(-1) for tensor in tensors if tensor.constant]
    buffers = [schema.BufferT(), *(schema.BufferT(data=data) for data in stored)]
    places = iter(range(1, len(buffers)))
    made = [
        schema.TensorT(
            shape=np.array(tensor.data.shape, np.int32),
            type=getattr(schema.TensorType, _TYPES[str(tensor.data.dtype)]),
            buffer=next(places) if tensor.constant else 0,
            name=f"t{index}",
            quantization=_quantization(tensor.grid),
            hasRank=True,
        )
        for index, tensor in enumerate(tensors)
    ]
    numbers = iter(range(len(present)))
    reads = [-1 if tensor is None else next(numbers) for tensor in inputs]
    node = schema.OperatorT(opcodeIndex=0, inputs=np.array(reads, np.int32), outputs=np.array([len(present)], np.int32))
    if options is not None:
        table, settings = options
        node.builtinOptionsType = getattr(schema.BuiltinOptions, table)
        node.builtinOptions = getattr(schema, f"{table}T")(**settings)
    code = getattr(schema.BuiltinOperator, operator)
    graph = schema.SubGraphT(
        tensors=made,
        inputs=np.array([i for i, tensor in enumerate(present) if not tensor.constant], np.int32),
        outputs=np.array([len(present)], np.int32),
        operators=[node],
        name="main",
    )
    opcode = schema.OperatorCodeT(
        deprecatedBuiltinCode=min(code, 127), builtinCode=code, version=_VERSIONS.get(operator, _OTHERS)
    )
    model = schema.ModelT(
        version=3, operatorCodes=[opcode], subgraphs=[graph], buffers=buffers, description="one operator"
    )
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def _quantization(grid: QParams | None) -> object:
    from ai_edge_litert import schema_py_generated as schema

    if grid is None:
        return None
    return schema.QuantizationParametersT(
        scale=np.atleast_1d(np.asarray(grid.scale, np.float32)),
        zeroPoint=np.atleast_1d(np.asarray(grid.zero_point, np.int64)),
        quantizedDimension=grid.axis or 0,
    )
