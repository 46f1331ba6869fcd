"""What is requantized for readers of reals is read as it was,
where every level means the same real.
"""

import numpy as np
import onnx_ir as ir
import pytest
from chains import Grid, chain, operators, run_qdq, text
from trees import assert_same, rewritten

from qbench.passes import LOSSY, Pipeline, Policy, run_pipeline, standard_pipeline
from qbench.passes.rewrites.requantize import RequantizeIntoDequantize

EXACT = RequantizeIntoDequantize()
LEVELS = {"x": np.arange(-128, 128).astype(np.int8)}


def by_standard(model: ir.Model, policy: Policy) -> ir.Model:
    """All that the standard pipeline does, but for dropping pairs, which is lossy and says so."""
    kept = tuple(one for one in standard_pipeline(policy).passes if one.effect != LOSSY)
    return run_pipeline(model, Pipeline(kept), policy).model


def why(model: ir.Model) -> list[str]:
    return [found.reason for found in run_pipeline(model, Pipeline((EXACT,)), Policy.FAST).declined]


def test_glow_would_let_out_what_the_requantize_held_back(words) -> None:
    """DQ(Rescale(x)) → DQ(x) turns 127 · 0.5 = 63.5 into more than the 31.75 that a grid of
    half the scale holds.
    """
    model = chain(Grid(0.25), integers_in=Grid(0.5), size=256)
    lines = ["y = DequantizeLinear(x, s, z)"]
    without = text("int8[256] x", "float[256] y", ["float s = {0.5}", "int8 z = {0}"], lines)
    assert operators(rewritten(model, EXACT, policy=Policy.FAST)) == operators(model)
    words(why(model))
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
    assert (
        len(rewritten(chain(Grid(0.5, low=-20, high=32), second), EXACT).graph) == 6
    )  # one level too many


def test_what_rounds_is_left() -> None:
    model = chain(Grid(0.7), integers_in=Grid(0.3), size=256)
    assert operators(rewritten(model, EXACT)) == operators(model)
    (reason,) = why(model)
    assert "values mean another real, by up to 0.429 steps" in reason


def test_products_round_otherwise_by_another_mantissa(words) -> None:
    """All levels mean what they meant, but s₁·s_w/s_y need not round as s₂·s_w/s_y times three."""
    model = chain(Grid(0.25, qtype="int16"), integers_in=Grid(0.75), size=256)
    words(why(model))


@pytest.mark.parametrize("policy", Policy)
def test_a_rounding_that_others_multiply_is_left(policy: Policy) -> None:
    lines = [
        "d = DequantizeLinear(x, s, z)",
        "q = QuantizeLinear(d, t, z)",
        "e = DequantizeLinear(q, t, z)",
    ]
    lines += [
        "m = Mul(e, five)",
        "n = Mul(m, five)",
        "p = QuantizeLinear(n, t, z)",
        "y = DequantizeLinear(p, t, z)",
    ]
    given = ["float s = {0.1}", "float t = {0.37}", "int8 z = {0}", "float five = {5.0}"]
    model = text("int8[256] x", "float[256] y", given, lines)
    assert operators(by_standard(model, policy)) == operators(model)
    run_pipeline(
        model, standard_pipeline(policy), policy
    )  # settles: it is stopped with an error otherwise


def in_a_row(grids: list[Grid], side: str, *, last: str) -> ir.Model:
    """x on the first grid ─DQ─Q─ on the next, and so on; ``side`` reads between any two,
    ``last`` behind the last.
    """
    given, lines, outputs, levels = [], [], [], "x"
    for index, grid in enumerate(grids):
        given += [
            f"float s{index} = {{{grid.scale!r}}}",
            f"{grid.qtype} z{index} = {{{grid.zero}}}",
        ]
        lines.append(f"d{index} = DequantizeLinear({levels}, s{index}, z{index})")
        call = last if grid is grids[-1] else side
        if call == "Cos":
            lines.append(f"y{index} = Cos(d{index})")
            outputs.append(f"float[256] y{index}")
        elif call == "Q":
            given += [f"float t{index} = {{{grid.scale * 1.7!r}}}", f"int8 o{index} = {{{index}}}"]
            lines.append(f"k{index} = QuantizeLinear(d{index}, t{index}, o{index})")
            lines.append(f"y{index} = DequantizeLinear(k{index}, t{index}, o{index})")
            outputs.append(f"float[256] y{index}")
        if grid is not grids[-1]:
            levels = f"q{index}"
            lines.append(f"{levels} = QuantizeLinear(d{index}, s{index + 1}, z{index + 1})")
            following = grids[index + 1]
            given += (
                []
                if index + 2 < len(grids)
                else [
                    f"float s{index + 1} = {{{following.scale!r}}}",
                    f"{following.qtype} z{index + 1} = {{{following.zero}}}",
                ]
            )
    return text("int8[256] x", ", ".join(outputs), list(dict.fromkeys(given)), lines)


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("policy", Policy)
def test_a_chain_that_rounds_with_side_readers_is_left(policy: Policy) -> None:
    """One requantize a round would go otherwise, each when the one behind it is gone."""
    model = in_a_row([Grid(0.3 + 0.01 * index) for index in range(31)], "Cos", last="Cos")
    assert operators(by_standard(model, policy)) == operators(model)
    run_pipeline(
        model, standard_pipeline(policy), policy
    )  # settles: it is stopped with an error otherwise


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("side", ["Cos", "Q"])
def test_a_chain_of_same_reals_with_side_readers_goes_at_once(side: str) -> None:
    grids = [Grid(0.5, 128, qtype="uint8") if index % 2 else Grid(0.5) for index in range(31)]
    model = in_a_row(grids, side, last="Cos")
    swept = model.clone()
    assert EXACT.run(swept)
    assert not EXACT.run(swept)
    after = run_pipeline(model, standard_pipeline(Policy.EXACT), Policy.EXACT).model
    for one in (swept, after):
        assert "uint8" not in {
            str(value.dtype).lower() for node in one.graph for value in node.outputs
        }
        assert operators(one).count("QuantizeLinear") == (30 if side == "Q" else 0)
        assert_same(model, one, **LEVELS)


