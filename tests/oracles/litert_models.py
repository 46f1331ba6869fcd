"""TFLite models of one operator, written as flatbuffers, and run by one of LiteRT's three sets
of kernels.

reference    the plain C++ kernels
             OpResolverType.BUILTIN_REF
optimized    the built-in kernels without any delegate
             OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
xnnpack      the XNNPACK delegate, which LiteRT applies itself
             OpResolverType.BUILTIN
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
    """A tensor of the model: its levels or reals, and its grid; ``data`` is what goes in, or a
    constant.

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
    """What LiteRT gives for ``operator`` with ``options`` (their table's name, its fields),
    one thread.
    """
    interpreter = _prepared(written(operator, options, inputs, output), kernels)
    assert _delegates(interpreter) == (kernels is Kernels.XNNPACK), (
        f"{operator} is run by other kernels"
    )
    fed = [tensor for tensor in inputs if tensor is not None and not tensor.constant]
    for detail, tensor in zip(interpreter.get_input_details(), fed, strict=True):
        interpreter.set_tensor(detail["index"], tensor.data)
    interpreter.invoke()
    return np.asarray(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))


def is_delegated(
    operator: str, options: Options, inputs: Sequence[Tensor | None], output: Tensor
) -> bool:
    """Whether XNNPACK takes ``operator`` over, where LiteRT is left to itself."""
    return _delegates(_prepared(written(operator, options, inputs, output), Kernels.XNNPACK))


def _prepared(model: bytes, kernels: Kernels) -> Any:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = OpResolverType[kernels.value]
    interpreter = Interpreter(
        model_content=model, experimental_op_resolver_type=resolver, num_threads=1
    )
    interpreter.allocate_tensors()
    return interpreter


def _delegates(interpreter: Any) -> bool:
    return any(detail["op_name"] == "DELEGATE" for detail in interpreter._get_ops_details())


def written(
    operator: str, options: Options, inputs: Sequence[Tensor | None], output: Tensor
) -> bytes:
    """The flatbuffer of a model of one ``operator``; an absent input is None."""
    from qbench_engines.tflite_file import TensorQParams, TfliteFile, int8_version

    def placed(tensor: Tensor, index: int) -> int:
        found, grid = None, tensor.grid
        if grid is not None:
            zeros = np.atleast_1d(np.asarray(grid.zero_point, np.int64))
            found = TensorQParams(
                np.atleast_1d(np.asarray(grid.scale, np.float32)), zeros, grid.axis or 0
            )
        data = tensor.data if tensor.constant else None
        return file.add_tensor(f"t{index}", tensor.data.shape, str(tensor.data.dtype), found, data)

    file, present = TfliteFile(), [tensor for tensor in inputs if tensor is not None]
    numbers = [placed(tensor, index) for index, tensor in enumerate(present)]
    result = placed(output, len(present))
    places = iter(numbers)
    reads = [-1 if tensor is None else next(places) for tensor in inputs]
    file.add_operator(operator, options, reads, [result], version=int8_version(operator))
    fed = [number for number, tensor in zip(numbers, present, strict=True) if not tensor.constant]
    return file.finished(
        {f"t{number}": number for number in fed}, {"result": result}, "one operator"
    )
