"""Models that no check at loading can judge: loops that data decide, inputs with defaults,
values of the caller.
"""

from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import qbench
from qbench.backends import get_backend
from qbench.errors import InputError, QbenchError
from qbench.storage import current_limits

ENDLESS = """
<ir_version: 10, opset_import: ["" : 21]>
net (float[2] x, bool on) => (float[2] y) {
  y = Loop ( , on, x) <body = again (int64 n, bool go, float[2] v) => (bool go2, float[2] u) {
    zero = Constant <value = float {-1}> ()
    least = ReduceMin <keepdims=0> (v)
    go2 = Greater(least, zero)
    u = Relu(v)
  }>
}"""
DEFAULTS = """
<ir_version: 10, opset_import: ["" : 21]>
net (float[N, 4] x, float[4, 4] w, float[4] b) => (float[N, 4] y)
<float[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
 float[4] b = {1, 2, 3, 4}> {
  c = Constant <value = float[4] {1, 2, 3, 4}> ()
  h = MatMul(x, w)
  s = Identity(w)
  g = MatMul(h, s)
  a = Add(g, c)
  y = Add(a, b)
}"""
FEEDS = {"x": np.ones((2, 4), np.float32)}


def test_the_evaluator_ends_a_loop_that_its_data_never_end(monkeypatch):
    from qbench.backends import onnx_reference as evaluator_operators

    few = replace(current_limits(), iterations=100)
    monkeypatch.setattr(evaluator_operators, "current_limits", lambda: few)
    with get_backend("onnx-reference").prepare(ir.from_onnx_text(ENDLESS)) as executor:
        feeds = {"x": np.ones(2, np.float32), "on": np.array(False)}
        np.testing.assert_array_equal(executor.run(feeds)["y"], feeds["x"])
        with pytest.raises(InputError, match="100 iterations"):
            executor.run(feeds | {"on": np.array(True)})


def planned(model):
    profile = qbench.calibrate(model, [FEEDS])
    return qbench.quantize_model(model, qbench.make_plan(model, profile, "w8a8_asym_pc"))


@pytest.mark.parametrize("backend", ["ort-cpu", "onnx-reference"])
def test_an_input_with_a_default_need_not_be_fed_and_may_be(backend):
    with get_backend(backend).prepare(ir.from_onnx_text(DEFAULTS)) as executor:
        usual = executor.run(FEEDS)["y"]
        fed = executor.run(FEEDS | {"b": np.zeros(4, np.float32)})["y"]
    np.testing.assert_array_equal(usual - fed, np.tile(np.float32([1, 2, 3, 4]), (2, 1)))


def test_a_feed_for_what_quantizing_made_a_constant_is_named():
    with get_backend("ort-cpu").prepare(planned(ir.from_onnx_text(DEFAULTS))) as executor:
        assert executor.run(FEEDS)["y"].shape == (2, 4)
        with pytest.raises(InputError) as caught:
            executor.run(FEEDS | {"b": np.zeros(4, np.float32)})
    assert caught.value.found == "a feed for 'b', which is a constant"


def test_nothing_writes_into_the_message_that_a_model_came_from():
    proto = onnx.parser.parse_model(DEFAULTS)
    before = proto.SerializeToString(deterministic=True)
    model = ir.from_proto(proto)
    quantized = planned(model)
    for name in (
        "ort-cpu",
        "ort-cpu-precise",
        "onnx-reference",
        "integer-ort-x64",
        "integer-ideal",
    ):
        for given in (model, quantized):
            try:
                with get_backend(name).prepare(given) as executor:
                    executor.run(FEEDS)
            except QbenchError:  # an integer backend refuses a float model
                assert given is model
    assert proto.SerializeToString(deterministic=True) == before