GIVEN = [
    *(
        "float s = {0.5}",
        "int8 z = {0}",
        "float t = {0.25}",
        "int16 o = {0}",
        "int64[1] flat = {-1}",
    ),
    *(
        f"int8[16,2] v = {{{', '.join(str(number * 3 % 41 - 20) for number in range(32))}}}",
        "uint8 c = {128}",
    ),
]
BEFORE = [
    "d = DequantizeLinear(x, s, z)",
    "q = QuantizeLinear(d, t, o)",
    "e = DequantizeLinear(q, t, o)",
]


def test_operators_on_reals_and_what_moves_for_them() -> None:
    lines = [
        *BEFORE,
        "m = Reshape(e, flat)",
        "n = Cos(m)",
        "f = DequantizeLinear(q, t, o)",
        "w = Tanh(f)",
    ]
    model = text("int8[16,16] x", "float[256] n, float[16,16] w", GIVEN, lines)
    after = rewritten(model, EXACT)
    assert operators(after) == ["DequantizeLinear", "Reshape", "Cos", "DequantizeLinear", "Tanh"]
    assert_same(model, after, x=LEVELS["x"].reshape(16, 16))


@pytest.mark.parametrize("moved", ["m = Transpose(e)", "m = Identity(e)"])
def test_a_product_counts_in_steps_of_its_scale(words, moved: str) -> None:
    lines = [*BEFORE, moved, "w = DequantizeLinear(v, s, z)", "y = MatMul(m, w)"]
    model = text("int8[16,16] x", "float[16,2] y", GIVEN, lines)
    assert len(rewritten(model, EXACT).graph) == len(model.graph)
    words(why(model))


def test_a_product_of_the_same_scale_counts_the_same() -> None:
    lines = [
        "d = DequantizeLinear(x, s, z)",
        "q = QuantizeLinear(d, s, c)",
        "e = DequantizeLinear(q, s, c)",
    ]
    model = text(
        "int8[16,16] x",
        "float[16,2] y",
        GIVEN,
        [*lines, "w = DequantizeLinear(v, s, z)", "y = MatMul(e, w)"],
    )
    after = rewritten(model, EXACT)
    assert operators(after) == ["DequantizeLinear", "DequantizeLinear", "MatMul"]
    assert_same(model, after, x=LEVELS["x"].reshape(16, 16))


def test_readers_of_both_kinds_go_past_together_or_not_at_all() -> None:
    both = [
        "a = Cos(e)",
        "f = DequantizeLinear(q, t, c)",
        "r = Relu(f)",
        "p = QuantizeLinear(r, s, z)",
    ]
    lines = [
        *(
            "d = DequantizeLinear(x, s, z)",
            "q = QuantizeLinear(d, t, c)",
            "e = DequantizeLinear(q, t, c)",
        ),
        *(*both, "b = DequantizeLinear(p, s, z)"),
    ]
    like = [*GIVEN[:2], "float t = {0.5}", *GIVEN[3:]]
    model = text("int8[256] x", "float[256] a, float[256] b", like, lines)
    after = rewritten(model, EXACT)
    assert operators(after).count("QuantizeLinear") == 1
    assert_same(model, after, **LEVELS)
    unlike = text(
        "int8[256] x",
        "float[256] a, float[256] b",
        [*GIVEN[:2], "float t = {0.7}", *GIVEN[3:]],
        lines,
    )
    assert operators(rewritten(unlike, EXACT)) == operators(unlike)


def test_a_shared_dequantize_and_levels_that_leave() -> None:
    lines = [*BEFORE, "a = Cos(d)", "y = Tanh(e)"]
    model = text("int8[256] x", "float[256] a, float[256] y", GIVEN, lines)
    after = rewritten(model, EXACT)
    assert operators(after) == ["DequantizeLinear", "DequantizeLinear", "Cos", "Tanh"]
    assert_same(model, after, **LEVELS)
    leaving = text("int8[256] x", "int16[256] q, float[256] y", GIVEN, [*BEFORE, "y = Tanh(e)"])
    assert operators(rewritten(leaving, EXACT)) == operators(leaving)
