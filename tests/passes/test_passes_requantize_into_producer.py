"""A producer's result takes the later grid: no limit is lost, and no level moves that may not."""

import numpy as np
import onnx_ir as ir
import pytest
from chains import Grid, chain, operators, run_machine, run_qdq, text
from hypothesis import given, settings
from hypothesis import strategies as st
from trees import GRIDS, assert_same, rewritten, steps_of

from qbench.graph import clip_of_codes, constant_value
from qbench.passes import Pipeline, Policy, run_pipeline
from qbench.passes.rewrites.requantize import RequantizeIntoProducer

EXACT = RequantizeIntoProducer()
ONE = ["QuantizeLinear", "DequantizeLinear"]


def limits(model: ir.Model) -> list[tuple[int, ...]]:
    clips = [clip for node in model.graph if (clip := clip_of_codes(node)) is not None]
    return [tuple(int(constant_value(end)) for end in clip.inputs[1:]) for clip in clips]  # type: ignore[arg-type]


def reals(*scales: float) -> dict[str, np.ndarray]:
    """Both sides of every step of int8 grids, 4,096 numbers."""
    return {
        "x": np.resize(
            np.concatenate([steps_of(*scales), np.arange(-300, 300, dtype=np.float32)]), 4096
        )
    }


def test_glow_would_keep_the_last_limits_alone() -> None:
    """Rescale(Quantize(x)) → Quantize' lets 3.7 become 4 where the chain gave 3."""
    model = chain(
        Grid(1.0, low=1, high=3), Grid(1.0, low=0, high=4), Grid(1.0, low=2, high=4), size=4096
    )
    last_alone = chain(Grid(1.0, low=2, high=4), size=4096)
    after = rewritten(model, EXACT)
    feeds = reals(1.0)
    assert limits(after) == [(2, 3)]
    assert_same(model, after, **feeds)
    assert (run_qdq(last_alone, **feeds)["y"] != run_qdq(model, **feeds)["y"]).any()


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        (Grid(0.5, 3), Grid(0.5, 3), []),
        (Grid(0.5), Grid(0.5, 128, qtype="uint8"), []),
        (Grid(0.5, 100, qtype="uint8"), Grid(0.5, -28), []),
        (Grid(0.5, -20), Grid(0.5, 5), [(-103, 127)]),
        (Grid(0.5, qtype="int16"), Grid(0.5, 5), []),
        (Grid(0.5, low=0), Grid(0.5, 128, high=200, qtype="uint8"), [(128, 200)]),
        (Grid(0.5, low=0), Grid(0.5, qtype="int16"), None),  # engines clip no int16
    ],
)
def test_one_scale_is_exact_whatever_point_and_type(
    first: Grid, second: Grid, left: list[tuple[int, int]] | None
) -> None:
    model = chain(first, second, size=4096)
    after = rewritten(model, EXACT)
    assert_same(model, after, **reals(0.5))
    if left is None:
        assert len(after.graph) == len(model.graph)
    else:
        assert limits(after) == left
        assert [op for op in operators(after) if op != "Clip"] == ONE


def test_a_multiple_of_a_scale_is_not_exact_at_ties(words) -> None:
    """Round(round(x)/3) is round(x/3) but where x/3 is a tie:
    1.5 is 2 → 1 in two steps and 0 in one.
    """
    model = chain(Grid(1.0), Grid(3.0), size=2)
    found = run_pipeline(model, Pipeline((EXACT,)))
    assert operators(found.model) == operators(model)
    words(found.declined[0].reason)
    ties = {"x": np.array([1.5, 4.5], np.float32)}
    in_one = rewritten(model, RequantizeIntoProducer(1), policy=Policy.ROUNDING)
    assert run_qdq(model, **ties)["y"].tolist() == [3, 3]
    assert run_qdq(in_one, **ties)["y"].tolist() == [0, 6]


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    "body", ["Conv(d, w)", "Sigmoid(d)", "Add(d, d)", "GlobalAveragePool(d)", "Softmax<axis=1>(d)"]
)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("int8 z1 = {-2}", "int8 z2 = {-5}"),
        ("int8 z1 = {-2}", "uint8 z2 = {131}"),
        ("int16 z1 = {-99}", "int8 z2 = {7}"),
    ],
)
def test_operators_between_grids_give_the_same_bits(body: str, first: str, second: str) -> None:
    constants = [
        *(
            "float s0 = {0.1}",
            "int8 z0 = {-3}",
            "float s1 = {0.05}",
            first,
            "float s2 = {0.05}",
            second,
        ),
        *("int8[2,2,1,1] v = {3, -7, 11, 2}", "float sv = {0.3}", "int8 zv = {0}"),
    ]
    lines = [
        *("d = DequantizeLinear(x, s0, z0)", "w = DequantizeLinear(v, sv, zv)", f"r = {body}"),
        *("q = QuantizeLinear(r, s1, z1)", "e = DequantizeLinear(q, s1, z1)"),
        *("p = QuantizeLinear(e, s2, z2)", "y = DequantizeLinear(p, s2, z2)"),
    ]
    model = text("int8[1,2,16,16] x", "float[1,2,A,B] y", constants, lines)
    after = rewritten(model, EXACT)
    assert operators(after).count("QuantizeLinear") == 1
    x = np.random.default_rng(3).integers(-128, 128, (1, 2, 16, 16)).astype(np.int8)
    assert_same(model, after, x=x)


