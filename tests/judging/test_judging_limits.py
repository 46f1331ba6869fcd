"""Distances to fp32: shown until a suite limits them, and written in their unit everywhere."""

import dataclasses

import pytest
from judged_numbers import measured, top1

from qbench.judging import Floors, GateState, Limit, Rules, Tolerance
from qbench.judging.loss import judge_score, limit_gate, loss_gate
from qbench.judging.verdict import breach, move
from qbench.metrics import Against, Direction, Score

DB = Score(
    metric="sqnr",
    direction=Direction.HIGHER,
    against=Against.REFERENCE,
    unit="dB",
    proportion=False,
    least_margin=0.0,
    n=128,
    hits=128 * 20_000,
    out_of=128_000,
    reference_hits=128 * 150_000,
    losses=128,
    gains=0,
)
NATS = dataclasses.replace(
    DB, metric="kl", direction=Direction.LOWER, unit="nats", hits=64, out_of=128, losses=64
)


def test_a_distance_is_shown_where_nothing_limits_it():
    gate = judge_score(DB, Tolerance(), Rules(), Floors(stored={"sqnr": 128_000}))
    assert (gate.state, gate.limit, gate.detail) == (
        GateState.SHOWN,
        None,
        "sqnr 20 dB over 128 samples",
    )


@pytest.mark.parametrize(
    ("score", "limit", "state"),
    [
        (DB, 20.0, GateState.HOLDS),
        (DB, 20.001, GateState.BROKEN),
        (NATS, 0.5, GateState.HOLDS),
        (NATS, 0.4999999, GateState.BROKEN),
    ],
)
def test_a_limit_is_exact_on_the_side_of_its_metric(score, limit, state):
    gate = judge_score(
        score, Tolerance(), Rules(limits={score.metric: Limit(limit, "model m")}), Floors()
    )
    assert (gate.state, gate.kind, gate.limit) == (state, "limit", limit)


def test_units_are_written_out(words):
    gate = limit_gate(DB, Limit(25.0, "suite smoke"))
    words(gate.detail)
    words(breach(measured(top1(760), DB), gate))
    over = limit_gate(NATS, Limit(0.05, "model m"))
    words(breach(measured(NATS), over))
    assert move(dataclasses.replace(DB, metric="cosine", unit="", hits=127_999)) == "cosine 0.99999"


def test_a_loss_in_another_unit_than_percent(words):
    loss = dataclasses.replace(
        NATS,
        metric="perplexity",
        against=Against.LABELS,
        hits=260,
        reference_hits=256,
        interval=(0.01, 0.05),
    )
    gate = loss_gate(loss, Tolerance(0.005, "suite smoke"))
    assert gate.state is GateState.BROKEN
    assert gate.detail.startswith(
        "perplexity 260/128 = 2.0312 nats against fp32 256/128 = 2 nats: rise 0.03125 nats,"
    )
    words(gate.detail)
    assert breach(measured(loss), gate).startswith(
        "perplexity 2 → 2.0312 nats: rise 0.03125 nats, margin 0.01 nats"
    )
