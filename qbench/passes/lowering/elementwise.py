"""Sums, pools, functions and movers as operators on integers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import (
    INTEGER_DOMAIN,
    INTEGER_FORMS,
    QLINEAR,
    constant_value,
    input_at,
    int_attribute,
    ints_attribute,
    is_mover,
    node_qparams,
    op_spec,
    word_attribute,
)
from qbench.numerics import QParams
from qbench.passes.editing import remove_unread
from qbench.passes.lowering.site import (
    EIGHT_BITS,
    ENGINE_DOMAIN,
    UP_TO_16_BITS,
    Operand,
    Site,
    kept_attributes,
    operand_of,
    quantized_by,
    result_of,
)
from qbench.passes.qdq.folding import moved_constant

# Sums, products, concatenations, pools and functions of one value between Q and DQ as ONNX
# Runtime's QLinear….
#
# All operands and the result have one type of 8 bits, and one scale each (ContribOperators.md of
# ONNX Runtime 1.31). Each rule returns why it declines, or None when it lowered.

_ONE_AXIS = 13
"""The opset since which a Softmax is along one axis."""


def lower_pointwise(site: Site, node: ir.Node) -> str | None:
    """Add, Mul, pools, Sigmoid, LeakyRelu and Softmax → QLinear…: every operand, then the
    qparams of the result.
    """
    found = _window_problem(node) or _surroundings(site, node)
    if isinstance(found, str):
        return found
    operands, quantizer, output = found
    inputs = [value for operand in operands for value in operand.triple]
    inputs += [output.scale, output.point]
    special = _ATTRIBUTES.get(node.op_type)
    names = INTEGER_FORMS[ENGINE_DOMAIN, f"QLinear{node.op_type}"].attributes
    attributes = kept_attributes(node, *names) if special is None else special(node)
    site.replace(
        [node, quantizer], f"QLinear{node.op_type}", inputs, attributes, domain=ENGINE_DOMAIN
    )
    return None


def lower_concat(site: Site, node: ir.Node) -> str | None:
    """Concat → QLinearConcat, which has the qparams of the result first; of equal qparams it is
    a copy.
    """
    found = _surroundings(site, node)
    if isinstance(found, str):
        return found
    operands, quantizer, output = found
    inputs = [
        output.scale,
        output.point,
        *(value for operand in operands for value in operand.triple),
    ]
    site.replace(
        [node, quantizer],
        "QLinearConcat",
        inputs,
        kept_attributes(node, "axis"),
        domain=ENGINE_DOMAIN,
    )
    return None


def softmax_attributes(node: ir.Node) -> list[ir.Attr]:
    """The axis and the opset of a QLinearSoftmax: before 13, everything from the axis on is one
    row.
    """
    opset = (
        _ONE_AXIS
        if node.graph is None
        else min(node.graph.opset_imports.get("", _ONE_AXIS), _ONE_AXIS)
    )
    axis = int_attribute(node, "axis", -1 if opset >= _ONE_AXIS else 1)
    return [ir.AttrInt64("axis", axis), ir.AttrInt64("opset", opset)]


def _window_problem(node: ir.Node) -> str | None:
    """Why QLinearAveragePool does not count the windows of ``node`` as ONNX's AveragePool does."""
    if node.op_type != "AveragePool":
        return None
    if any(d != 1 for d in ints_attribute(node, "dilations")):
        return "QLinearAveragePool has no dilations"
    if int_attribute(node, "ceil_mode", 0) and int_attribute(node, "count_include_pad", 0):
        return (
            "with ceil_mode and count_include_pad QLinearAveragePool counts what lies beyond the "
            "padding"
        )
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


_ATTRIBUTES: Mapping[str, Callable[[ir.Node], list[ir.Attr]]] = MappingProxyType(
    {
        "GlobalAveragePool": lambda _: [ir.AttrInt64("channels_last", 0)],
        "Softmax": softmax_attributes,
    }
)


# What ONNX Runtime has no operator on integers for, as operators of our own that the integer
# interpreter computes.
#
#     qbench.integer::QLinear<Op>    inputs x s z for every operand, then s_y z_y;
#                                    attributes as they were
#
# An operand without s and z is real and constant: the ends of a Clip, a number to multiply by,
# axes. Qparams have one static scale and 8 or 16 bits, of any type each. Each rule returns why it
# declines, or None when it lowered.

_ONE_SCALE = "its kernel has one static scale for each operand"
_REQUANTIZED = UP_TO_16_BITS | {ir.DataType.INT32}
_CHOICES = frozenset({"Where"})
"""Operators whose first operand is no number."""
_SIDES = 2

