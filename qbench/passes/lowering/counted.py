"""What ONNX Runtime has no operator on integers for, as operators of our own that integer machines count.

    qbench.integer::QLinear<Op>      inputs x s z for every operand, then s_y z_y; attributes as they were

An operand without s and z is real and constant: the ends of a Clip, a number to multiply by, axes. Grids have one
static scale and 8 or 16 bits, of any type each. Each rule returns why it declines, or None when it lowered.
"""

from collections.abc import Sequence

import onnx_ir as ir

from qbench.graph import INTEGER_DOMAIN, QLINEAR, constant_value, is_pointwise, operator_facts
from qbench.passes.lowering.elementwise import softmax_attributes
from qbench.passes.lowering.operands import EIGHT_BITS, UP_TO_16_BITS, Operand, operand_of, quantized_by, result_of
from qbench.passes.lowering.site import Site

_ONE_SCALE = "its kernel has one static scale for each operand"
_REQUANTIZED = UP_TO_16_BITS | {ir.DataType.INT32}
_CHOICES = frozenset({"Where"})
"""Operators whose first operand is no number."""
_SIDES = 2

Triple = tuple[ir.Value | None, ir.Value | None, ir.Value | None]


def has_own_operator(site: Site, node: ir.Node) -> bool:
    """Whether the target counts ``node`` by an operator of our own, whose inputs are those said above.

    Products are not among these: a bias is integers alone there, without a scale and a zero point of its own.
    """
    if node.domain:
        return site.target.outside and is_pointwise(node)
    if operator_facts(node).weight is not None:
        return False
    return site.target.lacks(f"{QLINEAR}{node.op_type}", INTEGER_DOMAIN) is None


def lower_counted(site: Site, node: ir.Node) -> str | None:
    """Any operator that the target has as QLinear<Op> → that."""
    if not has_own_operator(site, node):
        return f"there is no integer operator for {node.op_type}"
    result = result_of(node.outputs[0])
    if result is None or len(node.outputs) > 1:
        return "its result is real: no QuantizeLinear alone reads it"
    quantizer, output = result
    triples = [_triple(node, index, value) for index, value in enumerate(node.inputs)]
    refused = [problem for problem in triples if isinstance(problem, str)]
    if problem := (*refused, *_grid_problems([output])):
        return problem[0]
    given: list[Triple] = [triple for triple in triples if not isinstance(triple, str)]
    if is_pointwise(node) and (reason := _too_many(given)):
        return reason
    inputs = [value for triple in given for value in triple]
    attributes = softmax_attributes(node) if node.op_type == "Softmax" else list(node.attributes.values())
    site.replace(
        [node, quantizer],
        f"{QLINEAR}{node.op_type}",
        [*inputs, output.scale, output.point],
        attributes,
        domain=node.domain or INTEGER_DOMAIN,
    )
    return None


def lower_requantize(site: Site, quantizer: ir.Node, data: Operand | None = None) -> str | None:
    """A QuantizeLinear of what was dequantized → QLinearRequantize, from grid to grid.

    Args:
        site: the graph.
        quantizer: the node.
        data: the integers and their grid; None: those of the DequantizeLinear before it.
    """
    data = data or operand_of(quantizer.inputs[0])
    output = quantized_by(quantizer)
    if data is None or output is None or not is_requantized(site, data, output):
        return "no kernel brings integers from such a grid to such a grid"
    inputs = [data.integers, data.scale, data.point, output.scale, output.point]
    site.replace([quantizer], "QLinearRequantize", inputs, domain=INTEGER_DOMAIN)
    return None


def is_requantized(site: Site, data: Operand, output: Operand) -> bool:
    """Whether the target brings integers of the one grid to the other."""
    lacking = site.target.lacks("QLinearRequantize", INTEGER_DOMAIN) is not None
    return not lacking and not _grid_problems([output]) and not _grid_problems([data], _REQUANTIZED)


def _triple(node: ir.Node, index: int, value: ir.Value | None) -> Triple | str:
    """An operand with its grid, a constant without, or why neither."""
    if value is None or (index == 0 and node.op_type in _CHOICES):
        return value, None, None
    operand = operand_of(value)
    if operand is None:
        return "an operand is real" if constant_value(value) is None else (value, None, None)
    problems = _grid_problems([operand])
    return problems[0] if problems else (operand.integers, operand.scale, operand.point)


def _grid_problems(operands: Sequence[Operand], types: frozenset[ir.DataType] = UP_TO_16_BITS) -> tuple[str, ...]:
    for operand in operands:
        if operand.axis is not None or operand.block or operand.is_dynamic:
            return (_ONE_SCALE,)
        if operand.dtype not in types:
            return (
                f"its kernel has types of 8 or 16 bits, not {'unknown' if operand.dtype is None else operand.dtype}",
            )
    return ()


def _too_many(given: Sequence[Triple]) -> str | None:
    """Why no table holds a function of these operands; None when one does."""
    varying = [(value, scale) for value, scale, _ in given if value is not None and _varies(value)]
    if any(scale is None for _, scale in varying):
        return "an operand is real"
    if len(varying) < _SIDES:
        return None
    present = [value for value, _, _ in given if value is not None]
    if len(varying) > _SIDES or len(present) > _SIDES or any(v.dtype not in EIGHT_BITS for v, _ in varying):
        return "a table has two sides of 8 bits"
    return None


def _varies(value: ir.Value) -> bool:
    known = constant_value(value)
    return known is None or known.size > 1
