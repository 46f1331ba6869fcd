"""What suspects are captured on: samples of several batches, replays,
and constants that correct.
"""

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest
from digits_targets import batches, capture, examine, machine, quantized, target

from qbench.calibration import Rows
from qbench.diagnosis.capture import KeptFeeds
from qbench.diagnosis.rank import is_corrected
from qbench.diagnosis.units import quantized_units
from qbench.judging import Errors, NodeErrors


def rows():
    return Rows(first="x", inputs={"x": 0}, outputs={"y": 0}, size=1)


def test_batches_that_are_shaped_alike_are_kept_together():
    kept = KeptFeeds(rows())
    assert kept.joined == {}
    parts = [np.full((3, 2), float(index)) for index in range(4)]
    for part in parts:
        kept.add({"x": part})
    assert np.array_equal(kept.joined["x"], np.concatenate(parts))
    kept.add({"x": np.zeros((1 << 18, 2))})  # more than goes together
    assert len(kept.joined["x"]) == 12


def test_a_loop_keeps_its_largest_step():
    kept = KeptFeeds(rows())
    for length in (1, 4, 2, 3):
        kept.add({"x": np.full((1, length), length)})
    assert kept.joined["x"].tolist() == [[4, 4, 4, 4]]


def test_what_is_no_row_of_the_graph_is_not_joined():
    kept = KeptFeeds(rows())
    for _ in range(2):
        kept.add({"x": np.zeros((3, 2)), "table": np.ones(5)})
    assert kept.joined["x"].shape == (3, 2)


def stale(node, run):
    """The second half of a result is that of the run before."""
    held = []

    def wrong(inputs):
        (result,) = run(inputs)
        flat = np.array(result, order="C").reshape(-1)
        before = held[0] if held and held[0].shape == flat.shape else flat
        held[:] = [flat.copy()]
        flat[flat.size // 2 :] = before[flat.size // 2 :]
        return (flat.reshape(np.shape(result)),)

    return wrong if node.name == "conv2" else run


def captured(of):
    (feeds,) = batches(1, 8)
    nodes = [node for node in examine(of, [feeds]).nodes if node.node == "conv2"]
    (found,) = capture(of, nodes, feeds)
    return found


@pytest.mark.slow
def test_replays_show_what_a_kernel_remembers():
    healthy, remembering = captured(target()), captured(target(machine(stale), claims=machine()))
    assert all(np.array_equal(one.codes, healthy.again) for one in healthy.replays)
    assert len(healthy.replays) == 2
    assert not np.array_equal(remembering.replays[0].codes, remembering.again)


@pytest.mark.parametrize(("alone", "corrects"), [(0.9, True), (0.99, False), (1.1, False)])
def test_a_correction_brings_the_node_nearer_to_fp32(alone, corrects):
    far, near = (Errors(sqnr_db=0.0, relative=one) for one in (1.0, alone))
    node = NodeErrors(
        node="a", operators=(), value="a", cumulative=far, explained=far, isolated=near
    )
    assert is_corrected(node) == corrects
    assert not is_corrected(replace(node, isolated=None))


def test_levels_that_nobody_reads_are_no_unit():
    model = quantized()
    before = [unit.value for unit in quantized_units(model)]
    quantizer = next(
        node
        for node in model.graph
        if node.op_type == "QuantizeLinear" and node.inputs[0].producer()
    )
    copy = ir.node(
        "QuantizeLinear", list(quantizer.inputs), outputs=[ir.val("unread")], name="unread"
    )
    model.graph.append(copy)
    assert [unit.value for unit in quantized_units(model)] == before