Triple = tuple[ir.Value | None, ir.Value | None, ir.Value | None]


def has_own_operator(site: Site, node: ir.Node) -> bool:
    """Whether the target counts ``node`` by an operator of our own, whose inputs are those said
    above.

    Products are not among these: a bias is integers alone there, without a scale and a zero point
        of its own.
    """
    if node.domain:
        return site.target.outside and op_spec(node).pointwise
    if op_spec(node).weight is not None:
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
    if problem := (*refused, *_qparams_problems([output])):
        return problem[0]
    given: list[Triple] = [triple for triple in triples if not isinstance(triple, str)]
    if op_spec(node).pointwise and (reason := _too_many(given)):
        return reason
    inputs = [value for triple in given for value in triple]
    attributes = (
        softmax_attributes(node) if node.op_type == "Softmax" else list(node.attributes.values())
    )
    site.replace(
        [node, quantizer],
        f"{QLINEAR}{node.op_type}",
        [*inputs, output.scale, output.point],
        attributes,
        domain=node.domain or INTEGER_DOMAIN,
    )
    return None


def lower_requantize(site: Site, quantizer: ir.Node, data: Operand | None = None) -> str | None:
    """A QuantizeLinear of what was dequantized → QLinearRequantize, from one set of qparams to
    another.

    Args:
        site: the graph.
        quantizer: the node.
        data: the integers and their qparams; None: those of the DequantizeLinear before it.
    """
    data = data or operand_of(quantizer.inputs[0])
    output = quantized_by(quantizer)
    if data is None or output is None or not is_requantized(site, data, output):
        return "no kernel requantizes integers from these qparams to these"
    inputs = [data.integers, data.scale, data.point, output.scale, output.point]
    site.replace([quantizer], "QLinearRequantize", inputs, domain=INTEGER_DOMAIN)
    return None


def is_requantized(site: Site, data: Operand, output: Operand) -> bool:
    """Whether the target requantizes integers of ``data`` to the qparams of ``output``."""
    lacking = site.target.lacks("QLinearRequantize", INTEGER_DOMAIN) is not None
    return (
        not lacking
        and not _qparams_problems([output])
        and not _qparams_problems([data], _REQUANTIZED)
    )


def _triple(node: ir.Node, index: int, value: ir.Value | None) -> Triple | str:
    """An operand with its qparams, a constant without, or why neither."""
    if value is None or (index == 0 and node.op_type in _CHOICES):
        return value, None, None
    operand = operand_of(value)
    if operand is None:
        return "an operand is real" if constant_value(value) is None else (value, None, None)
    problems = _qparams_problems([operand])
    return problems[0] if problems else (operand.integers, operand.scale, operand.point)


