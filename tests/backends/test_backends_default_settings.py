"""``ort-cpu-default``: a session whose user sets nothing, compared with ``ort-cpu``."""

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from test_backends_engines import batch, constant, qdq_net

from qbench.backends import Executed, get_backend, recording
from qbench.backends.block_products import rounds_data

_ROUNDED = 1e-3
"""Of the largest result: data in 8 bits are farther from the exact sum, float32 sums nearer."""
_DEPTH, _COLUMNS = 64, 32


def weight_only(dtype, block, op="MatMul"):
    """x (N, 64) by weights (64, 32) of ``dtype``, in blocks or per channel; the weights as reals
    too.
    """
    random = np.random.default_rng(0)
    codes = random.integers(-7, 8, (_DEPTH, _COLUMNS)).astype(dtype)
    scales = random.uniform(0.05, 0.1, (_DEPTH // block, _COLUMNS) if block else _COLUMNS)
    scales = scales.astype(np.float32)
    attributes = {"axis": 0, "block_size": block} if block else {"axis": 1}
    x = ir.val("x", ir.DataType.FLOAT, ir.Shape(["N", _DEPTH]))
    inputs = [constant("w", codes), constant("s", scales)]
    real = ir.node("DequantizeLinear", inputs, attributes, name="dq")
    product = ir.node(op, [x, real.outputs[0]], name="product")
    real.outputs[0].name, product.outputs[0].name = "d", "y"
    product.outputs[0].dtype = ir.DataType.FLOAT
    graph = ir.Graph(
        [x],
        product.outputs,
        nodes=[real, product],
        initializers=inputs,
        opset_imports={"": 21},
        name="weight_only",
    )
    by_row = np.repeat(scales, block, axis=0) if block else scales
    return ir.Model(graph, ir_version=10), codes.astype(np.float64) * by_row


def data():
    return np.random.default_rng(1).normal(size=(4, _DEPTH)).astype(np.float32)


def distance(found, exact):
    return np.abs(found - exact).max() / np.abs(exact).max()


@pytest.mark.parametrize(
    ("dtype", "bits", "block"),
    [(ml_dtypes.int4, 4, 32), (ml_dtypes.int4, 4, 16), (np.int8, 8, 32), (np.int8, 8, 0)],
)
@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
def test_a_product_of_quantized_weights_rounds_its_data_with_default_settings(
    dtype, bits, block, op
):
    model, weights = weight_only(dtype, block, op)
    exact = data().astype(np.float64) @ weights
    found = {}
    for name in ("ort-cpu", "ort-cpu-default"):
        with get_backend(name).prepare(model) as executor:
            found[name] = distance(executor.run({"x": data()})["y"], exact)
            ran = executor.executed()["product"]
        rounds = name == "ort-cpu-default" and rounds_data(bits, block or 32)
        assert ran == Executed("int8" if rounds else "float32", "cpu", rounds_data=rounds)
    assert found["ort-cpu"] < 1e-5
    # what the probe says of this processor is what the session does
    assert (found["ort-cpu-default"] > _ROUNDED) == rounds_data(bits, block or 32)


def test_blocks_that_no_kernel_rounds_stay_exact():
    """The kernel for 4 bits has no such block, whatever the processor; nor is it an error."""
    assert not rounds_data(3, 32)


def test_products_of_quantized_data_are_the_same_bits():
    model = qdq_net()
    with (
        get_backend("ort-cpu").prepare(model) as ours,
        recording(get_backend("ort-cpu-default")).prepare(model) as theirs,
    ):
        np.testing.assert_array_equal(
            theirs.run({"x": batch()})["y"], ours.run({"x": batch()})["y"]
        )
        assert theirs.executed() == ours.executed()


def test_the_model_is_handed_over_as_it_is():
    backend = get_backend("ort-cpu-default")
    model = qdq_net()
    assert backend.fitted(model) is model
    entries = backend.session_settings(1)["entries"]
    assert not [name for name in entries if "spinning" not in name]
    assert backend.capabilities.rounds_data
    assert not get_backend("ort-cpu").capabilities.rounds_data
