"""Conv, MatMul and Gemm on dynamic data as ConvInteger and MatMulInteger, scaled behind.

    y = float(Σ (x_q − z_x)(w_q − z_w)) · (s_x · s_w)  [+ bias]

Each rule returns why it declines, or None when it lowered.
"""

import numpy as np
import onnx_ir as ir

from qbench.graph import constant_value, input_at, int_attribute
from qbench.passes.lowering.operands import EIGHT_BITS, Operand, operand_of
from qbench.passes.lowering.site import Site, has_unit_factors, kept_attributes

_WINDOW = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_FLOAT = ir.DataType.FLOAT


def is_dynamic_product(node: ir.Node) -> bool:
    """Whether an operand of a product has parameters of its batch."""
    operands = [operand_of(value) for value in node.inputs[:2]]
    return any(operand is not None and operand.is_dynamic for operand in operands)


def lower_dynamic_product(site: Site, node: ir.Node) -> str | None:
    """Conv, MatMul or Gemm → ConvInteger or MatMulInteger, Cast, Mul, and Add of the bias."""
    operator = "ConvInteger" if node.op_type == "Conv" else "MatMulInteger"
    pair = _data_and_weight(site, node, operator)
    if isinstance(pair, str):
        return pair
    data, weight = pair
    if node.op_type == "Gemm" and int_attribute(node, "transB", 0):
        weight = _transposed(site, weight)
    scale, point = weight.scale, weight.point
    if node.op_type == "Conv" and not weight.is_dynamic:
        spatial = (weight.rank or 2) - 2
        if weight.axis is not None:
            scale = site.constant(f"{scale.name}_spread", weight.scales.reshape(-1, *(1,) * spatial))
        if np.unique(weight.points).size == 1:
            point = site.constant(f"{point.name}_single", weight.points.reshape(-1)[:1].reshape(()))
    inputs = [data.integers, weight.integers, data.point, point]
    counted = site.before(node, operator, inputs, ir.DataType.INT32, "counted")
    maker = counted.producer()
    assert maker is not None
    for attribute in kept_attributes(node, *_WINDOW) if node.op_type == "Conv" else ():
        maker.attributes.add(attribute)
    real = site.before(node, "Cast", [counted], _FLOAT, "real")
    factor = site.before(node, "Mul", [data.scale, scale], _FLOAT, "factor")
    bias = input_at(node, 2)
    if bias is None:
        site.replace([node], "Mul", [real, factor])
        return None
    scaled = site.before(node, "Mul", [real, factor], _FLOAT, "scaled")
    if node.op_type == "Conv":
        axes = site.constant(f"{node.name}_axes", np.arange(1, (weight.rank or 2) - 1, dtype=np.int64))
        bias = site.before(node, "Unsqueeze", [bias, axes], _FLOAT, "bias")
    site.replace([node], "Add", [scaled, bias])
    return None


def _data_and_weight(site: Site, node: ir.Node, operator: str) -> tuple[Operand, Operand] | str:
    """Both operands of ``node``, constants of 4 bits in 8; or why ``operator`` cannot take its place."""
    data, weight = operand_of(node.inputs[0]), operand_of(node.inputs[1])
    if data is None or weight is None:
        return "an operand is real"
    if node.op_type == "Gemm" and not has_unit_factors(node):
        return "alpha or beta is not 1"
    if lacking := site.target.lacks(operator):
        return lacking
    weight = site.widened(weight)
    return _problem(site, node, data, weight) or (data, weight)


def _problem(site: Site, node: ir.Node, data: Operand, weight: Operand) -> str | None:
    if data.dtype not in EIGHT_BITS or weight.dtype not in EIGHT_BITS:
        return "integer products take 8 bits"
    if weight.block:
        return "its weight has blocks"
    if node.op_type != "Conv":
        columns = 0 if int_attribute(node, "transB", 0) else 1
        if not columns and not weight.is_constant:
            return "its weight is computed, and transposed"
        apart = weight.axis is not None and not (weight.rank == 2 and weight.axis == columns)
        return "its weight has scales that are not one a column" if apart else None
    if weight.is_dynamic or not weight.is_constant:
        return "its weight is computed"
    if weight.axis not in (None, 0):
        return f"its weight has scales along axis {weight.axis}"
    single = site.target.any_grids or np.unique(weight.points).size == 1
    return None if single else "ConvInteger has one zero point for all channels"


def _transposed(site: Site, weight: Operand) -> Operand:
    levels = constant_value(weight.integers)
    assert levels is not None
    integers = site.constant(f"{weight.integers.name}_transposed", np.ascontiguousarray(levels.T))
    axis = None if weight.axis is None else 1 - weight.axis
    return Operand(integers, weight.scale, weight.point, axis, weight.block)
