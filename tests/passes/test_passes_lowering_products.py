"""Products that integer machines take and ONNX Runtime's kernels do not, and whole nets that
are made of them.
"""

from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from qbench.backends import get_backend
from qbench.calibration import calibrate
from qbench.graph import model_bytes
from qbench.host import DotProduct, probe_dot_product
from qbench.passes import (
    INTEGER_INTERPRETER,
    ONNX_RUNTIME,
    LowerToQOperator,
    declined,
    lower_to_qoperator,
)
from qbench.quantization import make_plan, quantize_model

Array = np.ndarray[Any, Any]


def net(inputs: str, outputs: str, body: str, **constants: Array) -> ir.Model:
    """A model from ONNX text; the keyword arguments are its initializers."""
    graph = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]>\nnet ({inputs}) => ({outputs}) {{\n{body}\n}}'
    )
    graph.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()
    )
    return ir.from_proto(graph)


def kinds(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph)


def run(model: ir.Model, feeds: dict[str, Array], backend: str) -> Array:
    with get_backend(backend).prepare(model) as executor:
        return next(iter(executor.run(feeds).values()))


HERE = "ort-x64-avx2" if probe_dot_product() is DotProduct.SATURATING else "ort-x64"
"""The machine that ONNX Runtime is here: products with computed parameters saturate whatever
the session asks for.
"""


