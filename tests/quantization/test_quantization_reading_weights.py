"""Files with quantized weights and float activations: their plans count what multiplies a quantized
weight.
"""

from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper
from quantization_subjects import feeds_of, model_of, weights

from qbench.backends import get_backend
from qbench.calibration import calibrate
from qbench.errors import QbenchError, UnsupportedError
from qbench.evaluation.artifacts import Quantized, prepare_runners
from qbench.graph import Capabilities, Form
from qbench.quantization import make_plan, quantize_model, read_plan


def written(schema: str):
    """Two products of 4 · 32 and 32 · 2 multiply-accumulates a sample."""
    model = model_of(
        "float[N,4] x",
        "float[N,2] z",
        "h = MatMul(x, u)\n n = Relu(h)\n z = MatMul(n, v)",
        u=weights(0, 4, 32),
        v=weights(1, 32, 2),
    )
    return quantize_model(model, make_plan(model, calibrate(model, [feeds_of(model)]), schema))


@pytest.mark.parametrize("schema", ["w8_sym_pc", "w4_sym_b32", "wf8e4m3_sym_pc"])
def test_a_file_of_quantized_weights_alone_is_counted_by_them(schema: str) -> None:
    plan = read_plan(written(schema))
    assert (plan.macs, plan.integer_mac_count, plan.weight_mac_count) == (192, 0, 192)
    assert plan.is_of_weights_alone
    assert plan.refusals == ()
    quantized = Quantized({"model": written(schema)}, {"model": plan})
    assert quantized.is_of_weights_alone
    assert quantized.weight_macs == 1.0


def test_a_file_with_quantized_values_is_not_of_weights_alone() -> None:
    plan = read_plan(written("w8a8_asym_pc"))
    assert (plan.integer_mac_count, plan.weight_mac_count) == (192, 192)
    assert not plan.is_of_weights_alone


def test_weights_of_a_type_that_an_engine_lacks_name_one_that_takes_them() -> None:
    graphs = {"model": written("wmxfp4_sym_b32")}
    with ExitStack() as stack, pytest.raises(UnsupportedError) as caught:
        prepare_runners(get_backend("ort-cpu"), graphs, stack, threads=1)
    assert "weights of float4e2m1 with scales of float8e8m0" in caught.value.found
    assert "integer-ideal" in caught.value.remedy
    with ExitStack() as stack:
        runners = prepare_runners(get_backend("integer-ideal"), graphs, stack, threads=1)
        (found,) = runners["model"].run({"x": np.ones((1, 4), np.float32)}).values()
    assert np.isfinite(found).all()


def of_two_bits(name: str, codes: np.ndarray, scales: np.ndarray) -> ir.Model:
    """A product by a weight of ``codes`` (64, 8) in blocks of 32, of the ONNX type ``name``."""
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=0, block_size=32, name="d"),
        helper.make_node("MatMul", ["x", "d"], ["y"], name="product"),
    ]
    graph = helper.make_graph(
        nodes,
        "bits",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 8])],
        [
            helper.make_tensor("w", getattr(TensorProto, name), codes.shape, codes.reshape(-1)),
            helper.make_tensor("s", TensorProto.FLOAT, scales.shape, scales.reshape(-1)),
        ],
    )
    opsets = [helper.make_opsetid("", 25)]
    return ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=13))


@pytest.mark.skipif(not hasattr(TensorProto, "INT2"), reason=f"onnx {onnx.__version__} has no INT2")
@pytest.mark.parametrize(("name", "low"), [("INT2", -2), ("UINT2", 0)])
def test_files_with_blocks_of_two_bits_are_read_and_run(name: str, low: int) -> None:
    rng = np.random.default_rng(low + 2)
    codes = rng.integers(low, low + 4, (64, 8))
    scales = rng.uniform(0.1, 1, (2, 8)).astype(np.float32)
    x = rng.normal(size=(3, 64)).astype(np.float32)
    model = of_two_bits(name, codes, scales)
    plan = read_plan(model)
    assert (plan.macs, plan.weight_mac_count) == (512, 512)
    assert plan.is_of_weights_alone
    real = codes * np.repeat(scales.astype(np.float64), 32, axis=0)
    for backend in ("integer-ideal", "ort-cpu"):
        try:
            with get_backend(backend).prepare(model) as executor:
                found = executor.run({"x": x})["y"]
        except QbenchError as error:
            if backend == "ort-cpu" and "25" in str(error):
                pytest.skip(f"this ONNX Runtime has no operator set 25: {error.found}")
            raise
        np.testing.assert_allclose(found, x @ real, rtol=1e-4, atol=1e-4)


@dataclass
class Refusing:
    """An engine of weights of int8 and data of uint8 that has no operator for any graph."""

    name: str = "refusing"
    capabilities: Capabilities = field(
        default_factory=lambda: Capabilities(
            forms=frozenset({Form.QDQ}),
            weight_qtypes=frozenset({"int8"}),
            integer_products=frozenset({("uint8", "int8")}),
        )
    )

    def prepare(self, model: object, **_: object) -> None:
        raise UnsupportedError(
            "Writing it", found="no operator", expected="one", remedy="Choose another backend."
        )


def test_a_constant_factor_of_a_type_of_data_is_not_named_as_a_weight() -> None:
    model = model_of(
        "float[N,4] x",
        "float[N,2] z",
        "s = Mul(x, c)\n z = MatMul(s, u)",
        c=np.array(0.25, np.float32),
        u=weights(0, 4, 2),
    )
    plan = make_plan(model, calibrate(model, [feeds_of(model)]), "w8a8_asym_pc")
    graphs = {"model": quantize_model(model, plan)}
    constants = [str(one.name) for one in graphs["model"].graph.initializers.values()]
    assert any(name.startswith("c_quantized") for name in constants)
    with ExitStack() as stack, pytest.raises(UnsupportedError) as caught:
        prepare_runners(Refusing(), graphs, stack, threads=1)
    assert caught.value.found == "no operator"


@pytest.mark.parametrize("moves", ["Identity(d)", "Transpose(d)", "Reshape(d, sizes)"])
def test_a_weight_that_is_moved_before_its_product_is_named(moves: str) -> None:
    model = model_of(
        "float[N,4] x",
        "float[N,4] z",
        "d = DequantizeLinear(codes, s)\n "
        f"sizes = Constant <value_ints = [4, 4]> ()\n w = {moves}\n z = MatMul(x, w)",
        codes=np.arange(16, dtype=np.uint8).reshape(4, 4),
        s=np.array(0.25, np.float32),
    )
    with ExitStack() as stack, pytest.raises(UnsupportedError) as caught:
        prepare_runners(Refusing(), {"model": model}, stack, threads=1)
    assert caught.value.found == "'codes', weights of uint8"
