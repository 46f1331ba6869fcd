"""Right numbers at the wrong places, wrong ones at few places, another answer every time."""

from functools import cache

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis_units import MACHINE, MACHINES, add, constant, conv, edited, gemm, made

from qbench.diagnosis.units import Replay
from qbench.judging import Cause

conv, gemm, add = cache(conv), cache(gemm), cache(add)


def with_attributes(unit, **attributes):
    """The piece with other attributes of its Conv."""
    model = unit.graph.clone()
    for node in model.graph:
        if node.op_type == "Conv":
            for name, value in attributes.items():
                node.attributes[name] = ir.convenience.convert_attribute(name, value)
    for value in [*model.graph.inputs, *(v for node in model.graph for v in node.outputs)]:
        value.shape = None
    return model


def padded(one, pads, level):
    """What a convolution of an input makes that is padded by hand."""
    x = one.feeds["x_q"]
    width = [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])]
    levels = np.pad(x, width, constant_values=level)
    return one.levels(feeds={"x_q": levels}, graph=with_attributes(one.unit, pads=[0, 0, 0, 0]))


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("level", [0, 255, 40])
def test_padding_with_a_level_that_is_not_zero(level, machine):
    named = conv().cause(padded(conv(), (1, 1, 1, 1), level), machine=machine)
    assert named.cause is Cause.PADDING
    assert f"padding with code {level} in place of 122" in named.evidence


@pytest.mark.parametrize("pads", [(2, 1, 0, 1), (2, 2, 0, 0)])
def test_padding_on_other_sides(pads):
    named = conv().cause(padded(conv(), pads, 122))
    assert named.cause is Cause.PADDING
    assert f"pads {list(pads)} in place of [1, 1, 1, 1]" in named.evidence


def test_a_mean_that_is_divided_by_the_full_window():
    x = np.random.default_rng(1).normal(size=(2, 4, 9, 9)) + 1
    one = made("AveragePool", {"x": x}, attributes="<kernel_shape=[3,3], pads=[1,1,1,1]>")
    grid = float(constant(one.unit, "y_s")), int(constant(one.unit, "y_z")), "uint8"
    full = "<kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1>"
    other = made("AveragePool", {"x": x}, attributes=full, output=grid)
    for unit, wrong in ((one, other), (other, one)):
        assert unit.cause().cause is None
        named = unit.cause(wrong.levels())
        assert named.cause is Cause.PADDING
        assert "a mean divided by" in named.evidence


def test_a_largest_of_a_window_that_sees_zeros_beyond_the_edge():
    x = np.random.default_rng(1).normal(size=(2, 4, 9, 9)) - 2
    one = made("MaxPool", {"x": x}, attributes="<kernel_shape=[3,3], pads=[1,1,1,1]>")
    grids = [
        (float(constant(one.unit, f"{n}_s")), int(constant(one.unit, f"{n}_z")), "uint8")
        for n in "xy"
    ]
    wide = {"x": np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])}
    other = made(
        "MaxPool", wide, attributes="<kernel_shape=[3,3]>", grids={"x": grids[0]}, output=grids[1]
    )
    named = one.cause(other.levels())
    assert named.cause is Cause.PADDING
    assert "in place of nothing" in named.evidence


@pytest.mark.parametrize("machine", MACHINES)
def test_channels_in_another_order(machine):
    for one, order in (
        (conv(), [0, 1, 7, *range(3, 7), 2, *range(8, 12)]),
        (gemm(), [1, 0, *range(2, 10)]),
    ):
        named = one.cause(one.levels()[:, order], machine=machine)
        assert named.cause is Cause.LAYOUT
        assert "2 slices of axis 1 in another order" in named.evidence


@pytest.mark.parametrize(
    ("words", "moved"),
    [
        ("channels last read as channels first", lambda y: np.moveaxis(y, 1, -1).reshape(y.shape)),
        ("axes 2 and 3 exchanged", lambda y: np.swapaxes(y, 2, 3)),
        ("slices of axis 3 in another order", lambda y: y[..., ::-1]),
    ],
)
def test_a_result_of_another_layout(words, moved):
    named = conv().cause(moved(conv().levels()))
    assert named.cause is Cause.LAYOUT
    assert words in named.evidence


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("turn", [
    lambda w: w[:, :, ::-1, ::-1], lambda w: np.swapaxes(w, 2, 3), lambda w: np.roll(w, 1, 1),
])  # fmt: skip
def test_weights_of_another_layout(turn):
    one = conv()
    named = one.cause(one.levels(graph=edited(one.unit, w_q=turn(constant(one.unit, "w_q")))))
    assert named.cause is Cause.LAYOUT
    assert named.weight > 0.99


def test_operands_that_are_exchanged():
    one = add(operator="Sub")
    assert one.cause().cause is None
    for machine in (MACHINE, None):
        named = one.cause(one.rounded(-one.real()), machine=machine)
        assert named.cause is Cause.LAYOUT
        assert "operands exchanged" in named.evidence


def test_another_dilation():
    named = conv().cause(
        conv().levels(graph=with_attributes(conv().unit, pads=[2] * 4, dilations=[2, 2]))
    )
    assert named.cause is Cause.LAYOUT
    assert "dilation 2 in place of [1, 1]" in named.evidence


