"""Alerts: steps and slides, what quietens them, which commit they name,
how they are put together.
"""

import dataclasses

import pytest
from tracked_results import ELSEWHERE, HERE, baseline, line, measured, per, run, top1

from qbench.judging import Accepted, Cell
from qbench.metrics import Against
from qbench.tracking import (
    AcceptedCell,
    AcceptedLevel,
    Annotation,
    Kind,
    Ruling,
    State,
    accepted_levels,
    find_alerts,
    group_alerts,
    trend_series,
)

METRIC = "top1@photos"
CELL = Cell("smoke", "mobilenet_v2", "ort-cpu", "w8a8_asym_pc")


def sha(number):
    return f"{number:040x}"


COMMITS = [sha(n) for n in range(60)]


def accepted(hits, *, environment=HERE, data="d-photos"):
    return {(CELL, METRIC, str(environment)): AcceptedLevel(hits=hits, data=frozenset([data]))}


def night(number, hits, *, environment=HERE, slug="ort-cpu+w8a8_asym_pc"):
    return run(line(measured(top1(hits), environment=environment, slug=slug)), number=number)


def nights(hits, **more):
    return [night(number, value, **more) for number, value in enumerate(hits)]


def alerts(runs, *, commits=COMMITS, notes=(), known=None):
    return find_alerts(
        trend_series(runs, commits=commits), commits=commits, annotations=notes, accepted=known
    )


def said(state, number=10, **more):
    return Annotation(commit=sha(number), state=state, author="ann", reason="because", **more)


def test_a_step_down_is_an_alert_that_names_its_commit():
    (alert,) = alerts(nights([760] * 10 + [740] * 5))
    assert (alert.kind, alert.state, alert.is_new) == (Kind.STEP, State.DETECTED, True)
    assert (alert.commit, alert.suspects) == (sha(10), (sha(10),))
    assert (alert.before, alert.after) == pytest.approx((0.76, 0.74))


def test_a_step_up_is_none_and_of_an_error_rate_it_is_one():
    assert alerts(nights([740] * 10 + [760] * 5)) == ()
    runs = [run(line(measured(per(100 if n < 10 else 140))), number=n) for n in range(15)]
    (alert,) = alerts(runs)
    assert alert.after > alert.before


def test_nights_without_a_run_leave_a_stretch_of_suspects():
    runs = [night(n, 760 if n < 10 else 740) for n in range(0, 30, 3)]
    (alert,) = alerts(runs)
    assert alert.suspects == (sha(10), sha(11), sha(12))


@pytest.mark.parametrize("hits", [[760] * 10 + [740] * 2, [760] * 10 + [740]])
def test_what_is_not_confirmed_is_provisional(hits):
    (alert,) = alerts(nights(hits))
    assert alert.state is State.PROVISIONAL
    assert not alert.is_new


def test_what_came_back_is_fixed():
    (alert,) = alerts(nights([760] * 10 + [740] * 5 + [760] * 5))
    assert alert.state is State.FIXED


def test_what_came_back_and_went_again_is_fixed_and_new():
    first, second = alerts(nights([760] * 10 + [740] * 5 + [760] * 5 + [740] * 5))
    assert (first.state, first.suspects) == (State.FIXED, (sha(10),))
    assert (second.state, second.suspects) == (State.DETECTED, (sha(20),))


def test_two_good_nights_are_no_return():
    (alert,) = alerts(nights([760] * 10 + [740] * 5 + [760] * 2))
    assert alert.is_new


def test_a_new_level_that_was_accepted_ends_the_alert():
    runs = nights([760] * 10 + [740] * 5)
    (alert,) = alerts(runs, known=accepted(740))
    assert alert.state is State.ACCEPTED
    (step,) = alerts(runs, known=accepted(740, data="others"))
    assert step.is_new


def test_a_step_below_the_accepted_level_is_a_step_alone():
    (alert,) = alerts(nights([760] * 10 + [740] * 5), known=accepted(760))
    assert alert.kind is Kind.STEP


