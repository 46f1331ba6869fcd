"""Operators between grids read what levels were, where every level means the same real."""

import numpy as np
import onnx_ir as ir
import pytest
from chains import Grid, operators, run_qdq, text
from trees import assert_same, rewritten

from qbench.passes import Pipeline, Policy, run_pipeline, standard_pipeline
from qbench.passes.rewrites.requantize import RequantizeIntoConsumer

EXACT = RequantizeIntoConsumer()
A, B = (
    side.astype(np.int8).reshape(1, 1, 256, 256)
    for side in np.meshgrid(range(-128, 128), range(-128, 128))
)
PAIRS = {"x": A, "u": B}
CALLS = {
    **{name: f"{name}(e, f)" for name in ("Add", "Sub", "Max", "Min")},
    **{
        name: f"{name}(e)"
        for name in ("Relu", "Neg", "Abs", "Tanh", "Sigmoid", "GlobalAveragePool")
    },
    "Concat": "Concat<axis=1>(e, f)",
    "Clip": "Clip(e, lo, hi)",
    "AveragePool": "AveragePool<kernel_shape=[2,2], strides=[16,16]>(e)",
    "ReduceMean": "ReduceMean(e, axes)",
}


def site(call: str, comes: Grid, brought: Grid, gives: Grid, *more: str) -> ir.Model:
    """x ─DQ─Q─[limits]─DQ─ ``call`` ─Q─DQ─ y; it may read e, and f: the levels u."""
    constants = [
        *(
            "float lo = {-3.0}",
            "float hi = {5.0}",
            "int64[1] axes = {3}",
            "float su = {0.3}",
            "int8 zu = {2}",
            "int8 zw = {0}",
        ),
        *(
            f"float s{name} = {{{grid.scale!r}}}"
            for name, grid in (("0", comes), ("1", brought), ("2", gives))
        ),
        *(
            f"{grid.qtype} z{name} = {{{grid.zero}}}"
            for name, grid in (("0", comes), ("1", brought), ("2", gives))
        ),
        f"int8[8,1,1,1] v = {{{', '.join(str(number - 4) for number in range(8))}}}",
        *("int32[8] bias = {7, -7, 5, 3, 1, 0, 2, 9}", "float sb = {0.15}", "int32 zb = {0}"),
    ]
    lines = ["d = DequantizeLinear(x, s0, z0)", "q = QuantizeLinear(d, s1, z1)"]
    levels = "q"
    if brought.low is not None:
        constants.append(f"{brought.qtype} low = {{{brought.low}}}")
        lines.append("c = Clip(q, low)")
        levels = "c"
    lines += [f"e = DequantizeLinear({levels}, s1, z1)", "f = DequantizeLinear(u, su, zu)", *more]
    lines += [f"r = {call}", "p = QuantizeLinear(r, s2, z2)", "y = DequantizeLinear(p, s2, z2)"]
    return text("int8[1,1,256,256] x, int8[1,1,256,256] u", "float[A,B,C,D] y", constants, lines)


def why(model: ir.Model) -> str:
    (found,) = run_pipeline(model, Pipeline((EXACT,)), Policy.FAST).declined
    return found.reason


@pytest.mark.slow_but(13)
@pytest.mark.parametrize("name", [*CALLS, "Mul", "Div", "LeakyRelu", "Transpose"])
@pytest.mark.parametrize(
    "brought", [Grid(0.5, 128, qtype="uint8"), Grid(0.5, 100, qtype="uint8", low=0)], ids=str
)
def test_the_same_reals_are_exact_for_any_operator(name: str, brought: Grid) -> None:
    call = CALLS.get(name, f"{name}(e, f)" if name in {"Mul", "Div"} else f"{name}(e)")
    model = site(call, Grid(0.5), brought, Grid(0.4, 3))
    after = rewritten(model, EXACT)
    if name in {
        "Concat",
        "AveragePool",
    }:  # integer machines count them in one type alone, else in floats
        assert operators(after) == operators(model)
        assert why(model) == "one of its readers takes integers of one type alone"
    elif brought.low is None:
        assert operators(after).count("QuantizeLinear") == 1
        assert_same(model, after, **PAIRS)
    else:
        assert operators(after) == operators(model)
        assert why(model).startswith("it saturates")


@pytest.mark.parametrize("name", [*CALLS, "Softmax"])
def test_what_rounds_is_left_whoever_reads_it(name: str) -> None:
    model = site(CALLS.get(name, f"{name}(e)"), Grid(0.3), Grid(0.6), Grid(0.5, 3))
    assert operators(rewritten(model, EXACT)) == operators(model)
    assert "values mean another real, by up to 0.5 steps" in why(model)


@pytest.mark.parametrize("policy", Policy)
def test_roundings_on_both_sides_of_an_add_add_up_and_are_left(policy: Policy) -> None:
    both = ("g = QuantizeLinear(f, s1, z1)", "h = DequantizeLinear(g, s1, z1)")
    model = site("Add(e, h)", Grid(0.4), Grid(0.7), Grid(0.7), *both)
    assert operators(run_pipeline(model, standard_pipeline(policy), policy).model) == operators(
        model
    )
    without = site("Add(d, f)", Grid(0.4), Grid(0.7), Grid(0.7))
    levels = [run_qdq(one, **PAIRS)["y"] / np.float32(0.7) for one in (model, without)]
    assert np.abs(levels[0] - levels[1]).max() > 0.9


def test_glow_would_absorb_what_saturates() -> None:
    """A Rescale into the input of an Add drops the Rescale's own range: 127 · 0.5 instead of
    127 · 0.25 is added.
    """
    model = site("Add(e, f)", Grid(0.5), Grid(0.25), Grid(1.0))
    absorbed = site("Add(d, f)", Grid(0.5), Grid(0.25), Grid(1.0))
    assert operators(rewritten(model, EXACT, policy=Policy.FAST)) == operators(model)
    assert np.abs(run_qdq(model, **PAIRS)["y"] - run_qdq(absorbed, **PAIRS)["y"]).max() > 30


def convolution(brought: Grid) -> ir.Model:
    """The bias is int32 on the product of the scales, 0.5 · 0.3."""
    weight, bias = "w = DequantizeLinear(v, su, zw)", "b = DequantizeLinear(bias, sb, zb)"
    return site("Conv(e, w, b)", Grid(0.5), brought, Grid(0.4, 3), weight, bias)


def test_a_product_goes_past_one_scale_alone_since_its_bias_stands_on_it() -> None:
    same = convolution(Grid(0.5, 128, qtype="uint8"))
    after = rewritten(same, EXACT)
    assert operators(after).count("QuantizeLinear") == 1
    assert_same(same, after, **PAIRS)
    for brought in (Grid(0.25, qtype="int8"), Grid(0.6)):
        other = convolution(brought)
        assert operators(rewritten(other, EXACT)) == operators(other)
        assert why(other) == "a product behind it and its bias are in steps of its scale"


def test_integers_of_another_width_are_left() -> None:
    assert "another width" in why(
        site("Add(e, f)", Grid(0.5), Grid(0.25, qtype="int16"), Grid(0.4))
    )


def test_levels_that_a_second_kind_of_reader_reads_are_left() -> None:
    model = site(
        "Relu(e)", Grid(0.3), Grid(0.6), Grid(0.5), "g = DequantizeLinear(q, s1, z1)", "t = Cos(g)"
    )
    model.graph.outputs.append(
        next(node for node in model.graph if node.op_type == "Cos").outputs[0]
    )
    after = rewritten(model, EXACT)
    assert operators(after) == operators(model)
