"""Engines that count right: what the graph says otherwise than the float graph,
and what grids cost.
"""

import re
from dataclasses import replace
from functools import cache

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis_units import MACHINE, MACHINES, add, constant, conv, edited, gemm, grid_over, made
from test_hypotheses_places import with_attributes

from qbench.diagnosis import hypotheses as causes
from qbench.diagnosis.hypotheses import catalogue as naming
from qbench.diagnosis.hypotheses import name_cause, remedy_of
from qbench.diagnosis.hypotheses.hypothesis import axis_of_channels
from qbench.diagnosis.hypotheses.range import Cost
from qbench.judging import Cause
from qbench.numerics import get_arithmetic

conv, gemm, add = cache(conv), cache(gemm), cache(add)


@pytest.mark.parametrize("machine", ["ort-x64", "gemmlowp", "glow-cpu", "xnnpack", "tflite-single"])
@pytest.mark.parametrize("unit", [conv, gemm, add])
def test_nothing_is_wrong_with_a_healthy_unit(unit, machine):
    own = get_arithmetic(machine)
    named = unit().cause(unit().levels(own), machine=own)
    assert named.cause is None
    assert named.weight == 0


@pytest.mark.parametrize("unit", [conv, gemm, add])
def test_nothing_is_wrong_where_no_arithmetic_is_claimed(unit):
    assert unit().cause(machine=None).cause is None
    assert unit().cause(unit().rounded(np.floor(unit().real() + 0.5)), machine=None).cause is None


@pytest.mark.slow
def test_single_steps_of_few_levels_are_let_pass_where_no_arithmetic_is_claimed():
    levels = conv().levels()
    inside = np.flatnonzero((levels.reshape(-1) > 5) & (levels.reshape(-1) < 250))
    few, more = levels.copy(), levels.copy()
    few.reshape(-1)[inside[::120]] += 1
    more.reshape(-1)[inside[::20]] += 1
    assert conv().cause(few, machine=None).cause is None
    assert conv().cause(more, machine=None).cause is not None
    assert conv().cause(few).cause is not None  # it claims that none are


def graphwise(one, **constants):
    """The unit with other constants in the graph itself."""
    return replace(one, unit=replace(one.unit, graph=edited(one.unit, **constants)))


@pytest.mark.parametrize("original", [True, False], ids=["fp32 at hand", "levels alone"])
@pytest.mark.parametrize("bias", [lambda b: 0 * b, lambda b: 2 * b, lambda b: np.roll(b, 1)])
def test_a_wrong_bias_in_the_graph(bias, original):
    named = graphwise(conv(), b_q=bias(constant(conv().unit, "b_q"))).cause(original=original)
    assert named.cause is Cause.WRONG_BIAS


def test_a_bias_at_the_end_of_its_integers():
    scale, levels = constant(conv().unit, "b_s"), constant(conv().unit, "b_q").astype(float)
    held = np.clip(levels * 1e6, -(2**31), 2**31 - 1)
    named = graphwise(conv(), b_q=held, b_s=scale / 1e6).cause()
    assert named.cause is Cause.BIAS_SATURATION
    assert "at an end of int32" in named.evidence


@pytest.mark.parametrize("original", [True, False], ids=["fp32 at hand", "levels alone"])
@pytest.mark.parametrize("scale", [lambda s: np.roll(s, 1), lambda s: 2 * s])
def test_wrong_scales_of_the_weights_in_the_graph(scale, original):
    one = graphwise(conv(output=(0.4, 128, "uint8")), w_s=scale(constant(conv().unit, "w_s")))
    assert one.cause(original=original).cause is Cause.WRONG_SCALE


def test_weights_whose_range_is_cut():
    weight = conv().original.graph.initializers["w"].const_value.numpy()
    scale = constant(conv().unit, "w_s") / 3
    cut = np.clip(np.rint(weight / scale.reshape(-1, 1, 1, 1)), -127, 127)
    named = graphwise(conv(), w_q=cut, w_s=scale).cause()
    assert named.cause is Cause.CLIPPING
    assert "their range is cut" in named.evidence


@pytest.mark.parametrize("turn", [lambda w: w[:, :, ::-1, ::-1], lambda w: np.swapaxes(w, 2, 3)])
def test_weights_written_in_another_layout(turn):
    named = graphwise(conv(), w_q=turn(constant(conv().unit, "w_q"))).cause()
    assert named.cause is Cause.LAYOUT
    assert "the weights are written" in named.evidence


def test_integers_that_are_transposed_under_the_scales_of_their_places():
    """Where these differ much no order of the real weights is found again."""
    unit = made(
        "Gemm",
        {"x": np.random.default_rng(5).normal(size=(48, 12))},
        weight=np.random.default_rng(6).normal(size=(12, 12)) * np.geomspace(0.05, 5, 12),
        bias=np.zeros(12),
    )
    named = graphwise(unit, w_q=constant(unit.unit, "w_q").T).cause()
    assert named.cause is Cause.LAYOUT
    assert "the integers of the weights are written with axes 0 and 1 exchanged" in named.evidence


