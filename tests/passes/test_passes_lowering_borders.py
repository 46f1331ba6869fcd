"""Where lowering to integer operators ends: biases, targets, zero points that are not written,
windows; and clips.
"""

from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from qbench.backends import get_backend
from qbench.graph import model_bytes
from qbench.passes import ONNX_RUNTIME, LowerToQOperator, Target, declined, lower_to_qoperator

Array = np.ndarray[Any, Any]
GRIDS = (
    "float s = {0.5}, uint8 z = {3}, float t = {0.25}, int8 wz = {0}, float bs = {0.125}, "
    "int32 bz = {0}"
)


def run(model: ir.Model, feeds: dict[str, Array], backend: str = "ort-cpu-noopt") -> Array:
    with get_backend(backend).prepare(model) as executor:
        return executor.run(feeds)["y"]


def feeds_of(*shape: int) -> dict[str, Array]:
    return {"x": (np.random.default_rng(5).normal(size=shape) * 9).astype(np.float32)}


def kinds(model: ir.Model) -> set[str]:
    return {node.op_type for node in model.graph}


def net(shape: str, output: str, constants: str, body: str) -> ir.Model:
    return ir.from_onnx_text(f"""<ir_version: 10, opset_import: ["" : 21]>
    net (float[{shape}] x) => (float[{output}] y) <{GRIDS}{", " if constants else ""}{constants}> {{
    q = QuantizeLinear(x, s, z)
    a = DequantizeLinear(q, s, z)
    {body}
    }}""")


WEIGHT = "int8[3,4] wq = {1,-2,3,4,5,6,-7,8,9,1,2,-3}"


@pytest.mark.parametrize(
    ("shape", "count", "taken"),
    [
        ("[4]", 4, True),
        ("[1,4]", 4, True),
        ("[4,1]", 4, False),
        ("[4,4]", 16, False),
        ("[1]", 1, False),
    ],
)
def test_a_gemm_takes_a_bias_inside_only_when_it_is_one_a_column(
    shape: str, count: int, taken: bool
) -> None:
    levels = ",".join(str(37 * i - 50) for i in range(count))
    model = net(
        "4,3",
        "4,4",
        f"{WEIGHT}, int32{shape} bq = {{{levels}}}",
        """w = DequantizeLinear(wq, t, wz)
        b = DequantizeLinear(bq, bs, bz)
        [fc] c = Gemm(a, w, b)
        r = QuantizeLinear(c, s, z)
        y = DequantizeLinear(r, s, z)""",
    )
    result = lower_to_qoperator(model)
    assert ("QGemm" in kinds(result)) is taken
    assert declined(result) == ({} if taken else {"fc": "its bias is not one a column"})
    feeds = feeds_of(4, 3)
    expected = run(model, feeds)
    np.testing.assert_array_equal(run(result, feeds), expected)
    np.testing.assert_array_equal(run(model, feeds, "integer-ort-x64"), expected)


def test_a_bias_with_a_scale_a_channel_over_a_weight_with_one_is_no_bias_of_the_product() -> None:
    model = net(
        "2,2,5,5",
        "2,3,5,5",
        "int8[3,2,1,1] wq = {1,-2,3,4,5,6}, int32[3] bq = {7,-9,2}, "
        "float[3] each = {0.125,0.125,0.25}, int32[3] o = {0,0,0}",
        """w = DequantizeLinear(wq, t, wz)
        b = DequantizeLinear<axis=0>(bq, each, o)
        [conv] c = Conv(a, w, b)
        r = QuantizeLinear(c, s, z)
        y = DequantizeLinear(r, s, z)""",
    )
    result = lower_to_qoperator(model)
    assert declined(result) == {"conv": "its bias does not have the scale of the product"}
    feeds = feeds_of(2, 2, 5, 5)
    np.testing.assert_array_equal(run(result, feeds), run(model, feeds))


PRODUCT = "w = DequantizeLinear(wq, t, wz)\n [fc] c = MatMul(a, w)\n"
ROUNDED = "r = QuantizeLinear(c, s, z)\n y = DequantizeLinear(r, s, z)"
DYNAMIC = (
    "dq, ds, dz = DynamicQuantizeLinear(x)\n d = DequantizeLinear(dq, ds, dz)\n"
    " w = DequantizeLinear(wq, t, wz)\n"
)
SMALL = Target(frozenset({("", "QLinearMatMul"), ("com.microsoft", "QGemm")}))
LACKING = [
    (PRODUCT + "y = Relu(c)", "4,4", "the target has no MatMulIntegerToFloat"),
    ("[fc] c = Softmax(a)\n" + ROUNDED, "4,3", "the target has no QLinearSoftmax"),
    ("[fc] c = Concat<axis=0>(a, a)\n" + ROUNDED, "8,3", "the target has no QLinearConcat"),
    (DYNAMIC + "[fc] c = MatMul(d, w)\n y = Relu(c)", "4,4", "the target has no MatMulInteger"),
]


