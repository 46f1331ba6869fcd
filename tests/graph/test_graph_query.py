"""Questions about one place of a graph, and where nodes come from."""

import numpy as np
import onnx_ir as ir

from qbench.graph import (
    constant_value,
    consumers,
    extend_lineage,
    infer_shapes,
    is_constant,
    lineage_of,
    load_model,
    node_key,
    only_consumer,
    opset,
    origin_of,
    producer,
    save_model,
    set_origin,
    values_by_name,
    with_shapes,
)
from qbench.graph.shapes import shapes_alone

TEXT = """<ir_version: 10, opset_import: ["" : 21]>
net (float[N, 2] x, float[2] fed) => (float[N, 2] y) <float[2] w = {1, 2}, float[2] fed = {3, 4}> {
  c = Constant <value_floats = [5.0, 6.0]> ()
  [a] h = Add(x, w)
  k = Mul(h, c)
  [b] y = Add(k, fed)
}"""


def net():
    return ir.from_onnx_text(TEXT)


def test_constants_are_initializers_and_constant_nodes_but_nothing_that_can_be_fed():
    values = values_by_name(net())
    np.testing.assert_array_equal(constant_value(values["w"]), [1, 2])
    np.testing.assert_array_equal(constant_value(values["c"]), [5, 6])
    for name in ("x", "h", "fed"):
        assert constant_value(values[name]) is None
        assert not is_constant(values[name])
    assert constant_value(None) is None
    assert not is_constant(None)


def test_readers_and_makers():
    values = values_by_name(net())
    assert producer(values["h"]).name == "a"
    assert producer(values["x"]) is None
    assert producer(None) is None
    ((reader, index),) = consumers(values["h"])
    assert (node_key(reader), index) == ("k", 0)
    assert only_consumer(values["h"]) is reader
    assert only_consumer(values["y"]) is None
    assert opset(net()) == 21


def test_shapes_are_written_on_a_copy():
    model = net()
    assert values_by_name(model)["h"].shape is None
    assert values_by_name(with_shapes(model))["h"].shape == ir.Shape(["N", 2])
    assert values_by_name(shapes_alone(model, free_dims=1))["y"].shape == ir.Shape([1, 2])
    assert values_by_name(model)["h"].shape is None
    assert infer_shapes(model)
    assert not infer_shapes(model)


def test_origin_and_lineage_outlive_a_file(tmp_path):
    model = net()
    node = next(n for n in model.graph if n.name == "a")
    assert origin_of(node) == "a"
    set_origin(node, "first")
    for digest in ("aa", "bb", "aa"):
        extend_lineage(model, digest)
    save_model(model, tmp_path / "m.onnx")
    again = load_model(tmp_path / "m.onnx")
    assert lineage_of(again) == ("aa", "bb")
    assert origin_of(next(n for n in again.graph if n.name == "a")) == "first"
    assert lineage_of(net()) == ()
