"""Movers without a pair behind them are lowered, and so is what reads them; judged by ONNX
Runtime on the QDQ graph.
"""

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from qbench.backends import get_backend
from qbench.graph import model_bytes
from qbench.passes import declined, lower_to_qoperator

Array = np.ndarray[Any, Any]
PRODUCTS = frozenset({"Gemm", "MatMul", "Conv"})


def net(shape: str, output: str, constants: str, body: str) -> ir.Model:
    return ir.from_onnx_text(f"""<ir_version: 10, opset_import: ["" : 21]>
    net (float[{shape}] x) => (float[{output}] y)
    <float s = {{0.5}}, uint8 z = {{103}}, float t = {{0.25}}, int8 wz = {{0}}, float u = {{29.7}},
     {constants}> {{
    q = QuantizeLinear(x, s, z)
    a = DequantizeLinear(q, s, z)
    w = DequantizeLinear(wq, t, wz)
    {body}
    r = QuantizeLinear(c, u, z)
    y = DequantizeLinear(r, u, z)
    }}""")


def levels(count: int) -> str:
    """Small enough that no pair of products saturates in 16 bits, whatever the processor."""
    return "{" + ",".join(str((37 * i + 11) % 129 - 64) for i in range(count)) + "}"


def run(model: ir.Model, backend: str, shape: tuple[int, ...]) -> Array:
    feeds = {"x": (np.random.default_rng(8).normal(size=shape) * 30).astype(np.float32)}
    with get_backend(backend).prepare(model) as executor:
        return executor.run(feeds)["y"]


IMAGE = (2, 2, 4, 4)
FLAT = f"int8[32,5] wq = {levels(160)}"
WINDOW = f"int8[3,2,2,2] wq = {levels(24)}"
CASES = {
    "flatten": (IMAGE, "2,5", FLAT, "m = Flatten(a)\nc = Gemm(m, w)"),
    "reshape": (
        IMAGE,
        "2,5",
        f"{FLAT}, int64[2] to = {{2, 32}}",
        "m = Reshape(a, to)\nc = MatMul(m, w)",
    ),
    "transpose": (IMAGE, "2,3,3,3", WINDOW, "m = Transpose<perm=[0,1,3,2]>(a)\nc = Conv(m, w)"),
    "max_pool": (
        IMAGE,
        "2,3,1,1",
        WINDOW,
        "m = MaxPool<kernel_shape=[2,2],strides=[2,2]>(a)\nc = Conv(m, w)",
    ),
    "pad": (
        IMAGE,
        "2,3,5,5",
        f"{WINDOW}, int64[8] p = {{0,0,1,1,0,0,1,1}}",
        "m = Pad(a, p)\nc = Conv(m, w)",
    ),
    "chain": (
        IMAGE,
        "2,5",
        f"int8[8,5] wq = {levels(40)}",
        "k = MaxPool<kernel_shape=[2,2],strides=[2,2]>(a)\n"
        "l = Transpose<perm=[0,2,3,1]>(k)\nm = Flatten(l)\nc = Gemm(m, w)",
    ),
    "keys": (
        (6, 4),
        "6,6",
        "int8[4,4] wq = {1,-2,3,-1,2,2,-3,1,-1,1,2,-2,3,1,-2,2}, float v = {2.1}",
        "k = MatMul(a, w)\nkq = QuantizeLinear(k, v, z)\nkd = DequantizeLinear(kq, v, z)\n"
        "m = Transpose<perm=[1,0]>(kd)\nc = MatMul(a, m)",
    ),
    "constant": (
        (6, 4),
        "6,5",
        f"int8[5,4] wq = {levels(20)}",
        "m = Transpose<perm=[1,0]>(w)\nc = MatMul(a, m)",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_product_behind_a_mover_without_a_pair_counts_in_integers_as_the_engine_does(
    case: str,
) -> None:
    shape, output, constants, body = CASES[case]
    model = net(",".join(map(str, shape)), output, constants, body)
    before = model_bytes(model)
    result = lower_to_qoperator(model)
    assert model_bytes(model) == before
    assert not PRODUCTS & {node.op_type for node in result.graph}
    assert declined(result) == {}
    expected = run(model, "ort-cpu", shape)
    assert np.unique(expected).size > 4
    np.testing.assert_array_equal(run(result, "ort-cpu-noopt", shape), expected)
    np.testing.assert_array_equal(run(model, "integer-ort-x64", shape), expected)


def test_channels_of_a_constant_move_with_it() -> None:
    model = ir.from_onnx_text(f"""<ir_version: 10, opset_import: ["" : 21]>
    net (float[6,4] x) => (float[6,5] y)
    <float s = {{0.5}}, uint8 z = {{103}}, float[5] t = {{0.25,0.5,0.125,1,0.25}},
     int8[5] wz = {{0,0,0,0,0}}, float u = {{29.7}}, int8[5,4] wq = {levels(20)}> {{
    q = QuantizeLinear(x, s, z)
    a = DequantizeLinear(q, s, z)
    w = DequantizeLinear<axis=0>(wq, t, wz)
    m = Transpose<perm=[1,0]>(w)
    c = MatMul(a, m)
    r = QuantizeLinear(c, u, z)
    y = DequantizeLinear(r, u, z)
    }}""")
    result = lower_to_qoperator(model)
    assert [n.op_type for n in result.graph] == [
        "QuantizeLinear",
        "QLinearMatMul",
        "DequantizeLinear",
    ]
    expected = run(model, "ort-cpu-noopt", (6, 4))
    np.testing.assert_array_equal(run(model, "integer-ort-x64", (6, 4)), expected)


def test_a_moved_value_keeps_its_name_and_its_reals_for_every_reader() -> None:
    constants = f"{FLAT}, float v = {{0.75}}"
    body = """m = Flatten(a)
    mq = QuantizeLinear(m, v, z)
    md = DequantizeLinear(mq, v, z)
    e = Gemm(md, w)
    f = Gemm(m, w)
    c = Sub(e, f)"""
    model = net("2,2,4,4", "2,5", constants, body)
    model.graph.outputs.append(next(n for n in model.graph if n.op_type == "Flatten").outputs[0])
    feeds = {"x": (np.random.default_rng(8).normal(size=IMAGE) * 30).astype(np.float32)}
    answers = {}
    for backend in ("ort-cpu-noopt", "integer-ort-x64"):
        with get_backend(backend).prepare(model) as executor:
            answers[backend] = executor.run(feeds)
    np.testing.assert_array_equal(answers["integer-ort-x64"]["m"], answers["ort-cpu-noopt"]["m"])
    np.testing.assert_array_equal(answers["integer-ort-x64"]["y"], answers["ort-cpu-noopt"]["y"])


def test_padding_with_another_number_is_left_in_reals(words) -> None:
    shape, output, constants, _ = CASES["pad"]
    model = net(
        ",".join(map(str, shape)),
        output,
        f"{constants}, float v = {{0.3}}",
        "[pad] m = Pad(a, p, v)\nc = Conv(m, w)",
    )
    result = lower_to_qoperator(model)
    words(declined(result)["pad"])
    np.testing.assert_array_equal(
        run(model, "integer-ort-x64", shape), run(model, "ort-cpu-noopt", shape)
    )