@pytest.mark.parametrize("body", ["Concat<axis=1>(d, d)", "AveragePool<kernel_shape=[3,3]>(d)"])
def test_producers_of_one_type_keep_it(body: str) -> None:
    """Integer machines would count them in floats: another rounding."""
    constants = [
        "float s = {0.1}",
        "int8 z = {-3}",
        "float t = {0.3}",
        "int8 o = {4}",
        "uint8 c = {132}",
    ]
    lines = [
        *("d = DequantizeLinear(x, s, z)", f"r = {body}", "q = QuantizeLinear(r, t, o)"),
        *(
            "e = DequantizeLinear(q, t, o)",
            "p = QuantizeLinear(e, t, {})",
            "y = DequantizeLinear(p, t, {})",
        ),
    ]
    x = np.random.default_rng(3).integers(-128, 128, (1, 2, 16, 16)).astype(np.int8)
    for point, removed in (("c", 0), ("o", 1)):
        model = text(
            "int8[1,2,16,16] x",
            "float[1,A,B,C] y",
            constants,
            [line.format(point) for line in lines],
        )
        found = run_pipeline(model, Pipeline((EXACT,)))
        assert operators(found.model).count("QuantizeLinear") == 2 - removed
        assert ["its producer takes integers of one type alone"][removed:] == [
            one.reason for one in found.declined
        ]
        assert_same(model, found.model, x=x)


OTHERS = ["float s = {0.5}", "int8 z = {0}", "int8 t = {4}"]
BEFORE = ["q = QuantizeLinear(x, s, z)", "d = DequantizeLinear(q, s, z)"]
BEHIND = ["p = QuantizeLinear(d, s, t)", "y = DequantizeLinear(p, s, t)"]


@pytest.mark.parametrize("other", ["e = DequantizeLinear(q, s, z)", "e = Cos(d)"])
def test_what_others_read_stays(words, other: str) -> None:
    model = text("float[9] x", "float[9] y, float[9] e", OTHERS, [*BEFORE, other, *BEHIND])
    found = run_pipeline(model, Pipeline((EXACT,)))
    assert operators(found.model) == operators(model)
    words([one.reason for one in found.declined])


def test_integers_that_leave_the_graph_stay() -> None:
    model = text("float[9] x", "float[9] y, int8[9] q", OTHERS, [*BEFORE, *BEHIND])
    assert operators(rewritten(model, EXACT)) == operators(model)


@settings(max_examples=25)
@given(first=GRIDS, second=GRIDS, steps=st.sampled_from([1, 2, 4]))
def test_rounding_moves_few_steps_and_saturates_at_the_same_ends(
    first: Grid, second: Grid, steps: int
) -> None:
    model = chain(first, second, size=4096)
    after = rewritten(model, RequantizeIntoProducer(steps), policy=Policy.ROUNDING)
    feeds = reals(first.scale, second.scale)
    for run in (run_qdq, run_machine):
        before, now = (
            np.rint(run(one, **feeds)["y"] / np.float32(second.scale)) for one in (model, after)
        )
        assert np.abs(before - now).max() <= steps
        assert (before.min(), before.max()) == (now.min(), now.max())
