"""An operator subject as an ONNX graph in QDQ form, by the convention of ``graph.qdq``."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.zoo.networks.building import GraphBuilder
from qbench.zoo.operators.levels import Ints, bias_levels, weight_levels
from qbench.zoo.operators.subject import OperandGrid, OperatorSubject

RESULT = "y"
_REQUANTIZE = "Requantize"


def input_names(subject: OperatorSubject) -> tuple[str, ...]:
    """What the graph calls its inputs: ``x``, or ``x0``, ``x1`` of several."""
    count = len(subject.inputs)
    return ("x",) if count == 1 else tuple(f"x{index}" for index in range(count))


def operator_graph(subject: OperatorSubject, *, weight: Ints | None = None) -> ir.Model:
    """The graph: reals in, a Q and a DQ, the operator, a Q and a DQ, reals out; the batch is free.

    Args:
        subject: the operator and its grids. weight: levels in place of its own.
    """
    builder = GraphBuilder(subject.id)
    operands = []
    for name, operand in zip(input_names(subject), subject.inputs, strict=True):
        real = builder.input(name, ("N", *operand.shape))
        operands.append(_on_grid(builder, real, operand.grid, name))
    node = subject.operator.lower()
    if subject.operator == _REQUANTIZE:
        (result,) = operands
    else:
        attributes = {
            name: list(value) if isinstance(value, tuple) else value for name, value in subject.attributes.items()
        }
        inputs = [*operands, *_constants(builder, subject, weight)]
        result = builder.node(subject.operator, inputs, node, attributes)
    return builder.model({RESULT: _on_grid(builder, result, subject.output, RESULT)})


def _on_grid(builder: GraphBuilder, real: ir.Value, grid: OperandGrid, name: str) -> ir.Value:
    scale, point = _parameters(builder, grid, name)
    levels = builder.node("QuantizeLinear", [real, scale, point], f"{name}_q")
    return builder.node("DequantizeLinear", [levels, scale, point], f"{name}_dq")


def _parameters(builder: GraphBuilder, grid: OperandGrid, name: str) -> tuple[ir.Value, ir.Value]:
    scales = np.array(grid.scales, np.float32)
    points = np.full(scales.shape, grid.zero_point, grid.qtype)
    if grid.axis is None:
        scales, points = scales.reshape(()), points.reshape(())
    return builder.constant(f"{name}_scale", scales), builder.constant(f"{name}_zero_point", points)


def _constants(builder: GraphBuilder, subject: OperatorSubject, given: Ints | None) -> Iterator[ir.Value | None]:
    """The weight (``given``, if it is) and the bias behind their DQ, then what else the operator reads."""
    weight = subject.weight
    if weight is not None:
        own = weight_levels(subject) if given is None else given
        levels = builder.constant("w_q", own.astype(weight.grid.qtype))
        axis = {} if weight.grid.axis is None else {"axis": weight.grid.axis}
        yield builder.node("DequantizeLinear", [levels, *_parameters(builder, weight.grid, "w")], "w_dq", axis)
    if subject.bias and weight is not None:
        levels = builder.constant("b_q", bias_levels(subject).astype(np.int32))
        products = np.float32(subject.inputs[0].grid.scales[0]) * np.array(weight.grid.scales, np.float32)
        each = np.asarray(products if weight.grid.axis is not None else products.reshape(()), np.float32)
        scale = builder.constant("b_scale", each)
        point = builder.constant("b_zero_point", np.zeros(each.shape, np.int32))
        axis = {} if weight.grid.axis is None else {"axis": 0}
        yield builder.node("DequantizeLinear", [levels, scale, point], "b_dq", axis)
    for name, values in subject.constants:
        yield None if values == () else builder.constant(name, constant_array(values))


def constant_array(
    values: tuple[float, ...] | tuple[int, ...] | float,
) -> npt.NDArray[np.float32] | npt.NDArray[np.int64]:
    """A further constant as ONNX takes it: int64, or float32."""
    found = np.array(values)
    return found.astype(np.int64) if found.dtype.kind == "i" else found.astype(np.float32)
