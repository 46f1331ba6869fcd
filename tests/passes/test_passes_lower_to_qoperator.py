"""The operator-oriented form: which operators there are, and that ONNX Runtime counts as it
does on the QDQ form.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from qbench.backends import get_backend
from qbench.calibration import calibrate
from qbench.graph import Form, constant_value, form_of, graph_digest, lineage_of, model_bytes
from qbench.numerics import QType
from qbench.passes import LowerToQOperator, declined, lower_to_qoperator
from qbench.quantization import (
    Granularity,
    Rule,
    Schema,
    Spec,
    get_schema,
    make_plan,
    quantize_model,
)

Array = np.ndarray[Any, Any]
UNSIGNED = ("w8a8_asym_pt", "w8a8_asym_pc", "w8a8_symu8_pc", "w8a8_asym_pc_pow2", "w4a8_asym_pc")


def model_of(inputs: str, outputs: str, body: str, **constants: Array) -> ir.Model:
    """A model from ONNX text; the keyword arguments are its initializers."""
    declared = ", ".join(
        f"{_type(a)}[{', '.join(map(str, a.shape))}] {n}" for n, a in constants.items()
    )
    text = (
        '<ir_version: 10, opset_import: ["" : 21]>\n'
        f"net ({inputs}) => ({outputs}) <{declared}> {{\n{body}\n}}"
    )
    proto = onnx.parser.parse_model(text)
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in constants.items()
    )
    return ir.from_proto(proto)


def _type(array: Array) -> str:
    return {"float32": "float", "int64": "int64"}[array.dtype.name]


def weights(seed: int, *shape: int, size: float = 0.4) -> Array:
    return (np.random.default_rng(seed).normal(size=shape) * size).astype(np.float32)


def image_net() -> ir.Model:
    """Convolutions dense and depthwise, a residual sum, pools, movers, a concatenation, a Gemm."""
    return model_of(
        "float[N,3,12,12] x",
        "float[N,5] y",
        """[stem] a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w1, b1)
        [stem_relu] r = Relu(a)
        [depth] d = Conv<pads=[1,1,1,1], group=8>(r, w2, b2)
        [sum] s = Add(d, r)
        [sum_clip] t = Clip(s, low, high)
        [max] m = MaxPool<kernel_shape=[2,2], strides=[2,2]>(t)
        [average] v = AveragePool<kernel_shape=[2,2], strides=[2,2]>(t)
        [concat] c = Concat<axis=1>(m, v)
        [pad] p = Pad(c, pads)
        [leaky] l = LeakyRelu<alpha=0.125>(p)
        [transpose] u = Transpose<perm=[0,2,3,1]>(l)
        [back] k = Transpose<perm=[0,3,1,2]>(u)
        [last] e = Conv(k, w3)
        [mean] g = GlobalAveragePool(e)
        [flat] f = Flatten(g)
        [head] h = Gemm<transB=1>(f, w4, b4)
        [head_relu] q = Relu(h)
        [logits] y = Gemm(q, w5, b5)""",
        w1=weights(0, 8, 3, 3, 3),
        b1=weights(1, 8),
        w2=weights(2, 8, 1, 3, 3),
        b2=weights(3, 8),
        low=np.array(0, np.float32),
        high=np.array(1.5, np.float32),
        pads=np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        w3=weights(4, 10, 16, 1, 1),
        w4=weights(5, 6, 10),
        b4=weights(6, 6),
        w5=weights(7, 6, 5),
        b5=weights(8, 5),
    )


def gate_net() -> ir.Model:
    """Matrix products with and without a bias, of rank 2 and 3, products of computed operands,
    sigmoid and softmax.
    """
    return model_of(
        "float[N,8] x, float[N,4,8] s",
        "float[N,6] y, float[N,4,8] z",
        """[in] a = MatMul(x, w)
        [in_bias] i = Add(a, b)
        [sigmoid] g = Sigmoid(i)
        [state] m = MatMul(x, v)
        [gate] p = Mul(g, m)
        [out] y = MatMul(p, o)
        [query] q = MatMul(s, wq)
        [key] k = MatMul(s, wk)
        [turn] t = Transpose<perm=[0,2,1]>(k)
        [score] c = MatMul(q, t)
        [softmax] e = Softmax<axis=-1>(c)
        [mix] z = MatMul(e, s)""",
        w=weights(0, 8, 6),
        b=weights(1, 6),
        v=weights(2, 8, 6),
        o=weights(3, 6, 6),
        wq=weights(4, 8, 5),
        wk=weights(5, 8, 5),
    )


NETS: dict[str, Callable[[], ir.Model]] = {"image": image_net, "gate": gate_net}
LOWERED = {
    "image": {"QLinearConv": 3, "QLinearAdd": 1, "MaxPool": 1, "QLinearAveragePool": 1,
              "QLinearConcat": 1, "Pad": 1, "QLinearLeakyRelu": 1, "Transpose": 2,
              "QLinearGlobalAveragePool": 1, "Flatten": 1, "QGemm": 2, "QuantizeLinear": 1},
    "gate": {"QuantizeLinear": 2, "QGemm": 1, "QLinearSigmoid": 1, "QLinearMatMul": 4,
             "QLinearMul": 1, "MatMulIntegerToFloat": 2, "Transpose": 1, "QLinearSoftmax": 1},
}  # fmt: skip


def feeds_of(model: ir.Model, rows: int = 48) -> dict[str, Array]:
    rng = np.random.default_rng(7)
    shapes = {
        str(v.name): [d if isinstance(d, int) else rows for d in v.shape or ()]
        for v in model.graph.inputs
    }
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def quantized(model: ir.Model, schema: str | Schema) -> ir.Model:
    return quantize_model(model, make_plan(model, calibrate(model, [feeds_of(model)]), schema))


def lowered(model: ir.Model) -> ir.Model:
    """Lowered once and again: valid, the model not touched, idempotent."""
    before = graph_digest(model)
    result = lower_to_qoperator(model)
    assert graph_digest(model) == before
    onnx.checker.check_model(onnx.load_model_from_string(model_bytes(result)), full_check=True)
    again = result.clone()
    assert not LowerToQOperator().run(again)
    assert graph_digest(again) == graph_digest(result)
    return result


def run(model: ir.Model, feeds: dict[str, Array], backend: str) -> dict[str, Array]:
    with get_backend(backend).prepare(model) as executor:
        return executor.run(feeds)


def kinds(model: ir.Model) -> dict[str, int]:
    return dict(Counter(node.op_type for node in model.graph))


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("schema", UNSIGNED)
@pytest.mark.parametrize("name", NETS)
def test_it_counts_as_the_optimized_pairs_do_bit_for_bit(name: str, schema: str) -> None:
    model = NETS[name]()
    pairs = quantized(model, schema)
    result = lowered(pairs)
    assert form_of(result) is Form.QOPERATOR
    found = kinds(result)
    assert found.pop("Clip", 0) <= 2
    assert found == LOWERED[name]
    assert declined(result) == {}
    assert lineage_of(result)[-1] == graph_digest(pairs)
    feeds = feeds_of(model)
    optimized = run(pairs, feeds, "ort-cpu")
    for backend, graph in (
        ("ort-cpu", result),
        ("ort-cpu-noopt", result),
        ("ort-cpu-qoperator", pairs),
    ):
        got = run(graph, feeds, backend)
        assert got.keys() == optimized.keys()
        for output, expected in optimized.items():
            # Constants of 4 bits are widened here, which the optimizer does not: its products are
            # floats.
            if schema == "w4a8_asym_pc":
                assert np.linalg.norm(got[output] - expected) < 0.1 * np.linalg.norm(expected)
            else:
                np.testing.assert_array_equal(got[output], expected, f"{backend} {output}")


@pytest.mark.parametrize("name", NETS)
def test_signed_activations_count_in_integers_too(name: str) -> None:
    model = NETS[name]()
    pairs = quantized(model, "w8a8_sym_pc")
    result = lowered(pairs)
    found = kinds(result)
    found.pop("Clip", None)
    assert found == LOWERED[name]
    feeds = feeds_of(model, rows=8)
    floats, integers = run(pairs, feeds, "ort-cpu-noopt"), run(result, feeds, "ort-cpu")
    for output, expected in floats.items():
        assert np.linalg.norm(integers[output] - expected) < 0.05 * np.linalg.norm(expected)


def test_the_onnx_evaluator_counts_the_standard_operators() -> None:
    model = model_of(
        "float[N,3,6,6] x",
        "float[N,4,4,4] y",
        "a = Conv(x, w, b)\n r = Relu(a)\n y = MaxPool<kernel_shape=[3,3]>(r)",
        w=weights(0, 4, 3, 1, 1),
        b=weights(1, 4),
    )
    pairs = quantized(model, "w8a8_asym_pc")
    result = lowered(pairs)
    feeds = feeds_of(model, rows=4)
    evaluated = ReferenceEvaluator(onnx.load_model_from_string(model_bytes(result))).run(
        None, feeds
    )[0]
    ours = run(result, feeds, "ort-cpu-precise")["y"]
    step = np.abs(np.diff(np.unique(ours))).min()
    # The evaluator requantizes in another order of float steps; a tie may fall to the other side.
    assert np.abs(evaluated - ours).max() <= step * 1.01
    assert np.mean(evaluated != ours) < 0.01


def test_the_clip_of_levels_stays() -> None:
    model = model_of(
        "float[N,3,6,6] x",
        "float[N,2,6,6] y",
        "a = Conv(x, w)\n r = Clip(a, low, high)\n y = Conv(r, v)",
        w=weights(0, 4, 3, 1, 1),
        v=weights(1, 2, 4, 1, 1),
        low=np.array(0.25, np.float32),
        high=np.array(1, np.float32),
    )
    result = lowered(quantized(model, "w8a8_asym_pc"))
    clip = next(node for node in result.graph if node.op_type == "Clip")
    assert clip.inputs[0] is not None
    assert clip.inputs[0].producer().op_type == "QLinearConv"  # type: ignore[union-attr]
    assert clip.inputs[0].dtype == clip.outputs[0].dtype == ir.DataType.UINT8


def test_dynamic_products_are_integers() -> None:
    model = model_of(
        "float[N,8] x, float[N,3,6,6] p",
        "float[N,4] y, float[N,4,6,6] z",
        """[fc] a = MatMul(x, w)
        [fc_bias] i = Add(a, b)
        [relu] r = Relu(i)
        [gemm] y = Gemm<transB=1>(r, v, c)
        [conv] z = Conv<pads=[1,1,1,1]>(p, k, d)""",
        w=weights(0, 8, 6),
        b=weights(1, 6),
        v=weights(2, 4, 6),
        c=weights(3, 4),
        k=weights(4, 4, 3, 3, 3),
        d=weights(5, 4),
    )
    pairs = quantized(model, "w8a8_asym_pc_dyn")
    assert kinds(pairs)["DynamicQuantizeLinear"] == 3
    symmetric = Schema(
        name="dynamic",
        rules=(
            Rule(
                activation=Spec(qtype="uint8", symmetry="asymmetric", dynamic=True),
                weight=Spec(
                    qtype="int8",
                    symmetry="symmetric",
                    granularity=Granularity.CHANNEL,
                    narrow_range=True,
                ),
            ),
        ),
    )
    for graph in (pairs, quantized(model, symmetric)):
        result = lowered(graph)
        uniform = graph is not pairs or "conv" not in declined(result)
        assert kinds(result)["MatMulInteger"] == 2
        assert kinds(result).get("ConvInteger", 0) == uniform
        feeds = feeds_of(model, rows=4)
        expected = run(graph, feeds, "ort-cpu-noopt")
        exact = run(result, feeds, "ort-cpu-precise")
        for output, real in expected.items():
            np.testing.assert_allclose(
                exact[output], real, rtol=1e-4, atol=1e-4 * np.abs(real).max()
            )
    assert uniform


DECLINED = [
    ("[n] y = Tanh(a)", "n", "there is no integer operator for Tanh"),
    ("[n] y = Conv(a, w)", "n", "its result is real"),
    ("[n] t = Conv(a, w)\n [m] y = Sigmoid(t)", "n", "its result is real"),
    ("[m] t = Neg(a)\n[n] y = MaxPool<kernel_shape=[2,2]>(a)", "n", "leaves the graph as reals"),
]


@pytest.mark.parametrize(("body", "node", "reason"), DECLINED)
def test_what_stays_float_says_why(body: str, node: str, reason: str) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    net (float[N,2,6,6] x) => (float[a,b,c,d] y)
    <float s = {{0.5}}, uint8 z = {{3}}, int8[2,2,1,1] wq = {{1,2,3,4}}, int8 wz = {{0}}> {{
    q = QuantizeLinear(x, s, z)
    a = DequantizeLinear(q, s, z)
    w = DequantizeLinear(wq, s, wz)
    {body}
    }}"""
    result = lower_to_qoperator(ir.from_onnx_text(text))
    assert reason in declined(result)[node]


