"""Which nodes of a QDQ graph a device refuses, and why; what it does not refuse, lowering may still decline.

Asked in graph order, because what moves levels hands their grid on:

    DQ ── Reshape ── Transpose ── Q          the Transpose reads the levels that the DQ read
"""

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from qbench.graph import ZeroPoints, constant_value, ints_attribute, is_constant, only_consumer, operator_facts
from qbench.passes.lowering.movers import is_mover
from qbench.passes.lowering.operands import Operand, is_quantize, operand_of, quantized_by, result_of
from qbench.passes.partition.device import Device
from qbench.passes.partition.operators import REQUANTIZE

_PRODUCTS = frozenset({"Gemm", "MatMul"})
_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
_WINDOWS = frozenset({*_CONVOLUTIONS, "AveragePool", "MaxPool"})


def refusals(graph: ir.Graph, device: Device) -> dict[ir.Node, str]:
    """Node → why ``device`` does not take it, of those that read levels and of which this can be told beforehand."""
    grids: dict[ir.Value, Operand] = {}
    refused: dict[ir.Node, str] = {}
    for node in graph:
        if node.op_type == "DequantizeLinear" and not node.domain:
            found = operand_of(node.outputs[0])
            if found is not None:
                grids[node.outputs[0]] = found
            continue
        operands = [(index, grids[value]) for index, value in enumerate(node.inputs) if value in grids]
        if all(operand.is_constant for _, operand in operands):
            continue
        reason = next(_problems(node, operands, device), None)
        if reason is not None:
            refused[node] = reason
        elif is_mover(node):
            grids.update((value, operands[0][1]) for value in node.outputs)
    return refused


def _problems(node: ir.Node, operands: list[tuple[int, Operand]], device: Device) -> Iterator[str]:
    """Every reason to refuse ``node``, the plainest first."""
    name = REQUANTIZE if is_quantize(node) else node.op_type
    if node.domain or name not in device.operators:
        yield f"the device has no {name}"
    if name in _WINDOWS:
        yield from _window_problems(node, device)
    if is_mover(node):
        yield from (
            f"where it moves is computed: '{value.name}'"
            for value in node.inputs[1:]
            if value is not None and not is_constant(value) and operand_of(value) is None
        )
    facts = operator_facts(node)
    for index, operand in operands:
        if facts.weight == index and operand.is_constant:
            yield from _weight_problems(operand, device)
        elif facts.bias != index and not _is_bias(operand):
            yield from _level_problems(operand, device)
    if is_quantize(node):
        given = quantized_by(node)
        yield from () if given is None else _level_problems(given, device)
        return
    result = _result(node)
    if result is not None:
        yield from _level_problems(result, device)
    elif node.op_type in _PRODUCTS:
        yield "its result is real: no QuantizeLinear alone reads it"


def _level_problems(operand: Operand, device: Device) -> Iterator[str]:
    """Why the device does not have levels on that grid."""
    limits = device.limits
    if operand.is_dynamic:
        yield "every batch computes a grid of its own"
        return
    if _type_name(operand) not in limits.activations:
        yield f"levels of {_type_name(operand)}, where the device has {', '.join(limits.activations)}"
    if operand.axis is not None or operand.block:
        yield "levels with more than one scale"
    elif not _zero_point_fits(operand, limits.zero_points):
        point, taken = operand.points.reshape(-1)[0], limits.zero_points.value
        yield f"a zero point of {point}, where the device counts with {taken}"


def _weight_problems(weight: Operand, device: Device) -> Iterator[str]:
    limits = device.limits
    if _type_name(weight) not in limits.weights:
        yield f"weights of {_type_name(weight)}, where the device has {', '.join(limits.weights)}"
    if weight.axis is not None and not limits.weight_per_channel:
        yield "weights with a scale a channel"


def _window_problems(node: ir.Node, device: Device) -> Iterator[str]:
    limits, window = device.limits, _window(node)
    if limits.largest_kernel is not None and max(window, default=1) > limits.largest_kernel:
        shape = "×".join(str(side) for side in window)
        yield f"a window of {shape}, where the device has sides up to {limits.largest_kernel}"
    if not limits.dilations and any(gap != 1 for gap in ints_attribute(node, "dilations")):
        yield "a window with gaps, which the device has not"
    if not limits.groups and "group" in node.attributes and node.attributes["group"].as_int() != 1:
        yield "a convolution in groups, which the device has not"


def _window(node: ir.Node) -> tuple[int, ...]:
    """The sides of the window of ``node``: written out, or those of its weight; () where neither is known."""
    written = ints_attribute(node, "kernel_shape")
    if written or node.op_type not in _CONVOLUTIONS:
        return written
    weight = operand_of(node.inputs[1])
    levels = None if weight is None else constant_value(weight.integers)
    return () if levels is None else levels.shape[2:]


def _result(node: ir.Node) -> Operand | None:
    """The grid of what ``node`` gives, behind the bias that alone reads a matrix product; None: it is real."""
    value = node.outputs[0]
    found = result_of(value)
    follower = only_consumer(value)
    if found is None and node.op_type == "MatMul" and follower is not None and follower.op_type == "Add":
        found = result_of(follower.outputs[0])
    return None if found is None else found[1]


def _is_bias(operand: Operand) -> bool:
    return operand.is_constant and operand.dtype is ir.DataType.INT32


def _zero_point_fits(operand: Operand, taken: ZeroPoints) -> bool:
    if taken is ZeroPoints.ANY:
        return True
    points = operand.points
    lowest = np.iinfo(points.dtype).min if taken is ZeroPoints.ZERO_OR_QMIN else 0
    return bool(np.all((points == 0) | (points == lowest)))


def _type_name(operand: Operand) -> str:
    return "unknown type" if operand.dtype is None else operand.dtype.name.lower()
