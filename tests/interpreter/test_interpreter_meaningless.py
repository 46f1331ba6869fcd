"""Scales that mean nothing are said to, in either form; constants with scales of blocks are
multiplied in float.
"""

import numpy as np
import onnx_ir as ir
import pytest

from qbench.backends import get_backend
from qbench.errors import InputError, UnsupportedError
from qbench.interpreter import Program
from qbench.numerics import get_arithmetic
from qbench.passes import lower_to_qoperator
from qbench.quantization import make_plan, quantize_model
from tests.interpreter.one_node import levels_of, model_of

WRONG = [0.0, -0.5, float("nan"), float("inf")]


@pytest.mark.parametrize("scale", WRONG)
@pytest.mark.parametrize("node", ["QuantizeLinear", "DequantizeLinear"])
def test_a_scale_that_means_nothing_is_named(scale: float, node: str) -> None:
    model = ir.from_onnx_text("""<ir_version: 10, opset_import: ["" : 21]>
    net (float[N] x) => (float[N] y) <float s = {0.5}, float t = {0.5}, uint8 z = {3}> {
    [QuantizeLinear] q = QuantizeLinear(x, s, z)
    [DequantizeLinear] y = DequantizeLinear(q, t, z)
    }""")
    name = "s" if node == "QuantizeLinear" else "t"
    model.graph.initializers[name].const_value = ir.tensor(np.float32(scale), name=name)
    with pytest.raises(
        InputError,
        match=f"the {node} '{node}': found a scale of {scale}; expected scales that are po",
    ):
        get_backend("integer-ort-x64").prepare(model)
    with pytest.raises(InputError, match="its numbers mean nothing"):
        lower_to_qoperator(model)


@pytest.mark.parametrize("scale", WRONG)
@pytest.mark.parametrize("index", [1, 4, 6])
def test_so_it_is_of_operators_on_integers(index: int, scale: float) -> None:
    scales = {1: 0.02, 4: 0.01, 6: 0.05} | {index: scale}
    grids = {f"s{place}": np.float32(value) for place, value in scales.items()}
    grids |= {"z": np.uint8(3), "v": np.int8(0), "b": levels_of(0, "int8", 6, 4)}
    order = ("a", "s1", "z", "b", "s4", "v", "s6", "z")
    model = model_of("QLinearMatMul", order, {"a": levels_of(1, "uint8", 3, 6)}, grids)
    with pytest.raises(InputError, match=f"the QLinearMatMul 'one': found a scale of {scale};"):
        Program(ir.from_proto(model), get_arithmetic("gemmlowp"))


@pytest.mark.parametrize("kind", ["int4", "uint4", "int8"])
@pytest.mark.parametrize("points", [False, True])
def test_constants_with_scales_of_blocks_are_multiplied_in_float(kind: str, points: bool) -> None:
    """Powers of two: no order of sums changes a float."""
    values = np.random.default_rng(4).integers(0, 8, (64, 3))
    scales = 2.0 ** np.random.default_rng(5).integers(-4, -1, (2, 3))
    dtype = ir.DataType[kind.upper()].numpy()
    model = ir.from_onnx_text(f"""<ir_version: 10, opset_import: ["" : 21]>
    net (float[N,64] x, float[2,3] t, {kind}[64,3] w, {kind}[2,3] v) => (float[N,3] y)
    <float s = {{0.125}}, uint8 z = {{128}}, float u = {{0.5}}> {{
    q = QuantizeLinear(x, s, z)
    a = DequantizeLinear(q, s, z)
    b = DequantizeLinear<axis = 0, block_size = 32>(w, t{", v" if points else ""})
    c = MatMul(a, b)
    r = QuantizeLinear(c, u, z)
    y = DequantizeLinear(r, u, z)
    }}""")
    arrays = {
        "t": scales.astype(np.float32),
        "w": values.astype(dtype),
        "v": np.full((2, 3), 2, dtype),
    }
    for value in list(model.graph.inputs)[1:]:
        model.graph.inputs.remove(value)
        if value.uses():
            value.const_value = ir.tensor(arrays[value.name or ""], name=value.name)
            model.graph.register_initializer(value)
    feeds = {"x": np.random.default_rng(6).normal(size=(7, 64)).astype(np.float32)}
    answers = []
    for backend in ("ort-cpu-noopt", "integer-ort-x64"):
        with get_backend(backend).prepare(model) as executor:
            answers.append(executor.run(feeds)["y"])
    assert np.unique(answers[0]).size > 10
    np.testing.assert_array_equal(*answers)


def test_a_schema_of_blocks_is_planned_for_integer_machines() -> None:
    weight = ",".join(f"{((7 * i) % 15 - 7) / 8}" for i in range(192))
    model = ir.from_onnx_text(f"""<ir_version: 10, opset_import: ["" : 21]>
    net (float[N,64] x) => (float[N,3] y) <float[64,3] w = {{{weight}}}> {{ y = MatMul(x, w) }}""")
    machine = get_backend("integer-ort-x64")
    quantized = quantize_model(
        model, make_plan(model, None, "w4_sym_b32", capabilities=machine.capabilities)
    )
    x = np.random.default_rng(6).normal(size=(7, 64)).astype(np.float32)
    with (
        machine.prepare(quantized) as ours,
        get_backend("ort-cpu-noopt").prepare(quantized) as theirs,
    ):
        np.testing.assert_allclose(
            ours.run({"x": x})["y"], theirs.run({"x": x})["y"], rtol=1e-5, atol=1e-5
        )
    with pytest.raises(
        UnsupportedError, match=r"'qbench quantize --why' says why slots stay float"
    ):
        machine.prepare(model)
