"""Rules of onnxscript's rewriter as passes: names, origins, refusals, constants, chains, and
rules that never end.
"""

import sys
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir
import pytest
from chains import operators, run_qdq, text

from qbench.errors import InputError, UnavailableError
from qbench.extension import Extension
from qbench.graph import constant_value, origin_of, set_origin
from qbench.passes import (
    LOSSY,
    Effect,
    apply_rules,
    catalogue,
    parse_pipeline,
    rewrite_rule,
    run_pipeline,
)
from qbench.passes.contract import Policy

X = np.linspace(-3, 3, 16, dtype=np.float32)


def graph(*lines, constants=("float two = {2}", "float three = {3}"), outputs="float[16] y"):
    model = text("float[16] x", outputs, constants, lines)
    for node in model.graph:
        set_origin(node, f"of {node.name}")
    return model


def merging(limit=np.inf):
    """(x · a) · b → x · (a b), where a b stays below a limit."""

    def pattern(op, x, a, b):
        return op.Mul(op.Mul(x, a), b)

    def replacement(op, x, a, b):
        product = np.float32(constant_value(a) * constant_value(b))
        return op.Mul(x, op.initializer(ir.tensor(product), name=f"{a.name}_{b.name}"))

    def refusal(x, a, b):
        known = [constant_value(one) for one in (a, b)]
        if any(one is None for one in known):
            return "a factor is computed"
        return None if np.prod(known) < limit else f"the product reaches {limit:g}"

    return rewrite_rule(pattern, replacement, refusal)


@dataclass(frozen=True, slots=True)
class Merge:
    limit: float = 1000.0
    name: str = "merge-factors"
    effect: ClassVar[Effect] = LOSSY

    def run(self, model):
        return apply_rules(model, (merging(self.limit),), by=self.name)


def test_a_match_is_replaced_under_the_name_of_its_result_and_its_origin():
    model = graph("[inner] a = Mul(x, two)", "[outer] y = Mul(a, three)")
    before = run_qdq(model, x=X)
    assert Merge().run(model)
    (node,) = model.graph
    assert (node.name, node.outputs[0].name, origin_of(node)) == ("outer", "y", "of outer")
    assert set(model.graph.initializers) == {"two_three"}
    np.testing.assert_array_equal(run_qdq(model, x=X)["y"], before["y"])
    assert not Merge().run(model)


def test_chains_are_merged_whole_and_a_second_run_does_nothing():
    model = graph(
        "a = Mul(x, two)", "b = Mul(a, three)", "c = Mul(b, two)", "d = Mul(c, two)", "y = Neg(d)"
    )
    before = run_qdq(model, x=X)
    assert Merge().run(model)
    assert operators(model) == ["Mul", "Neg"]
    assert not Merge().run(model)
    np.testing.assert_array_equal(run_qdq(model, x=X)["y"], before["y"])
    assert len(model.graph.initializers) == 1


def test_what_a_rule_refuses_is_declined_with_its_reason():
    found = run_pipeline(
        graph("a = Mul(x, two)", "y = Mul(a, three)"), parse(limit=5.0), Policy.FAST
    )
    assert [(one.name, one.node, one.reason) for one in found.declined] == [
        ("merge-factors", "y", "the product reaches 5")
    ]
    assert operators(found.model) == ["Mul", "Mul"]


def test_a_value_that_others_read_is_kept():
    model = graph("a = Mul(x, two)", "b = Mul(a, three)", "y = Add(a, b)")
    assert not Merge().run(model)
    assert operators(model) == ["Mul", "Mul", "Add"]


def parse(limit):
    known = catalogue([Extension(name="t", passes={"merge-factors": Merge})])
    pipeline = parse_pipeline(f"merge-factors{{limit = {limit}}}", known)
    assert str(pipeline) == f"merge-factors{{limit = {limit}}}"
    assert pipeline.digest != parse_pipeline("merge-factors", known).digest
    return pipeline


def test_a_result_that_is_another_value_keeps_the_name_of_that_one():
    twice = rewrite_rule(lambda op, x: op.Neg(op.Neg(x)), lambda op, x: x)
    model = graph("a = Abs(x)", "b = Neg(a)", "c = Neg(b)", "y = Sqrt(c)")
    assert apply_rules(model, [twice], by="neg")
    assert [(node.op_type, node.inputs[0].name) for node in model.graph] == [
        ("Abs", "x"),
        ("Sqrt", "a"),
    ]
    leaving = graph("a = Abs(x)", "b = Neg(a)", "y = Neg(b)")
    assert not apply_rules(leaving, [twice], by="neg")
    assert operators(leaving) == ["Abs", "Neg", "Neg"]
    assert leaving.graph[2].metadata_props["qbench.declined.neg"].endswith("a name of its own")


def test_inner_values_and_constants_take_no_name_that_is_borne():
    def split(op, x, b):
        return op.Add(
            op.Mul(x, op.initializer(ir.tensor(np.float32(1)), name="two"), _outputs=["x"]), b
        )

    rule = rewrite_rule(lambda op, x, b: op.Sub(x, b), split)
    model = graph("[s] y = Sub(x, two)")
    assert apply_rules(model, [rule], by="split")
    made = [(node.name, node.outputs[0].name, origin_of(node)) for node in model.graph]
    assert made == [("s.mul", "x_1", "of s"), ("s.add", "y", "of s")]
    assert set(model.graph.initializers) == {"two", "two_1", "three"}
    assert constant_value(model.graph.initializers["two"]) == 2


def test_classes_of_onnxscript_serve_too():
    from onnxscript.rewriter import MatchResult, RewriteRuleClassBase

    class Absolute(RewriteRuleClassBase):
        def pattern(self, op, x):
            return op.Abs(op.Abs(x))

        def check(self, context, x):
            return MatchResult() if x.name != "x" else MatchResult().fail("the input itself")

        def rewrite(self, op, x):
            return op.Abs(x)

    model = graph("a = Neg(x)", "b = Abs(a)", "c = Abs(b)", "y = Neg(c)")
    assert apply_rules(model, [Absolute.rule()], by="abs")
    assert operators(model) == ["Neg", "Abs", "Neg"]
    kept = graph("b = Abs(x)", "y = Abs(b)")
    assert not apply_rules(kept, [Absolute.rule()], by="abs")
    assert kept.graph[1].metadata_props["qbench.declined.abs"] == "the input itself"


def test_rules_that_never_end_are_stopped_by_name():
    endless = rewrite_rule(lambda op, x: op.Neg(x), lambda op, x: op.Neg(op.Identity(x)))
    with pytest.raises(InputError, match=r"rules of the pass 'more'.*still apply after 24 sweeps"):
        apply_rules(graph("y = Neg(x)"), [endless], by="more")


def test_without_onnxscript_there_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript.rewriter", None)
    with pytest.raises(UnavailableError, match=r"no onnxscript.*pip install .*\[patterns\]"):
        rewrite_rule(lambda op, x: op.Neg(x), lambda op, x: x)
