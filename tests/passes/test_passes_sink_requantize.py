"""A requantize sinks below what moves levels, bit for bit, and what merging could not reach
before it reaches then.
"""

import numpy as np
import onnx_ir as ir
import pytest
from chains import operators, run_machine, run_qdq, text

from qbench.graph import check_convention, clip_of_codes, constant_value
from qbench.passes import Pipeline, assert_effect, run_pipeline
from qbench.passes.rewrites.requantize import MergeRequantize
from qbench.passes.rewrites.sink_requantize import SinkRequantize

CONSTANTS = [
    *(
        "float s = {0.1}",
        "int8 z = {3}",
        "float t = {0.17}",
        "int8 w = {-20}",
        "float u = {0.2}",
        "int8 v = {0}",
    ),
    *(
        "int8 l = {-90}",
        "int8 h = {60}",
        "int8 k = {40}",
        "int64[1] one = {1}",
        "int64[1] five = {5}",
    ),
    *("int64[2] flat = {1, 64}", "int64[2] picked = {3, 1}", "int64[4] tiles = {1, 1, 2, 1}"),
    *("int64[4] ends = {0, 0, 1, 1}", "int64[8] border = {0, 0, 1, 1, 0, 0, 1, 1}"),
]
MOVERS = {
    "Reshape": ("Reshape(d, flat)", "1,64"),
    "Flatten": ("Flatten(d)", "1,64"),
    "Unsqueeze": ("Unsqueeze(d, one)", "1,1,4,4,4"),
    "Identity": ("Identity(d)", "1,4,4,4"),
    "Transpose": ("Transpose<perm=[0,2,3,1]>(d)", "1,4,4,4"),
    "Slice": ("Slice(d, one, five, one)", "1,3,4,4"),
    "Gather": ("Gather<axis=1>(d, picked)", "1,2,4,4"),
    "DepthToSpace": ("DepthToSpace<blocksize=2>(d)", "1,1,8,8"),
    "MaxPool": ("MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(d)", "1,4,2,2"),
    "GlobalMaxPool": ("GlobalMaxPool(d)", "1,4,1,1"),
    "edges": ('Pad<mode="edge">(d, border)', "1,4,6,6"),
}
DECLINED = {
    "AveragePool": ("AveragePool<kernel_shape=[2,2]>(d)", "1,4,3,3", ""),
    "Relu": ("Relu(d)", "1,4,4,4", ""),
    "Tile": ("Tile(d, tiles)", "1,4,8,4", "every copy would be requantized"),
    "zeros": ("Pad(d, border)", "1,4,6,6", "pads with a number"),
    "empty windows": (
        "MaxPool<kernel_shape=[1,1], strides=[3,3], pads=[0,0,1,1], ceil_mode=1>(d)",
        "1,4,3,3",
        "may lie in its padding alone",
    ),
}


def moved(mover: str, shape: str, behind: str = "t, w") -> ir.Model:
    """x of levels ─DQ─Q─[−90, 60]─DQ─ mover ─Q─DQ─ y; ``behind``:
    the parameters of the last two.
    """
    lines = [
        *("a = DequantizeLinear(x, s, z)", "b = QuantizeLinear(a, t, w)", "c = Clip(b, l, h)"),
        *("d = DequantizeLinear(c, t, w)", f"e = {mover}", f"f = QuantizeLinear(e, {behind})"),
        f"y = DequantizeLinear(f, {behind})",
    ]
    return text("int8[1,4,4,4] x", f"float[{shape}] y", CONSTANTS, lines)


def levels(*shape: int) -> np.ndarray:
    """Every level that there is room for, the ends first."""
    order = np.concatenate([[-128, 127, -127, 126], np.arange(-125, 125, 2)])
    return np.resize(order, shape).astype(np.int8)


FEED = levels(1, 4, 4, 4)
PASSES = Pipeline((SinkRequantize(),))


def same(before: ir.Model, after: ir.Model, **feeds: np.ndarray) -> None:
    for run in (run_qdq, run_machine):
        np.testing.assert_array_equal(run(after, **feeds)["y"], run(before, **feeds)["y"])


@pytest.mark.slow_but(3)
@pytest.mark.parametrize("name", MOVERS)
@pytest.mark.parametrize("behind", ["t, w", "t, z"], ids=["same grid", "other grid"])
def test_it_goes_below_whatever_moves_levels(name: str, behind: str) -> None:
    before = moved(*MOVERS[name], behind)
    after = run_pipeline(before, PASSES).model
    found = operators(after)
    mover = MOVERS[name][0].split("(")[0].split("<")[0]
    assert found[:5] == [
        "DequantizeLinear",
        mover,
        "QuantizeLinear",
        "DequantizeLinear",
        "QuantizeLinear",
    ]
    assert len(found) == len(operators(before)) + 2 * (behind != "t, w")
    assert [clip is not None for clip in map(clip_of_codes, after.graph)].count(True) == 1
    assert check_convention(after) == check_convention(before)
    same(before, after, x=FEED)
    assert_effect(SinkRequantize(), before)


