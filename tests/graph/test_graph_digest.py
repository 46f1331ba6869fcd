"""The digest: equal for what computes the same under the same names,
different for every change that matters.
"""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from qbench.graph import graph_digest, load_model, save_model, with_shapes

TEXT = """
<ir_version: 10, opset_import: ["" : 21]>
net (float[N, 2, 4] x) => (float[N, 2, 4] y)
<float[2] s = {1, 2}, float[2] b = {0, 1}, float[2] m = {0, 0.5}, float[2] v = {1, 4}> {
  [bn] h = BatchNormalization <epsilon = 0.001> (x, s, b, m, v)
  [act] y = LeakyRelu <alpha = 0.1> (h)
}
"""


def digest(text=TEXT):
    return graph_digest(ir.from_onnx_text(text))


def by_hand():
    x = ir.val("x", ir.DataType.FLOAT, ir.Shape(["batch", 2, 4]))
    arrays = {"v": [1, 4], "m": [0, 0.5], "s": [1, 2], "b": [0, 1]}
    tensors = {k: ir.tensor(np.array(a, np.float32), name=k) for k, a in arrays.items()}
    values = {k: ir.val(k, t.dtype, t.shape, const_value=t) for k, t in tensors.items()}
    bn = ir.node(
        "BatchNormalization", [x, *(values[k] for k in "sbmv")], {"epsilon": 0.001}, name="bn"
    )
    bn.outputs[0].name = "h"
    y = ir.val("y", ir.DataType.FLOAT, ir.Shape([None, 2, 4]))
    act = ir.node("LeakyRelu", [bn.outputs[0]], {"alpha": 0.1}, name="act", outputs=[y])
    graph = ir.Graph(
        [x],
        [y],
        nodes=[bn, act],
        initializers=list(values.values()),
        opset_imports={"": 21},
        name="other",
    )
    return ir.Model(
        graph, ir_version=10, producer_name="someone", doc_string="words", metadata_props={"a": "b"}
    )


def test_hand_built_equals_text_and_its_saved_copy(tmp_path):
    built = by_hand()
    assert graph_digest(built) == digest()
    save_model(built, tmp_path / "a.onnx")
    save_model(load_model(tmp_path / "a.onnx"), tmp_path / "b.onnx")
    assert (
        graph_digest(load_model(tmp_path / "a.onnx"))
        == graph_digest(load_model(tmp_path / "b.onnx"))
        == digest()
    )


def test_blind_to_outside_data_inferred_shapes_and_metadata(tmp_path):
    proto = onnx.parser.parse_model(TEXT)
    onnx.save(
        proto, tmp_path / "a.onnx", save_as_external_data=True, location="w", size_threshold=0
    )
    assert graph_digest(load_model(tmp_path / "a.onnx")) == digest()
    shaped = with_shapes(ir.from_onnx_text(TEXT))
    next(iter(shaped.graph)).metadata_props["k"] = "v"
    assert graph_digest(shaped) == digest()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0.001", "0.002"),
        ("m = {0, 0.5}", "m = {0, 0.25}"),
        ('"" : 21', '"" : 20'),
        ("LeakyRelu <alpha = 0.1>", "ThresholdedRelu <alpha = 0.1>"),
        ("[act]", "[other]"),
        ("(x, s, b, m, v)", "(x, b, s, m, v)"),
        ("float[N, 2, 4] x", "float[N, 2, 5] x"),
        ("float[N, 2, 4] y", "double[N, 2, 4] y"),
        (" h", " k"),
    ],
)
def test_every_change_shows(old, new):
    changed = TEXT.replace(old, new).replace("(h)", "(k)" if new == " k" else "(h)")
    assert changed != TEXT
    assert digest(changed) != digest()


def test_subgraphs_and_functions_count():
    text = """<ir_version: 10, opset_import: ["" : 21, "my" : 1]>
    net (float[N] x, bool c) => (float[N] y) {
      z = my.twice(x)
      y = If (c) <then_branch = t () => (float[N] a) { a = Relu(z) },
                  else_branch = e () => (float[N] b) { b = Neg(z) }>
    }
    <domain: "my", opset_import: ["" : 21]> twice (x) => (y) { y = Add(x, x) }"""
    assert digest(text) == digest(text)
    assert digest(text.replace("Neg(z)", "Abs(z)")) != digest(text)
    assert digest(text.replace("Add(x, x)", "Mul(x, x)")) != digest(text)


def test_signed_zero_and_dtype_of_constants_count():
    base = TEXT.replace("{0, 1}", "{0, 1}")
    model = ir.from_onnx_text(base)
    model.graph.initializers["b"].const_value = ir.tensor(np.array([-0.0, 1], np.float32), name="b")
    assert graph_digest(model) != digest()
