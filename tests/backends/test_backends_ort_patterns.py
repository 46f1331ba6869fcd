"""What ONNX Runtime does with a graph that its file does not say: found in the file, and as the
engine does it.
"""

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from test_backends_default_settings import data, weight_only
from test_backends_engines import constant, qdq_net

from qbench.backends import engine_notes, executed_by, get_backend, miscomputed
from qbench.backends.block_products import rounds_data
from qbench.backends.ort_patterns import limited_products, rounded_products
from qbench.diagnosis import lint_products
from qbench.errors import QbenchError
from qbench.graph import node_key

X = np.array([[-3, -1, -0.5, 0, 0.5, 1, 3, 5]], np.float32)
KEPT = [[0, 0, 0, 0, 0.5, 1, 3, 5]]


def graph(text, **constants):
    """A graph by ONNX's text format, with these constants as initializers."""
    import onnx.parser

    model = ir.from_proto(onnx.parser.parse_model(text))
    for name, array in constants.items():
        given = constant(name, array)
        value = next(v for v in model.graph.inputs if v.name == name)
        value.const_value, value.dtype, value.shape = given.const_value, given.dtype, given.shape
        model.graph.inputs.remove(value)
        model.graph.register_initializer(value)
    for node in model.graph:  # engines trace what they run by names
        node.name = f"{node.op_type} {node.outputs[0].name}"
    return model


def relu_before(zero, *, readers=1, scale=0.5):
    """x → Relu → QuantizeLinear → DequantizeLinear → y."""
    head = '<ir_version: 10, opset_import: ["" : 21]> g'
    u = "u = Neg (r)" if readers > 1 else ""
    outputs = "float[1, 8] y, float[1, 8] u" if readers > 1 else "float[1, 8] y"
    return graph(
        f"""{head} (float[1, 8] x, float s, uint8 z) => ({outputs}) {{
            r = Relu (x)
            q = QuantizeLinear (r, s, z)
            y = DequantizeLinear (q, s, z)
            {u}
        }}""",
        s=np.float32(scale),
        z=zero,
    )


DROPPED = {
    "float8 e4m3": ml_dtypes.float8_e4m3fn(0),
    "float8 e5m2": ml_dtypes.float8_e5m2(0),
    "int4": ml_dtypes.int4(0),
    "uint4 above its lowest code": ml_dtypes.uint4(1),
}
RIGHT = {
    "int8": np.int8(0),
    "int16": np.int16(0),
    "uint8": np.uint8(3),
    "int4 at its lowest code": ml_dtypes.int4(-8),
    "uint4": ml_dtypes.uint4(0),
}


def answers(name, model):
    with get_backend(name).prepare(model) as executor:
        return executor.run({"x": X})["y"]


@pytest.mark.parametrize("kind", DROPPED)
def test_a_relu_is_dropped_in_a_session_of_a_user_and_kept_in_ours(kind):
    model = relu_before(np.asarray(DROPPED[kind]))
    right = answers("ort-cpu-noopt", model)
    assert right.min() == 0
    # where this fails, the installed engine keeps the Relu: the workaround can go
    assert answers("ort-cpu-default", model).min() < 0
    np.testing.assert_array_equal(answers("ort-cpu", model), right)
    assert [(one.pattern, one.engine) for one in miscomputed(model)] == [("relus", "ONNX Runtime")]


@pytest.mark.parametrize("kind", RIGHT)
def test_other_types_and_zero_points_keep_their_relu(kind):
    model = relu_before(np.asarray(RIGHT[kind]))
    right = answers("ort-cpu-noopt", model)
    np.testing.assert_array_equal(answers("ort-cpu-default", model), right)
    assert not miscomputed(model)


def test_a_relu_with_another_reader_is_kept():
    model = relu_before(np.asarray(ml_dtypes.float8_e4m3fn(0)), readers=2)
    np.testing.assert_array_equal(answers("ort-cpu-default", model), KEPT)
    assert not miscomputed(model)


def half_scaled(dtype, block):
    """As ``weight_only``, with scales in float16 and results in float32."""
    model, _ = weight_only(dtype, block)
    node = model.graph.node(0)
    scales = node.inputs[1].const_value.numpy().astype(np.float16)
    half = constant("half", scales)
    model.graph.register_initializer(half)
    node.replace_input_with(1, half)
    node.attributes["output_dtype"] = ir.AttrInt64("output_dtype", ir.DataType.FLOAT)
    model.opset_imports[""], model.ir_version = 23, 11
    codes = node.inputs[0].const_value.numpy().astype(np.float64)
    return model, codes * (np.repeat(scales, block, 0) if block else scales)


