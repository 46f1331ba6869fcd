"""ONNX Runtime as a calculator of integer products, and what a probe shows of its sums on this very computer.

Its u8 × s8 sums have to be shown to be exact, or to saturate in pairs, before they are used as either.
"""

import enum
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from qbench.interpreter.arrays import Array

if TYPE_CHECKING:
    import onnx

Product = Callable[[Array], npt.NDArray[Any]]
"""(M, K) levels → (M, N) accumulators: int32, or int64 where those of 16-bit operands could leave it."""


class Pairs(enum.Enum):
    """What a processor does with the sum of two neighbouring u8 × s8 products."""

    EXACT = "exact"
    SATURATE = "saturate"


@functools.cache
def pairs_here() -> Pairs | None:
    """What u8 × s8 products do here: [255, 255] · [127, 127] is 64,770, or saturates; None: no engine."""
    try:
        product = matmul_integer(np.full((4, 1), 127, np.int8), np.zeros(1, np.int8), np.zeros((), np.uint8))
    except ImportError:
        return None
    found = int(product(np.array([[255, 255, 0, 0]], np.uint8))[0, 0])
    return {64770: Pairs.EXACT, 32767: Pairs.SATURATE}.get(found)


def engine_run(graph: "onnx.GraphProto") -> Callable[[dict[str, Array]], Array]:
    """What runs ``graph``, of opset 17 and one output, in one thread: many sessions of many threads spin for nothing.

    Raises:
        ImportError: there is no onnxruntime here.
    """
    import onnxruntime
    from onnx import helper

    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda feeds: np.asarray(session.run(None, feeds)[0])


def matmul_integer(weight: Array, weight_zero: Array, input_zero: Array) -> Product:
    """One MatMulInteger by a constant weight.

    Args:
        weight: (K, N) levels of 8 bits.
        weight_zero: of its type, (N,) or (1,).
        input_zero: (), of the type of the levels that it will multiply.

    Raises:
        ImportError: there is no onnxruntime here.
    """
    import onnxruntime  # noqa: F401 - told here, before onnx is loaded for nothing
    from onnx import TensorProto, helper, numpy_helper

    kinds = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8}
    point = weight_zero.reshape(()) if weight_zero.size == 1 else weight_zero
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w", "zx", "zw"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", kinds[input_zero.dtype.name], ["m", len(weight)])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, ["m", weight.shape[1]])],
        [
            numpy_helper.from_array(np.ascontiguousarray(weight), "w"),
            numpy_helper.from_array(input_zero, "zx"),
            numpy_helper.from_array(point, "zw"),
        ],
    )
    run = engine_run(graph)
    return lambda x: run({"x": x})
