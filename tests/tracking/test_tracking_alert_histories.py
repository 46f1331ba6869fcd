"""Alerts on histories whose truth is known: fifteen nights of a newcomer, and random ones with
all that can happen.
"""

import importlib.util
import sys
from pathlib import Path

import pytest

from qbench.tracking import Kind, State, find_alerts, trend_series

_SPEC = importlib.util.spec_from_file_location(
    "alert_histories", Path(__file__).parents[2] / "benchmarks/alert_histories.py"
)
made_by = importlib.util.module_from_spec(_SPEC)
sys.modules["alert_histories"] = made_by
_SPEC.loader.exec_module(made_by)


def alerts_of(made, nights=None):
    series = trend_series(made.runs[:nights], commits=made.line)
    return find_alerts(series, commits=made.line)


def about(alerts, backend, metric):
    return [one for one in alerts if (one.cell.backend, one.metric) == (backend, metric)]


@pytest.fixture(scope="module", params=range(3))
def fifteen(request):
    return made_by.fifteen_nights(request.param)


def test_a_step_in_decibels_alone_is_the_one_new_alert_of_its_nights(fifteen):
    """The schema clipped one layer: 42.7 → 14.0 dB with top-1 unmoved,
    confirmed in the third night.
    """
    after = alerts_of(fifteen, 11)
    (new,) = [one for one in after if one.is_new and one.commit >= made_by.sha(9)]
    assert (new.metric, new.unit, new.before, new.after) == ("sqnr", "dB", 42.7, 14.0)
    assert (new.kind, new.suspects) == (Kind.STEP, (made_by.sha(9),))
    (fixed,) = [one for one in alerts_of(fifteen) if one.metric == "sqnr"]
    assert (fixed.state, fixed.before, fixed.after) == (State.FIXED, 42.7, 14.0)


def test_the_noise_of_an_engine_is_no_alert(fifteen):
    """Each alert of the cells on the noisy engine is of the retraining, at its commit."""
    found = [one for one in alerts_of(fifteen) if one.cell.backend == "flaky-npu"]
    assert {one.state for one in found} <= {State.ACCEPTED}
    assert all(one.metric != "sqnr" for one in found)
    assert all({made_by.sha(6), made_by.sha(7)} & {*one.stretch} for one in found)


def test_what_was_retrained_and_accepted_ends_as_accepted_with_its_own_numbers(words, fifteen):
    (one,) = about(alerts_of(fifteen), "ort-cpu", "top1")
    assert (one.state, one.suspects) == (State.ACCEPTED, (made_by.sha(7),))
    assert (one.before, one.after) == (93 / 96, 88 / 96)
    words(one.why)


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("seed", range(3))
def test_an_alert_that_ended_never_changes(seed):
    made = made_by.fifteen_nights(seed)
    find = lambda runs: find_alerts(trend_series(runs, commits=made.line), commits=made.line)  # noqa: E731
    assert made_by.altered_ends(made, find) == []


@pytest.mark.slow
def test_one_fall_is_one_alert_at_its_commit_in_random_histories():
    counts, wrong = made_by.Counts(), []
    for seed in range(400, 425):
        made = made_by.mixed_history(seed)
        made_by.count_alerts(made, alerts_of(made), counts, wrong)
    steps = [one for one in wrong if "kind='slide'" not in one]
    assert (counts.false, counts.moved, steps) == (0, 0, [])
    assert counts.true >= counts.clear > 50


def test_a_change_of_the_baseline_long_after_reopens_nothing():
    """What was accepted is in each record:
    another baseline today is no matter of the nights before.
    """
    made = made_by.fifteen_nights(1)
    series = trend_series(made.runs[:12], commits=made.line)
    from qbench.tracking import AcceptedLevel

    key = next(
        (one.cell, one.metric, one.environment_class) for one in series if one.metric == "top1"
    )
    before = find_alerts(series, commits=made.line)
    level = AcceptedLevel(hits=40, data=frozenset(["d"]))
    ended = {State.ACCEPTED, State.FIXED}
    after = find_alerts(series, commits=made.line, accepted={key: level})
    assert [one for one in before if one.state in ended] == [
        one for one in after if one.state in ended
    ]
