"""The QDQ convention: a graph that keeps it has no breach,
and each rule has a graph that breaks just it.
"""

import numpy as np
import onnx_ir as ir
import pytest

from qbench.graph import Form, axis_of, check_convention, form_of, mark_float_codes, node_qparams

HEAD = """<ir_version: 10, opset_import: ["" : 21]>
net (float[N, 2] x) => (float[N, 2] y)
<float s = {0.5}, uint8 z = {3}, float s2 = {0.25}, int8 z8 = {0}, int8[2, 2] wq = {1, 2, 3, 4},
 float[2] ws = {0.5, 1}, int8[2] wz = {0, 0}, float bad = {-1},
 float[3] three = {1, 1, 1}, int8[3] zthree = {0, 0, 0}> {
"""
GOOD = """
  [q] q = QuantizeLinear(x, s, z)
  [d] d = DequantizeLinear(q, s, z)
  [d2] d2 = DequantizeLinear(q, s, z)
  [w] w = DequantizeLinear <axis = 1> (wq, ws, wz)
  [m] m = MatMul(d, w)
  [a] a = Add(m, d2)
  [qy] qy = QuantizeLinear(a, s2, z)
  [dy] y = DequantizeLinear(qy, s2, z)
"""


def model(body):
    return ir.from_onnx_text(HEAD + body + "}")


def breaches(old, new):
    assert old in GOOD
    return check_convention(model(GOOD.replace(old, new)))


def test_the_convention_is_kept():
    assert check_convention(model(GOOD)) == ()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "[d2] d2 = DequantizeLinear(q, s, z)",
            "[q2] q2 = QuantizeLinear(x, s, z) d2 = DequantizeLinear(q2, s, z)",
            "'x' is quantized 2 times, by 'q', 'q2'",
        ),
        ("Add(m, d2)", "Add(m, d)", "What 'd' gives has 2 readers"),
        (
            "[d2] d2 = DequantizeLinear(q, s, z)",
            "[d2] d2 = DequantizeLinear(q, s2, z)",
            "'d2' and 'q' have different qparams",
        ),
        (
            "[d2] d2 = DequantizeLinear(q, s, z)",
            "[d2] d2 = Cast <to = 1> (q)",
            "The integers of 'q' are read by 'd2'",
        ),
        (
            "y = DequantizeLinear(qy, s2, z)",
            "dead = DequantizeLinear(qy, s2, z) y = Relu(a)",
            "has 0 readers",
        ),
        ("(wq, ws, wz)", "(wq, three, zthree)", "3 scales for 2 slices of axis 1"),
        ("(wq, ws, wz)", "(wq, ws, z8)", "scales of shape (2,) and zero points of shape ()"),
        ("(wq, ws, wz)", "(wq, ws)", "'w' has no constant zero point"),
        ("(wq, ws, wz)", "(wq, bad, z8)", "The scale of 'w' is not constant, finite and positive"),
    ],
)
def test_each_rule_can_be_broken(old, new, words):
    found = breaches(old, new)
    assert any(words in sentence for sentence in found), found


@pytest.mark.parametrize(("shape", "written", "axis"), [("2", 1, 0), ("1, 2", 0, 1)])
def test_a_row_of_numbers_has_one_axis_whatever_is_written(shape, written, axis):
    body = GOOD.replace("(wq, ws, wz)", "(wq, ws, wz) [b] b = DequantizeLinear <axis = @> (bq, ws)")
    body = body.replace("@", str(written))
    head = HEAD.replace("float[2] ws", f"int32[{shape}] bq = {{5, 6}}, float[2] ws")
    node = next(node for node in ir.from_onnx_text(head + body + "}").graph if node.name == "b")
    qparams = node_qparams(node)
    assert qparams.axis == axis
    np.testing.assert_array_equal(qparams.scale, [0.5, 1.0])


@pytest.mark.parametrize("shape", ["1, 2, 1", "2, 1"])
def test_one_scale_for_one_slice_stays_on_the_axis_that_is_written(shape):
    axis = shape.split(", ").index("1")
    body = GOOD.replace(
        "(wq, ws, wz)", f"(wq, ws, wz) [b] b = DequantizeLinear <axis = {axis}> (bq, one)"
    )
    head = HEAD.replace(
        "float[2] ws", f"int32[{shape}] bq = {{5, 6}}, float[1] one = {{0.5}}, float[2] ws"
    )
    node = next(node for node in ir.from_onnx_text(head + body + "}").graph if node.name == "b")
    assert axis_of(node) == axis


