"""Forms in which the tools of others write what they quantized: planned share, the interpreter's
numbers and what it executes agree, and the numbers are those of ONNX Runtime.

Scales are powers of two and codes small, so that every sum is a float32 number: whatever differs
is then read wrong.
"""

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser

from qbench.backends import executed_by, get_backend
from qbench.graph import Form, form_of
from qbench.passes import lower_to_integers, plannable
from qbench.quantization import Given, is_quantized, qparams_of, read_plan

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(27)


def codes(*shape: int) -> Array:
    return RANDOM.integers(-60, 61, shape).astype(np.int8)


CONSTANTS: dict[str, Any] = {
    "sx": np.float32(2**-4), "zx": np.uint8(117), "sy": np.float32(2), "zy": np.uint8(130),
    "sx_list": np.array([2**-4], np.float32), "zx_list": np.array([117], np.uint8),
    "w": codes(4, 3, 1, 1), "sw": np.float32(2**-6), "zw": np.int8(0),
    "sw_each": np.array([2**-6, 2**-7, 2**-5, 2**-6], np.float32), "zw_each": np.zeros(4, np.int8),
    "wf": codes(4, 3, 1, 1) * np.float32(2**-6), "g": codes(75, 4), "gt": codes(4, 75),
    "bf": (RANDOM.integers(-999, 999, 4) / 1024).astype(np.float32),
    "b8": codes(4), "sb8": np.float32(2**-3),
    "low": np.int8(-50), "high": np.int8(50), "from_3": np.uint8(3), "to_250": np.uint8(250),
    "flat": np.array([0, -1]), "cube": np.array([0, 3, 1, 25]), "one": np.array([1]),
    "both": np.array([2, 3]), "three": np.array([3]), "order": np.array([0, 2, 1]),
    "twice": np.array([1, 1, 2, 2], np.float32), "zero": np.float32(0), "two": np.float32(2),
}  # fmt: skip

PAIR = "q = QuantizeLinear(x, sx, zx)\n d = DequantizeLinear(q, sx, zx)\n"
W, G = "wr = DequantizeLinear(w, sw, zw)\n", "gr = DequantizeLinear(g, sw, zw)\n"
CONV, GEMM = "z = Conv(m, wr)", "z = Gemm(m, gr)"

