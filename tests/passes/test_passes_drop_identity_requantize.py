"""Q(DQ(levels)) on one grid are the levels;
what its limits hold back it holds back behind the rewrite too.
"""

import numpy as np
import onnx_ir as ir
import pytest
from chains import Grid, chain, operators, run_machine, run_qdq, text
from trees import assert_same, rewritten

from qbench.passes import Pipeline, run_pipeline
from qbench.passes.rewrites.requantize import DropIdentityRequantize

DROP = DropIdentityRequantize()
LEVELS = {"x": np.arange(-128, 128).astype(np.int8)}
REALS = {"x": np.linspace(-200, 200, 256, dtype=np.float32)}


def reasons(model: ir.Model) -> list[str]:
    return [one.reason for one in run_pipeline(model, Pipeline((DROP,))).declined]


@pytest.mark.parametrize("qtype", ["int8", "uint8", "int16", "uint16"])
def test_one_grid_again_is_dropped_whatever_its_type(qtype: str) -> None:
    grid = Grid(0.3, 7, qtype=qtype)
    model = chain(grid, grid, grid, size=256)
    after = rewritten(model, DROP)
    assert operators(after) == ["QuantizeLinear", "DequantizeLinear"]
    assert_same(model, after, **REALS)


@pytest.mark.parametrize(
    "other",
    [Grid(0.30000004), Grid(0.3, 1), Grid(0.3, qtype="uint8"), Grid(0.3, qtype="int16")],
    ids=str,
)
def test_any_other_grid_is_not_its_business(other: Grid) -> None:
    model = chain(Grid(0.3), other)
    assert operators(rewritten(model, DROP)) == operators(model)
    assert not reasons(model)


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ((1, 3), (0, 4), ["Clip"]),  # the second holds nothing back
        ((None, None), (2, 4), ["Clip"]),  # the second moves into the first
        ((1, 3), (2, 4), ["Clip"]),  # [2, 3]: neither of the two
        ((None, 3), (2, None), ["Clip"]),
        ((1, 3), (5, 9), ["Clip"]),  # 5 for everything
        ((None, None), (None, None), []),
    ],
)
def test_limits_meet_in_the_border_that_made_the_levels(
    first: tuple[int | None, int | None], second: tuple[int | None, int | None], kept: list[str]
) -> None:
    model = chain(Grid(1.0, 0, *first), Grid(1.0, 0, *second), size=256)
    after = rewritten(model, DROP)
    assert operators(after) == ["QuantizeLinear", *kept, "DequantizeLinear"]
    assert_same(model, after, **REALS)


def test_limits_of_integers_that_come_from_outside_stay_a_clip_of_levels() -> None:
    model = chain(Grid(0.5, 3, -4, None), integers_in=Grid(0.5, 3), size=256)
    after = rewritten(model, DROP)
    assert operators(after) == ["Clip", "DequantizeLinear"]
    assert_same(model, after, **LEVELS)
    free = chain(Grid(0.5, 3), integers_in=Grid(0.5, 3), size=256)
    assert operators(rewritten(free, DROP)) == ["DequantizeLinear"]
    assert_same(free, rewritten(free, DROP), **LEVELS)


SHARED = ["float s = {1.0}", "int8 z = {0}", "int8 l = {2}"]


def test_levels_that_others_read_keep_their_own_limits(words) -> None:
    lines = [
        *(
            "q = QuantizeLinear(x, s, z)",
            "d = DequantizeLinear(q, s, z)",
            "a = DequantizeLinear(q, s, z)",
        ),
        *("p = QuantizeLinear(d, s, z)", "c = Clip(p, l)", "b = DequantizeLinear(c, s, z)"),
    ]
    model = text("float[256] x", "float[256] a, float[256] b", SHARED, lines)
    assert operators(rewritten(model, DROP)) == operators(model)
    words(reasons(model))


def test_a_dequantize_that_others_read_stays_for_them() -> None:
    lines = [
        *("q = QuantizeLinear(x, s, z)", "d = DequantizeLinear(q, s, z)", "a = Cos(d)"),
        *("p = QuantizeLinear(d, s, z)", "b = DequantizeLinear(p, s, z)"),
    ]
    model = text("float[256] x", "float[256] a, float[256] b", SHARED, lines)
    after = rewritten(model, DROP)
    assert operators(after) == ["QuantizeLinear", "DequantizeLinear", "Cos", "DequantizeLinear"]
    assert_same(model, after, **REALS)


def test_levels_that_leave_the_graph_keep_their_name() -> None:
    lines = ["d = DequantizeLinear(x, s, z)", "y = QuantizeLinear(d, s, z)"]
    model = text("int8[256] x", "int8[256] y", SHARED, lines)
    after = rewritten(model, DROP)
    assert operators(after) == ["Identity"]
    assert_same(model, after, **LEVELS)


def test_constants_are_levels_like_others() -> None:
    lines = [
        "d = DequantizeLinear(k, s, z)",
        "q = QuantizeLinear(d, s, z)",
        "e = DequantizeLinear(q, s, z)",
    ]
    constants = [*SHARED, "int8[3] k = {-128, 5, 127}"]
    model = text("float[3] x", "float[3] y", constants, [*lines, "y = Add(x, e)"])
    after = rewritten(model, DROP)
    assert operators(after) == ["DequantizeLinear", "Add"]
    np.testing.assert_array_equal(run_qdq(after, x=np.zeros(3, np.float32))["y"], [-128, 5, 127])


def test_integers_of_32_bits_change_on_the_way_and_stay() -> None:
    constants = ["float s = {1.0}", "int32 z = {0}"]
    lines = [
        "d = DequantizeLinear(x, s, z)",
        "q = QuantizeLinear(d, s, t)",
        "y = DequantizeLinear(q, s, t)",
    ]
    model = text("int32[2] x", "float[2] y", [*constants, "int16 t = {0}"], lines)
    assert reasons(model)[0].endswith("wider than 16 bits, or its limits cross")
    beyond = np.float32(
        np.int32(2**24 + 1)
    )  # what an identity of 32 bits would have to keep, and float32 does not
    assert int(beyond) != 2**24 + 1


def test_grids_of_channels_stay() -> None:
    constants = ["float[2] s = {0.5, 0.25}", "int8[2] z = {0, 0}"]
    lines = [
        *("q = QuantizeLinear<axis=0>(x, s, z)", "d = DequantizeLinear<axis=0>(q, s, z)"),
        *("p = QuantizeLinear<axis=0>(d, s, z)", "y = DequantizeLinear<axis=0>(p, s, z)"),
    ]
    model = text("float[2,3] x", "float[2,3] y", constants, lines)
    assert operators(rewritten(model, DROP)) == operators(model)
    assert "per channel" in reasons(model)[0]


def test_the_ideal_machine_counts_what_is_left_alone() -> None:
    model = chain(Grid(0.3, 7), Grid(0.3, 7), integers_in=Grid(0.3, 7), size=256)
    np.testing.assert_array_equal(
        run_machine(rewritten(model, DROP), **LEVELS)["y"], run_qdq(model, **LEVELS)["y"]
    )
