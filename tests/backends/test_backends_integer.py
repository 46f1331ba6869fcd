"""Graphs as old exporters write them, on integer machines:
initializers that are listed among the inputs.
"""

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from qbench.backends import get_backend
from qbench.diagnosis import lint_products
from qbench.errors import InputError

OLD = (
    '<ir_version: 3, opset_import: ["" : 13]>'
    "g (float[N, 4] x, float s, int8 z, int8[4, 3] w, float t, int8 v) => (float[N, 3] y)"
    "{ q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  u = DequantizeLinear(w, t, v)"
    " m = MatMul(d, u)  p = QuantizeLinear(m, s, z)  y = DequantizeLinear(p, s, z) }"
)
WEIGHT = np.random.default_rng(5).integers(-128, 128, (4, 3)).astype(np.int8)


def old_model() -> ir.Model:
    proto = onnx.parser.parse_model(OLD)
    for name, array in (
        ("s", np.float32(0.5)),
        ("z", np.int8(3)),
        ("t", np.float32(0.01)),
        ("v", np.int8(0)),
    ):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(WEIGHT, "w"))
    return ir.from_proto(proto)


@pytest.mark.slow
def test_initializers_that_could_be_fed_are_the_constants_they_hold() -> None:
    x = np.random.default_rng(6).normal(0, 9, (7, 4)).astype(np.float32)
    model = old_model()
    with (
        get_backend("integer-ort-x64").prepare(model) as ours,
        get_backend("ort-cpu-precise").prepare(model) as theirs,
    ):
        np.testing.assert_array_equal(ours.run({"x": x})["y"], theirs.run({"x": x})["y"])
    assert len(model.graph.inputs) == 6


def test_another_weight_is_refused_not_ignored() -> None:
    feeds = {"x": np.zeros((1, 4), np.float32), "w": np.zeros((4, 3), np.int8)}
    with (
        get_backend("integer-ort-x64").prepare(old_model()) as ours,
        pytest.raises(InputError, match="a feed for 'w'"),
    ):
        ours.run(feeds)


def test_lint_sees_their_weights() -> None:
    lint = lint_products(old_model())
    assert (len(lint.layers), lint.unjudged) == (1, ())