@pytest.mark.parametrize("name", DECLINED)
def test_what_computes_copies_or_mixes_in_is_left(name: str) -> None:
    mover, shape, why = DECLINED[name]
    before = moved(mover, shape)
    found = run_pipeline(before, PASSES)
    assert operators(found.model) == operators(before)
    assert [why in one.reason for one in found.declined] == [True] * bool(why)


def test_a_chain_is_passed_in_one_run() -> None:
    lines = [
        "a = DequantizeLinear(x, s, z)",
        "b = QuantizeLinear(a, t, w)",
        "d0 = DequantizeLinear(b, t, w)",
    ]
    for index in range(6):
        lines += [
            f"e{index} = Transpose<perm=[1,0]>(d{index})",
            *([f"f{index} = QuantizeLinear(e{index}, t, w)"] if index % 2 else []),
            f"d{index + 1} = "
            + (f"DequantizeLinear(f{index}, t, w)" if index % 2 else f"Identity(e{index})"),
        ]
    before = text("int8[4,5] x", "float[4,5] y", CONSTANTS, [*lines, "y = Identity(d6)"])
    after = before.clone()
    assert SinkRequantize().run(after)
    assert not SinkRequantize().run(after)
    assert operators(after)[-4:] == [
        "DequantizeLinear",
        "QuantizeLinear",
        "DequantizeLinear",
        "Identity",
    ]
    assert operators(after).count("Transpose") == 6
    assert len(after.graph) == len(before.graph)
    assert after.graph.outputs[0].name == "y"
    same(before, after, x=levels(4, 5))


def alternating(count: int, *scales: float) -> ir.Model:
    """Requantizes from one of ``scales`` to the next, a Transpose on levels behind each."""
    constants = [f"float s{i} = {{{scale}}}" for i, scale in enumerate(scales)]
    lines = ["a0 = DequantizeLinear(x, s0, z)"]
    for n in range(count):
        scale = f"s{(n + 1) % len(scales)}, z"
        lines += [
            *(f"q{n} = QuantizeLinear(a{n}, {scale})", f"d{n} = DequantizeLinear(q{n}, {scale})"),
            *(f"t{n} = Transpose<perm=[1,0]>(d{n})", f"p{n} = QuantizeLinear(t{n}, {scale})"),
            f"a{n + 1} = DequantizeLinear(p{n}, {scale})",
        ]
    return text(
        "int8[4,5] x", "float[4,5] y", ["int8 z = {0}", *constants], [*lines, f"y = Neg(a{count})"]
    )


@pytest.mark.slow
def test_those_that_cannot_merge_meet_in_pairs_and_settle() -> None:
    before = alternating(60, 0.1, 0.17)
    after = before.clone()
    assert SinkRequantize().run(after)
    assert not SinkRequantize().run(after)
    assert operators(after).count("Transpose") == 60
    requantizes = sum(
        two == ["DequantizeLinear", "QuantizeLinear"] for two in pairs(operators(after))
    )
    assert requantizes == 60
    same(before, after, x=levels(4, 5))


@pytest.mark.slow
def test_those_that_can_are_one_in_the_end() -> None:
    before = alternating(40, 0.25)
    after = run_pipeline(before, Pipeline((SinkRequantize(), MergeRequantize()))).model
    assert (
        sum(two == ["DequantizeLinear", "QuantizeLinear"] for two in pairs(operators(after))) == 1
    )
    same(before, after, x=levels(4, 5))


def pairs(names: list[str]) -> list[list[str]]:
    return [names[place : place + 2] for place in range(len(names) - 1)]


def test_merging_finds_the_partner_that_a_reshape_hid() -> None:
    # 127 on the first grid is 53 on the second: the limit 60 was never met
    before = moved("Reshape(d, flat)", "1,64", "t, z")
    alone = run_pipeline(before, Pipeline((MergeRequantize(),)))
    both = run_pipeline(before, Pipeline((SinkRequantize(), MergeRequantize())))
    assert operators(alone.model) == operators(before)
    assert operators(both.model) == [
        *(
            "DequantizeLinear",
            "Reshape",
            "QuantizeLinear",
            "DequantizeLinear",
            "QuantizeLinear",
            "Clip",
        ),
        "DequantizeLinear",
    ]
    (clip,) = [one for one in both.model.graph if one.op_type == "Clip"]
    assert [int(constant_value(end)) for end in clip.inputs[1:]] == [-90 + 23, 53 + 23]  # type: ignore[arg-type]
    same(before, both.model, x=FEED)


def test_limits_of_both_grids_stay() -> None:
    lines = [
        *("a = DequantizeLinear(x, s, z)", "b = QuantizeLinear(a, t, w)", "c = Clip(b, l, h)"),
        *(
            "d = DequantizeLinear(c, t, w)",
            "e = Flatten(d)",
            "f = QuantizeLinear(e, t, w)",
            "g = Clip(f, , k)",
        ),
        "y = DequantizeLinear(g, t, w)",
    ]
    before = text("int8[4,4] x", "float[4,4] y", CONSTANTS, lines)
    after = run_pipeline(before, PASSES).model
    (clip,) = [one for one in after.graph if one.op_type == "Clip"]
    assert [int(constant_value(end)) for end in clip.inputs[1:]] == [-90, 40]  # type: ignore[arg-type]
    same(before, after, x=levels(4, 4))


