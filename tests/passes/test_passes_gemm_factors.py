"""Factors of a Gemm go into its constants, to the last bit that float64 gives,
and into nothing else.
"""

from fractions import Fraction
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.backends import get_backend
from qbench.calibration import calibrate
from qbench.graph import constant_value, float_attribute
from qbench.passes import canonicalize, rewrite
from qbench.passes.canonical.constants import FoldGemmFactors
from qbench.quantization import Role, make_plan, quantize_model

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(3)


def model_of(body: str, inputs: str = "float[N,3] x", **constants: Array) -> ir.Model:
    """A model from ONNX text, giving z [N, 4]; the keyword arguments are its initializers."""
    head = '<ir_version: 10, opset_import: ["" : 21]>'
    model = ir.from_onnx_text(f"{head}\nfactors ({inputs}) => (float[N,4] z) {{\n{body}\n}}")
    values = {
        value.name: value for node in model.graph for value in node.inputs if value is not None
    }
    for name, array in constants.items():
        tensor = ir.tensor(array, name=name)
        value = values[name]
        value.const_value, value.dtype, value.shape = tensor, tensor.dtype, ir.Shape(array.shape)
        model.graph.register_initializer(value)
    return model


def gemm(attributes: str, **constants: Array) -> ir.Model:
    return model_of(f"z = Gemm<{attributes}>(x, w, b)", **constants)


def numbers(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


def run(model: ir.Model, **feeds: Array) -> Array:
    with get_backend("ort-cpu-noopt").prepare(model) as executor:
        return np.asarray(executor.run(feeds)["z"])


def only_gemm(model: ir.Model) -> ir.Node:
    (node,) = (node for node in model.graph if node.op_type == "Gemm")
    return node


factors = st.floats(-(2.0**20), 2.0**20, width=32, allow_subnormal=False)


@given(alpha=factors, beta=factors, seed=st.integers(0, 99))
@settings(max_examples=80)
def test_constants_are_the_rounded_products(alpha: float, beta: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    w, b = rng.normal(size=(3, 4)).astype(np.float32), rng.normal(size=4).astype(np.float32)
    model = model_of("z = Gemm(x, w, b)", w=w, b=b)
    node = only_gemm(model)
    node.attributes["alpha"], node.attributes["beta"] = (
        ir.AttrFloat32("alpha", alpha),
        ir.AttrFloat32("beta", beta),
    )
    modified = FoldGemmFactors().run(model)
    assert modified is (alpha != 1 or beta != 1)
    assert FoldGemmFactors().run(model) is False
    assert float_attribute(node, "alpha", 1.0) == float_attribute(node, "beta", 1.0) == 1.0
    for index, before, factor in ((1, w, alpha), (2, b, beta)):
        after = constant_value(node.inputs[index])
        assert after is not None
        assert after.dtype == np.float32
        for old, new in zip(before.reshape(-1), after.reshape(-1), strict=True):
            exact = Fraction(float(old)) * Fraction(float(np.float32(factor)))
            spacing = Fraction(float(np.spacing(np.abs(np.float32(float(exact))))))
            assert abs(Fraction(float(new)) - exact) <= spacing / 2 + spacing / 2**28


@pytest.mark.parametrize(
    "attributes", ["alpha=0.37", "beta=-2.5", "alpha=3.1, beta=0.25", "transB=1, alpha=0.5"]
)
def test_the_function_stays(attributes: str) -> None:
    w = numbers(4, 3) if "transB" in attributes else numbers(3, 4)
    model = gemm(attributes, w=w, b=numbers(4))
    x = numbers(5, 3)
    folded = canonicalize(model)
    assert not {"alpha", "beta"} & set(only_gemm(folded).attributes)
    assert np.allclose(run(model, x=x), run(folded, x=x), rtol=2e-6, atol=2e-6)


def test_a_factor_of_one_written_out_changes_nothing() -> None:
    model = gemm("alpha=1.0, beta=1.0", w=numbers(3, 4), b=numbers(4))
    assert FoldGemmFactors().run(model) is False
    assert set(only_gemm(model).attributes) == {"alpha", "beta"}


def test_the_first_operand_takes_alpha_when_the_second_is_computed() -> None:
    model = model_of("z = Gemm<alpha=2.0>(w, x)", inputs="float[3,4] x", w=numbers(5, 3))
    x = numbers(3, 4)
    before = run(model, x=x)
    assert FoldGemmFactors().run(model)
    assert only_gemm(model).attributes.get("alpha") is None
    assert np.array_equal(before, run(model, x=x))


def test_computed_operands_and_overflow_are_left_alone() -> None:
    inputs = "float[N,3] x, float[3,4] v, float[4] c"
    computed = model_of("z = Gemm<alpha=2.0, beta=3.0>(x, v, c)", inputs=inputs)
    assert FoldGemmFactors().run(computed) is False
    half = model_of(
        "z = Gemm<alpha=2.0, beta=3.0>(x, w, c)", inputs="float[N,3] x, float[4] c", w=numbers(3, 4)
    )
    assert FoldGemmFactors().run(half)
    assert set(only_gemm(half).attributes) == {"beta"}
    huge = gemm("alpha=1e20", w=np.full((3, 4), 1e30, np.float32), b=numbers(4))
    assert FoldGemmFactors().run(huge) is False


def test_beta_without_a_bias_goes() -> None:
    model = model_of("z = Gemm<beta=3.0>(x, w)", w=numbers(3, 4))
    x = numbers(2, 3)
    before = run(model, x=x)
    assert FoldGemmFactors().run(model)
    assert np.array_equal(before, run(model, x=x))


def test_weights_that_another_node_reads_keep_their_numbers() -> None:
    text = "y = MatMul(x, w)\n g = Gemm<alpha=2.0>(x, w, b)\n z = Add(y, g)"
    model = model_of(text, w=numbers(3, 4), b=numbers(4))
    x = numbers(2, 3)
    folded = rewrite(model, (FoldGemmFactors(),))
    assert np.allclose(run(model, x=x), run(folded, x=x), rtol=1e-6)


@pytest.mark.parametrize("attributes", ["alpha=0.5", "beta=2.0", "alpha=3.0, beta=0.25"])
def test_it_multiplies_integers_then(attributes: str) -> None:
    model = gemm(attributes, w=numbers(3, 4), b=numbers(4) * 3)
    x = numbers(64, 3)
    plan = make_plan(model, calibrate(model, [{"x": x}]), "w8a8_asym_pc")
    assert plan.integer_macs == 1.0
    assert any(slot.role is Role.BIAS for slot in plan.constants)
    real = run(model, x=x)
    assert np.abs(run(quantize_model(model, plan), x=x) - real).max() < 0.02 * np.abs(real).max()