@pytest.mark.parametrize(("body", "output", "reason"), LACKING)
def test_an_operator_that_the_target_lacks_stays_between_its_pairs(
    body: str, output: str, reason: str
) -> None:
    model = net("4,3", output, WEIGHT, body)
    result, everything = lower_to_qoperator(model, SMALL), lower_to_qoperator(model)
    assert declined(result)["fc"] == reason
    assert "fc" not in declined(everything)
    before, after = (next(n.op_type for n in m.graph if n.name == "fc") for m in (model, result))
    assert before == after
    assert not LowerToQOperator(SMALL).run(result)
    feeds = feeds_of(4, 3)
    np.testing.assert_array_equal(run(result, feeds), run(model, feeds))


def test_a_target_brings_in_what_it_has() -> None:
    model = net("4,3", "4,4", WEIGHT, PRODUCT + ROUNDED)
    assert "QLinearMatMul" in kinds(lower_to_qoperator(model, SMALL))
    assert SMALL.operators < ONNX_RUNTIME.operators


def test_a_convolution_is_declined_where_there_is_none() -> None:
    text = "w = DequantizeLinear(wq, t, wz)\n [conv] c = Conv(a, w)\n" + ROUNDED
    model = net("2,2,5,5", "2,3,5,5", "int8[3,2,1,1] wq = {1,-2,3,4,5,6}", text)
    assert declined(lower_to_qoperator(model, SMALL)) == {"conv": "the target has no QLinearConv"}
    assert declined(lower_to_qoperator(model)) == {}


WEIGHTS = np.array([[1, -2], [3, 4], [5, -6]])
WITHOUT_POINTS = {
    "QGemm": """net (float[4,3] x) => (float[4,4] y)
    <float[1] s = {0.5}, float t = {0.25}, int8[3,4] wq = {1,-2,3,4,5,6,-7,8,9,1,2,-3},
     float bs = {0.125}, int32[4] bq = {5,-60,7,80}, float o = {2.0}> {
    q = QuantizeLinear(x, s)
    a = DequantizeLinear(q, s)
    w = DequantizeLinear(wq, t)
    b = DequantizeLinear(bq, bs)
    c = Gemm(a, w, b)
    r = QuantizeLinear(c, o)
    y = DequantizeLinear(r, o)
    }""",
    "QLinearMatMul": """net (float[4,3] x) => (float[4,2] y)
    <float s = {0.5}, float[2] t = {0.25, 0.5}, int8[3,2] wq = {1,-2,3,4,5,-6}, float o = {2.0}> {
    q = QuantizeLinear(x, s)
    a = DequantizeLinear(q, s)
    w = DequantizeLinear<axis=1>(wq, t)
    c = MatMul(a, w)
    r = QuantizeLinear(c, o)
    y = DequantizeLinear(r, o)
    }""",
    "Transpose": """net (float[4,3] x) => (float[3,4] y)
    <float[1] s = {0.5}, float t = {0.5}> {
    q = QuantizeLinear<output_dtype=3>(x, s)
    a = DequantizeLinear(q, s)
    b = Transpose<perm=[1,0]>(a)
    r = QuantizeLinear<output_dtype=3>(b, t)
    y = DequantizeLinear(r, t)
    }""",
}


@pytest.mark.parametrize(
    ("operator", "bits"),
    [("QGemm", 8), ("QLinearMatMul", 8), ("QLinearMatMul", 4), ("Transpose", 8)],
)
def test_zero_points_that_are_left_out_are_0_of_the_type_of_the_integers(
    operator: str, bits: int
) -> None:
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 21]>\n' + WITHOUT_POINTS[operator]
    )
    if bits == 4:
        narrow = ir.Tensor(WEIGHTS.astype(ml_dtypes.int4), name="wq")
        model.graph.initializers["wq"].const_value, model.graph.initializers["wq"].dtype = (
            narrow,
            narrow.dtype,
        )
    result = lower_to_qoperator(model)
    assert declined(result) == {}
    assert [node.op_type for node in result.graph] == [
        "QuantizeLinear",
        operator,
        "DequantizeLinear",
    ]
    feeds = feeds_of(4, 3)
    np.testing.assert_array_equal(run(result, feeds), run(model, feeds))
    again = result.clone()
    assert not LowerToQOperator().run(again)
    assert model_bytes(again) == model_bytes(result)


@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize("include", [0, 1])
def test_a_pool_that_would_count_beyond_its_padding_stays_float(ceil: int, include: int) -> None:
    size = 4 if ceil else 3
    model = net(
        "2,3,6,6",
        f"2,3,{size},{size}",
        "",
        f"""[pool] c = AveragePool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1],
            ceil_mode={ceil}, count_include_pad={include}>(a)
        r = QuantizeLinear(c, t, z)
        y = DequantizeLinear(r, t, z)""",
    )
    result = lower_to_qoperator(model)
    assert ("QLinearAveragePool" in kinds(result)) is not bool(ceil and include)
    assert ("ceil_mode and count_include_pad" in declined(result).get("pool", "")) is bool(
        ceil and include
    )
    feeds = feeds_of(2, 3, 6, 6)
    # One step for a tie: the kernel of integers multiplies by one factor.
    assert np.abs(run(result, feeds) - run(model, feeds)).max() <= 0.25