MOVED = {
    "flattened": PAIR + G + "m = Flatten(d)\n" + GEMM,
    "reshaped twice": PAIR + G + "c = Reshape(d, cube)\n m = Reshape(c, flat)\n" + GEMM,
    "transposed": PAIR + W + "m = Transpose<perm=[0,1,3,2]>(d)\n" + CONV,
    "squeezed": PAIR + W + "u = Unsqueeze(d, one)\n m = Squeeze(u, one)\n" + CONV,
    "an Identity": PAIR + W + "m = Identity(d)\n" + CONV,
    "an idle Dropout": PAIR + W + "m = Dropout(d)\n" + CONV,
    "an idle Cast": PAIR + W + "m = Cast<to=1>(d)\n" + CONV,
    "the largest of a window": PAIR + W + "m = MaxPool<kernel_shape=[2,2]>(d)\n" + CONV,
    "the largest of all": PAIR + W + "m = GlobalMaxPool(d)\n" + CONV,
    "the largest of two axes": PAIR + W + "m = ReduceMax<keepdims=1>(d, both)\n" + CONV,
    "the three largest": PAIR + W + "m, i = TopK<axis=2>(d, three)\n" + CONV,
    "gathered": PAIR + W + "m = Gather<axis=1>(d, order)\n" + CONV,
    "every number twice": PAIR
    + W
    + 'm = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", '
    'nearest_mode="floor">(d, , twice)\n' + CONV,
    "split": PAIR + W + "m, other = Split<axis=2, num_outputs=2>(d)\n" + CONV,
    "limited to zero": PAIR + W + "m = Relu(d)\n" + CONV,
    "limited to codes": PAIR + W + "m = Clip(d, zero, two)\n" + CONV,
}
SPELLED = {
    "the engine's domain": "q = com.microsoft.QuantizeLinear(x, sx, zx)\n"
    "m = com.microsoft.DequantizeLinear(q, sx, zx)\n"
    "wr = com.microsoft.DequantizeLinear(w, sw, zw)\n" + CONV,
    "a scale through an Identity": "s = Identity(sx)\n p = Identity(zx)\n"
    "q = QuantizeLinear(x, s, p)\n m = DequantizeLinear(q, s, p)\n" + W + CONV,
    "a scale through a Cast": "h = Cast<to=10>(sx)\n s = Cast<to=1>(h)\n"
    "q = QuantizeLinear(x, s, zx)\n m = DequantizeLinear(q, s, zx)\n" + W + CONV,
    "lists of one": "q = QuantizeLinear(x, sx_list, zx_list)\n"
    "m = DequantizeLinear(q, sx_list, zx_list)\n" + W + CONV,
    "an axis from the end": PAIR + "wr = DequantizeLinear<axis=-4>(w, sw_each, zw_each)\n"
    "z = Conv(d, wr)",
    "a weight moved behind its DQ": PAIR + "t = DequantizeLinear(gt, sw, zw)\n"
    "gr = Transpose<perm=[1,0]>(t)\n m = Flatten(d)\n" + GEMM,
    "a weight in float with its pair": PAIR + "wq = QuantizeLinear(wf, sw, zw)\n"
    "wr = DequantizeLinear(wq, sw, zw)\n z = Conv(d, wr)",
    "a weight with limits": PAIR + "wq = QuantizeLinear(wf, sw, zw)\n wc = Clip(wq, low, high)\n"
    "wr = DequantizeLinear(wc, sw, zw)\n z = Conv(d, wr)",
    "codes with limits": "c = QuantizeLinear(x, sx, zx)\n q = Clip(c, from_3, to_250)\n"
    "m = DequantizeLinear(q, sx, zx)\n" + W + CONV,
    "a bias in float": PAIR + W + "z = Conv(d, wr, bf)",
    "a bias in float, a scale a channel": PAIR
    + "wr = DequantizeLinear<axis=0>(w, sw_each, zw_each)\n z = Conv(d, wr, bf)",
    "a bias in float of a Gemm": PAIR + G + "m = Flatten(d)\n z = Gemm(m, gr, bf)",
}
FORMS = MOVED | SPELLED


def model_of(body: str, opset: int = 21, *, quantized: bool = True) -> ir.Model:
    """``body``, from x to z, and z quantized and dequantized."""
    rank = "a,b" if "Gemm" in body else "a,b,c,d"
    end = "r = QuantizeLinear(z, sy, zy)\n y = DequantizeLinear(r, sy, zy)"
    text = f"""<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1]>
    net (float[N,3,5,5] x) => (float[{rank}] y) {{
    {body}
    {end if quantized else "y = Identity(z)"}
    }}"""
    proto = parser.parse_model(text)
    read = {name for node in proto.graph.node for name in node.input}
    for node in proto.graph.node:
        node.name = f"n_{node.output[0]}"
    proto.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name)
        for name, array in CONSTANTS.items()
        if name in read
    )
    return ir.from_proto(proto)


def feeds() -> dict[str, Array]:
    return {"x": np.random.default_rng(5).uniform(-6, 7, (3, 3, 5, 5)).astype(np.float32)}


def answer(model: ir.Model, backend: str) -> tuple[Array, set[str]]:
    """y, and the nodes on integers."""
    with get_backend(backend).prepare(model) as executor:
        found = executor.run(feeds())["y"]
        run = executed_by(executor)
    return found, {name for name, how in run.items() if how.in_integers}