def test_a_computed_integer_is_no_source():
    body = GOOD.replace("[w] w", "[n] n = Neg(wq) [w] w").replace("(wq, ws, wz)", "(n, ws, wz)")
    assert any("'w' reads 'n'" in sentence for sentence in check_convention(model(body)))


def test_dynamic_quantization_keeps_the_convention_and_its_own_parameters():
    body = """
    [q] q, ds, dz = DynamicQuantizeLinear(x)
    [d] d = DequantizeLinear(q, ds, dz)
    [r] y = Relu(d)
    """
    assert check_convention(model(body)) == ()
    other = body.replace("(q, ds, dz)", "(q, s, z)")
    assert any("different qparams" in sentence for sentence in check_convention(model(other)))


def test_integers_may_not_leave_the_graph():
    net = model(GOOD)
    quantize = next(node for node in net.graph if node.name == "qy")
    net.graph.outputs.append(quantize.outputs[0])
    assert any("leave the graph" in sentence for sentence in check_convention(net))


@pytest.mark.parametrize(
    ("body", "form"),
    [
        ("y = Relu(x)", Form.FLOAT),
        (GOOD, Form.QDQ),
        (
            "q, t, u = DynamicQuantizeLinear(x) i = MatMulInteger(q, wq, u) y = Cast <to = 1> (i)",
            Form.QOPERATOR,
        ),
        ("y = qbench.integer.Add(x, x)", Form.INTEGER),
    ],
)
def test_forms(body, form):
    text = HEAD.replace('["" : 21]', '["" : 21, "qbench.integer" : 1, "com.microsoft" : 1]')
    assert form_of(ir.from_onnx_text(text + body + "}")) is form


def test_a_quantized_node_in_a_branch_counts():
    text = """<ir_version: 10, opset_import: ["" : 21]> net (float[N] x, bool c) => (float[N] y)
    <float s = {1}, uint8 z = {0}> {
      y = If (c) <then_branch = t () => (float[N] a) {
                    q = QuantizeLinear(x, s, z) a = DequantizeLinear(q, s, z) },
                  else_branch = e () => (float[N] b) { b = Relu(x) }>
    }"""
    assert form_of(ir.from_onnx_text(text)) is Form.QDQ


FLOATS = """<ir_version: 10, opset_import: ["" : 21]>
net (float[N, 2] x) => (float[N, 2] y)
<float s = {0.5}, float t = {0.25}, float low = {-8}, float high = {7}> {
  [divide] a = Div(x, s)
  [round] b = Round(a)
  [clip] c = Clip(b, low, high)
  [one] d = Mul(c, s)
  [two] e = Mul(c, s)
  [sum] y = Add(d, e)
}"""


def grid_in_floats(old="", new=""):
    assert old in FLOATS
    net = ir.from_onnx_text(FLOATS.replace(old, new))
    for node in net.graph:
        if node.op_type in ("Div", "Round", "Clip", "Mul"):
            mark_float_codes(node, "int32")
    return net


def test_a_grid_in_floats_is_a_quantized_form():
    assert check_convention(grid_in_floats()) == ()
    assert form_of(grid_in_floats()) is Form.QDQ
    assert form_of(ir.from_onnx_text(FLOATS)) is Form.FLOAT


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "[two] e = Mul(c, s)",
            "[two] e = Mul(c, t)",
            "read by 'two'; expected a Mul by its scale",
        ),
        ("[two] e = Mul(c, s)", "[two] e = Neg(c)", "read by 'two'"),
        ("Add(d, e)", "Add(d, d)", "What 'one' gives has not one reader"),
        ("c = Clip(b, low, high)", "c = Clip(b, x)", "no Round and Clip of their own"),
        (
            "float s = {0.5}",
            "float s = {-1}",
            "The scale of 'divide' is not constant, finite and positive",
        ),
        (
            "[sum] y = Add(d, e)",
            "[q] q = Div(x, t) [sum] y = Sum(d, e, q)",
            "'x' is quantized 2 times",
        ),
    ],
)
def test_each_rule_of_a_grid_in_floats_can_be_broken(old, new, words):
    assert any(words in sentence for sentence in check_convention(grid_in_floats(old, new)))