def test_a_softmax_along_another_axis():
    one = made("Softmax", {"x": np.random.default_rng(6).normal(size=(10, 10)) * 3},
               attributes="<axis=1>", output=(1 / 256, 0, "uint8"))  # fmt: skip
    other = made("Softmax", one.floats, attributes="<axis=0>", output=(1 / 256, 0, "uint8"))
    named = one.cause(other.levels())
    assert named.cause is Cause.LAYOUT
    assert "axis 0" in named.evidence


def test_pieces_that_are_concatenated_the_other_way():
    rng = np.random.default_rng(1)
    one = made(
        "Concat",
        {"a": rng.normal(size=(2, 4, 5, 5)), "b": rng.normal(size=(2, 6, 5, 5))},
        attributes="<axis=1>",
    )
    levels = one.levels()
    assert one.cause(np.concatenate([levels[:, 4:], levels[:, :4]], 1)).cause is Cause.LAYOUT


def _last_row(y, zero):
    y[:, :, -1] = zero


def _last_column_again(y, zero):
    y[..., -1] = y[..., -2]


def _last_channels(y, zero):
    y[:, -2:] = 0


def _tail(y, zero):
    y.reshape(-1)[-33:] = zero


def _first_sample(y, zero):
    y[:] = y[:1]


@pytest.mark.parametrize(
    "skip", [_last_row, _last_column_again, _last_channels, _tail, _first_sample]
)
def test_elements_that_are_not_computed(skip):
    wrong = conv().levels()
    skip(wrong, conv().unit.zero_point)
    named = conv().cause(wrong, machine=None)
    assert named.cause is Cause.NOT_WRITTEN
    assert named.weight > 0.95


def test_a_result_of_zeros_alone_was_not_written():
    """Also where zero is the lowest value, at which a wrong scale would clamp."""
    named = conv().cause(np.zeros_like(conv().levels()))
    assert named.cause is Cause.NOT_WRITTEN


def test_the_first_samples_result_is_seen_where_evidence_holds_one_large_sample():
    rng = np.random.default_rng(2)
    large = made("Relu", {"a": rng.normal(size=(2, 4, 200, 200))})
    wrong = large.levels().copy()
    wrong[1] = wrong[0]
    assert large.cause(wrong).cause is Cause.NOT_WRITTEN


@pytest.mark.slow
def test_rows_of_garbage_are_told_by_their_place():
    wrong = conv().levels()
    wrong[:, :, -2:] = np.random.default_rng(0).integers(0, 256, wrong[:, :, -2:].shape)
    named = conv().cause(wrong)
    assert named.cause is Cause.NOT_WRITTEN
    assert "2 last of 9 slices of axis 2" in named.evidence


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(("axis", "count"), [(2, 1), (3, 2), (1, 1)])
def test_inputs_that_are_not_read(axis, count):
    x = conv().feeds["x_q"].copy()
    x[(slice(None),) * axis + (slice(-count, None),)] = 122
    named = conv().cause(conv().levels(feeds={"x_q": x}))
    assert named.cause is Cause.NOT_WRITTEN
    assert f"the last {count} of" in named.evidence


def test_a_sum_that_leaves_out_its_tail():
    one = gemm()
    weight = constant(one.unit, "w_q").copy()
    weight[-4:] = 0
    named = one.cause(one.levels(graph=edited(one.unit, w_q=weight)))
    assert named.cause is Cause.NOT_WRITTEN
    assert "the last 4 of 64" in named.evidence


@pytest.mark.parametrize("machine", MACHINES)
def test_a_single_element_that_is_another_in_the_graph(machine):
    right = conv().levels()
    wrong = right.copy()
    wrong[1, 3, 4, 4] ^= 16
    named = conv().cause(wrong, right, machine=machine)
    assert named.cause is Cause.NONDETERMINISM
    assert "alone all are right" in named.evidence


def test_both_runs_wrong_otherwise():
    right = gemm().levels()
    graph, alone = right.copy(), right.copy()
    graph[3, 3] ^= 16
    alone[7, 1] ^= 32
    assert gemm().cause(graph, alone).cause is Cause.NONDETERMINISM
    assert gemm().cause(right, alone).cause is Cause.NONDETERMINISM


def test_replays_that_change():
    right = gemm().levels()
    other = right.copy()
    other[0, 0] ^= 1
    same, changed = Replay(codes=right, before=right[::-1]), Replay(codes=other, before=right)
    assert gemm().cause(replays=(same,)).cause is None
    named = gemm().cause(replays=(same, changed))
    assert named.cause is Cause.NONDETERMINISM
    assert "1 of 480 codes" in named.evidence


def test_a_replay_that_holds_what_the_run_before_had():
    right = gemm().levels()
    before, stale = right[::-1], right.copy()
    stale[24:] = before[24:]
    named = gemm().cause(replays=(Replay(codes=stale, before=before),))
    assert named.cause is Cause.NOT_WRITTEN
    assert "the values of the run before" in named.evidence
    stale[24, 0] ^= 1
    assert gemm().cause(replays=(Replay(codes=stale, before=before),)).cause is Cause.NONDETERMINISM


def test_a_buffer_with_something_older():
    right = conv().levels()
    stale, block = right.copy(), right.copy()
    stale[1] = stale[0]
    block.reshape(-1)[400:700] = 7
    for wrong in (stale, block):
        named = conv().cause(wrong, right)
        assert named.cause is Cause.NOT_WRITTEN
        assert "alone all are right" in named.evidence