def _qparams_problems(
    operands: Sequence[Operand], types: frozenset[ir.DataType] = UP_TO_16_BITS
) -> tuple[str, ...]:
    for operand in operands:
        if operand.axis is not None or operand.block or operand.is_dynamic:
            return (_ONE_SCALE,)
        if operand.dtype not in types:
            return (
                "its kernel has types of 8 or 16 bits, not "
                f"{'unknown' if operand.dtype is None else operand.dtype}",
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
    if (
        len(varying) > _SIDES
        or len(present) > _SIDES
        or any(v.dtype not in EIGHT_BITS for v, _ in varying)
    ):
        return "a table has two sides of 8 bits"
    return None


def _varies(value: ir.Value) -> bool:
    known = constant_value(value)
    return known is None or known.size > 1


# Operators that only move or pick values work on the integers themselves, when both sides have the
# same qparams.
#
# Between two sets of qparams they do so where the target requantizes from one to the other, and
# that is done behind the move.
#
#     v_q ──DQ(s, z)── move ──Q(s, z)── w_q      →      v_q ── move ── w_q
#
# Where no Q follows, the DQ goes behind the move, so that movers and products further on read
# integers. Whatever is moved has the qparams already: no number changes. A Pad with zeros pads with
# the zero point; with others it is declined. A constant behind its DQ is moved at once, and its
# scales with it.
#
#     v_q ──DQ── move ── reader           →      v_q ── move ──DQ── reader

_WITHOUT_KERNEL = frozenset({"GlobalMaxPool", "TopK"})
"""Movers that engines have on floats alone; other targets name them."""


def lower_mover(site: Site, node: ir.Node) -> str | None:
    """Any mover on the integers themselves; returns why not, or None when it was done."""
    data = operand_of(node.inputs[0])
    if data is None:
        return "what it moves is real"
    types = UP_TO_16_BITS if site.target.any_qparams else EIGHT_BITS
    if data.dtype not in types or data.axis is not None or data.block:
        return "only integers of 8 bits with one scale are moved"
    if node.op_type in _WITHOUT_KERNEL and site.target.lacks(node.op_type):
        return f"{node.op_type} takes no integers"
    read = [value for value in node.outputs if value.dtype == ir.DataType.FLOAT and _is_read(value)]
    results = [found for value in read if (found := result_of(value)) is not None]
    if not all(_reachable(site, data, output) for _, output in results):
        return "what it moves and what it gives have different qparams"
    if not any(value.uses() for value in read):
        return "its result leaves the graph as reals"
    inputs = list(node.inputs)
    inputs[0] = data.integers
    if node.op_type == "Pad":
        if not _pads_with_zeros(node):
            return "it pads with a number other than 0"
        if word_attribute(node, "mode", "constant") == "constant":
            inputs[2:3] = [data.point]
    _move(site, node, inputs, data)
    return None


def move_constant(site: Site, node: ir.Node) -> bool:
    """Move the constant integers that ``node`` alone moves behind their DQ, once and for all;
    True when it was done.
    """
    data = operand_of(node.inputs[0]) if node.inputs and is_mover(node) else None
    if (
        data is None
        or not data.is_constant
        or data.is_dynamic
        or result_of(node.outputs[0]) is not None
    ):
        return False
    moved = _moved_integers(node, data)
    if moved is None:
        return False
    stored, at = moved
    name = f"{node.outputs[0].name}_quantized"
    parameters = (data.scale, data.point)
    if at.block_size is not None:
        parameters = (
            site.constant(f"{name}_scale", at.scale),
            site.constant(f"{name}_zero_point", at.zero_point.astype(data.points.dtype)),
        )
    attributes = []
    if at.axis is not None:
        attributes.append(ir.AttrInt64("axis", at.axis))
    if at.block_size is not None:
        attributes.append(ir.AttrInt64("block_size", at.block_size))
    site.replace([node], "DequantizeLinear", [site.constant(name, stored), *parameters], attributes)
    return True


def _moved_integers(node: ir.Node, data: Operand) -> tuple[npt.NDArray[Any], QParams] | None:
    """The constant integers ``data`` after ``node``, and their qparams there; None where that
    is not known.
    """
    value = node.inputs[0]
    fed = None if value is None else value.producer()
    if fed is None:
        return None
    integers, qparams = constant_value(data.integers), node_qparams(fed)
    if integers is None or qparams is None:
        return None
    return moved_constant(node, integers, qparams)


def _move(site: Site, node: ir.Node, inputs: list[ir.Value | None], data: Operand) -> None:
    """``node`` itself reads integers from now on, and what its Q gave is what it gives."""
    fed = node.inputs[0].producer() if node.inputs[0] is not None else None
    if len(inputs) > len(node.inputs):
        node.resize_inputs(len(inputs))
    for index, value in enumerate(inputs):
        node.replace_input_with(index, value)
    for value in node.outputs:
        if value.dtype != ir.DataType.FLOAT:
            continue
        value.type = data.integers.type  # not its dtype: clones share the type
        output = result_of(value)
        if output is None:
            if _is_read(value):
                site.dequantize_behind(node, value, data)
            continue
        quantizer, qparams = output
        if not data.same_qparams(qparams):
            lower_requantize(site, quantizer, replace(data, integers=value))
            continue
        old = quantizer.outputs[0]
        old.replace_all_uses_with(value, replace_graph_outputs=True)
        site.graph.remove(quantizer, safe=True)
        # the integers keep their name, so that runs of both forms can be compared
        value.name = old.name
    if fed is not None:
        remove_unread(fed)


def _reachable(site: Site, data: Operand, output: Operand) -> bool:
    """Whether moved integers have the qparams of ``output``, or the target requantizes them to
    it.
    """
    return data.same_qparams(output) or is_requantized(site, data, output)


def _is_read(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()


def _pads_with_zeros(node: ir.Node) -> bool:
    filler = input_at(node, 2)
    if word_attribute(node, "mode", "constant") != "constant" or filler is None:
        return True
    known = constant_value(filler)
    stored = operand_of(filler)
    if stored is not None and stored.is_constant and not stored.is_dynamic:
        codes = constant_value(stored.integers)
        return codes is not None and not np.any(
            codes.astype(np.int64) - stored.points.astype(np.int64)
        )
    return known is not None and not np.any(known)
