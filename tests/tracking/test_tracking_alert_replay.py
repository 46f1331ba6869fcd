"""Alerts over time: confirmed ones stay, end once, name a commit where one is known, and show
what was measured.
"""

import importlib
import sys
from pathlib import Path

import pytest
from tracked_results import ELSEWHERE, HERE, line, measured, run, top1

from qbench.judging import Cell, EnvironmentClass
from qbench.reporting import build_report, remember
from qbench.tracking import AcceptedLevel, Kind, State, find_alerts, trend_series

CELL = Cell("smoke", "mobilenet_v2", "ort-cpu", "w8a8_asym_pc")
METRIC = "top1@photos"
COMMITS = [f"{number:040x}" for number in range(80)]
OLDER = EnvironmentClass(HERE.processor, (("onnxruntime", "1.24.1"),))


def night(day, hits, *, commit=None, environment=HERE, slug="ort-cpu+w8a8_asym_pc"):
    """A run of 400 samples; of the commit of its day where none is named."""
    cell = measured(top1(hits, reference=392, n=400), environment=environment, slug=slug)
    return run(line(cell), number=day, commit={"sha": COMMITS[day if commit is None else commit]})


def accepted(hits):
    return {(CELL, METRIC, str(HERE)): AcceptedLevel(hits=hits, data=frozenset(["d-photos"]))}


def alerts(runs, known=None):
    return find_alerts(trend_series(runs, commits=COMMITS), commits=COMMITS, accepted=known)


# A newcomer's nights: accepted at 98.00 %, three green ones, one of a wrong calibration (97.25),
# reverted, retrained (97.75, accepted), then four nights red at 97.25 from one commit on.
DAYS = [392, 392, 392, 392, 389, 392, 391, 391, 391, 391, 389, 389, 389, 389]
BROKEN = 10
FOUR_RED = [night(day, hits) for day, hits in enumerate(DAYS)]


@pytest.mark.parametrize("known", [None, 391, 392])
@pytest.mark.parametrize(
    "red", [FOUR_RED, [night(n, h) for n, h in enumerate([391, 389, 389, 389, 389])]]
)
def test_four_red_nights_from_one_commit_are_a_step_at_that_commit(red, known):
    (alert,) = alerts(red, None if known is None else accepted(known))
    commit = COMMITS[len(red) - 4]
    assert (alert.kind, alert.state, alert.suspects) == (Kind.STEP, State.DETECTED, (commit,))
    assert (alert.before, alert.after) == (391 / 400, 389 / 400), "97.75 → 97.25, as measured"


@pytest.mark.parametrize(
    "before",
    [[392, 392, 392, 392, 389, 392, 390, 391, 391], [392] * 4 + [389] * 2 + [392, 391, 391]],
)
def test_what_was_accepted_shows_a_step_that_the_series_alone_does_not(before):
    (alert,) = alerts(
        [night(day, hits) for day, hits in enumerate(before + [389] * 4)], accepted(391)
    )
    assert (alert.kind, alert.suspects, alert.before, alert.after) == (
        Kind.STEP,
        (COMMITS[len(before)],),
        391 / 400,
        389 / 400,
    )


def test_an_alert_outlives_a_good_night_beside_repeated_runs_and_another_engine():
    day = len(DAYS)
    runs = [
        *FOUR_RED,
        night(day, 389, commit=13),
        night(day + 1, 389, commit=13),
        night(day + 2, 388, commit=13, environment=OLDER),
        night(day + 3, 388, commit=13, environment=OLDER),
        night(day + 4, 391, commit=14),
    ]
    (alert,) = alerts(runs, accepted(391))
    assert (alert.kind, alert.state, alert.suspects) == (
        Kind.STEP,
        State.DETECTED,
        (COMMITS[BROKEN],),
    )
    (alert,) = alerts(
        [*runs, night(day + 5, 391, commit=15), night(day + 6, 391, commit=16)], accepted(391)
    )
    assert (alert.state, alert.suspects) == (State.FIXED, (COMMITS[BROKEN],))
    (alert,) = alerts(
        [*runs, night(day + 5, 392, commit=2), night(day + 6, 391, commit=11)], accepted(391)
    )
    assert (alert.state, alert.suspects) == (State.DETECTED, (COMMITS[BROKEN],)), (
        "old commits, measured again"
    )


