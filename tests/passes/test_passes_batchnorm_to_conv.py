"""A batch normalization that cannot be folded becomes a depthwise convolution: same numbers,
and never without need.
"""

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from qbench.graph import graph_digest
from qbench.passes import canonicalize

HEAD = '<ir_version: 10, opset_import: ["" : 21]>'
PARTS = """g = {1.5, -0.25, 0, 3}, float[4] b = {0.5, 0, -2, 1}, float[4] m = {0.25, -3, 1, 0},
  float[4] v = {0.125, 4, 1, 0.000001}"""


def model_of(shape: str, body: str, more: str = "") -> ir.Model:
    return ir.from_onnx_text(
        f"{HEAD}\nsubject (float[{shape}] x) => (float[{shape}] y) <float[4] {PARTS}{more}> {body}"
    )


def operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def outputs(model: ir.Model, feeds: dict[str, Any]) -> Any:
    return ReferenceEvaluator(ir.to_proto(model)).run(None, feeds)[0]


RESIDUAL = """{
  [before] s = Add(x, x)
  [norm] n = BatchNormalization<epsilon = 0.01>(s, g, b, m, v)
  [relu] r = Relu(n)
  [after] y = Add(s, r)
}"""


@pytest.mark.parametrize("shape", ["N,4,7", "N,4,5,3", "N,4,2,3,2"])
def test_the_numbers_stay_and_names_too(shape: str) -> None:
    model = model_of(shape, RESIDUAL)
    changed = canonicalize(model)
    assert operators(changed) == ["Add", "Conv", "Relu", "Add"]
    conv = changed.graph.node("norm")
    assert conv.outputs[0].name == "n"
    assert conv.attributes["group"].as_int() == 4
    size = tuple(2 if d == "N" else int(d) for d in shape.split(","))
    x = np.random.default_rng(3).normal(scale=4, size=size).astype(np.float32)
    channels = (-1, *[1] * (len(size) - 2))
    gain, shift, mean = (
        np.array(a, np.float64).reshape(channels)
        for a in ([1.5, -0.25, 0, 3], [0.5, 0, -2, 1], [0.25, -3, 1, 0])
    )
    spread = np.sqrt(np.array([0.125, 4, 1, 1e-6]).reshape(channels) + 0.01)
    twice = 2 * x.astype(np.float64)
    expected = twice + np.maximum((twice - mean) * gain / spread + shift, 0)
    np.testing.assert_allclose(outputs(changed, {"x": x}), expected, rtol=3e-6, atol=1e-5)
    np.testing.assert_allclose(outputs(model, {"x": x}), expected, rtol=3e-6, atol=1e-5)
    assert {"g", "b", "m", "v"}.isdisjoint(changed.graph.initializers)
    assert graph_digest(canonicalize(changed)) == graph_digest(changed)


def test_at_the_end_of_the_graph_the_output_keeps_its_name() -> None:
    changed = canonicalize(
        model_of("N,4,5,3", "{ s = Relu(x) y = BatchNormalization(s, g, b, m, v) }")
    )
    assert operators(changed) == ["Relu", "Conv"]
    assert [value.name for value in changed.graph.outputs] == ["y"]


COMPUTED = RESIDUAL.replace("{\n", "{ k = ReduceMean<keepdims = 0>(x, a)\n", 1).replace(
    "b, m, v", "b, k, v"
)


@pytest.mark.parametrize(
    ("shape", "body", "more"),
    [("N,4", RESIDUAL, ""), ("N,4,5,3", COMPUTED, ", int64[3] a = {0, 2, 3}")],
)
def test_rows_and_computed_parameters_stay(shape: str, body: str, more: str) -> None:
    assert "BatchNormalization" in operators(canonicalize(model_of(shape, body, more)))


def test_what_can_be_folded_is_folded() -> None:
    weight = f", float[4,4,1,1] w = {{{', '.join(map(str, range(16)))}}}"
    body = "{ c = Conv(x, w) y = BatchNormalization(c, g, b, m, v) }"
    assert operators(canonicalize(model_of("N,4,5,3", body, weight))) == ["Conv"]
