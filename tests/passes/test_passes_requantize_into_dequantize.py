"""What is requantized for readers of reals alone is read as it was, unless the requantize held something back."""

import numpy as np
import onnx_ir as ir
import pytest
from chains import Grid, chain, operators, run_machine, run_qdq, text
from hypothesis import given, settings
from hypothesis import strategies as st
from trees import GRIDS, assert_same, rewritten

from qbench.passes import Pipeline, Policy, run_pipeline
from qbench.passes.rewrites.requantize_into_dequantize import RequantizeIntoDequantize

EXACT, ROUNDING = RequantizeIntoDequantize(), RequantizeIntoDequantize(1)
LEVELS = {"x": np.arange(-128, 128).astype(np.int8)}


def why(model: ir.Model, one: RequantizeIntoDequantize = EXACT) -> list[str]:
    return [found.reason for found in run_pipeline(model, Pipeline((one,)), Policy.ROUNDING).declined]


def test_glow_would_let_out_what_the_requantize_held_back() -> None:
    """DQ(Rescale(x)) → DQ(x) turns 127 · 0.5 = 63.5 into more than the 31.75 that a grid of half the scale holds."""
    model = chain(Grid(0.25), integers_in=Grid(0.5), size=256)
    lines = ["y = DequantizeLinear(x, s, z)"]
    without = text("int8[256] x", "float[256] y", ["float s = {0.5}", "int8 z = {0}"], lines)
    for one in (EXACT, ROUNDING, RequantizeIntoDequantize(255)):
        after = rewritten(model, one, policy=Policy.FAST)
        assert operators(after) == operators(model)
        assert_same(model, after, **LEVELS)
    assert why(model) == ["it saturates: 128 of 256 levels mean another real behind it"]
    assert run_qdq(model, **LEVELS)["y"].max() == np.float32(31.75)
    assert run_qdq(without, **LEVELS)["y"].max() == np.float32(63.5)


@pytest.mark.parametrize(
    ("grid", "comes"),
    [
        (Grid(0.5, 128, qtype="uint8"), Grid(0.5)),  # every level has its like
        (Grid(0.25, qtype="int16"), Grid(0.5, 3)),
        (Grid(0.3, 5), Grid(0.3, 5)),
    ],
)
def test_the_same_reals_are_exact(grid: Grid, comes: Grid) -> None:
    model = chain(grid, integers_in=comes, size=256)
    after = rewritten(model, EXACT)
    assert operators(after) == ["DequantizeLinear"]
    assert_same(model, after, **LEVELS)


def test_limits_of_the_source_may_make_room() -> None:
    first, second = Grid(0.5, low=-20, high=31), Grid(0.25, low=None, high=62)
    model = chain(first, second, size=600)
    after = rewritten(model, EXACT)
    assert operators(after) == ["QuantizeLinear", "Clip", "DequantizeLinear"]
    assert_same(model, after, x=np.linspace(-90, 90, 600, dtype=np.float32))
    assert len(rewritten(chain(Grid(0.5, low=-20, high=32), second), EXACT).graph) == 6  # one level too many


def test_a_rounding_that_is_dropped_is_half_a_step() -> None:
    model = chain(Grid(0.7), integers_in=Grid(0.3), size=256)
    assert operators(rewritten(model, EXACT)) == operators(model)
    assert "levels mean another real, by up to 0.429 steps" in why(model)[0]
    after = rewritten(model, ROUNDING, policy=Policy.ROUNDING)
    assert operators(after) == ["DequantizeLinear"]
    moved = run_qdq(after, **LEVELS)["y"] - run_qdq(model, **LEVELS)["y"]
    assert 0 < np.abs(moved).max() <= 0.5 * 0.7


@settings(max_examples=25, deadline=None)
@given(first=GRIDS, second=GRIDS, low=st.sampled_from([None, -60, 0]))
def test_no_real_moves_by_more_than_half_a_step(first: Grid, second: Grid, low: int | None) -> None:
    model = chain(Grid(first.scale, first.zero, low, first.high), second, integers_in=first, size=256)
    after = rewritten(model, ROUNDING, policy=Policy.ROUNDING)
    for run in (run_qdq, run_machine):
        apart = np.abs(run(after, **LEVELS)["y"] - run(model, **LEVELS)["y"])
        assert apart.max() <= 0.5 * second.scale * (1 + 2**-6)


