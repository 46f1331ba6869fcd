"""Conv, ConvTranspose, MatMul and Gemm as operators on integers."""

import numpy as np
import onnx_ir as ir

from qbench.graph import (
    INTEGER_FORMS,
    constant_value,
    input_at,
    int_attribute,
    only_consumer,
    op_spec,
    weight_channel_axis,
)
from qbench.passes.lowering.own_bias import AddedBias, added_bias
from qbench.passes.lowering.site import (
    EIGHT_BITS,
    ENGINE_DOMAIN,
    INTEGER_DOMAIN,
    UP_TO_16_BITS,
    Operand,
    Site,
    bias_per_column,
    has_unit_factors,
    kept_attributes,
    on_the_product,
    operand_of,
    result_of,
)

# Conv, MatMul and Gemm between Q and DQ as QLinearConv, QLinearMatMul and QGemm; ConvTranspose as
# an operator of ours.
#
#     y_q = clip(round(acc · s_x·s_w/s_y) + z_y),   acc = Σ (x_q − z_x)(w_q − z_w) + b_q
#
# Where no Q follows, a matrix product is QGemm or MatMulIntegerToFloat, whose result is real. Each
# rule returns why it declines, or None when it lowered. Where the target has not any, types are
# those that ONNX Runtime 1.31 has kernels of: the result has the type of the data, and weights of
# signed data are signed.

_MATRIX = 2
"""The rank of a weight behind which ONNX Runtime takes a sum of constants for the bias of a
Gemm.
"""


def lower_convolution(site: Site, node: ir.Node) -> str | None:
    """Conv → QLinearConv, ConvTranspose → QLinearConvTranspose."""
    form = next(form for form in op_spec(node).forms if form.result is not None)
    operator, domain = form.name, form.domain
    pair = _data_and_weight(node)
    if isinstance(pair, str):
        return pair
    data, weight = pair
    if problem := site.target.lacks(operator, domain) or _filters(site, node, pair, operator):
        return problem
    own = added_bias(site, node, data, weight)
    if own is not None:
        return _own_bias(
            site, pair, own, (domain, operator), kept_attributes(node, *form.attributes)
        )
    bias, result = input_at(node, 2), result_of(node.outputs[0])
    if result is None:
        refused = None if bias is None else _bias_problem(bias, data, weight)
        return refused or "its result is real: no QuantizeLinear alone reads it"
    codes = _bias_codes(site, bias, data, weight)
    if isinstance(codes, str):
        return codes
    quantizer, output = result
    weight = site.widened(weight)
    inputs = [*data.triple, *weight.triple, output.scale, output.point]
    inputs += [] if codes is None else [codes]
    site.replace(
        [node, quantizer], operator, inputs, kept_attributes(node, *form.attributes), domain=domain
    )
    return None


def _filters(site: Site, node: ir.Node, pair: tuple[Operand, Operand], operator: str) -> str | None:
    """Why no kernel convolves these types and weights; None where one does."""
    data, weight = pair
    if problem := _types(site, data, weight, result_of(node.outputs[0])):
        return problem
    if problem := _channels(weight, weight_channel_axis(node, 0)):
        return problem
    if not weight.is_constant:
        return "its weight is computed"
    if not site.target.any_qparams and np.unique(weight.points).size != 1:
        return f"{operator} has one zero point for all channels"
    return None


def lower_gemm(site: Site, node: ir.Node) -> str | None:
    """Gemm → QGemm, its result quantized or real."""
    pair = _data_and_weight(node)
    if isinstance(pair, str):
        return pair
    if not has_unit_factors(node):
        return "QGemm scales its bias with alpha, and has no beta"
    transposed = int_attribute(node, "transB", 0)
    own = added_bias(site, node, *pair)
    if own is not None:
        return _own_gemm(site, pair, own, transposed=bool(transposed))
    bias = input_at(node, 2)
    return _gemm(site, [node], pair, bias, transposed=bool(transposed))