@pytest.mark.parametrize("form", FORMS)
def test_planned_share_interpreter_and_numbers_agree(form: str) -> None:
    model = model_of(FORMS[form])
    plan = read_plan(model)
    assert plan.integer_macs == 1.0
    assert plan.floats == {}
    assert is_quantized(model)
    found, integers = answer(model, "integer-ideal")
    assert integers >= {"n_z"}
    np.testing.assert_array_equal(found, answer(model, "ort-cpu-noopt")[0])


@pytest.mark.parametrize("opset", [13, 17, 19, 20, 22, 23])
def test_every_opset_is_read(opset: int) -> None:
    model = model_of(PAIR + W + "z = Conv(d, wr, bf)", opset)
    assert read_plan(model).integer_macs == 1.0
    found, integers = answer(model, "integer-ideal")
    assert integers >= {"n_z"}
    np.testing.assert_array_equal(found, answer(model, "ort-cpu-noopt")[0])


@pytest.mark.parametrize(
    "body",
    [
        PAIR + W + "m = Clip(d, zero, sw)\n" + CONV,  # an end between two codes
        PAIR + W + "m = Mul(d, sw)\n" + CONV,
        PAIR
        + W
        + 'm = Resize<mode="linear", coordinate_transformation_mode="asymmetric">(d, , twice)\n'
        + CONV,
    ],
)
def test_what_is_computed_behind_a_pair_is_float(body: str) -> None:
    model = model_of(body)
    assert read_plan(model).integer_macs == 0.0
    assert read_plan(model).floats["n_z"].reason == "its data are float in the model"
    found, integers = answer(model, "integer-ideal")
    assert "n_z" not in integers
    np.testing.assert_array_equal(found, answer(model, "ort-cpu-noopt")[0])


def test_a_bias_in_float_is_rounded_to_the_product_as_onnxruntime_does_it() -> None:
    """On any scales: the codes are those of ONNX Runtime's own optimization, which runs it."""
    body = PAIR + "wr = DequantizeLinear<axis=0>(w, sw_each, zw_each)\n z = Conv(d, wr, bf)"
    model = model_of(body)
    for name, array in {
        "sx": np.float32(0.0371),
        "sw_each": np.float32([0.0113, 0.02, 0.007, 0.0131]),
        "sy": np.float32(0.05),
        "bf": np.random.default_rng(8).normal(size=4).astype(np.float32),
    }.items():
        model.graph.initializers[name].const_value = ir.Tensor(np.asarray(array), name=name)
    mine, theirs = answer(model, "integer-ort-x64"), answer(model, "ort-cpu")
    assert "n_z" in mine[1] & theirs[1]
    np.testing.assert_array_equal(mine[0], theirs[0])


def test_a_bias_that_nothing_rounds_to_the_product_leaves_it_in_float() -> None:
    eight = PAIR + W + "br = DequantizeLinear(b8, sb8, zw)\n z = Conv(d, wr, br)"
    real = PAIR + G + "m = Flatten(d)\n z = Gemm(m, gr, bf)"  # and no quantizer behind it
    for model in (model_of(eight), model_of(real, quantized=False)):
        found, integers = answer(model, "integer-ideal")
        assert "n_z" not in integers
        np.testing.assert_array_equal(found, answer(model, "ort-cpu-noopt")[0])


# -- float16


HALF = """q = QuantizeLinear(xh, sx, zx)
    d = DequantizeLinear(q, sx, zx)
    wq = QuantizeLinear(wf, sw, zw)
    wr = DequantizeLinear(wq, sw, zw)
    z = Conv(d, wr, bf)
    r = Relu(z)
    rq = QuantizeLinear(r, sy, zx)
    rd = DequantizeLinear(rq, sy, zx)
    m = Flatten(rd)
    g = DequantizeLinear(gq, sw, zw)
    yh = Gemm(m, g)
    yq = QuantizeLinear(yh, sy, zx)
    yd = DequantizeLinear(yq, sy, zx)"""


