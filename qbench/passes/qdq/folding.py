"""Quantizers of constants, and what only moves quantized constants, done once."""

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import clip_of_levels, constant_value, grid_dtype, grid_of, only_consumer
from qbench.numerics import QParams, dequantize, get_arithmetic, quantize
from qbench.passes.editing import NameScope, add_constant
from qbench.passes.effect import QDQ

# Quantized constants that are moved before they are used: integers, and the axis of their scales, move with them.
#
# Transpose(DQ(w, s along axis)) = DQ(transpose(w), s along the place of axis)

_Array = npt.NDArray[Any]


def moved_constant(node: ir.Node, integers: _Array, grid: QParams) -> tuple[_Array, QParams] | None:
    """What ``node`` makes of constant ``integers`` on ``grid``; None where it does more than move them.

    A Reshape moves scales only where there is a single one.
    """
    if node.domain:
        return None
    match node.op_type:
        case "Transpose":
            return _transposed(node, integers, grid)
        case "Reshape" if grid.axis is None:
            shape = constant_value(node.inputs[1])
            return None if shape is None or not shape.all() else (integers.reshape(shape.tolist()), grid)
        case "Identity":
            return integers, grid
        case _:
            return None


def _transposed(node: ir.Node, integers: _Array, grid: QParams) -> tuple[_Array, QParams]:
    attribute = node.attributes.get("perm")
    order = list(range(integers.ndim))[::-1] if attribute is None else list(attribute.as_ints())
    moved = integers.transpose(order)
    if grid.axis is None:
        return moved, grid
    axis = order.index(grid.axis % integers.ndim)
    if grid.block_size is None:
        return moved, _along(grid, axis, grid.scale, grid.zero_point)
    return moved, _along(grid, axis, grid.scale.transpose(order), grid.zero_point.transpose(order))


def _along(grid: QParams, axis: int, scale: npt.NDArray[np.float32], zero_point: npt.NDArray[np.int64]) -> QParams:
    return QParams(scale, zero_point, grid.qtype, axis=axis, block_size=grid.block_size, narrow_range=grid.narrow_range)


# Quantizers of constants, and what only moves quantized constants, done once and for all; integers stay integers.
#
#     real constant ─Q─[l,h]─                levels constant ─DQ₁─Q₂─[l,h]─            →   levels constant
#     levels constant ─DQ(axis)─ Transpose ─                           →   levels constant, transposed ─DQ(its axis)─
#
# A DequantizeLinear of a constant is never folded: weights would be floats again, four times as large, and no machine
# would count with them. A Q is folded where every machine that is asked gives the same levels.


def fold_quantizer(node: ir.Node, names: NameScope, machines: tuple[str, ...]) -> bool | str:
    """Make what a QuantizeLinear of a constant and its Clip give a constant; False: nothing to do; text: why not.

    Args:
        node: in a graph that is changed in place; the levels keep their name.
        machines: that must all give the same levels.

    Raises:
        InputError: a Q or DQ that means nothing, an unknown machine.
    """
    if node.domain or node.op_type != "QuantizeLinear":
        return False
    maker = None if node.inputs[0] is None else node.inputs[0].producer()
    stored = _dequantized(maker)
    real = constant_value(node.inputs[0]) if stored is None else None
    if stored is None and real is None:
        return False
    grid, levels = grid_of(node), (clip_of_levels(node) or node).outputs[0]
    if grid is None or (real is not None and real.dtype != np.float32):
        return "its scales are computed, or it quantizes no float32"
    if levels.is_graph_output():
        return "its levels leave the graph"
    found = _by_machines(real, stored, grid, machines)
    if isinstance(found, str):
        return found
    _take_place(node, levels, found.astype(grid_dtype(node).numpy()), names)
    return True


def fold_mover(node: ir.Node, names: NameScope) -> bool | str:
    """Move a quantized constant that ``node`` alone moves; False: nothing to do; text: why not.

    Raises:
        InputError: a DQ that means nothing.
    """
    real = node.inputs[0] if node.inputs else None
    fed = None if real is None else real.producer()
    stored = _dequantized(fed)
    moved = None if stored is None else moved_constant(node, *stored)
    if fed is None or real is None or moved is None:
        return False
    if only_consumer(real) is not node:
        return "others read it as it is, and it would be stored twice"
    graph, result = node.graph, node.outputs[0]
    assert isinstance(graph, ir.Graph)
    integers, grid = moved
    name = f"{result.name}_quantized"
    fed.replace_input_with(0, add_constant(graph, name, integers, names))
    if grid.axis is not None:
        fed.attributes["axis"] = ir.AttrInt64("axis", grid.axis)
    if grid.block_size is not None:
        fed.replace_input_with(1, add_constant(graph, f"{name}_scale", grid.scale, names))
        if len(fed.inputs) > 2:
            points = grid.zero_point.astype(integers.dtype)
            fed.replace_input_with(2, add_constant(graph, f"{name}_zero_point", points, names))
    result.replace_all_uses_with(real, replace_graph_outputs=True)
    real.type, real.shape = result.type or real.type, ir.Shape(integers.shape)
    real.name, result.name = result.name, None
    graph.remove(node, safe=True)
    return True


def _dequantized(node: ir.Node | None) -> tuple[_Array, QParams] | None:
    """The constant integers that ``node`` dequantizes, and by which grid."""
    if node is None or node.domain or node.op_type != "DequantizeLinear":
        return None
    integers = constant_value(node.inputs[0])
    grid = None if integers is None else grid_of(node)
    return None if integers is None or grid is None else (integers, grid)


def _by_machines(
    real: _Array | None, stored: tuple[_Array, QParams] | None, grid: QParams, machines: tuple[str, ...]
) -> _Array | str:
    found = []
    for machine in machines:
        arithmetic = None if machine == QDQ else get_arithmetic(machine)
        if stored is not None:
            integers, source = stored
            real = dequantize(integers.astype(source.qtype.storage_dtype), source, arithmetic)
        assert real is not None
        if np.isnan(real).any():
            return "it holds NaN, which every machine quantizes by a rule of its own"
        found.append(quantize(real, grid, arithmetic))
    for machine, levels in zip(machines, found, strict=True):
        if moved := int((levels != found[0]).sum()):
            return f"{moved} of {levels.size} levels are others under '{machine}' than under '{machines[0]}'"
    return found[0]


def _take_place(node: ir.Node, levels: ir.Value, array: _Array, names: NameScope) -> None:
    graph, real, clip = node.graph, node.inputs[0], levels.producer()
    assert isinstance(graph, ir.Graph)
    assert real is not None
    if clip is not None and clip is not node:
        ends = [constant_value(value) for value in clip.inputs[1:]]
        for end, pick in zip(ends, (np.maximum, np.minimum), strict=False):
            array = array if end is None else pick(array, end)
    name, levels.name = levels.name or f"{node.name}_levels", None
    names.release(name)
    levels.replace_all_uses_with(add_constant(graph, name, array, names))
    if clip is not None and clip is not node:
        graph.remove(clip, safe=True)
    graph.remove(node, safe=True)
    maker = real.producer()
    if maker is not None and _dequantized(maker) and not real.uses() and not real.is_graph_output():
        graph.remove(maker, safe=True)