def lower_matrix_product(site: Site, node: ir.Node) -> str | None:
    """MatMul → QLinearMatMul; with a bias behind it QGemm; with a real result
    MatMulIntegerToFloat.
    """
    pair = _data_and_weight(node)
    if isinstance(pair, str):
        return pair
    data, weight = pair
    own = added_bias(site, node, data, weight)
    own = None if own is None or own.on_product else own
    if own is not None and data.rank == weight.rank == _MATRIX:
        return _own_gemm(site, pair, own, transposed=False)
    if own is not None and result_of(own.last) is not None:
        return _columns(site, weight) or _own_bias(site, pair, own, ("", "QLinearMatMul"), [])
    behind = None if own is not None else _bias_behind(node, weight)
    if behind is not None:
        added = operand_of(behind[1])
        if added is None or not on_the_product(added, data, weight):
            return "the bias behind it does not have the scale of the product"
        if data.rank == weight.rank == 2:
            return _gemm(site, [node, behind[0]], pair, behind[1], transposed=False)
    result = result_of(node.outputs[0])
    operator, domain = (
        ("MatMulIntegerToFloat", ENGINE_DOMAIN) if result is None else ("QLinearMatMul", "")
    )
    lacking = site.target.lacks(operator, domain)
    if problem := lacking or _types(site, data, weight, result) or _columns(site, weight):
        return problem
    weight = site.widened(weight)
    if result is None:
        inputs = [
            data.integers,
            weight.integers,
            data.scale,
            weight.scale,
            data.point,
            weight.point,
        ]
        site.replace([node], operator, inputs, domain=domain)
    else:
        quantizer, output = result
        inputs = [*data.triple, *weight.triple, output.scale, output.point]
        site.replace([node, quantizer], operator, inputs)
    return None


def _own_bias(
    site: Site,
    pair: tuple[Operand, Operand],
    own: AddedBias,
    operator: tuple[str, str],
    attributes: list[ir.Attr],
) -> str | None:
    """The operator (domain and name) or our own of that name, with a bias that was split off or
    has its own scale.
    """
    data, weight = pair
    result = result_of(own.last)
    domain = operator[0] if own.on_product else INTEGER_DOMAIN
    name = operator[1]
    if problem := site.target.lacks(name, domain) or _types(site, data, weight, result):
        return problem
    if result is None:
        return "its result is real: no QuantizeLinear alone reads it"
    quantizer, output = result
    codes, scales = own.operands(site)
    inputs = [*data.triple, *site.widened(weight).triple, output.scale, output.point, codes]
    inputs += [] if scales is None else [scales]
    site.replace(
        [*own.nodes, quantizer], name, inputs, [*attributes, *own.attributes], domain=domain
    )
    return None


def _own_gemm(
    site: Site, pair: tuple[Operand, Operand], own: AddedBias, *, transposed: bool
) -> str | None:
    """QGemm or our own, its result quantized or real, with a bias that was split off or has its
    own scale.
    """
    data, weight = pair
    result, domain = result_of(own.last), ENGINE_DOMAIN if own.on_product else INTEGER_DOMAIN
    lacking = site.target.lacks("QGemm", domain)
    if (
        problem := lacking
        or _types(site, data, weight, result)
        or _channels(weight, 0 if transposed else 1)
    ):
        return problem
    codes, scales = own.operands(site)
    nodes: list[ir.Node] = list(own.nodes)
    inputs: list[ir.Value | None] = [*data.triple, *site.widened(weight).triple, codes]
    if result is not None:
        quantizer, output = result
        nodes.append(quantizer)
        inputs += [output.scale, output.point]
    if scales is not None:
        if result is None:
            # the places of the output's scale and zero point: scales come behind them
            inputs += [None, None]
        inputs.append(scales)
    attributes = [ir.AttrInt64("transB", int(transposed)), *own.attributes]
    site.replace(nodes, "QGemm", inputs, attributes, domain=domain)
    return None


def _gemm(
    site: Site,
    chain: list[ir.Node],
    pair: tuple[Operand, Operand],
    bias: ir.Value | None,
    *,
    transposed: bool,
) -> str | None:
    data, weight = pair
    result = result_of(chain[-1].outputs[0])
    lacking, columns = site.target.lacks("QGemm", ENGINE_DOMAIN), 0 if transposed else 1
    if problem := lacking or _types(site, data, weight, result) or _channels(weight, columns):
        return problem
    if bias is not None and result is None and operand_of(bias) is None:
        return _OFF_PRODUCT  # engines add it to real products as it is
    codes = _bias_codes(site, bias, data, weight)
    if isinstance(codes, str):
        return codes
    if codes is not None and not bias_per_column(codes, _size(weight, columns)):
        return "its bias is not one a column"
    weight = site.widened(weight)
    inputs = [*data.triple, *weight.triple, codes]
    nodes = list(chain)
    if result is not None:
        quantizer, output = result
        nodes.append(quantizer)
        inputs += [output.scale, output.point]
    attributes = [ir.AttrInt64("transB", int(transposed))]
    while inputs[-1] is None:
        inputs.pop()
    site.replace(nodes, "QGemm", inputs, attributes, domain=ENGINE_DOMAIN)
    return None