def half_model(kind: str = "float16", casts: bool = True) -> ir.Model:
    """As ModelOpt writes it: Casts at the ends, all between them in float16, weights with pairs."""
    head = f"xh = Cast<to={10 if kind == 'float16' else 16}>(x)\n" if casts else ""
    tail = "\n y = Cast<to=1>(yd)" if casts else ""
    ends = ("float[N,3,5,5] x", "float[N,4] y")
    if not casts:
        ends = ("float16[N,3,5,5] xh", "float16[N,4] yd")
    proto = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 19]>
        net ({ends[0]}) => ({ends[1]}) {{\n{head}{HALF}{tail}\n}}"""
    )
    for node in proto.graph.node:
        node.name = f"n_{node.output[0]}"
    half = ir.DataType[kind.upper()].numpy()
    constants = {
        "sx": np.array(0.0371).astype(half),
        "zx": np.int8(0),
        "sw": np.array(0.0113).astype(half),
        "zw": np.int8(0),
        "sy": np.array(0.05).astype(half),
        "wf": (CONSTANTS["wf"] / 2).astype(half),
        "bf": CONSTANTS["bf"].astype(half),
        "gq": codes(100, 4),
    }
    proto.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()
    )
    return ir.from_proto(proto)


def codes_apart(one: Array, other: Array) -> Array:
    """How many codes of the result two answers of a half model are apart."""
    step = float(np.float16(0.05))
    first, second = (np.rint(array.astype(float) / step) for array in (one, other))
    return np.abs(first - second)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_pairs_in_half_precision_are_read_with_their_scales(kind: str) -> None:
    model = half_model(kind)
    plan = read_plan(model)
    assert plan.integer_macs == 1.0
    assert form_of(model) is Form.QDQ
    scale = np.float32(model.graph.initializers["sx"].const_value.numpy())
    found = [qparams_of(one) for slot, one in plan.decisions.items() if slot.node == "n_z"]
    assert scale in [one.scale for one in found if one is not None]
    assert all(isinstance(one, Given) for slot, one in plan.decisions.items() if slot.index < 2)


def test_float16_files_count_as_onnxruntime_runs_them() -> None:
    """Codes of the input are the same; what operators round to float16 between is not rounded."""
    model = half_model()
    lowered = lower_to_integers(model)
    assert [node.op_type for node in lowered.graph if node.op_type == "Cast"] == ["Cast"] * 2
    found, integers = answer(model, "integer-ideal")
    expected, _ = answer(model, "ort-cpu-noopt")
    assert integers >= {"n_z", "n_yh"}
    apart = codes_apart(found, expected)
    assert apart.max() <= 1
    assert apart.mean() <= 0.1


def test_the_interface_of_a_float16_file_stays() -> None:
    model = half_model(casts=False)
    plan = read_plan(model)
    assert plan.integer_macs == 1.0
    lifted = plannable(model)
    assert [value.dtype for value in lifted.graph.inputs] == [ir.DataType.FLOAT16]
    assert [value.name for value in lifted.graph.outputs] == ["yd"]
    assert [value.dtype for value in lifted.graph.outputs] == [ir.DataType.FLOAT16]
    batch = {"xh": feeds()["x"].astype(np.float16)}
    with get_backend("integer-ideal").prepare(model) as executor:
        found = executor.run(batch)["yd"]
    with get_backend("ort-cpu-noopt").prepare(model) as executor:
        expected = executor.run(batch)["yd"]
    assert found.dtype == expected.dtype == np.float16
    assert codes_apart(found, expected).max() <= 1


def test_a_float_model_in_float16_is_left_as_it_is() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]>
    net (float16[N,3] x) => (float16[N,3] y) { y = Relu(x) }"""
    lifted = plannable(ir.from_onnx_text(text))
    assert [node.op_type for node in lifted.graph] == ["Relu"]
    assert lifted.graph.inputs[0].dtype == lifted.graph.outputs[0].dtype == ir.DataType.FLOAT16