def test_classes_that_are_exchanged_in_the_graph():
    order = [1, 0, *range(2, 10)]
    constants = {
        name: constant(gemm().unit, name)[..., order] for name in ("w_q", "w_s", "b_q", "b_s")
    }
    for original in (True, False):
        named = graphwise(gemm(), **constants).cause(original=original)
        assert named.cause is Cause.LAYOUT


@pytest.mark.parametrize(
    ("attributes", "cause"),
    [
        ({"pads": [2, 0, 0, 2]}, Cause.PADDING),
        ({"pads": [2] * 4, "dilations": [2, 2]}, Cause.LAYOUT),
    ],
)
def test_windows_that_are_written_otherwise(attributes, cause):
    one = replace(
        conv(), unit=replace(conv().unit, graph=with_attributes(conv().unit, **attributes))
    )
    named = one.cause()
    assert named.cause is cause
    assert "in the quantized graph" in named.evidence


@pytest.mark.parametrize("behind", ["Relu", "Clip(0.0, 20.0)"])
def test_a_limit_that_the_graph_lost(behind):
    grid = (0.3, 100, "uint8")
    one = replace(conv(behind=behind, output=grid), unit=conv(output=grid).unit)
    for original in (True, False):
        named = one.cause(original=original)
        assert named.cause is Cause.ABSORBED_CLIP
        assert re.search("where fp32 is limited|limit is .* in the quantized graph", named.evidence)


@pytest.mark.parametrize("behind", ["Clip(0.0, 23.0)", "Clip(0.0, 21.0)"])
def test_another_limit_that_few_numbers_reach(behind):
    """It costs too little to show in the result, and stands in both graphs."""
    wide = conv(behind="Clip(0.0, 22.0)", output=(0.1, 0, "uint8"))
    one = replace(wide, unit=conv(behind=behind, output=(0.1, 0, "uint8")).unit)
    assert one.cause(original=False).cause is not Cause.ABSORBED_CLIP
    named = one.cause()
    assert named.cause is Cause.ABSORBED_CLIP
    assert "the upper limit is " in named.evidence
    assert wide.cause().cause is None


@pytest.mark.parametrize("share", [0.3, 0.5])
@pytest.mark.parametrize("machine", MACHINES)
def test_a_range_that_is_cut(share, machine):
    for unit in (conv, gemm):
        named = unit(output=grid_over(unit().expected, share=share)).cause(machine=machine)
        assert named.cause is Cause.CLIPPING
        assert "above the codes" in named.evidence


@pytest.mark.parametrize("unit", [conv, gemm])
def test_a_grid_that_is_not_used(unit):
    named = unit(output=grid_over(unit().expected, share=14)).cause()
    assert named.cause is Cause.DEAD_RANGE
    assert "never reached" in named.evidence


def plain(x, **changed):
    """A sum with zeros: only the grid of the result costs."""
    fine = float(np.abs(x).max()) / 30000
    return made("Identity", {"x": x}, grids={"x": (fine, 0, "int16")}, **changed)


@pytest.mark.parametrize("size", [60.0, -90.0])
def test_a_range_that_an_outlier_stretches(size):
    x = np.random.default_rng(0).normal(size=(3, 8, 9, 9))
    x[0, 2, 1, 1] = size
    named = plain(x).cause()
    assert named.cause is Cause.RANGE_OUTLIER
    assert "99.8 %" in named.evidence


@pytest.mark.parametrize("apart", [60, 200])
def test_channels_that_differ_on_one_grid(apart):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 8, 9, 9))
    x[:, 3] *= apart
    named = name_cause(worst_channels(plain(x), 3), MACHINE)
    assert named.cause is Cause.CHANNELS_DIFFER
    assert "channels differ by" in named.evidence


def worst_channels(one, wide):
    """What is captured, on samples whose wide channel is mostly silent:
    the others are what counts.
    """
    captured = one.captured()
    expected, isolated = captured.expected.copy(), captured.isolated.copy()
    expected[1:, wide] = 0
    isolated[1:, wide] = one.unit.zero_point
    return replace(captured, expected=expected, isolated=isolated)


def test_rows_of_weights_that_differ_on_one_scale():
    rng = np.random.default_rng(3)
    weight = rng.normal(size=(16, 64, 3, 3)) * 0.05
    weight[0] *= 60
    x = {"x": rng.normal(size=(2, 64, 7, 7))}
    weight[0] *= np.where(rng.random(weight[0].shape) < 0.05, 1, 0.001)
    one = made("Conv", x, weight=weight, channelwise=False)
    named = one.cause()
    assert named.cause is Cause.CHANNELS_DIFFER
    assert "rows of the weights differ by" in named.evidence
    assert "rows of the weights" not in made("Conv", x, weight=weight).cause().evidence


