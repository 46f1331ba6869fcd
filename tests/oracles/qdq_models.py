"""One operator between its Q and DQ, as an integer machine counts it by the whole road:
lowering, kernel, rounding.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
from litert_models import Tensor
from onnx import TensorProto, helper, numpy_helper

from qbench.backends import get_backend
from qbench.numerics import QParams, QType

Array = npt.NDArray[Any]
_OPSET = 21
_STORED = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "float32": TensorProto.FLOAT}


def grid(
    scale: npt.ArrayLike, zero_point: int = 0, qtype: str = "int8", axis: int | None = None
) -> QParams:
    """A grid, per tensor or with one scale a channel and one zero point for all of them."""
    scales = np.asarray(scale, np.float32)
    return QParams(
        scales, np.full(scales.shape, zero_point, np.int64), QType.parse(qtype), axis=axis
    )


def counted(
    machine: str,
    operator: str,
    inputs: Sequence[Tensor],
    output: QParams,
    attributes: dict[str, object] | None = None,
    *,
    clip: tuple[int, int] | None = None,
) -> Array:
    """What ``integer-<machine>`` gives for ``operator`` (empty: nothing between DQ and Q),
    clipped to levels.
    """
    nodes, constants, feeds, values, operands = [], [], {}, [], []

    def constant(name: str, array: Array) -> str:
        constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    for index, tensor in enumerate(inputs):
        name = f"x{index}"
        if tensor.constant:
            constant(name, tensor.data)
        else:
            feeds[name] = tensor.data
            values.append(
                helper.make_tensor_value_info(
                    name, _STORED[str(tensor.data.dtype)], tensor.data.shape
                )
            )
        if tensor.grid is None:
            operands.append(name)
            continue
        nodes.append(
            _node(
                "DequantizeLinear",
                [name, *_ends(constant, tensor.grid, name)],
                f"{name}_real",
                tensor.grid,
            )
        )
        operands.append(f"{name}_real")
    real = operands[0]
    if operator:
        nodes.append(helper.make_node(operator, operands, ["real"], operator, **(attributes or {})))
        real = "real"
    nodes.append(_node("QuantizeLinear", [real, *_ends(constant, output, "y")], "levels", output))
    result = "levels"
    if clip is not None:
        ends = [constant(f"end{end}", np.array(end, output.qtype.storage_dtype)) for end in clip]
        nodes.append(helper.make_node("Clip", ["levels", *ends], ["clipped"]))
        result = "clipped"
    stored = _STORED[str(output.qtype.storage_dtype)]
    graph = helper.make_graph(
        nodes, operator or "rescale", values, [_unshaped(result, stored)], constants
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=10)
    with get_backend(f"integer-{machine}").prepare(
        ir.from_proto(onnx.shape_inference.infer_shapes(model))
    ) as executor:
        return np.asarray(executor.run(feeds)[result])


def _node(operator: str, names: list[str], output: str, qparams: QParams) -> onnx.NodeProto:
    return helper.make_node(
        operator, names, [output], output, axis=1 if qparams.axis is None else qparams.axis
    )


def _ends(constant: Any, qparams: QParams, name: str) -> list[str]:
    zero = np.asarray(qparams.zero_point).astype(qparams.qtype.storage_dtype)
    return [constant(f"{name}_scale", np.asarray(qparams.scale)), constant(f"{name}_zero", zero)]


def _unshaped(name: str, stored: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, stored, None)
