"""Integer operators with scales of their own become the float operator between DequantizeLinear and QuantizeLinear.

    QLinearConv(x, sx, zx, w, sw, zw, sy, zy, b)  →  Q(sy, zy) ∘ Conv ∘ (DQ(x, sx, zx), DQ(w, sw, zw), DQ(b, sx·sw, 0))

The real function is the same; only the last rounding of an engine that requantizes by a multiplier may differ from that
of Q. Sources: ONNX QLinearConv-10, QLinearMatMul-21; contrib operators of ONNX Runtime 1.24 (docs/ContribOperators).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from qbench.graph import constant_value, float_attribute, input_at, int_attribute, node_key
from qbench.passes.constants import add_constant
from qbench.passes.effect import LOSSY, Effect
from qbench.passes.naming import NameScope
from qbench.passes.qdq.pair_writing import PairWriter

_MICROSOFT = "com.microsoft"
_ENGINE_ATTRIBUTES = ("channels_last", "opset")


@dataclass(frozen=True, slots=True)
class Layout:
    """How an integer operator lists its inputs.

    Args:
        operator: the float operator of ONNX.
        operands: (integers, scale, zero point) of each real operand, by index; a single index is passed as it is.
        result: (scale, zero point) of the result; None: it is real.
        bias: index of the int32 bias, at the product of the scales of the first two operands.
    """

    operator: str
    operands: tuple[tuple[int, ...], ...]
    result: tuple[int, int] | None
    bias: int | None = None


_TWO = ((0, 1, 2), (3, 4, 5))
_ONE = ((0, 1, 2),)
_LAYOUTS: Mapping[tuple[str, str], Layout] = MappingProxyType(
    {
        ("", "QLinearConv"): Layout("Conv", _TWO, (6, 7), bias=8),
        ("", "QLinearMatMul"): Layout("MatMul", _TWO, (6, 7)),
        (_MICROSOFT, "QGemm"): Layout("Gemm", _TWO, (7, 8), bias=6),
        (_MICROSOFT, "QLinearAdd"): Layout("Add", _TWO, (6, 7)),
        (_MICROSOFT, "QLinearMul"): Layout("Mul", _TWO, (6, 7)),
        (_MICROSOFT, "QLinearWhere"): Layout("Where", ((0,), (1, 2, 3), (4, 5, 6)), (7, 8)),
        **{
            (_MICROSOFT, f"QLinear{operator}"): Layout(operator, _ONE, (3, 4))
            for operator in ("AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid", "Softmax")
        },
    }
)


@dataclass(frozen=True, slots=True)
class RaiseOperators:
    """Requires: constants are initializers. Ensures: of the operators above only those are left that cannot be raised.

    Left alone: parameters that are computed, layouts with channels last, a scale a row. The float operator keeps the
    name of the integer one, the integer result its own.
    """

    name: str = "raise-operators"
    effect: ClassVar[Effect] = LOSSY

    def run(self, model: ir.Model) -> bool:
        """Raise them in graph order; True when there were any."""
        nodes = [node for node in model.graph if _layout(node) is not None]
        if not nodes:
            return False
        writer = PairWriter(model, NameScope.of_values(model), NameScope.of_nodes(model))
        return sum(_raised(node, writer) for node in nodes) > 0


def _layout(node: ir.Node) -> Layout | None:
    if (node.domain, node.op_type) == (_MICROSOFT, "QLinearConcat"):
        triples = tuple((i, i + 1, i + 2) for i in range(2, len(node.inputs), 3))
        return Layout("Concat", triples, (0, 1))
    return _LAYOUTS.get((node.domain, node.op_type))


def _raised(node: ir.Node, writer: PairWriter) -> bool:
    layout = _layout(node)
    assert layout is not None
    if not _plain(node) or not _constant_parameters(node, layout):
        return False
    axes = [_axis(node, layout, position) for position in range(len(layout.operands))]
    if any(axis is not None and axis < 0 for axis in axes):
        return False
    name = node_key(node)
    operands = [
        input_at(node, places[0])
        if len(places) == 1
        else writer.dequantized(node, [input_at(node, place) for place in places], axis, f"{name}.{position}")
        for position, (places, axis) in enumerate(zip(layout.operands, axes, strict=True))
    ]
    bias = None if layout.bias is None else input_at(node, layout.bias)
    if bias is not None:
        operands.append(_dequantized_bias(node, bias, layout, writer))
    attributes = [a for key, a in node.attributes.items() if key not in _ENGINE_ATTRIBUTES]
    real = writer.before(node, layout.operator, operands, attributes, name=name)
    if layout.result is None or input_at(node, layout.result[0]) is None:
        writer.take_place(node, real)
        return True
    point = input_at(node, layout.result[1])
    kind = point or input_at(node, layout.operands[-1][2]) or input_at(node, layout.operands[-1][0])
    writer.requantized(node, real, (input_at(node, layout.result[0]), point), None if kind is None else kind.dtype)
    return True


def _plain(node: ir.Node) -> bool:
    """No layout with channels last, and a softmax as ONNX has it today; before opset 13 it was another."""
    if int_attribute(node, "channels_last", 0):
        return False
    if node.op_type == "QLinearSoftmax" and int_attribute(node, "opset", 13) < 13:
        return int_attribute(node, "axis", 1) == -1
    return True


def _constant_parameters(node: ir.Node, layout: Layout) -> bool:
    places = [place for operand in layout.operands for place in operand[1:]] + list(layout.result or ())
    given = [value for value in (input_at(node, place) for place in places) if value is not None]
    return all(constant_value(value) is not None for value in given)


def _axis(node: ir.Node, layout: Layout, position: int) -> int | None:
    """The axis of many scales, None for a single one, -1 where they do not run over output channels."""
    places = layout.operands[position]
    scale = constant_value(input_at(node, places[1])) if len(places) > 1 else None
    if scale is None or scale.size == 1:
        return None
    weight = input_at(node, places[0])
    rank = None if weight is None or weight.shape is None else len(weight.shape)
    if position != 1 or scale.ndim != 1:
        return -1
    match layout.operator:
        case "Conv":
            return 0
        case "Gemm":
            return 0 if int_attribute(node, "transB", 0) else 1
        case "MatMul" if rank is not None:
            return rank - 1
        case _:
            return -1


def _dequantized_bias(node: ir.Node, bias: ir.Value, layout: Layout, writer: PairWriter) -> ir.Value:
    """DQ of an int32 bias: float32(s_x · s_w), times alpha in a QGemm, which has the bias inside its bracket."""
    scales = [constant_value(input_at(node, places[1])) for places in layout.operands]
    assert scales[0] is not None
    assert scales[1] is not None
    product = np.float32(scales[0].reshape(())) * scales[1].astype(np.float32)
    product = product * np.float32(float_attribute(node, "alpha", 1.0))
    scale = product.reshape(()) if product.size == 1 else product
    value = add_constant(writer.graph, f"{bias.name}_scale", np.asarray(scale, np.float32), writer.values)
    axis = None if scale.ndim == 0 else (0 if bias.shape is None else len(bias.shape) - 1)
    return writer.dequantized(node, [bias, value, None], axis, f"{node_key(node)}.bias")
