"""How far ONNX Runtime rewrites a graph, what it leaves out, and what its log says of it."""

from collections import Counter

import numpy as np
import onnx_ir as ir
import pytest

from qbench.backends import Level, Optimization, OrtBackend
from qbench.diagnosis.optimizers import session_optimizers
from qbench.errors import InputError

TEXT = """<ir_version: 10, opset_import: ["" : 21]>
added (uint8[4] a, uint8[4] b) => (uint8[4] y)
<float s = {0.125}, uint8 z = {127}, float t = {0.25}>
{
    x = DequantizeLinear (a, s, z)
    w = DequantizeLinear (b, s, z)
    same = Identity (x)
    r = Add (same, w)
    y = QuantizeLinear (r, t, z)
}"""
FEEDS = {"a": np.array([0, 1, 128, 128], np.uint8), "b": np.array([0, 1, 128, 127], np.uint8)}


@pytest.fixture
def model():
    return ir.from_onnx_text(TEXT)


def kept_operators(model, folder, **settings):
    path = folder / "kept.onnx"
    with OrtBackend(name="mine", optimization=Optimization(kept=path, **settings)).prepare(
        model
    ) as executor:
        result = executor.run(FEEDS)["y"]
    return Counter(node.op_type for node in ir.load(path).graph), result


def test_each_level_leaves_another_graph(model, tmp_path):
    assert kept_operators(model, tmp_path)[0] == {"QLinearAdd": 1}
    pairs = {"DequantizeLinear": 2, "Add": 1, "QuantizeLinear": 1}
    assert kept_operators(model, tmp_path, level=Level.BASIC)[0] == pairs
    assert kept_operators(model, tmp_path, level=Level.NONE)[0] == pairs | {"Identity": 1}


def test_an_optimizer_and_a_rule_left_out(model, tmp_path):
    operators, ties = kept_operators(
        model, tmp_path, without=frozenset({"QDQSelectorActionTransformer"})
    )
    assert operators == {"DequantizeLinear": 2, "Add": 1, "QuantizeLinear": 1}
    assert (
        kept_operators(model, tmp_path, without=frozenset({"EliminateIdentity"}))[0]["Identity"]
        == 1
    )
    # 127 + (2 + 0)/2 = 128 anyway; half a step above an odd zero point goes to the even neighbour
    # before or after it.
    assert ties.tolist() == [0, 1, 128, 127]
    assert kept_operators(model, tmp_path)[1].tolist() == [0, 1, 128, 128]


def test_the_log_names_what_rewrote_the_graph(model):
    asked = session_optimizers(model, OrtBackend(name="mine"))
    assert {one.name for one in asked if one.modified} >= {
        "Level1_RuleBasedTransformer",
        "QDQSelectorActionTransformer",
    }
    assert {one.level for one in asked} >= {1, 2, 3}
    without = Optimization(
        without=frozenset({"QDQSelectorActionTransformer", "ConstantFolding"}), level=Level.EXTENDED
    )
    left = session_optimizers(model, OrtBackend(name="mine", optimization=without))
    assert {one.name for one in asked if one.level < 3} - {
        one.name for one in left
    } == without.without
    assert {one.level for one in left} <= {1, 2, 4}


def test_a_graph_without_a_session_is_one_sentence():
    broken = ir.from_onnx_text(TEXT.replace("r = Add", "r = Addd"))
    with pytest.raises(InputError, match=r"rewrites in 'added'.*Addd"):
        session_optimizers(broken, OrtBackend(name="mine"))
