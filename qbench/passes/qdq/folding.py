"""Quantizers of constants, and what only moves quantized constants, done once."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import clip_of_codes, code_dtype, constant_value, node_qparams, only_consumer
from qbench.numerics import QParams, dequantize, get_arithmetic, quantize
from qbench.passes.contract import QDQ
from qbench.passes.editing import NameScope, add_constant, remove_unread

# Quantized constants that are moved before they are used: integers, and the axis of their scales,
# move with them.
#
# Transpose(DQ(w, s along axis)) = DQ(transpose(w), s along the place of axis)

_Array = npt.NDArray[Any]


def moved_constant(
    node: ir.Node, integers: _Array, qparams: QParams
) -> tuple[_Array, QParams] | None:
    """What ``node`` makes of constant ``integers`` on ``qparams``; None where it does more than
    move them.

    A Reshape moves scales only where there is a single one.
    """
    if node.domain:
        return None
    match node.op_type:
        case "Transpose":
            return _transposed(node, integers, qparams)
        case "Reshape" if qparams.axis is None:
            shape = constant_value(node.inputs[1])
            return (
                None
                if shape is None or not shape.all()
                else (integers.reshape(shape.tolist()), qparams)
            )
        case "Identity":
            return integers, qparams
        case _:
            return None


def _transposed(node: ir.Node, integers: _Array, qparams: QParams) -> tuple[_Array, QParams]:
    attribute = node.attributes.get("perm")
    order = list(range(integers.ndim))[::-1] if attribute is None else list(attribute.as_ints())
    moved = integers.transpose(order)
    if qparams.axis is None:
        return moved, qparams
    axis = order.index(qparams.axis % integers.ndim)
    if qparams.block_size is None:
        return moved, _along(qparams, axis, qparams.scale, qparams.zero_point)
    return moved, _along(
        qparams, axis, qparams.scale.transpose(order), qparams.zero_point.transpose(order)
    )


def _along(
    qparams: QParams, axis: int, scale: npt.NDArray[np.float32], zero_point: npt.NDArray[np.int64]
) -> QParams:
    return replace(qparams, scale=scale, zero_point=zero_point, axis=axis)


# Quantizers of constants, and what only moves quantized constants, done before the graph runs;
# integers stay integers.
#
#     real constant ─Q─[l,h]─                →  codes constant
#     codes constant ─DQ₁─Q₂─[l,h]─          →  codes constant
#     codes constant ─DQ(axis)─ Transpose ─  →  codes constant, transposed ─DQ(its axis)─
#
# A DequantizeLinear of a constant is never folded: weights would be floats again, four times as
# large, and no arithmetic would compute with them. A Q is folded where every given arithmetic makes
# the same codes.


def fold_quantizer(node: ir.Node, names: NameScope, arithmetics: tuple[str, ...]) -> bool | str:
    """Make what a QuantizeLinear of a constant and its Clip give a constant; False: nothing to
    do; text: why not.

    Args:
        node: in a graph that is changed in place; the codes keep their name.
        arithmetics: that must all give the same codes.

    Raises:
        InputError: an invalid Q or DQ, an unknown arithmetic.
    """
    if node.domain or node.op_type != "QuantizeLinear":
        return False
    maker = None if node.inputs[0] is None else node.inputs[0].producer()
    stored = _dequantized(maker)
    real = constant_value(node.inputs[0]) if stored is None else None
    if stored is None and real is None:
        return False
    qparams, codes = node_qparams(node), (clip_of_codes(node) or node).outputs[0]
    if qparams is None or (real is not None and real.dtype != np.float32):
        return "its scales are computed, or it quantizes no float32"
    if codes.is_graph_output():
        return "its codes leave the graph"
    found = _codes_under_all(real, stored, qparams, arithmetics)
    if isinstance(found, str):
        return found
    _take_place(node, codes, found.astype(code_dtype(node).numpy()), names)
    return True


def fold_mover(node: ir.Node, names: NameScope) -> bool | str:
    """Move a quantized constant that ``node`` alone moves; False: nothing to do; text: why not.

    Raises:
        InputError: an invalid DQ.
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
    integers, qparams = moved
    name = f"{result.name}_quantized"
    fed.replace_input_with(0, add_constant(graph, name, integers, names))
    if qparams.axis is not None:
        fed.attributes["axis"] = ir.AttrInt64("axis", qparams.axis)
    if qparams.block_size is not None:
        fed.replace_input_with(1, add_constant(graph, f"{name}_scale", qparams.scale, names))
        if len(fed.inputs) > 2:
            points = qparams.zero_point.astype(integers.dtype)
            fed.replace_input_with(2, add_constant(graph, f"{name}_zero_point", points, names))
    result.replace_all_uses_with(real, replace_graph_outputs=True)
    real.type, real.shape = result.type or real.type, ir.Shape(integers.shape)
    real.name, result.name = result.name, None
    graph.remove(node, safe=True)
    return True


def _dequantized(node: ir.Node | None) -> tuple[_Array, QParams] | None:
    """The constant integers that ``node`` dequantizes, and with which qparams."""
    if node is None or node.domain or node.op_type != "DequantizeLinear":
        return None
    integers = constant_value(node.inputs[0])
    qparams = None if integers is None else node_qparams(node)
    return None if integers is None or qparams is None else (integers, qparams)


def _codes_under_all(
    real: _Array | None,
    stored: tuple[_Array, QParams] | None,
    qparams: QParams,
    arithmetics: tuple[str, ...],
) -> _Array | str:
    found = []
    for name in arithmetics:
        arithmetic = None if name == QDQ else get_arithmetic(name)
        if stored is not None:
            integers, source = stored
            real = dequantize(integers.astype(source.qtype.storage_dtype), source, arithmetic)
        assert real is not None
        if np.isnan(real).any():
            return "it holds NaN, which every arithmetic quantizes by a rule of its own"
        found.append(quantize(real, qparams, arithmetic))
    for name, codes in zip(arithmetics, found, strict=True):
        if moved := int((codes != found[0]).sum()):
            return (
                f"{moved} of {codes.size} quantized values differ between '{name}' and "
                f"'{arithmetics[0]}'"
            )
    return found[0]


def _take_place(node: ir.Node, codes: ir.Value, array: _Array, names: NameScope) -> None:
    graph, real, clip = node.graph, node.inputs[0], codes.producer()
    assert isinstance(graph, ir.Graph)
    assert real is not None
    if clip is not None and clip is not node:
        ends = [constant_value(value) for value in clip.inputs[1:]]
        for end, pick in zip(ends, (np.maximum, np.minimum), strict=False):
            array = array if end is None else pick(array, end)
    name, codes.name = codes.name or f"{node.name}_levels", None  # stored name
    names.release(name)
    codes.replace_all_uses_with(add_constant(graph, name, array, names))
    if clip is not None and clip is not node:
        graph.remove(clip, safe=True)
    graph.remove(node, safe=True)
    maker = real.producer()
    if maker is not None and _dequantized(maker):
        remove_unread(maker)
