"""Sums, products, concatenations, pools and functions of one value between Q and DQ as ONNX Runtime's QLinear….

All operands and the result have one type of 8 bits, and one scale each (ContribOperators.md of ONNX Runtime 1.31).
Each rule returns why it declines, or None when it lowered.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import onnx_ir as ir

from qbench.graph import int_attribute, ints_attribute
from qbench.passes.lowering.operands import EIGHT_BITS, Operand, operand_of, result_of
from qbench.passes.lowering.site import Site, kept_attributes
from qbench.passes.lowering.target import ENGINE_DOMAIN

_ONE_AXIS = 13
"""The opset since which a Softmax is along one axis."""
_WINDOW = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")


def lower_pointwise(site: Site, node: ir.Node) -> str | None:
    """Add, Mul, pools, Sigmoid, LeakyRelu and Softmax → QLinear…: every operand, then the grid of the result."""
    found = _window_problem(node) or _surroundings(site, node)
    if isinstance(found, str):
        return found
    operands, quantizer, output = found
    inputs = [value for operand in operands for value in operand.triple]
    inputs += [output.scale, output.point]
    attributes = _ATTRIBUTES.get(node.op_type, _none)(node)
    site.replace([node, quantizer], f"QLinear{node.op_type}", inputs, attributes, domain=ENGINE_DOMAIN)
    return None


def lower_concat(site: Site, node: ir.Node) -> str | None:
    """Concat → QLinearConcat, which has the grid of the result first; of equal grids it is a copy."""
    found = _surroundings(site, node)
    if isinstance(found, str):
        return found
    operands, quantizer, output = found
    inputs = [output.scale, output.point, *(value for operand in operands for value in operand.triple)]
    site.replace([node, quantizer], "QLinearConcat", inputs, kept_attributes(node, "axis"), domain=ENGINE_DOMAIN)
    return None


def softmax_attributes(node: ir.Node) -> list[ir.Attr]:
    """The axis and the opset of a QLinearSoftmax: before 13, everything from the axis on is one row."""
    opset = _ONE_AXIS if node.graph is None else min(node.graph.opset_imports.get("", _ONE_AXIS), _ONE_AXIS)
    axis = int_attribute(node, "axis", -1 if opset >= _ONE_AXIS else 1)
    return [ir.AttrInt64("axis", axis), ir.AttrInt64("opset", opset)]


def _window_problem(node: ir.Node) -> str | None:
    """Why QLinearAveragePool does not count the windows of ``node`` as ONNX's AveragePool does."""
    if node.op_type != "AveragePool":
        return None
    if any(d != 1 for d in ints_attribute(node, "dilations")):
        return "QLinearAveragePool has no dilations"
    if int_attribute(node, "ceil_mode", 0) and int_attribute(node, "count_include_pad", 0):
        return "with ceil_mode and count_include_pad QLinearAveragePool counts what lies beyond the padding"
    return None


def _surroundings(site: Site, node: ir.Node) -> tuple[Sequence[Operand], ir.Node, Operand] | str:
    if problem := site.target.lacks(f"QLinear{node.op_type}", ENGINE_DOMAIN):
        return problem
    operands = [operand_of(value) for value in node.inputs]
    present = [operand for operand in operands if operand is not None]
    if len(present) != len(operands):
        return "an operand is real"
    result = result_of(node.outputs[0])
    if result is None:
        return "its result is real: no QuantizeLinear alone reads it"
    quantizer, output = result
    everything = (*present, output)
    if any(o.axis is not None or o.block or o.is_dynamic for o in everything):
        return "its kernel has one static scale for each operand"
    if len({o.dtype for o in everything}) != 1 or output.dtype not in EIGHT_BITS:
        kinds = ", ".join(sorted({o.dtype.name.lower() for o in everything if o.dtype is not None}))
        return f"its kernel has one type of 8 bits, not {kinds}"
    return present, quantizer, output


def _none(_: ir.Node) -> list[ir.Attr]:
    return []


_ATTRIBUTES: Mapping[str, Callable[[ir.Node], list[ir.Attr]]] = MappingProxyType(
    {
        "AveragePool": lambda node: kept_attributes(node, *_WINDOW),
        "GlobalAveragePool": lambda _: [ir.AttrInt64("channels_last", 0)],
        "LeakyRelu": lambda node: kept_attributes(node, "alpha"),
        "Softmax": softmax_attributes,
    }
)