def joined(*scales: str, limit: str = "h") -> ir.Model:
    """Two requantized operands of a Concat,
    the second from the scale and behind the limit given.
    """
    first, second = scales or ("s", "s")
    lines = [
        *(
            f"a = DequantizeLinear(x, {first}, z)",
            "b = QuantizeLinear(a, t, w)",
            "c = Clip(b, l, h)",
        ),
        *(
            "d = DequantizeLinear(c, t, w)",
            f"i = DequantizeLinear(v2, {second}, z)",
            "j = QuantizeLinear(i, t, w)",
        ),
        *(f"m = Clip(j, l, {limit})", "n = DequantizeLinear(m, t, w)", "o = Concat<axis=1>(d, n)"),
        *("p = QuantizeLinear(o, t, w)", "y = DequantizeLinear(p, t, w)"),
    ]
    return text("int8[2,8] x, int8[2,8] v2", "float[2,16] y", CONSTANTS, lines)


def test_a_concat_is_of_levels_where_all_are_brought_alike() -> None:
    before = joined()
    after = run_pipeline(before, PASSES).model
    assert operators(after) == [
        *(
            "DequantizeLinear",
            "DequantizeLinear",
            "Concat",
            "QuantizeLinear",
            "DequantizeLinear",
            "QuantizeLinear",
        ),
        *("Clip", "DequantizeLinear"),
    ]
    same(before, after, x=levels(2, 8), v2=levels(2, 8)[::-1])
    assert_effect(SinkRequantize(), before)


@pytest.mark.parametrize("before", [joined("s", "u"), joined(limit="k")], ids=["grids", "limits"])
def test_a_concat_of_others_is_left_with_the_reason(words, before: ir.Model) -> None:
    found = run_pipeline(before, PASSES)
    assert operators(found.model) == operators(before)
    assert len(found.declined) == 2
    words(found.declined[0].reason)


def test_a_concat_with_a_real_operand_is_left() -> None:
    lines = [
        *(
            "a = DequantizeLinear(x, s, z)",
            "b = QuantizeLinear(a, t, w)",
            "d = DequantizeLinear(b, t, w)",
        ),
        "y = Concat<axis=1>(d, r)",
    ]
    before = text("int8[2,8] x, float[2,8] r", "float[2,16] y", CONSTANTS, lines)
    found = run_pipeline(before, PASSES)
    assert operators(found.model) == operators(before)
    assert "not every operand" in found.declined[0].reason


def test_others_that_read_the_levels_keep_them() -> None:
    lines = [
        *(
            "a = DequantizeLinear(x, s, z)",
            "b = QuantizeLinear(a, t, w)",
            "d = DequantizeLinear(b, t, w)",
        ),
        *("o = DequantizeLinear(b, t, w)", "y = Flatten(d)"),
    ]
    found = run_pipeline(
        text("int8[4,4] x", "float[4,4] y, float[4,4] o", CONSTANTS, lines), PASSES
    )
    assert operators(found.model)[-1] == "Flatten"
    assert "others read its values" in found.declined[0].reason


def test_places_of_maxima_are_not_places_of_requantized_maxima() -> None:
    lines = [
        *(
            "a = DequantizeLinear(x, s, z)",
            "b = QuantizeLinear(a, t, w)",
            "d = DequantizeLinear(b, t, w)",
        ),
        "y, places = MaxPool<kernel_shape=[2,2]>(d)",
    ]
    before = text("int8[1,1,4,4] x", "float[1,1,3,3] y, int64[1,1,3,3] places", CONSTANTS, lines)
    found = run_pipeline(before, PASSES)
    assert operators(found.model) == operators(before)
    assert "several results" in found.declined[0].reason


def test_the_real_value_that_leaves_keeps_its_name_and_numbers() -> None:
    lines = [
        *(
            "a = DequantizeLinear(x, s, z)",
            "b = QuantizeLinear(a, t, w)",
            "d = DequantizeLinear(b, t, w)",
        ),
        *(
            "e = DequantizeLinear(v2, s, z)",
            "f = QuantizeLinear(e, t, w)",
            "g = DequantizeLinear(f, t, w)",
        ),
        "y = Concat<axis=0>(d, g)",
    ]
    before = text("int8[4,4] x, int8[4,4] v2", "float[8,4] y", CONSTANTS, lines)
    after = run_pipeline(before, PASSES).model
    assert operators(after)[2] == "Concat"
    assert [value.name for value in after.graph.outputs] == ["y"]
    same(before, after, x=levels(4, 4), v2=levels(4, 4)[::-1])


def test_the_end_of_the_road_says_why_it_is_left() -> None:
    before = moved("Transpose(d)", "4,4,4,1", "u, v")
    found = run_pipeline(before, PASSES)
    assert operators(found.model) == operators(before)
    assert "merges with it" in found.declined[0].reason