# A bias that is real, as NNCF and PT2E leave it, is rounded to the product's scale: integers are
# added to integers. ONNX Runtime does the same when it loads a model (WeightBiasQuantization):
#
#     b_q = round_half_even(b / float32(s_x · s_w)), in int32

_OFF_PRODUCT = "its bias does not have the scale of the product"
_INT32 = np.iinfo(np.int32)


def _bias_codes(
    site: Site, bias: ir.Value | None, data: Operand, weight: Operand
) -> ir.Value | str | None:
    """The integers of ``bias`` at the product's scale, of a real one as a new constant; or why
    there are none.
    """
    if bias is None:
        return None
    if problem := _bias_problem(bias, data, weight):
        return problem
    added = operand_of(bias)
    if added is not None:
        return added.integers
    real = constant_value(bias)
    assert real is not None
    scales = data.scales.reshape(()) * weight.scales.reshape(-1)
    codes = np.clip(np.rint(real / scales).astype(np.float64), _INT32.min, _INT32.max)
    return site.constant(f"{bias.name}_quantized", codes.astype(np.int32))


def _bias_problem(bias: ir.Value, data: Operand, weight: Operand) -> str | None:
    """Why ``bias`` has no integers at the product's scale; None where it has."""
    added, real = operand_of(bias), constant_value(bias)
    if added is not None:
        return None if on_the_product(added, data, weight) else _OFF_PRODUCT
    if real is None or real.dtype != np.float32 or not np.isfinite(real).all():
        return _OFF_PRODUCT
    one_each = real.ndim == 1 and weight.scales.size in (1, real.size)
    return None if one_each else _OFF_PRODUCT


def _bias_behind(node: ir.Node, weight: Operand) -> tuple[ir.Node, ir.Value] | None:
    """The Add of constant integers, one per column, that alone reads a product by a matrix; and
    these, dequantized.
    """
    follower = only_consumer(node.outputs[0])
    if follower is None or follower.op_type != "Add" or follower.domain or weight.rank != _MATRIX:
        return None
    bias = follower.inputs[1] if follower.inputs[0] is node.outputs[0] else follower.inputs[0]
    added = operand_of(bias)
    if bias is None or added is None or not added.is_constant:
        return None
    return (follower, bias) if bias_per_column(added.integers, _size(weight, 1)) else None


def _size(weight: Operand, axis: int) -> int | ir.SymbolicDim | None:
    return None if weight.integers.shape is None else weight.integers.shape[axis]


def _data_and_weight(node: ir.Node) -> tuple[Operand, Operand] | str:
    data, weight = operand_of(node.inputs[0]), operand_of(node.inputs[1])
    if data is None or weight is None:
        return "an operand is real"
    if data.is_dynamic or weight.is_dynamic:
        return "an operand has parameters of its batch"
    return (
        (data, weight)
        if data.axis is None and not data.block
        else "its data has more than one scale"
    )


def _types(
    site: Site, data: Operand, weight: Operand, result: tuple[ir.Node, Operand] | None
) -> str | None:
    """Why no kernel takes these types; 4-bit constants count as 8-bit ones."""
    known = {ir.DataType.INT4: ir.DataType.INT8, ir.DataType.UINT4: ir.DataType.UINT8}
    kind = (
        known.get(weight.dtype, weight.dtype)
        if weight.dtype and weight.is_constant
        else weight.dtype
    )
    if site.target.any_qparams:
        if not {data.dtype, kind} <= UP_TO_16_BITS or not {data.dtype, kind} & EIGHT_BITS:
            return (
                f"it multiplies {_name(data)} and {_name(weight)}; the interpreter multiplies up "
                "to 16 by 8 bits"
            )
        qparams = None if result is None else result[1]
        if qparams is not None and (
            qparams.dtype not in UP_TO_16_BITS or qparams.axis is not None or qparams.block
        ):
            return (
                f"its result is {_name(qparams)}; the interpreter gives up to 16 bits with one "
                "scale"
            )
        return None
    if data.dtype not in EIGHT_BITS or kind not in EIGHT_BITS:
        return f"it multiplies {_name(data)} and {_name(weight)}, kernels 8 bits"
    if data.dtype is ir.DataType.INT8 and kind is ir.DataType.UINT8:
        return "no kernel multiplies int8 data and uint8 weights"
    if result is not None and (result[1].dtype != data.dtype or result[1].axis is not None):
        return f"kernels give the type of their data, {_name(data)}, with one scale"
    return None


