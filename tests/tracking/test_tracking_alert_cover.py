"""What one annotation covers: every machine that saw the same change; and values that are no
shares keep their unit.
"""

import dataclasses

import pytest
from tracked_results import ELSEWHERE, HERE, line, measured, run, top1

from qbench.judging import Cell
from qbench.metrics import Against, Direction
from qbench.tracking import (
    AcceptedLevel,
    Annotation,
    Kind,
    Ruling,
    cell_frame,
    find_alerts,
    group_alerts,
    trend_series,
)

CELL = Cell("smoke", "mobilenet_v2", "ort-cpu", "w8a8_asym_pc")
COMMITS = [f"{number:040x}" for number in range(60)]
ACCEPTED = {
    (CELL, "top1@photos", str(environment)): AcceptedLevel(hits=760, data=frozenset(["d-photos"]))
    for environment in (HERE, ELSEWHERE)
}


def by_turns(hits):
    """A run of each commit, on two machines that take turns."""
    places = [(number, (HERE, ELSEWHERE)[number % 2]) for number in range(len(hits))]
    return [
        run(line(measured(top1(hits[n]), environment=machine)), number=n) for n, machine in places
    ]


def regressions(hits, *named):
    notes = [
        Annotation(commit=COMMITS[number], state=Ruling.ACKNOWLEDGED, author="ann", reason="known")
        for number in named
    ]
    series = trend_series(by_turns(hits), commits=COMMITS)
    return group_alerts(
        find_alerts(series, commits=COMMITS, accepted=ACCEPTED, annotations=notes), COMMITS
    )


STAIRS = [760] * 10 + [759] * 12 + [758] * 12


def test_machines_that_take_turns_see_one_slide():
    (slide,) = regressions(STAIRS)
    assert (slide.kind, slide.suspects) == (Kind.SLIDE, ())
    assert {alert.environment_class for alert in slide.alerts} == {str(HERE), str(ELSEWHERE)}
    assert {alert.commit for alert in slide.alerts} == {COMMITS[22], COMMITS[23]}


@pytest.mark.parametrize("named", [21, 22, 23])
def test_the_commit_of_either_machine_covers_the_slide_on_both(named):
    found = regressions(STAIRS, named)
    assert [alert.state.value for one in found for alert in one.alerts] == ["acknowledged"] * 2


def test_a_commit_before_the_slide_covers_no_machine():
    assert any(one.is_new for one in regressions(STAIRS, 15))


@pytest.mark.parametrize(("named", "is_new"), [(13, True), (59, False)])
def test_a_slide_that_goes_on_behind_a_commit_of_another_machine_is_new_again(named, is_new):
    found = regressions([760 - n // 3 for n in range(60)], named)
    slides = [alert for one in found for alert in one.alerts if alert.kind is Kind.SLIDE]
    assert len(slides) == 2
    assert [(alert.is_new, "worse since then" in alert.why) for alert in slides] == [
        (is_new, is_new)
    ] * 2


@pytest.mark.parametrize("named", [19, 20, 21])
def test_a_step_is_covered_on_both_machines_by_any_commit_between_good_and_bad(named):
    hits = [760] * 20 + [700] * 12
    (step,) = regressions(hits)
    assert (step.kind, step.suspects) == (Kind.STEP, (COMMITS[20],))
    assert [one.is_new for one in regressions(hits, named)] == [False]


def test_slides_without_a_common_commit_are_two_things_to_look_at():
    early, late = [758] * 40, [760] * 20 + [759] * 10 + [758] * 10
    runs = [
        run(line(measured(top1(hits[n]), environment=machine)), number=n)
        for n in range(40)
        for machine, hits in (((HERE, early), (ELSEWHERE, late))[n % 2],)
    ]
    found = group_alerts(
        find_alerts(trend_series(runs, commits=COMMITS), commits=COMMITS, accepted=ACCEPTED),
        COMMITS,
    )
    assert [len(one.alerts) for one in found] == [1, 1]


NOISE = dataclasses.replace(
    top1(0),
    metric="sqnr",
    direction=Direction.HIGHER,
    against=Against.REFERENCE,
    unit="dB",
    proportion=False,
    out_of=1000,
    reference_hits=99_000,
)


def test_noise_louder_than_the_signal_is_kept():
    runs = [
        run(line(measured(dataclasses.replace(NOISE, hits=hits))), number=n)
        for n, hits in enumerate((400, -1_500))
    ]
    (series,) = trend_series(runs)
    assert [point.value for point in series.points] == [0.4, -1.5]
    assert cell_frame(runs)["value"].tolist() == [0.4, -1.5]


def test_a_share_below_nothing_makes_no_sense():
    (series,) = trend_series(
        [run(line(measured(dataclasses.replace(top1(700), hits=-1), top1(5, metric="agreement"))))]
    )
    assert series.metric == "agreement"


def test_an_alert_knows_the_unit_of_its_levels():
    words = dataclasses.replace(
        top1(0),
        metric="perplexity",
        direction=Direction.LOWER,
        unit="per token",
        proportion=False,
        out_of=1000,
    )
    runs = [
        run(line(measured(dataclasses.replace(words, hits=9_000 + 500 * (n >= 10)))), number=n)
        for n in range(16)
    ]
    (alert,) = find_alerts(trend_series(runs, commits=COMMITS), commits=COMMITS)
    assert (alert.unit, alert.before, alert.after) == ("per token", 9.0, 9.5)
    assert alert.loss == pytest.approx(0.5 / 9)
