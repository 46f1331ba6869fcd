"""Operators that only move or pick values work on the integers themselves, when both sides have one grid.

Between two grids they do so where the target brings integers from grid to grid, and that is done behind the move.

    v_q ──DQ(s, z)── move ──Q(s, z)── w_q      →      v_q ── move ── w_q

Where no Q follows, the DQ goes behind the move, so that movers and products further on read integers. Whatever is moved
is on the grid already: no number changes. A Pad with zeros pads with the zero point; with others it is declined. A
constant behind its DQ is moved at once, and its scales with it.

    v_q ──DQ── move ── reader           →      v_q ── move ──DQ── reader
"""

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from qbench.graph import constant_value, grid_of, input_at, operator_facts, word_attribute
from qbench.passes.lowering.counted import is_requantized, lower_requantize
from qbench.passes.lowering.operands import EIGHT_BITS, UP_TO_16_BITS, Operand, operand_of, result_of
from qbench.passes.lowering.site import Site
from qbench.passes.qdq.moved_constants import moved_constant

_PICKERS = frozenset({"ReduceMax", "ReduceMin", "TopK"})
_WITHOUT_KERNEL = frozenset({"GlobalMaxPool", "TopK"})
"""Movers that engines have on floats alone; other targets name them."""


def is_mover(node: ir.Node) -> bool:
    """Whether all results of ``node`` hold values of its first input and nothing computed."""
    if node.op_type == "Resize":
        return word_attribute(node, "mode", "nearest") == "nearest"
    return operator_facts(node).moved == (0,) or (not node.domain and node.op_type in _PICKERS)


def lower_mover(site: Site, node: ir.Node) -> str | None:
    """Any mover on the integers themselves; returns why not, or None when it was done."""
    data = operand_of(node.inputs[0])
    if data is None:
        return "what it moves is real"
    types = UP_TO_16_BITS if site.target.any_grids else EIGHT_BITS
    if data.dtype not in types or data.axis is not None or data.block:
        return "only integers of 8 bits with one scale are moved"
    if node.op_type in _WITHOUT_KERNEL and site.target.lacks(node.op_type):
        return f"{node.op_type} takes no integers"
    read = [value for value in node.outputs if value.dtype == ir.DataType.FLOAT and _is_read(value)]
    results = [found for value in read if (found := result_of(value)) is not None]
    if not all(_reachable(site, data, output) for _, output in results):
        return "what it moves and what it gives have not one grid"
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
    """Move the constant integers that ``node`` alone moves behind their DQ, once and for all; True when it was done."""
    data = operand_of(node.inputs[0]) if node.inputs and is_mover(node) else None
    if data is None or not data.is_constant or data.is_dynamic or result_of(node.outputs[0]) is not None:
        return False
    fed = node.inputs[0].producer() if node.inputs[0] is not None else None
    integers, grid = constant_value(data.integers), None if fed is None else grid_of(fed)
    moved = None if integers is None or grid is None else moved_constant(node, integers, grid)
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
    attributes = [] if at.axis is None else [ir.AttrInt64("axis", at.axis)]
    attributes += [] if at.block_size is None else [ir.AttrInt64("block_size", at.block_size)]
    site.replace([node], "DequantizeLinear", [site.constant(name, stored), *parameters], attributes)
    return True


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
        quantizer, grid = output
        if not data.same_grid(grid):
            lower_requantize(site, quantizer, replace(data, integers=value))
            continue
        old = quantizer.outputs[0]
        old.replace_all_uses_with(value, replace_graph_outputs=True)
        site.graph.remove(quantizer, safe=True)
        value.name = old.name  # the integers keep their name, so that runs of both forms can be compared
    if fed is not None and not fed.outputs[0].uses() and not fed.outputs[0].is_graph_output():
        site.graph.remove(fed, safe=True)


def _reachable(site: Site, data: Operand, output: Operand) -> bool:
    """Whether moved integers have the grid that is wanted, or the target brings them to it."""
    return data.same_grid(output) or is_requantized(site, data, output)


def _is_read(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()


def _pads_with_zeros(node: ir.Node) -> bool:
    filler = input_at(node, 2)
    if word_attribute(node, "mode", "constant") != "constant" or filler is None:
        return True
    known = constant_value(filler)
    stored = operand_of(filler)
    if stored is not None and stored.is_constant and not stored.is_dynamic:
        levels = constant_value(stored.integers)
        return levels is not None and not np.any(levels.astype(np.int64) - stored.points.astype(np.int64))
    return known is not None and not np.any(known)