def _channels(weight: Operand, axis: int | None) -> str | None:
    if weight.block:
        return "its weight has blocks"
    return (
        None if weight.axis in (None, axis) else f"its weight has scales along axis {weight.axis}"
    )


def _columns(site: Site, weight: Operand) -> str | None:
    if weight.block:
        return "its weight has blocks"
    if weight.axis is None:
        return None
    matrix = weight.rank == 2 or (
        site.target.any_qparams and weight.rank is not None and weight.rank > 1
    )
    return (
        None
        if matrix and weight.axis == (weight.rank or 0) - 1
        else "its weight has scales that are not one a column"
    )


def _name(operand: Operand) -> str:
    return "integers" if operand.dtype is None else operand.dtype.name.lower()


# Conv, MatMul and Gemm on dynamic data as ConvInteger and MatMulInteger, scaled behind.
#
#     y = float(Σ (x_q − z_x)(w_q − z_w)) · (s_x · s_w)  [+ bias]
#
# Each rule returns why it declines, or None when it lowered.

_FLOAT = ir.DataType.FLOAT


def is_dynamic_product(node: ir.Node) -> bool:
    """Whether an operand of a product has parameters of its batch."""
    operands = [operand_of(value) for value in node.inputs[:2]]
    return any(operand is not None and operand.is_dynamic for operand in operands)


def lower_dynamic_product(site: Site, node: ir.Node) -> str | None:
    """Conv, MatMul or Gemm → ConvInteger or MatMulInteger, Cast, Mul, and Add of the bias."""
    operator = op_spec(node).dynamic
    pair = _dynamic_products_data_and_weight(site, node, operator)
    if isinstance(pair, str):
        return pair
    data, weight = pair
    if node.op_type == "Gemm" and int_attribute(node, "transB", 0):
        weight = _transposed(site, weight)
    scale, point = weight.scale, weight.point
    if node.op_type == "Conv" and not weight.is_dynamic:
        spatial = (weight.rank or 2) - 2
        if weight.axis is not None:
            scale = site.constant(
                f"{scale.name}_spread", weight.scales.reshape(-1, *(1,) * spatial)
            )
        if np.unique(weight.points).size == 1:
            point = site.constant(f"{point.name}_single", weight.points.reshape(-1)[:1].reshape(()))
    inputs = [data.integers, weight.integers, data.point, point]
    counted = site.before(node, operator, inputs, ir.DataType.INT32, "counted")
    maker = counted.producer()
    assert maker is not None
    for attribute in kept_attributes(node, *INTEGER_FORMS["", operator].attributes):
        maker.attributes.add(attribute)
    real = site.before(node, "Cast", [counted], _FLOAT, "real")
    factor = site.before(node, "Mul", [data.scale, scale], _FLOAT, "factor")
    bias = input_at(node, 2)
    if bias is None:
        site.replace([node], "Mul", [real, factor])
        return None
    scaled = site.before(node, "Mul", [real, factor], _FLOAT, "scaled")
    if node.op_type == "Conv":
        axes = site.constant(
            f"{node.name}_axes", np.arange(1, (weight.rank or 2) - 1, dtype=np.int64)
        )
        bias = site.before(node, "Unsqueeze", [bias, axes], _FLOAT, "bias")
    site.replace([node], "Add", [scaled, bias])
    return None


def _dynamic_products_data_and_weight(
    site: Site, node: ir.Node, operator: str
) -> tuple[Operand, Operand] | str:
    """Both operands of ``node``, constants of 4 bits in 8; or why ``operator`` cannot take its
    place.
    """
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
    single = site.target.any_qparams or np.unique(weight.points).size == 1
    return None if single else "ConvInteger has one zero point for all channels"


def _transposed(site: Site, weight: Operand) -> Operand:
    codes = constant_value(weight.integers)
    assert codes is not None
    integers = site.constant(f"{weight.integers.name}_transposed", np.ascontiguousarray(codes.T))
    axis = None if weight.axis is None else 1 - weight.axis
    return Operand(integers, weight.scale, weight.point, axis, weight.block)