SLIDE = [760 - n // 3 for n in range(60)]
"""A sample every third night: no step of two samples anywhere, twenty in all."""


def test_a_slow_slide_is_seen_beside_what_was_accepted():
    found = alerts(nights(SLIDE), known=accepted(760))
    (slide,) = [alert for alert in found if alert.kind is Kind.SLIDE]
    assert slide.is_new
    assert slide.suspects == ()
    assert slide.commit == sha(6)  # 758: the first that is two samples worse
    assert (slide.before, slide.after) == (0.76, 0.741)


def test_a_slide_without_steps_is_seen_too():
    hits = [760] * 20 + [759] * 20 + [758] * 20
    assert alerts(nights(hits)) == ()
    (slide,) = alerts(nights(hits), known=accepted(760))
    assert (slide.kind, slide.commit) == (Kind.SLIDE, sha(40))
    assert alerts(nights([760] * 40 + [759] * 20), known=accepted(760)) == ()


def test_a_slide_is_not_seen_in_its_first_two_points():
    assert not any(
        a.kind is Kind.SLIDE for a in alerts(nights([760] * 9 + [758] * 2), known=accepted(760))
    )


@pytest.mark.parametrize(
    ("number", "is_new"), [(59, False), (54, False), (50, True), (12, True), (6, True)]
)
def test_a_slide_that_was_acknowledged_is_new_again_when_it_goes_on(number, is_new):
    note = said(Ruling.ACKNOWLEDGED, number)
    found = alerts(nights(SLIDE), known=accepted(760), notes=[note])
    (slide,) = [alert for alert in found if alert.kind is Kind.SLIDE]
    assert slide.is_new == is_new
    assert ("worse since then" in slide.why) == is_new


def test_a_ruling_older_than_the_first_bad_point_explains_no_slide():
    hits = [760] * 4 + [758] + [760] * 15 + [759] * 20 + [758] * 20
    (slide,) = alerts(nights(hits), known=accepted(760), notes=[said(Ruling.ACKNOWLEDGED, 4)])
    assert (slide.commit, slide.state, slide.why) == (sha(40), State.DETECTED, "")


@pytest.mark.parametrize("ruling", [Ruling.ACKNOWLEDGED, Ruling.EXPECTED, Ruling.INVALID])
def test_what_somebody_ruled_on_is_quiet_also_beside_the_accepted(ruling):
    found = alerts(nights([760] * 10 + [740] * 5), notes=[said(ruling)], known=accepted(760))
    assert [(a.state.value, a.why) for a in found] == [(ruling.value, "because (ann)")]


def test_a_slide_that_was_ruled_on_stays_so_when_a_step_of_its_own_follows():
    hits = [759] * 3 + [758] * 8 + [757] * 8 + [700] * 6
    notes = [said(Ruling.ACKNOWLEDGED, number=15)]
    step, slide = alerts(nights(hits), known=accepted(760), notes=notes)
    assert (step.kind, step.state) == (Kind.STEP, State.DETECTED)
    assert (slide.kind, slide.state) == (Kind.SLIDE, State.ACKNOWLEDGED)
    *_, slide = alerts(
        nights([*hits, 699, 698, 697, 696, 696, 696]), known=accepted(760), notes=notes
    )
    assert (slide.kind, slide.is_new) == (Kind.SLIDE, True), "beside the step it has slid on"


def test_a_ruling_on_other_cells_or_commits_changes_nothing():
    runs = nights([760] * 10 + [740] * 5)
    for note in (
        said(Ruling.EXPECTED, cell="digits::*"),
        said(Ruling.EXPECTED, 9),
        said(Ruling.EXPECTED, metric="x"),
    ):
        (alert,) = alerts(runs, notes=[note])
        assert alert.is_new


def test_what_is_said_to_be_fixed_and_is_not_stays_an_alarm():
    runs = nights([760] * 10 + [740] * 5)
    (alert,) = alerts(runs, notes=[said(Ruling.FIXED)])
    assert alert.is_new
    assert "has not returned" in alert.why
    (alert,) = alerts([*runs, *[night(15 + n, 760) for n in range(5)]], notes=[said(Ruling.FIXED)])
    assert alert.state is State.FIXED


def test_the_last_ruling_counts():
    notes = [said(Ruling.ACKNOWLEDGED), said(Ruling.EXPECTED)]
    (alert,) = alerts(nights([760] * 10 + [740] * 5), notes=notes)
    assert alert.state is State.EXPECTED


def test_other_machines_other_samples_and_newer_engines_raise_none():
    turns = [
        night(n, 760 if n % 2 else 740, environment=HERE if n % 2 else ELSEWHERE) for n in range(30)
    ]
    assert alerts(turns) == ()
    moved = dataclasses.replace(
        measured(top1(700)), digests={**measured().digests, "data:photos": "d2"}
    )
    others = [*nights([760] * 10), *[run(line(moved), number=n) for n in range(10, 20)]]
    assert alerts(others, known=accepted(760)) == ()


def test_machines_in_turn_narrow_the_stretch_down():
    """Each machine is seen every fourth night;
    the change is between nights that only both together tell.
    """
    here = [night(n, 760 if n < 18 else 740) for n in range(0, 40, 4)]
    there = [night(n, 750 if n < 18 else 730, environment=ELSEWHERE) for n in range(2, 40, 4)]
    found = alerts([*here, *there])
    assert sorted(a.suspects for a in found) == [tuple(COMMITS[15:19]), tuple(COMMITS[17:21])]
    (regression,) = group_alerts(found, COMMITS)
    assert regression.suspects == (sha(17), sha(18))
    assert len(regression.alerts) == 2


def test_alerts_of_one_commit_are_one_regression_the_largest_loss_first():
    def both(n):
        lines = [
            line(measured(top1(760 if n < 10 else low), slug=slug))
            for slug, low in (("a+s", 750), ("b+s", 700))
        ]
        lines.append(line(measured(top1(760 if n < 20 else 740), slug="c+s")))
        return run(*lines, number=n)

    first, second = group_alerts(alerts([both(n) for n in range(30)]), COMMITS)
    assert [alert.cell.backend for alert in first.alerts] == ["b", "a"]
    assert (first.suspects, second.suspects) == ((sha(10),), (sha(20),))


def test_what_was_ruled_on_is_not_put_beside_what_is_new():
    def both(n):
        return run(
            *[line(measured(top1(760 if n < 10 else 740), slug=slug)) for slug in ("a+s", "b+s")],
            number=n,
        )

    found = alerts([both(n) for n in range(20)], notes=[said(Ruling.EXPECTED, cell="*::a+*")])
    groups = group_alerts(found, COMMITS)
    assert sorted(one.is_new for one in groups) == [False, True]


def test_outside_version_control_the_run_is_named():
    runs = [
        run(line(measured(top1(760 if n < 10 else 740))), number=n, commit=None) for n in range(15)
    ]
    (alert,) = alerts(runs, commits=())
    assert (alert.commit, alert.suspects, alert.run) == ("", (), runs[10].id)
    (regression,) = group_alerts([alert], ())
    assert regression.is_new


def test_what_baselines_hold_is_what_is_compared_with():
    result = Accepted(metrics={METRIC: 758}, predictions={})
    stored = dataclasses.replace(
        baseline(), cells={CELL.slug: AcceptedCell(accepted={str(HERE): result})}
    )
    levels = accepted_levels("smoke", [stored])
    assert levels[CELL, METRIC, str(HERE)].hits == 758
    (slide,) = alerts(nights([755] * 9), known=levels)
    assert (slide.kind, slide.before, slide.after) == (Kind.SLIDE, 0.758, 0.755)


def test_a_distance_to_fp32_that_grew_is_an_alert_in_its_unit():
    noise = dataclasses.replace(
        top1(760),
        metric="sqnr",
        against=Against.REFERENCE,
        unit="dB",
        proportion=False,
        out_of=1000,
    )
    runs = [
        run(
            line(
                measured(top1(760), dataclasses.replace(noise, hits=30_000 if n < 10 else 20_000))
            ),
            number=n,
        )
        for n in range(15)
    ]
    found = {one.metric: one for one in trend_series(runs, commits=COMMITS)}
    assert (found["sqnr"].unit, found["sqnr"].is_distance, found["sqnr"].steps) == (
        "dB",
        True,
        (10,),
    )
    assert (found[METRIC].unit, found[METRIC].is_distance) == ("%", False)
    (alert,) = alerts(runs)
    assert (alert.metric, alert.unit, alert.before, alert.after) == ("sqnr", "dB", 30, 20)
    assert alert.suspects == (sha(10),)


@pytest.mark.parametrize(
    ("accepted_for", "equivalents", "known"),
    [
        (str(ELSEWHERE), (), False),
        (str(ELSEWHERE), ((HERE.processor, ELSEWHERE.processor),), True),
        ("any", (), True),
    ],
)
def test_trends_are_held_to_what_drift_is_held_to(accepted_for, equivalents, known):
    result = Accepted(metrics={METRIC: 758}, predictions={})
    stored = dataclasses.replace(
        baseline(), cells={CELL.slug: AcceptedCell(accepted={accepted_for: result})}
    )
    levels = accepted_levels("smoke", [stored], classes=[str(HERE)], equivalents=equivalents)
    assert ((CELL, METRIC, str(HERE)) in levels) == known
    assert bool(alerts(nights([755] * 9), known=levels)) == known