def test_a_coarse_grid_is_what_is_left():
    x = np.random.default_rng(0).normal(size=(3, 8, 9, 9))
    wide = {"x": (0.5, 128, "uint8")}  # the levels in front are what costs
    named = made("Identity", {"x": x}, grids=wide).cause()
    assert named.cause is Cause.COARSE
    assert "at 8 bits" in named.evidence
    assert "the quantized inputs" in named.evidence


def test_an_engine_that_fails():
    captured = replace(conv().captured(), again=None, crash="it found no kernel")
    named = name_cause(captured, MACHINE)
    assert (named.cause, named.evidence) == (Cause.CRASH, "it found no kernel")


def broken(facts):
    raise ZeroDivisionError("by nothing")


@pytest.mark.slow
def test_a_hypothesis_that_fails_becomes_a_note(monkeypatch):
    monkeypatch.setattr(
        naming, "COUNTING", (causes.Hypothesis("a broken one", broken), *naming.COUNTING)
    )
    wrong = conv().levels(graph=edited(conv().unit, b_q=0 * constant(conv().unit, "b_q")))
    named = name_cause(conv().captured(wrong), MACHINE)
    assert named.cause is Cause.WRONG_BIAS
    assert named.notes == ("a broken one could not be tried: ZeroDivisionError: by nothing",)


def test_a_machine_that_cannot_count_the_piece_becomes_a_note():
    named = name_cause(
        conv().captured(), get_arithmetic("pow2-shift")
    )  # its multipliers are powers of two
    assert named.cause is None
    assert "'pow2-shift' cannot compute the unit" in named.notes[0]


@pytest.mark.parametrize("cause", Cause, ids=lambda cause: cause.name)
def test_every_cause_has_a_remedy_of_one_sentence(cause):
    words = remedy_of(cause)
    assert words[0].isupper()
    assert words.endswith(".")


@pytest.mark.slow
def test_what_is_large_is_looked_at_in_part():
    one = conv(channels=(8, 32), size=60, samples=2, kernel=1)
    bias = constant(one.unit, "b_q")
    named = one.cause(one.levels(graph=edited(one.unit, b_q=0 * bias)))
    assert one.levels().size > 3 * 60_000
    assert named.cause is Cause.WRONG_BIAS


def test_the_room_shows_what_others_need():
    assert set(causes.__all__) == {
        "OF_QPARAMS",
        "Explanation",
        "Hypothesis",
        "NamedCause",
        "name_cause",
        "remedy_of",
    }


def test_channels_that_are_practically_zero_are_compared_with_nothing():
    rng = np.random.default_rng(3)
    weight = rng.normal(size=(16, 64, 3, 3)) * 0.05
    weight[6:] = 0
    weight[0] *= 60
    weight[0] *= np.where(rng.random(weight[0].shape) < 0.05, 1, 0.001)
    named = made(
        "Conv", {"x": rng.normal(size=(2, 64, 7, 7))}, weight=weight, channelwise=False
    ).cause()
    assert named.cause is Cause.CHANNELS_DIFFER
    ratio = float(re.search(r"differ by (\S+)", named.evidence).group(1))
    assert 4 <= ratio < 1000
    x = rng.normal(size=(3, 8, 9, 9))
    x[:, 3:] = 0
    x[:, 0] *= 3
    assert plain(x).cause().cause is None


def test_channels_of_three_axes_are_the_last_where_no_convolution_is_near():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 81, 8))
    x[..., 3] *= 200
    one = plain(x)
    isolated = one.levels().copy()
    isolated[..., [c for c in range(8) if c != 3]] = one.unit.zero_point
    named = one.cause(isolated=isolated)
    assert named.cause is Cause.CHANNELS_DIFFER
    assert conv().facts()[0].axis == 1


def test_the_axis_is_that_of_the_nearest_weights():
    x = np.zeros((1, 4, 6), np.float32)
    body = "a = Relu(x)\ny = Add(a, a)\n"
    for reader, axis in (
        ("z = MatMul(y, w)", 2),
        ("z = Conv<kernel_shape=[1]>(y, w)", 1),
        ("z = Neg(y)", 2),
    ):
        head = (
            '<ir_version: 10, opset_import: ["" : 21]> net '
            "(float[1,4,6] x, float[?] w) => (float z)"
        )
        model = ir.from_onnx_text(f"{head} {{{body}{reader}}}")
        assert axis_of_channels(x.ndim, None, model, "y") == axis
    assert [axis_of_channels(rank, None, None, "y") for rank in (0, 1, 2, 3, 4)] == [0, 0, 1, 2, 1]


@pytest.mark.parametrize(("size", "high"), [(3, {8, 16}), (1000, {16})])
def test_what_is_noisy_depends_on_the_bits(size, high):
    rng = np.random.default_rng(0)
    x = rng.normal(size=4000) * size
    y = x + rng.normal(size=x.size) / 2  # less than a step, and nothing is clipped
    assert {
        b for b in (4, 8, 16) if Cost(x=x, y=y, low=-1e5, high=1e5, axis=0, bits=b).is_high
    } == high