BIASES = [("int32", 0.25, True), ("int32", 0.5, False), ("int16", 0.25, False)]


@pytest.mark.parametrize(("qtype", "scale", "taken"), BIASES)
def test_only_a_bias_on_the_grid_of_the_product_is_added_inside(
    qtype: str, scale: float, taken: bool
) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    net (float[N,2,6,6] x) => (float[N,2,6,6] y)
    <float s = {{0.5}}, uint8 z = {{3}}, int8[2,2,1,1] wq = {{1,2,3,4}}, int8 wz = {{0}},
     {qtype}[2] bq = {{7, -9}}, float bs = {{{scale}}}, {qtype} bz = {{0}}> {{
    q = QuantizeLinear(x, s, z)
    a = DequantizeLinear(q, s, z)
    w = DequantizeLinear(wq, s, wz)
    b = DequantizeLinear(bq, bs, bz)
    [conv] c = Conv(a, w, b)
    r = QuantizeLinear(c, s, z)
    y = DequantizeLinear(r, s, z)
    }}"""
    model = ir.from_onnx_text(text)
    result = lowered(model)
    assert kinds(result).get("QLinearConv", 0) == taken
    assert declined(result) == (
        {} if taken else {"conv": "its bias does not have the scale of the product"}
    )
    feeds = feeds_of(model, rows=3)
    np.testing.assert_array_equal(
        run(result, feeds, "ort-cpu")["y"], run(model, feeds, "ort-cpu-noopt")["y"]
    )


def test_pairs_without_zero_points_are_lowered_too() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]>
    net (float[N,2] x) => (float[N,2] y) <float s = {0.5}> {
    q = QuantizeLinear(x, s)
    a = DequantizeLinear(q, s)
    [flat] b = Flatten(a)
    r = QuantizeLinear(b, s)
    y = DequantizeLinear(r, s)
    }"""
    model = ir.from_onnx_text(text)
    result = lower_to_qoperator(model)
    assert kinds(result) == {"QuantizeLinear": 1, "Flatten": 1, "DequantizeLinear": 1}
    feeds = {"x": np.array([[0.3, 4.4], [-1, 200]], np.float32)}
    np.testing.assert_array_equal(
        run(result, feeds, "ort-cpu")["y"], run(model, feeds, "ort-cpu")["y"]
    )


