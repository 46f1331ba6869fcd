"""Nodes that an engine runs in float though they were planned in integers."""

import pytest

from qbench.diagnosis.localize_cell import with_floats
from qbench.judging import Cause, Gate, GateKind, GateState, Outcome, Suspect, Verdict

LOST = Gate(
    kind=GateKind.EXECUTED, metric="executed_macs", state=GateState.BROKEN, detail="", rule=""
)
HELD = Gate(
    kind=GateKind.EXECUTED, metric="executed_macs", state=GateState.HOLDS, detail="", rule=""
)
WORDS = (
    "conv1 in float32 (12.5 %)",
    "fc, not reported, (3 %)",
    "head in float32 (1 %, as planned)",
)


def verdict(gate):
    return Verdict(outcome=Outcome.PASSED, headline="", rule="", gates=(gate,))


def suspects(cause):
    return (Suspect(node="conv1", cause=cause, evidence="3 of 9 differ", score=9000.0),)


@pytest.mark.parametrize(
    ("gate", "cause", "near", "named"),
    [
        (HELD, Cause.WRONG_KERNEL, {"conv1"}, [("conv1", Cause.IN_FLOAT)]),
        (HELD, Cause.ROUNDING, {"conv1"}, [("conv1", Cause.IN_FLOAT)]),
        (HELD, Cause.WRONG_KERNEL, set(), [("conv1", Cause.WRONG_KERNEL)]),
        (HELD, Cause.WRONG_BIAS, {"conv1"}, [("conv1", Cause.WRONG_BIAS)]),
        (LOST, Cause.WRONG_BIAS, {"conv1"}, [("conv1", Cause.WRONG_BIAS), ("fc", Cause.IN_FLOAT)]),
        (LOST, Cause.COARSE, {"conv1"}, [("conv1", Cause.IN_FLOAT), ("fc", Cause.IN_FLOAT)]),
    ],
)
def test_a_node_in_float_is_named_by_its_numbers_or_by_the_share_that_is_lost(
    gate, cause, near, named
):
    found = with_floats(suspects(cause), WORDS, verdict(gate), near)
    assert [(one.node, one.cause) for one in found] == named
    assert "head" not in {one.node for one in found}  # planned in float


def test_nothing_in_float_changes_nothing():
    assert with_floats(suspects(Cause.ROUNDING), (), verdict(LOST), {"conv1"}) == suspects(
        Cause.ROUNDING
    )
