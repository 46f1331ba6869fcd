"""The gate of latency: the interval of a median by order statistics,
and what it makes of a cell.
"""

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged_numbers import expected, judged, measured

from qbench.judging import Accepted, GateKind, GateState, Outcome, Rules, Setting
from qbench.judging.latency import Timing, median_interval
from qbench.judging.suite_keys import RatioLimits


def timing(*ratios, fp32=0.002):
    return {
        "cell": tuple(fp32 * ratio for ratio in ratios),
        "fp32": (fp32,) * len(ratios),
        "samples": 8,
    }


def rules(**limits):
    return Rules(more={"max_latency_ratio": Setting(RatioLimits(**limits), "suite smoke")})


def gates_of(evidence, limits, accepted=None):
    measurement = measured(evidence={GateKind.LATENCY: evidence})
    known = expected(measurement)
    if accepted is not None:
        (name,) = known.accepted
        held = known.accepted[name]
        kept = Accepted(
            metrics=held.metrics, predictions=held.predictions, remembered={"latency": accepted}
        )
        known = expected(measurement, accepted={name: kept})
    verdict = judged(measurement, known, rules=limits)
    return verdict, [gate for gate in verdict.gates if gate.metric == "latency"]


STEADY = [0.70 + 0.001 * turn for turn in range(21)]
NOISY = [0.4 + 0.05 * turn for turn in range(21)]


@pytest.mark.parametrize(
    ("ratios", "limit", "state", "outcome"),
    [
        (STEADY, 0.8, GateState.HOLDS, Outcome.PASSED),
        (STEADY, 0.6, GateState.BROKEN, Outcome.FAILED),
        (NOISY, 0.9, GateState.INCONCLUSIVE, Outcome.INCONCLUSIVE),
    ],
)
def test_the_whole_interval_has_to_be_on_one_side_of_the_limit(ratios, limit, state, outcome):
    verdict, (gate,) = gates_of(timing(*ratios), rules(fp32=limit))
    assert gate.state is state
    assert verdict.outcome is outcome
    assert f"limit {limit}" in gate.detail


def test_an_open_ratio_has_its_noise_and_its_margin_in_numbers(words):
    """It said that the noise is wider than the margin, and how wide was not to be read."""
    ratios = [0.40, 0.41, 0.42, 0.80, 0.85, 0.90, 0.95, 1.40, 1.45]
    verdict, (gate,) = gates_of(timing(*ratios), rules(fp32=0.9))
    assert gate.state is GateState.INCONCLUSIVE
    words(gate.detail)
    (notice,) = [text for text in verdict.notices if "noise" in text]
    assert notice in gate.detail
    assert "samples" not in notice


def test_the_accepted_ratio_is_compared_too_and_a_slower_computer_cancels_out():
    _, (gate,) = gates_of(timing(*STEADY, fp32=0.5), rules(accepted=1.2), accepted=0.70)
    assert gate.state is GateState.HOLDS
    verdict, (gate,) = gates_of(timing(*STEADY), rules(accepted=1.2), accepted=0.50)
    assert (gate.state, verdict.outcome) == (GateState.BROKEN, Outcome.DRIFTED)
    assert "--qbench-accept=all" in verdict.remedy


def test_nothing_accepted_is_no_verdict_and_a_notice():
    verdict, (gate,) = gates_of(timing(*STEADY), rules(accepted=1.2))
    assert (gate.state, verdict.outcome) == (GateState.INCOMPARABLE, Outcome.PASSED)
    assert gate.detail in verdict.notices


def test_without_the_key_there_is_no_gate():
    assert gates_of(timing(*STEADY), Rules())[1] == []


@pytest.mark.parametrize(
    "limits", [{}, {"fp32": 0.0}, {"accepted": -1.0}, {"fp32": math.inf}, {"fp32": math.nan}]
)
def test_impossible_limits(limits):
    with pytest.raises(ValueError, match="ratio"):
        RatioLimits(**limits)


def coverage(n):
    """The share of all ways in which n values lie below or above a median, whose interval
    covers it: by enumeration.
    """
    inside = 0
    for signs in product((-1, 1), repeat=n):
        values = [sign * (place + 1) for place, sign in enumerate(signs)]
        low, _, high = median_interval(values)
        inside += low <= 0 <= high
    return inside / 2**n


@pytest.mark.parametrize("n", [6, 9, 13])
def test_the_interval_covers_the_median_in_at_least_95_percent(n):
    assert coverage(n) >= 0.95


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=40))
def test_the_median_is_inside_its_interval(values):
    low, middle, high = median_interval(values)
    assert min(values) <= low <= middle <= high <= max(values)


def test_the_text_has_milliseconds_and_turns():
    assert Timing(**timing(*STEADY)).text.endswith("fp32 2 ms; 21 turns of 8 samples")


def test_what_could_not_be_timed_is_no_verdict_and_a_notice():
    verdict, (gate,) = gates_of({"unknown": "no float model"}, rules(fp32=0.8))
    assert (gate.state, verdict.outcome) == (GateState.INCOMPARABLE, Outcome.PASSED)
    assert "no float model" in verdict.notices