def test_float_and_lowered_graphs_are_left_alone() -> None:
    model = image_net()
    assert graph_digest(lower_to_qoperator(model)) == graph_digest(model)
    feeds = feeds_of(model, rows=4)
    np.testing.assert_array_equal(
        run(model, feeds, "ort-cpu-qoperator")["y"], run(model, feeds, "ort-cpu")["y"]
    )


def test_taps_are_answered() -> None:
    model = image_net()
    pairs = quantized(model, "w8a8_asym_pc")
    with get_backend("ort-cpu-qoperator").prepare(pairs, taps=("d",)) as executor:
        got = executor.run(feeds_of(model, rows=2))
    assert got["d"].dtype == np.float32
    assert got["d"].shape == (2, 8, 6, 6)


@pytest.mark.parametrize("name", NETS)
def test_integers_keep_the_names_of_what_quantized_them(name: str) -> None:
    pairs = quantized(NETS[name](), "w8a8_asym_pc")
    wanted = {node.outputs[0].name for node in pairs.graph if node.op_type == "QuantizeLinear"}
    assert wanted <= {value.name for node in lowered(pairs).graph for value in node.outputs}


@pytest.mark.slow
def test_the_padding_is_the_zero_point() -> None:
    result = lowered(quantized(image_net(), "w8a8_asym_pc"))
    pad = next(node for node in result.graph if node.op_type == "Pad")
    filler = constant_value(pad.inputs[2])
    assert filler is not None
    assert filler.dtype == QType.parse("uint8").storage_dtype
    assert get_schema("w8a8_asym_pc").name == "w8a8_asym_pc"
