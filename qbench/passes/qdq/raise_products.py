"""Integer products whose scales are applied behind them become float products between DequantizeLinear.

    Cast(MatMulInteger(x, w, zx, zw)) · (sx · sw)  →  MatMul(DQ(x, sx, zx), DQ(w, sw, zw))        ConvInteger likewise
    MatMulIntegerToFloat(x, w, sx, sw, zx, zw, b)  →  MatMul(DQ(x, sx, zx), DQ(w, sw, zw)) + b
    DynamicQuantizeMatMul(x, w, sw, zw, b)         →  the same, x quantized by DynamicQuantizeLinear

So a product of ONNX Runtime's dynamic quantization is recognised by what it computes. Sources: ONNX MatMulInteger-10,
ConvInteger-10, DynamicQuantizeLinear-11; contrib operators of ONNX Runtime 1.24.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from qbench.graph import constant_value, input_at, node_key, only_consumer
from qbench.passes.constants import add_constant
from qbench.passes.effect import LOSSY, Effect
from qbench.passes.naming import NameScope
from qbench.passes.qdq.pair_writing import PairWriter

_PRODUCTS = {("", "MatMulInteger"): "MatMul", ("", "ConvInteger"): "Conv"}
_FUSED = frozenset({"MatMulIntegerToFloat", "DynamicQuantizeMatMul"})


@dataclass(frozen=True, slots=True)
class RaiseProducts:
    """Requires: constants are initializers. Ensures: no product of the above forms with a constant weight is left.

    Left alone: a product whose scale is not found behind it, or that something else reads too.
    """

    name: str = "raise-products"
    effect: ClassVar[Effect] = LOSSY

    def run(self, model: ir.Model) -> bool:
        """Raise them in graph order; True when there were any."""
        products = [node for node in model.graph if (node.domain, node.op_type) in _PRODUCTS]
        fused = [node for node in model.graph if node.domain == "com.microsoft" and node.op_type in _FUSED]
        if not products and not fused:
            return False
        writer = PairWriter(model, NameScope.of_values(model), NameScope.of_nodes(model))
        raised = [_raised_product(node, writer) for node in products] + [_raised_fused(node, writer) for node in fused]
        return any(raised)


def _raised_product(node: ir.Node, writer: PairWriter) -> bool:
    scaled = _scaled(node)
    if scaled is None:
        return False
    multiply, scales = scaled
    weight, scale = node.inputs[1], constant_value(scales[1])
    if weight is None or scale is None:
        return False
    axis = _axis(node, weight, scale)
    if axis == -1:
        return False
    flat = scales[1] if scale.ndim < 2 else _flattened(scales[1], scale, writer)
    data = writer.dequantized(multiply, [node.inputs[0], scales[0], input_at(node, 2)], None, f"{node_key(node)}.0")
    grid = writer.dequantized(multiply, [weight, flat, input_at(node, 3)], axis, f"{node_key(node)}.1")
    operator, name = _PRODUCTS[node.domain, node.op_type], node_key(node)
    node.name = f"{name}_of_integers"
    real = writer.before(multiply, operator, [data, grid], list(node.attributes.values()), name=name)
    writer.take_place(multiply, real)
    return True


def _raised_fused(node: ir.Node, writer: PairWriter) -> bool:
    dynamic = node.op_type == "DynamicQuantizeMatMul"
    weight = node.inputs[1]
    scale_of_weight, point_of_weight, bias = (input_at(node, index) for index in ((2, 3, 4) if dynamic else (3, 5, 6)))
    scale = constant_value(scale_of_weight)
    axis = None if weight is None or scale is None else _axis(node, weight, scale)
    if weight is None or scale is None or axis == -1:
        return False
    name = node_key(node)
    operand = (
        writer.dynamically_quantized(node, node.inputs[0], f"{name}.0")
        if dynamic
        else [node.inputs[0], input_at(node, 2), input_at(node, 4)]
    )
    data = writer.dequantized(node, operand, None, f"{name}.0")
    grid = writer.dequantized(node, [weight, scale_of_weight, point_of_weight], axis, f"{name}.1")
    real = writer.before(node, "MatMul", [data, grid], [], name=name)
    if bias is not None:
        real = writer.before(node, "Add", [real.outputs[0], bias], [], name=f"{name}_bias")
    writer.take_place(node, real)
    return True


def _scaled(node: ir.Node) -> tuple[ir.Node, Sequence[ir.Value]] | None:
    """The Mul that makes the product real, and the scales of data and weight that it multiplies by."""
    cast = only_consumer(node.outputs[0])
    if cast is None or cast.op_type != "Cast" or cast.domain or cast.attributes["to"].as_int() != ir.DataType.FLOAT:
        return None
    multiply = only_consumer(cast.outputs[0])
    if multiply is None or multiply.op_type != "Mul" or multiply.domain:
        return None
    factor = next((v for v in multiply.inputs if v is not cast.outputs[0]), None)
    both = None if factor is None else factor.producer()
    if both is None or both.op_type != "Mul" or both.domain:
        return None
    scales = [value for value in both.inputs if value is not None]
    maker = None if node.inputs[0] is None else node.inputs[0].producer()
    own = None if maker is None or maker.op_type != "DynamicQuantizeLinear" else maker.outputs[1]
    if len(scales) != 2 or own not in scales:
        return None
    return multiply, scales if scales[0] is own else scales[::-1]


def _axis(node: ir.Node, weight: ir.Value, scale: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> int | None:
    """The axis of many scales, None for a single one, -1 where they do not run over output channels."""
    if scale.size == 1:
        return None
    shape = None if weight.shape is None else [d for d in weight.shape if isinstance(d, int)]
    if shape is None or len(shape) != len(weight.shape or ()) or max(scale.shape) != scale.size:
        return -1
    axis = 0 if node.op_type == "ConvInteger" else len(shape) - 1
    return axis if shape[axis] == scale.size else -1


def _flattened(
    value: ir.Value, scale: np.ndarray[tuple[int, ...], np.dtype[np.float32]], writer: PairWriter
) -> ir.Value:
    return add_constant(writer.graph, f"{value.name}_flat", scale.reshape(-1), writer.values)