def test_many_runs_of_one_good_commit_do_not_bend_the_level_behind_it():
    reds = [night(4 + n, 389, commit=4 + n // 2) for n in range(6)]
    runs = [*[night(n, 392) for n in range(4)], *reds, night(10, 392, commit=7)]
    (series,) = trend_series(runs, commits=COMMITS)
    assert [level.value for level in series.levels] == [392 / 400, 389 / 400, 392 / 400]
    (alert,) = alerts(runs)
    assert (alert.before, alert.after) == (392 / 400, 389 / 400)


@pytest.mark.parametrize("known", [None, accepted(391)])
def test_an_alert_that_ended_is_known_after_its_commits_were_measured_again_and_were_good(known):
    red = [night(day, 391) for day in range(5)] + [night(day, 388) for day in range(5, 8)]
    (before,) = alerts(red, known)
    again = [night(8 + n, 391, commit=commit) for n, commit in enumerate([5, 5, 6, 6, 7, 7])]
    (after,) = alerts([*red, *again], known)
    assert (before.state, before.commit) == (State.DETECTED, COMMITS[5])
    assert (after.state, after.commit) == (State.FIXED, COMMITS[5])


def test_the_table_of_steps_and_the_alerts_are_one_computation():
    known = accepted(391)
    for runs in (
        FOUR_RED,
        [*FOUR_RED, night(14, 391)],
        [night(n, h) for n, h in enumerate([392, 389, 392, 390, 391, 391, 389, 389, 389, 389])],
    ):
        memory = remember(runs, accepted=known, commits=COMMITS)
        report = build_report(runs, memory=memory)
        named = {
            (alert.commit[:9], round(400 * alert.before), round(400 * alert.after))
            for one in report.regressions
            for alert in one.alerts
            if alert.kind is Kind.STEP
        }
        shown = {
            (runs[step.position].commit[:9], round(400 * step.before), round(400 * step.after))
            for group in report.step_groups
            for _, _, step in group.steps
            if not step.provisional
        }
        assert named == shown != set()


@pytest.mark.parametrize("start", [400, 396])
def test_a_slide_names_no_commit_with_and_without_an_accepted_result(start):
    runs = [night(day, start - max(0, day - 10) // 4) for day in range(60)]
    (slide,) = alerts(runs, accepted(start))
    assert (slide.kind, slide.own_past, slide.suspects, slide.before) == (
        Kind.SLIDE,
        False,
        (),
        start / 400,
    )
    (slide,) = alerts(runs)
    assert (slide.kind, slide.own_past, slide.suspects, slide.before) == (
        Kind.SLIDE,
        True,
        (),
        start / 400,
    )
    slide, *_ = alerts(runs, accepted(start - 12))
    assert (slide.kind, slide.state) == (Kind.SLIDE, State.ACCEPTED)


def test_what_slides_on_below_a_step_is_a_slide_and_no_second_step():
    hits = [392] * 8 + [386] * 14 + [385] * 6 + [384] * 6
    step, slide = alerts([night(day, value) for day, value in enumerate(hits)], accepted(392))
    assert (step.kind, step.suspects, step.after) == (Kind.STEP, (COMMITS[8],), 386 / 400)
    assert (slide.kind, slide.suspects) == (Kind.SLIDE, ())
    assert slide.before - slide.after == pytest.approx(2 / 400), "without the loss of the step"


def test_a_slide_that_came_back_is_fixed():
    stairs = [392] * 10 + [391] * 6 + [390] * 6
    runs = [night(day, hits) for day, hits in enumerate(stairs + [392] * 3)]
    assert alerts(runs[:-1], accepted(392))[0].state is State.DETECTED
    (slide,) = alerts(runs, accepted(392))
    assert (slide.kind, slide.state) == (Kind.SLIDE, State.FIXED)
    (slide,) = alerts([*runs, *[night(25 + n, 391) for n in range(9)]], accepted(392))
    assert slide.state is State.FIXED


def test_what_was_accepted_stays_accepted_below_a_later_step():
    hits = [392] * 6 + [388] * 6 + [384] * 6
    first, second = alerts([night(day, value) for day, value in enumerate(hits)], accepted(384))
    assert (first.state, second.state) == (State.ACCEPTED, State.ACCEPTED)
    first, second = alerts([night(day, value) for day, value in enumerate(hits)], accepted(388))
    assert (first.state, second.state) == (State.ACCEPTED, State.DETECTED)


def test_a_late_measurement_between_good_and_bad_leaves_fewer_suspects():
    runs = [*[night(n, 392) for n in range(8)], *[night(n, 386) for n in range(12, 18)]]
    (alert,) = alerts(runs)
    assert alert.suspects == tuple(COMMITS[8:13])
    (alert,) = alerts([*runs, night(20, 392, commit=9)])
    assert alert.suspects == tuple(COMMITS[10:13])
    (alert,) = alerts([*runs, night(20, 392, commit=9), night(21, 386, commit=10)])
    assert alert.suspects == (COMMITS[10],)


@pytest.fixture(scope="module")
def rates():
    """``benchmarks/alert_rates.py``, which makes random histories and replays them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
        yield importlib.import_module("alert_rates")
    del sys.modules["alert_rates"]


@pytest.mark.slow_but(4)
@pytest.mark.parametrize("seed", range(24))
def test_a_confirmed_alert_is_there_after_every_later_run_and_ends_once(rates, seed):
    made = rates.make_history(seed)
    assert not rates.broken_promises(made.runs[:40], made.line, made.accepted)


def test_machines_in_turn_name_the_commit_between_their_nights():
    runs = [
        night(n, 392 if n < 20 else 386, environment=(HERE, ELSEWHERE)[n % 2]) for n in range(40)
    ]
    assert {alert.suspects for alert in alerts(runs)} == {
        tuple(COMMITS[19:21]),
        tuple(COMMITS[20:22]),
    }