GIVEN = [
    *("float s = {0.5}", "int8 z = {0}", "float t = {0.25}", "int16 o = {0}", "int64[1] flat = {-1}"),
    *(f"int8[16,2] v = {{{', '.join(str(number * 3 % 41 - 20) for number in range(32))}}}", "uint8 c = {128}"),
]
BEFORE = ["d = DequantizeLinear(x, s, z)", "q = QuantizeLinear(d, t, o)", "e = DequantizeLinear(q, t, o)"]


def test_operators_on_reals_and_what_moves_for_them() -> None:
    lines = [*BEFORE, "m = Reshape(e, flat)", "n = Cos(m)", "f = DequantizeLinear(q, t, o)", "w = Tanh(f)"]
    model = text("int8[16,16] x", "float[256] n, float[16,16] w", GIVEN, lines)
    after = rewritten(model, EXACT)
    assert operators(after) == ["DequantizeLinear", "Reshape", "Cos", "DequantizeLinear", "Tanh"]
    assert_same(model, after, x=LEVELS["x"].reshape(16, 16))


@pytest.mark.parametrize("moved", ["m = Transpose(e)", "m = Identity(e)"])
def test_a_product_counts_in_steps_of_its_scale(moved: str) -> None:
    lines = [*BEFORE, moved, "w = DequantizeLinear(v, s, z)", "y = MatMul(m, w)"]
    model = text("int8[16,16] x", "float[16,2] y", GIVEN, lines)
    assert len(rewritten(model, ROUNDING, policy=Policy.ROUNDING).graph) == len(model.graph)
    assert why(model, ROUNDING) == ["a product behind it counts in steps of its scale, its bias too"]


def test_a_product_of_the_same_scale_counts_the_same() -> None:
    lines = ["d = DequantizeLinear(x, s, z)", "q = QuantizeLinear(d, s, c)", "e = DequantizeLinear(q, s, c)"]
    model = text("int8[16,16] x", "float[16,2] y", GIVEN, [*lines, "w = DequantizeLinear(v, s, z)", "y = MatMul(e, w)"])
    after = rewritten(model, EXACT)
    assert operators(after) == ["DequantizeLinear", "DequantizeLinear", "MatMul"]
    assert_same(model, after, x=LEVELS["x"].reshape(16, 16))


def test_readers_of_both_kinds_go_past_together_or_not_at_all() -> None:
    both = ["a = Cos(e)", "f = DequantizeLinear(q, t, c)", "r = Relu(f)", "p = QuantizeLinear(r, s, z)"]
    lines = [
        *("d = DequantizeLinear(x, s, z)", "q = QuantizeLinear(d, t, c)", "e = DequantizeLinear(q, t, c)"),
        *(*both, "b = DequantizeLinear(p, s, z)"),
    ]
    like = [*GIVEN[:2], "float t = {0.5}", *GIVEN[3:]]
    model = text("int8[256] x", "float[256] a, float[256] b", like, lines)
    after = rewritten(model, EXACT)
    assert operators(after).count("QuantizeLinear") == 1
    assert_same(model, after, **LEVELS)
    unlike = text("int8[256] x", "float[256] a, float[256] b", [*GIVEN[:2], "float t = {0.7}", *GIVEN[3:]], lines)
    assert why(unlike, ROUNDING)[0].startswith("not all that read its levels read reals")


def test_a_shared_dequantize_and_levels_that_leave() -> None:
    lines = [*BEFORE, "a = Cos(d)", "y = Tanh(e)"]
    model = text("int8[256] x", "float[256] a, float[256] y", GIVEN, lines)
    after = rewritten(model, EXACT)
    assert operators(after) == ["DequantizeLinear", "DequantizeLinear", "Cos", "Tanh"]
    assert_same(model, after, **LEVELS)
    leaving = text("int8[256] x", "int16[256] q, float[256] y", GIVEN, [*BEFORE, "y = Tanh(e)"])
    assert operators(rewritten(leaving, EXACT)) == operators(leaving)
