"""Whatever the policy, a rewritten graph keeps the limits of the model, and its function but
for rounding.

Graphs are drawn: sums and products with constants, sums, maxima and minima of two values, Relu,
Clip, maxima and minima with a constant, and pairs of Q and DQ anywhere, some with limits of their
levels. A scalar reference computes the function without rounding (a pair limits and does not round)
and what all rounding before can have moved it by; inputs go far beyond every limit. A new operator
is a row of ``_ONE`` or ``_TWO``.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir
import pytest
from chains import operators, run_qdq, text
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.passes import (
    LOSSY,
    Effect,
    PassVerdict,
    Policy,
    assert_effect,
    check_pass,
    run_pipeline,
    standard_pipeline,
)
from qbench.passes.rewrites.pairs import DropPair

Known = tuple[float, float]
"""The number without rounding, and by how much rounding can have moved it."""

_ONE: dict[str, Callable[[float, float], tuple[str, Callable[[Known], Known]]]] = {
    "Add": lambda c, _: ("Add({x}, {c})", lambda v: (v[0] + c, v[1])),
    "Mul": lambda c, _: ("Mul({x}, {c})", lambda v: (v[0] * c, v[1] * abs(c))),
    "Neg": lambda _, __: ("Neg({x})", lambda v: (-v[0], v[1])),
    "Relu": lambda _, __: ("Relu({x})", lambda v: (max(v[0], 0.0), v[1])),
    "Max": lambda c, _: ("Max({x}, {c})", lambda v: (max(v[0], c), v[1])),
    "Min": lambda c, _: ("Min({x}, {c})", lambda v: (min(v[0], c), v[1])),
    "Clip": lambda c, d: ("Clip({x}, {c}, {d})", lambda v: (min(max(v[0], c), max(c, d)), v[1])),
}
_TWO: dict[str, tuple[str, Callable[[Known, Known], Known]]] = {
    "Add": ("Add({x}, {y})", lambda v, w: (v[0] + w[0], v[1] + w[1])),
    "Max": ("Max({x}, {y})", lambda v, w: (max(v[0], w[0]), max(v[1], w[1]))),
    "Min": ("Min({x}, {y})", lambda v, w: (min(v[0], w[0]), max(v[1], w[1]))),
}
_NUMBERS = (-6.0, -2.5, -1.0, 0.0, 0.5, 1.5, 3.0, 6.0)
_ENDS = {"int8": (-128, 127), "uint8": (0, 255)}
_INPUTS = [0.0, 0.26, -0.26, 1.1, -1.1, 2.9, -2.9, 7.3, -7.3, 40.0, -40.0, 500.0, -500.0]


@dataclass
class _Drawn:
    """A graph as text, and its scalar reference."""

    constants: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    steps: list[Callable[[list[Known]], Known]] = field(default_factory=list)

    def constant(self, number: float, kind: str = "float") -> str:
        name = f"k{len(self.constants)}"
        self.constants.append(f"{kind} {name} = {{{number!r}}}")
        return name

    def name(self, index: int) -> str:
        return "x" if index == 0 else f"v{index}"

    def add(self, expression: str, step: Callable[[list[Known]], Known]) -> None:
        self.steps.append(step)
        self.lines.append(f"{self.name(len(self.steps))} = {expression}")

    def reference(self, x: float) -> Known:
        known: list[Known] = [(x, 0.0)]
        for step in self.steps:
            known.append(step(known))
        return known[-1]

    def model(self) -> ir.Model:
        lines = [*self.lines, f"y = Identity({self.name(len(self.steps))})"]
        return text(f"float[{len(_INPUTS)}] x", f"float[{len(_INPUTS)}] y", self.constants, lines)


@st.composite
def _graphs(draw: st.DrawFn) -> _Drawn:
    graph = _Drawn()
    for _ in range(draw(st.integers(1, 7))):
        index = draw(st.integers(max(0, len(graph.steps) - 2), len(graph.steps)))
        kind = draw(st.sampled_from(("one", "two", "pair", "pair", "pair")))
        if kind == "one":
            c, d = draw(st.sampled_from(_NUMBERS)), draw(st.sampled_from(_NUMBERS))
            form, of = _ONE[draw(st.sampled_from(sorted(_ONE)))](c, max(c, d))
            names = {"x": graph.name(index), "c": graph.constant(c), "d": graph.constant(max(c, d))}
            graph.add(form.format(**names), lambda known, of=of, i=index: of(known[i]))
        elif kind == "two":
            other = draw(st.integers(0, len(graph.steps)))
            form, both = _TWO[draw(st.sampled_from(sorted(_TWO)))]
            graph.add(
                form.format(x=graph.name(index), y=graph.name(other)),
                lambda known, both=both, i=index, j=other: both(known[i], known[j]),
            )
        else:
            _pair(draw, graph, index)
    return graph


def _pair(draw: st.DrawFn, graph: _Drawn, index: int) -> None:
    scale, kind = (
        draw(st.sampled_from((0.02, 0.1, 0.25, 1.0))),
        draw(st.sampled_from(sorted(_ENDS))),
    )
    zero = draw(st.sampled_from((0, *_ENDS[kind], 3)))
    low, high = _ENDS[kind]
    parameters = f"{graph.constant(scale)}, {graph.constant(zero, kind)}"
    stem = f"p{len(graph.lines)}"
    graph.lines.append(f"{stem} = QuantizeLinear({graph.name(index)}, {parameters})")
    if draw(st.booleans()):
        low, high = sorted((draw(st.integers(low, high)), draw(st.integers(low, high))))
        ends = f"{graph.constant(low, kind)}, {graph.constant(high, kind)}"
        graph.lines.append(f"{stem}c = Clip({stem}, {ends})")
        stem += "c"
    bottom, top = ((end - zero) * float(np.float32(scale)) for end in (low, high))
    # A step a pair: rounding takes half of one, and a merge that may move a level by one the rest.
    graph.add(
        f"DequantizeLinear({stem}, {parameters})",
        lambda known: (min(max(known[index][0], bottom), top), known[index][1] + scale),
    )


@settings(max_examples=40, deadline=None)
@given(_graphs())
def test_no_policy_loses_a_limit(graph: _Drawn) -> None:
    model, x = graph.model(), np.array(_INPUTS, np.float32)
    known = [graph.reference(float(number)) for number in x]
    for policy in Policy:
        after = run_pipeline(model, standard_pipeline(policy), policy).model
        found = run_qdq(after, x=x)["y"]
        for (wanted, room), got in zip(known, found.tolist(), strict=True):
            assert math.isclose(wanted, got, rel_tol=1e-4, abs_tol=room + 1e-3), (
                policy,
                wanted,
                got,
            )


_RELU = [
    "float c = {-1.0}",
    "float k = {2.0}",
    "float s = {0.1}",
    "uint8 z = {0}",
    "int8 o = {0}",
    "int8 l = {0}",
    "int8 h = {20}",
    "float b = {6.0}",
    "float n = {0.0}",
]
_SUM = "a = Add(x, c)"
_PAIRED = ["q = QuantizeLinear(r, s, z)", "d = DequantizeLinear(q, s, z)"]
LIMITED = {
    "Relu": [_SUM, "r = Relu(a)", *_PAIRED, "y = Mul(d, k)"],
    "Relu6": [_SUM, "r = Clip(a, n, b)", *_PAIRED, "y = Mul(d, k)"],
    "Min": [_SUM, "r = Min(a, b)", *_PAIRED, "y = Mul(d, k)"],
    "Max": [_SUM, "r = Max(a, n)", *_PAIRED, "y = Mul(d, k)"],
    "levels": [
        _SUM,
        "q = QuantizeLinear(a, s, o)",
        "m = Clip(q, l, h)",
        "d = DequantizeLinear(m, s, o)",
        "y = Mul(d, k)",
    ],
    "behind": [
        _SUM,
        "q = QuantizeLinear(a, s, o)",
        "d = DequantizeLinear(q, s, o)",
        "r = Relu(d)",
        "y = Mul(r, k)",
    ],
    "shared": [
        _SUM,
        "r = Relu(a)",
        *_PAIRED,
        "e = DequantizeLinear(q, s, z)",
        "f = Mul(d, k)",
        "y = Add(f, e)",
    ],
    "twice": [
        _SUM,
        "r = Relu(a)",
        *_PAIRED,
        "p = QuantizeLinear(d, s, o)",
        "m = Clip(p, l, h)",
        "e = DequantizeLinear(m, s, o)",
        "y = Mul(e, k)",
    ],
}


@pytest.mark.parametrize("name", LIMITED)
def test_a_limit_moved_into_a_grid_survives_its_pair(name: str) -> None:
    """``absorb-clip`` makes a Relu the end of a grid;
    the pair that goes then leaves the end behind.
    """
    model, x = (
        text("float[5] x", "float[5] y", _RELU, LIMITED[name]),
        np.array([-900, -1, 2, 9, 900], np.float32),
    )
    before = run_qdq(model, x=x)["y"]
    after = run_pipeline(model, standard_pipeline(Policy.FAST), Policy.FAST).model
    assert "QuantizeLinear" not in operators(after)
    np.testing.assert_allclose(run_qdq(after, x=x)["y"], before, atol=0.11)
    assert assert_effect(DropPair(), model).count(PassVerdict.CHANGED) == 0


class _Forgetful:
    """A pass of someone else's that drops pairs with their limits, and says that it is lossy."""

    name = "forgetful"
    effect: Effect = LOSSY

    def run(self, model: ir.Model) -> bool:
        found = [node for node in model.graph if node.op_type == "DequantizeLinear"]
        for node in found:
            quantizer = node.inputs[0].producer()
            if quantizer.op_type == "Clip":
                quantizer = quantizer.inputs[0].producer()
            node.outputs[0].replace_all_uses_with(quantizer.inputs[0])
            model.graph.remove(node, safe=True)
        return bool(found)


@pytest.mark.slow_but(2)
@pytest.mark.parametrize("name", sorted(LIMITED.keys() - {"behind"}))
def test_a_lossy_pass_that_loses_a_limit_is_reported_as_another_function(name: str) -> None:
    lines = [
        line for line in LIMITED[name] if not line.startswith("r =")
    ]  # a quantizer had taken it in
    lines = [line.replace("(r,", "(a,") for line in lines]
    found = check_pass(_Forgetful(), text("float[5] x", "float[5] y", _RELU, lines))
    assert found.verdict is PassVerdict.CHANGED
    assert not found.refuted
    region = found.regions[-1]
    assert region.counterexample is not None
    assert abs(region.counterexample.after - region.counterexample.before) > 0.2


def test_rounding_alone_is_no_other_function() -> None:
    found = check_pass(DropPair(), text("float[5] x", "float[5] y", _RELU, LIMITED["Relu"]))
    assert found.changed
    assert found.verdict is PassVerdict.TRIED
