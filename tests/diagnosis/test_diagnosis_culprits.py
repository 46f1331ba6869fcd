"""Which nodes are named in a cell that does not fail, and which are no repair."""

import pytest

from qbench.diagnosis.examine import Examined
from qbench.diagnosis.rank import is_outstanding, rank_nodes, ties_alone
from qbench.judging import CountingErrors, Errors, NodeErrors


def node(name="conv", *, alone=40.0, gain=0.0, **more):
    errors = Errors(sqnr_db=alone, relative=10 ** (-alone / 20), steps=0.3)
    return NodeErrors(
        node=name, operators=("Conv",), value=name, levels=more.pop("levels", name), elements=1000,
        isolated=errors, explained=errors, gain_db=gain, **more,
    )  # fmt: skip


def examined(*nodes, **more):
    return Examined(
        samples=8, nodes=nodes, unaligned=(), outputs=None, crashes={}, moved={}, **more
    )


@pytest.mark.parametrize(
    ("alone", "gain", "bits", "is_named"),
    [
        (5.0, 39.8, 8, True),  # weights cut to a tenth of their range
        (11.0, 1.0, 8, True),
        (11.0, None, 8, True),
        (20.0, 6.0, 8, True),
        (20.0, 1.5, 8, False),
        (36.0, 7.5, 8, False),  # the worst of a healthy network
        (20.0, 6.0, 4, False),  # what four bits cost
        (-3.0, 6.0, 4, True),
        (11.0, 0.0, 8, False),
        (11.0, -0.5, 8, False),
        (20.0, 6.0, 16, True),
    ],
)
def test_a_node_is_outstanding_by_its_own_error_and_by_what_the_outputs_gain(
    alone, gain, bits, is_named
):
    one = node(alone=alone, gain=gain)
    assert is_outstanding(one, examined(one, bits={"conv": bits})) is is_named


@pytest.mark.parametrize("gain", [0.0, -0.49, 0.04])
def test_a_node_that_alone_removes_no_noise_is_not_ranked_beside_one_that_does(gain):
    head, late = node("head", alone=8.0, gain=8.14), node("late", alone=3.0, gain=gain)
    assert [one.node.node for one in rank_nodes(examined(head, late))] == ["head"]
    both = node("head", alone=8.0, gain=0.0), late
    assert {one.node.node for one in rank_nodes(examined(*both))} == {
        "head",
        "late",
    }  # only together do they help


@pytest.mark.parametrize(
    ("differing", "beyond", "in_float", "is_open"),
    [
        (1, 0, True, True),
        (9, 0, True, True),
        (1, 1, True, False),
        (900, 0, True, False),
        (1, 0, False, False),
    ],
)
def test_a_few_steps_of_a_float_operator_are_those_of_its_sums(
    differing, beyond, in_float, is_open
):
    counted = CountingErrors(
        elements=59904, differing=differing, ties=min(differing, 1), beyond=beyond, rms_steps=0.01
    )
    one = node("norm", claimed=counted, ties=0.002)
    whole = examined(one, in_float=frozenset(["norm"] if in_float else []))
    assert ties_alone(one, whole) is is_open
    assert bool(rank_nodes(whole)) is not is_open