def engine(model: ir.Model, feeds: dict[str, Array]) -> Array:
    """Node by node, without pairs that saturate where weights are constant."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(
        model_bytes(model), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, feeds)[0]


def reals(seed: int, *shape: int, size: float = 1.0) -> Array:
    return (np.random.default_rng(seed).normal(size=shape) * size).astype(np.float32)


def levels(seed: int, dtype: str, *shape: int) -> Array:
    ends = np.iinfo(dtype)
    return (
        np.random.default_rng(seed).integers(ends.min, ends.max, shape, endpoint=True).astype(dtype)
    )


GRIDS = {"s": np.float32(0.05), "z": np.uint8(120), "o": np.float32(0.4)}


def transposed(**weight: Array) -> ir.Model:
    scale = np.asarray(weight["t"])
    axis = "<axis=1>" if scale.ndim else ""
    return net(
        "float[2,3,5,4] x",
        "float[n,c,h,w] y",
        f"""q = QuantizeLinear(x, s, z)
        a = DequantizeLinear(q, s, z)
        k = DequantizeLinear{axis}(wq, t, wz)
        b = DequantizeLinear<axis=0>(bq, bs, bz)
        [up] c = ConvTranspose<strides=[2,2], pads=[1,0,0,1], output_padding=[1,0]>(a, k, b)
        r = QuantizeLinear(c, o, z)
        y = DequantizeLinear(r, o, z)""",
        **GRIDS,
        **weight,
        bq=np.arange(-2, 2, dtype=np.int32) * 900,
        bs=np.asarray(GRIDS["s"] * scale, np.float32),
        bz=np.zeros(scale.shape, np.int32),
    )


@pytest.mark.parametrize("channels", [(), (4,)])
def test_a_transposed_convolution_is_an_operator_of_ours_where_the_target_has_it(
    channels: tuple[int, ...],
) -> None:
    scales = np.asarray(np.random.default_rng(2).uniform(0.01, 0.02, channels), np.float32)
    model = transposed(wq=levels(0, "int8", 3, 4, 3, 3), t=scales, wz=np.zeros(channels, np.int8))
    ours, theirs = (
        lower_to_qoperator(model, INTEGER_INTERPRETER),
        lower_to_qoperator(model, ONNX_RUNTIME),
    )
    assert kinds(ours) == {"QuantizeLinear": 1, "QLinearConvTranspose": 1, "DequantizeLinear": 1}
    assert next(node for node in ours.graph if node.name == "up").domain == "qbench.integer"
    assert declined(theirs) == {"up": "the target has no QLinearConvTranspose"}
    assert not LowerToQOperator(INTEGER_INTERPRETER).run(ours)
    feeds = {"x": reals(5, 2, 3, 5, 4, size=3)}
    found, expected = run(model, feeds, "integer-ideal"), run(model, feeds, "ort-cpu-noopt")
    assert found.shape == expected.shape
    steps = np.abs(found - expected) / GRIDS["o"]
    assert steps.max() < 1.01  # floats may fall to the other side of a tie
    assert (steps > 0.5).mean() < 0.01


def product(a: Array, b: Array, result: str, **changed: Array) -> ir.Model:
    """A MatMul of integers that are fed, between pairs."""
    kind = {"int8": "int8", "uint8": "uint8", "int16": "int16", "uint16": "uint16"}
    shapes = [",".join(map(str, array.shape)) for array in (a, b)]
    return net(
        f"{kind[a.dtype.name]}[{shapes[0]}] p, {kind[b.dtype.name]}[{shapes[1]}] q",
        f"{result}[m,n] r",
        """a = DequantizeLinear(p, s, pz)
        b = DequantizeLinear(q, s, qz)
        [product] c = MatMul(a, b)
        r = QuantizeLinear(c, o, rz)""",
        **(
            {
                "s": np.float32(0.05),
                "o": np.float32(0.4),
                "pz": np.asarray(3, a.dtype),
                "qz": np.asarray(-2 if b.dtype.kind == "i" else 2, b.dtype),
                "rz": np.zeros((), result),
            }
            | changed
        ),
    )


TYPES = [
    ("uint8", "int8", "uint8", True, True),
    ("int8", "int8", "int8", True, True),
    ("int8", "uint8", "int8", False, True),
    ("uint8", "int8", "int8", False, True),
    ("uint8", "uint8", "int16", False, True),
    ("uint16", "int8", "uint16", False, True),
    ("int8", "int16", "int8", False, True),
    ("int16", "int16", "int16", False, False),
]


@pytest.mark.parametrize(("left", "right", "result", "engines", "machines"), TYPES)
def test_computed_operands_of_these_types(
    left: str, right: str, result: str, engines: bool, machines: bool
) -> None:
    a, b = levels(0, left, 5, 9), levels(1, right, 9, 4)
    model = product(a, b, result)
    assert kinds(lower_to_qoperator(model, ONNX_RUNTIME)).get("QLinearMatMul", 0) == engines
    assert kinds(lower_to_qoperator(model, INTEGER_INTERPRETER)).get("QLinearMatMul", 0) == machines
    if not machines:
        assert (
            "the interpreter multiplies up to 16 by 8 bits"
            in declined(lower_to_qoperator(model, INTEGER_INTERPRETER))["product"]
        )
    zeros = [int(model.graph.initializers[name].const_value.numpy()) for name in ("pz", "qz")]  # type: ignore[union-attr]
    exact = (a.astype(np.int64) - zeros[0]) @ (b.astype(np.int64) - zeros[1])
    ends = np.iinfo(result)
    expected = np.clip(np.rint(exact * (0.05 * 0.05 / 0.4)), ends.min, ends.max)
    found = run(model, {"p": a, "q": b}, "integer-ideal")
    assert found.dtype == result
    assert np.abs(found - expected).max() <= 1


def test_a_stack_of_constant_weights_with_scales_a_column(words) -> None:
    model = net(
        "float[2,5,9] x",
        "float[2,5,4] y",
        """q = QuantizeLinear(x, s, z)
        a = DequantizeLinear(q, s, z)
        b = DequantizeLinear<axis=2>(wq, t, wz)
        [product] c = MatMul(a, b)
        r = QuantizeLinear(c, o, z)
        y = DequantizeLinear(r, o, z)""",
        **GRIDS,
        wq=levels(1, "int8", 2, 9, 4),
        t=np.array([0.01, 0.02, 0.03, 0.04], np.float32),
        wz=np.array([0, 5, -3, 2], np.int8),
    )
    assert kinds(lower_to_qoperator(model, INTEGER_INTERPRETER))["QLinearMatMul"] == 1
    words(declined(lower_to_qoperator(model))["product"])
    feeds = {"x": reals(2, 2, 5, 9, size=3)}
    steps = (
        np.abs(run(model, feeds, "integer-ort-x64") - run(model, feeds, "ort-cpu-noopt"))
        / GRIDS["o"]
    )
    assert steps.max() < 1.01
    assert (steps > 0.5).mean() < 0.05


def test_a_convolution_with_a_zero_point_a_channel() -> None:
    body = """a = DequantizeLinear({data})
        w = DequantizeLinear<axis=0>(wq, t, wz)
        [conv] c = Conv(a, w)
        {end}"""
    weight = {
        "wq": levels(0, "uint8", 4, 3, 3, 3),
        "t": np.array([0.01, 0.02, 0.03, 0.04], np.float32),
        "wz": np.array([100, 128, 130, 140], np.uint8),
    }
    static = net(
        "float[2,3,6,6] x", "float[2,4,4,4] y", "q = QuantizeLinear(x, s, z)\n" + body.format(
            data="q, s, z", end=(
                "r = QuantizeLinear(c, o, z)\n y = DequantizeLinear(r, o, z)"
            )), **GRIDS, **weight,
    )  # fmt: skip
    dynamic = net(
        "float[2,3,6,6] x", "float[2,4,4,4] y",
        "q, ds, dz = DynamicQuantizeLinear(x)\n"
        + body.format(data="q, ds, dz", end="y = Identity(c)"), **weight,
    )  # fmt: skip
    feeds = {"x": reals(2, 2, 3, 6, 6)}
    for model, operator in ((static, "QLinearConv"), (dynamic, "ConvInteger")):
        assert kinds(lower_to_qoperator(model, INTEGER_INTERPRETER))[operator] == 1
        assert (
            declined(lower_to_qoperator(model))["conv"]
            == f"{operator} has one zero point for all channels"
        )
        np.testing.assert_allclose(
            run(model, feeds, "integer-ideal"),
            run(model, feeds, "ort-cpu-noopt"),
            atol=0.41 if model is static else 1e-4,
        )


def dynamic_net(operator: str) -> ir.Model:
    bodies = {
        "Conv": """[first] a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w, b)
            r = Relu(a)
            [depth] d = Conv<group=6, pads=[1,1,1,1]>(r, v, b)
            [last] y = Conv(d, u)""",
        "MatMul": """[first] a = MatMul(x, w)
            i = Add(a, b)
            r = Relu(i)
            [last] y = Gemm<transB=1>(r, v, c)""",
        "attention": """[query] q = MatMul(x, w)
            [key] k = MatMul(x, v)
            t = Transpose<perm=[0,2,1]>(k)
            [score] y = MatMul(q, t)""",
    }
    weights = {
        "Conv": {
            "w": reals(0, 6, 3, 3, 3),
            "b": reals(1, 6),
            "v": reals(2, 6, 1, 3, 3),
            "u": reals(3, 4, 6, 1, 1),
        },
        "MatMul": {"w": reals(0, 8, 6), "b": reals(1, 6), "v": reals(2, 4, 6), "c": reals(3, 4)},
        "attention": {"w": reals(0, 8, 6), "v": reals(2, 8, 6)},
    }
    shapes = {
        "Conv": ("2,3,8,8", "2,4,4,4"),
        "MatMul": ("5,8", "5,4"),
        "attention": ("2,7,8", "2,7,7"),
    }
    given, made = shapes[operator]
    return net(f"float[{given}] x", f"float[{made}] y", bodies[operator], **weights[operator])


@pytest.mark.parametrize("schema", ["w8a8_asym_pc_dyn"])
@pytest.mark.parametrize(("operator", "products"), [("Conv", 3), ("MatMul", 2), ("attention", 2)])
def test_a_net_on_dynamic_grids_counts_as_the_engine_does(
    operator: str, products: int, schema: str
) -> None:
    model = dynamic_net(operator)
    feeds = {"x": reals(9, *(int(d) for d in model.graph.inputs[0].shape or ()))}
    plan = make_plan(model, calibrate(model, [feeds]), schema, capabilities="integer-ort-x64")
    quantized = quantize_model(model, plan)
    ours, theirs = lower_to_qoperator(quantized, INTEGER_INTERPRETER), lower_to_qoperator(quantized)
    assert kinds(ours) == kinds(theirs)
    assert kinds(ours)["ConvInteger"] + kinds(ours)["MatMulInteger"] == products
    np.testing.assert_array_equal(run(quantized, feeds, f"integer-{HERE}"), engine(theirs, feeds))
    exact = run(quantized, feeds, "integer-ort-x64")
    np.testing.assert_array_equal(
        exact, run(quantized, feeds, "integer-pow2-shift")
    )  # no multiplier, no rounding


def with_bias(operator: str, qtype: str, scale: float) -> tuple[ir.Model, dict[str, Array]]:
    """A product of levels and a bias of ``qtype`` at ``scale``, on a grid."""
    window = operator in ("Conv", "ConvTranspose")
    shape = (2, 3, 5, 5) if window else (6, 3) if operator == "Gemm" else (2, 6, 3)
    w = levels(1, "int8", 3, 3, 2, 2) if window else levels(1, "int8", 3, 3)
    product = (
        f"a = {operator}(xr, wr, br)"
        if operator != "MatMul"
        else "[matmul] m = MatMul(xr, wr)\n[add] a = Add(m, br)"
    )
    sizes = ",".join(map(str, shape))
    model = net(
        f"float[{sizes}] x", "float[N] y",
        f"""q = QuantizeLinear(x, s, z)
        xr = DequantizeLinear(q, s, z)
        wr = DequantizeLinear(w, ws, wz)
        br = DequantizeLinear(b, bs, bz)
        {product}
        r = QuantizeLinear(a, t, z)
        y = DequantizeLinear(r, t, z)""",
        s=np.float32(0.03), z=np.uint8(120), w=w, ws=np.float32(0.01), wz=np.int8(0),
        t=np.float32(0.11), b=levels(2, qtype, 3), bs=np.float32(scale), bz=np.zeros((), qtype),
    )  # fmt: skip
    model.graph.outputs[0].shape = None
    return model, {"x": reals(3, *shape, size=2)}


@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose", "Gemm", "MatMul"])
@pytest.mark.parametrize("qtype", ["int8", "int16"])
def test_a_product_with_a_bias_on_a_grid_of_its_own_is_what_the_engine_makes_of_it(
    operator: str, qtype: str
) -> None:
    model, feeds = with_bias(operator, qtype, 0.02 if qtype == "int8" else 0.0001)
    wanted = run(model, feeds, "ort-cpu-noopt")
    for backend in ("integer-ideal", "integer-ort-x64", "integer-ort-x64-avx2", "ort-cpu-precise"):
        np.testing.assert_array_equal(run(model, feeds, backend), wanted, backend)
    assert "scale of the product" in " ".join(
        declined(lower_to_qoperator(model, INTEGER_INTERPRETER)).values()
    )


def test_pairs_saturate_in_no_transposed_convolution_of_the_engine() -> None:
    model, feeds = with_bias("ConvTranspose", "int8", 0.02)
    product = next(node for node in model.graph if node.op_type == "ConvTranspose")
    product.replace_input_with(2, None)
    assert kinds(lower_to_qoperator(model, INTEGER_INTERPRETER))["QLinearConvTranspose"] == 1
    wanted = run(model, feeds, "ort-cpu")
    np.testing.assert_array_equal(run(model, feeds, "integer-ort-x64-avx2"), wanted)
    np.testing.assert_array_equal(run(model, feeds, "integer-ort-x64"), wanted)
