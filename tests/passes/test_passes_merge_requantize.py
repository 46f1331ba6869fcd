"""Merging requantizations keeps the narrowest limits, moves no level unless it may,
and says what it leaves.
"""

import numpy as np
import onnx_ir as ir
import pytest
from chains import Grid, chain, operators, run_machine, run_qdq
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.graph import clip_of_codes, constant_value
from qbench.passes import Pipeline, Policy, run_pipeline
from qbench.passes.rewrites.requantize import MergeRequantize


def limits(model: ir.Model) -> list[tuple[int, int]]:
    clips = [clip for node in model.graph if (clip := clip_of_codes(node)) is not None]
    return [tuple(int(constant_value(end)) for end in clip.inputs[1:]) for clip in clips]  # type: ignore[arg-type]


def merged(model: ir.Model, steps: int = 0, policy: Policy = Policy.ROUNDING) -> ir.Model:
    return run_pipeline(model, Pipeline((MergeRequantize(steps),)), policy).model


def test_three_limits_leave_their_intersection() -> None:
    model = chain(
        Grid(1.0, low=0, high=4), Grid(1.0, low=2, high=4), integers_in=Grid(1.0, low=1, high=3)
    )
    levels = np.arange(-128, 112, 15).astype(np.int8)
    after = merged(model)
    assert operators(after) == ["DequantizeLinear", "QuantizeLinear", "Clip", "DequantizeLinear"]
    np.testing.assert_array_equal(run_qdq(after, x=levels)["y"], run_qdq(model, x=levels)["y"])


def test_limits_behind_a_border_count_too() -> None:
    model = chain(Grid(1.0, low=1, high=3), Grid(1.0, low=0, high=4), Grid(1.0, low=2, high=4))
    after = merged(model)
    assert limits(after) == [(1, 3), (2, 3)]


def test_a_middle_that_is_the_narrowest_keeps_its_limits() -> None:
    model = chain(Grid(0.5, low=-4, high=6), Grid(0.25), integers_in=Grid(0.5))
    after = merged(model)
    assert limits(after) == [(-8, 12)]
    every = np.arange(-128, 128).astype(np.int8)
    wide = chain(Grid(0.5, low=-4, high=6), Grid(0.25), integers_in=Grid(0.5), size=256)
    np.testing.assert_array_equal(run_qdq(merged(wide), x=every)["y"], run_qdq(wide, x=every)["y"])
    np.testing.assert_array_equal(
        run_machine(merged(wide), x=every)["y"], run_machine(wide, x=every)["y"]
    )


def test_what_would_move_a_level_is_declined_with_the_count(words) -> None:
    model = chain(Grid(0.3), Grid(0.19), integers_in=Grid(0.1))
    found = run_pipeline(model, Pipeline((MergeRequantize(),)))
    assert operators(found.model) == operators(model)
    words(found.declined[0].reason)
    assert found.declined[0].node == "q1"
    rounded = run_pipeline(model, Pipeline((MergeRequantize(1),)), Policy.ROUNDING)
    assert operators(rounded.model) == [
        "DequantizeLinear",
        "QuantizeLinear",
        "Clip",
        "DequantizeLinear",
    ]


def test_a_policy_declines_the_whole_pass() -> None:
    found = run_pipeline(chain(Grid(1.0), Grid(1.0)), Pipeline((MergeRequantize(2),)), Policy.EXACT)
    assert not found.accounts
    assert found.declined[0].node == ""
    assert "rounding(2)" in found.declined[0].reason


GRIDS = st.builds(
    Grid,
    scale=st.sampled_from([0.1, 0.25, 0.5, 1.0, 0.30000001, 2.0, 0.7]),
    zero=st.sampled_from([-128, -7, 0, 3, 127]),
    low=st.sampled_from([None, -100, -5, 1]),
    high=st.sampled_from([None, 2, 50, 90]),
)


def test_steps_do_not_add_up_along_a_chain() -> None:
    """Each merge of these would move some level by one step;
    twenty of them would move one by many.
    """
    model = chain(*(Grid(0.1 * 1.07**i) for i in range(20)), integers_in=Grid(0.1), size=256)
    left = operators(merged(model, 1)).count("QuantizeLinear")
    assert 10 <= left < 20
    twice = run_pipeline(merged(model, 1), Pipeline((MergeRequantize(1),)), Policy.ROUNDING)
    assert twice.removed == 0


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("steps", [0, 1, 3])
@settings(max_examples=30)
@given(grids=st.lists(GRIDS, min_size=3, max_size=3))
def test_one_merge_moves_no_level_by_more_than_is_admitted(steps: int, grids: list[Grid]) -> None:
    assert farthest(grids, steps) <= steps


@pytest.mark.slow
@settings(max_examples=30)
@given(grids=st.lists(GRIDS, min_size=4, max_size=6))
def test_no_number_of_exact_merges_moves_a_level(grids: list[Grid]) -> None:
    assert farthest(grids, 0) == 0


def farthest(grids: list[Grid], steps: int) -> float:
    """By how many steps of the last grid any level of the first moves,
    in floats or on the ideal machine.
    """
    model = chain(*grids[1:], integers_in=Grid(grids[0].scale, grids[0].zero), size=256)
    return farthest_of(model, merged(model, steps), grids[-1].scale)


def farthest_of(model: ir.Model, after: ir.Model, scale: float) -> float:
    every, step = np.arange(-128, 128).astype(np.int8), np.float32(scale)
    pairs = [(run(model, x=every)["y"], run(after, x=every)["y"]) for run in (run_qdq, run_machine)]
    return max(
        float(np.abs(np.rint(before / step) - np.rint(now / step)).max()) for before, now in pairs
    )


def test_a_last_clip_that_becomes_idle_may_be_a_graph_output() -> None:
    """Levels that come reach no farther than −64 … 63 on the last grid, so that its limits go;
    files of others give types to inputs and outputs alone.
    """
    model = chain(
        Grid(0.5, 128, qtype="uint8"),
        Grid(1.0, 0, -128, 100),
        integers_in=Grid(0.5),
        last="gone",
        size=256,
    )
    last = next(node for node in model.graph if node.op_type == "Clip").outputs[0]
    model.graph.outputs[0] = last
    last.type, last.shape = ir.TensorType(ir.DataType.INT8), ir.Shape([256])
    levels = np.arange(-128, 128).astype(np.int8)
    after = merged(model)
    assert operators(after) == ["DequantizeLinear", "QuantizeLinear", "DequantizeLinear"]
    name = str(last.name)
    assert [value.name for value in after.graph.outputs] == [name]
    np.testing.assert_array_equal(run_qdq(after, x=levels)[name], run_qdq(model, x=levels)[name])