@pytest.mark.parametrize(("dtype", "block"), [(ml_dtypes.int4, 32), (np.int8, 0)])
def test_half_scales_do_not_load_in_a_session_of_a_user_and_run_in_ours(dtype, block):
    model, weights = half_scaled(dtype, block)
    with pytest.raises(QbenchError, match="MatMulNBits"):  # else: the workaround can go
        get_backend("ort-cpu-default").prepare(model)
    exact = data().astype(np.float64) @ weights
    for name in ("ort-cpu", "ort-cpu-noopt"):
        with get_backend(name).prepare(model) as executor:
            np.testing.assert_allclose(executor.run({"x": data()})["y"], exact, atol=1e-4)
    assert "half-scales" in {one.pattern for one in engine_notes(model)}


@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
@pytest.mark.parametrize(
    ("dtype", "block", "rounds"),
    [(ml_dtypes.int4, 32, True), (np.int8, 0, True), (np.int8, 8, False), (np.int16, 0, False)],
)
@pytest.mark.skipif(not rounds_data(4, 32), reason="this processor has no kernel that rounds data")
def test_products_whose_data_are_rounded_are_found_in_the_file(op, dtype, block, rounds):
    model, _ = weight_only(dtype, block, op)
    found = {node_key(node) for node in rounded_products(model.graph)}
    with get_backend("ort-cpu-default").prepare(model) as executor:
        ran = {node for node, one in executed_by(executor).items() if one.rounds_data}
    assert found == ran == ({"product"} if rounds else set())


def limited(kind, zero, limit):
    """A quantized product with a limit in front of the next quantizer to ``kind``."""
    random = np.random.default_rng(0)
    limits = "Relu (p)" if limit is None else "Clip (p, low, high)"
    low, high = (0.0, 6.0) if limit is None else limit
    return graph(
        f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[2, 4, 1, 1] x, float s, uint8 z, float t, uint8 o, float ws, uint8 w, uint8 wz,
           float low, float high) => (float[2, 4, 1, 1] y) {{
            q = QuantizeLinear (x, s, z)
            d = DequantizeLinear (q, s, z)
            wd = DequantizeLinear (w, ws, wz)
            p = Conv (d, wd)
            r = {limits}
            yq = QuantizeLinear (r, t, o)
            y = DequantizeLinear (yq, t, o)
        }}""",
        s=np.float32(0.05),
        z=np.asarray(zero).astype(kind),
        t=np.float32(6 / 255),
        o=np.asarray(zero).astype(kind),
        ws=np.float32(0.01),
        w=random.integers(-127, 128, (4, 4, 1, 1)).astype(np.int8),
        wz=np.int8(0),
        low=np.float32(low),
        high=np.float32(high),
    )


@pytest.mark.parametrize(
    ("kind", "zero", "limit", "in_float"),
    [
        (np.int8, 0, None, True),
        (np.int8, -128, None, False),
        (np.uint8, 0, None, False),
        (np.uint8, 3, None, True),
        (np.uint8, 0, (0.0, 6.0), False),
        (np.int8, 0, (0.0, 6.0), True),
    ],
)
def test_limits_that_the_quantizer_does_not_absorb_run_their_product_in_float(
    kind, zero, limit, in_float
):
    model = limited(kind, zero, limit)
    product = next(node_key(node) for node in model.graph if node.op_type == "Conv")
    with get_backend("ort-cpu-default").prepare(model) as executor:
        assert executor.executed()[product].in_integers != in_float
    assert [node_key(node) for node in limited_products(model.graph)] == [product] * in_float
    assert ("kept-limits" in {one.pattern for one in engine_notes(model)}) == in_float


def test_lint_lists_what_engines_do():
    model, _ = weight_only(np.int8, 0)
    found = lint_products(model)
    assert [(one.node, one.pattern) for one in found.engine_notes] == [("product", "rounded-data")]
    assert not found.layers
    assert not found.risky
    assert not lint_products(qdq_net()).engine_notes
    dropped = lint_products(relu_before(np.asarray(ml_dtypes.float8_e4m3fn(0))))
    assert [one.pattern for one in dropped.miscomputed] == ["relus"]
