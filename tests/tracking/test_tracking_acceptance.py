"""What accepting takes over, what it refuses, and that it takes nothing else."""

import dataclasses
import datetime

import numpy as np
import pytest
from tracked_results import (
    ANSWERS,
    ELSEWHERE,
    HERE,
    agreement,
    baseline,
    line,
    measured,
    per,
    run,
    top1,
)

from qbench.errors import IncompleteError, InputError
from qbench.judging import Compared, Criterion, QuarantineEntry, Rules
from qbench.metrics import Answers, Clusters
from qbench.tracking import (
    AcceptedRow,
    Accepting,
    Scope,
    accept_measurements,
    accept_reference,
    accepted_lines,
    baseline_path,
    demand_whole,
    load_baseline,
    save_baseline,
)

SLUG = "ort-cpu+w8a8_asym_pc"
WORSE = measured(top1(755), per(104), agreement(930), predictions="p2")
BETTER = measured(top1(761), per(104), agreement(930), predictions="p3")
MIXED = measured(top1(761), per(105), agreement(930), predictions="p4")
SAME_COUNTS = measured(predictions="p5")


def accept(base, *measurements, scope=Scope.ALL, reason="a new kernel", for_any=False, **more):
    accepting = Accepting(scope=scope, reason=reason, for_any=for_any)
    return accept_measurements(
        base, measurements, accepting=accepting, **({"rules": Rules()} | more)
    )


@pytest.fixture
def known():
    return accept(baseline(), measured(), scope=Scope.NEW, reason="").baseline


@pytest.mark.parametrize(
    ("measurement", "scopes"),
    [
        (WORSE, {Scope.CHANGED, Scope.ALL}),
        (BETTER, {Scope.IMPROVED, Scope.CHANGED, Scope.ALL}),
        (MIXED, {Scope.CHANGED, Scope.ALL}),
        (SAME_COUNTS, {Scope.CHANGED, Scope.ALL}),
        (measured(), set()),
        (measured(slug="ort-cpu+other"), {Scope.NEW, Scope.ALL}),
        (measured(environment=ELSEWHERE), {Scope.NEW, Scope.ALL}),
    ],
)
@pytest.mark.parametrize("scope", [*Scope, None])
def test_scopes(known, measurement, scope, scopes):
    found = accept(known, measurement, scope=scope)
    assert bool(found.rows) == (scope in scopes)
    if scope not in scopes:
        assert found.baseline is known


def test_an_error_rate_improves_downwards(known):
    assert accept(
        known, measured(top1(758), per(103), agreement(940), predictions="p"), scope=Scope.IMPROVED
    ).rows
    assert not accept(
        known, measured(top1(758), per(105), agreement(940), predictions="p"), scope=Scope.IMPROVED
    ).rows


def test_the_table_is_old_to_new(known):
    rows = accept(known, WORSE).rows
    assert [(r.cell, r.environment_class, r.metric, r.old, r.new, r.out_of) for r in rows] == [
        (SLUG, str(HERE), "top1@photos", 758, 755, 1000),
        (SLUG, str(HERE), "per@words", 104, 104, 2000),
        (SLUG, str(HERE), "agreement@photos", 940, 930, 1000),
    ]
    assert all(row.old is None for row in accept(known, measured(environment=ELSEWHERE)).rows)


def test_replacing_needs_a_reason_and_new_does_not(known):
    for reason in ("", "  ", "…", "...", "-"):
        with pytest.raises(InputError, match="qbench-reason"):
            accept(known, WORSE, reason=reason)
    assert accept(known, measured(environment=ELSEWHERE), reason="").rows
    assert accept(known, WORSE).baseline.cells[SLUG].accepted[str(HERE)].reason == "a new kernel"
    assert known.cells[SLUG].accepted[str(HERE)].reason == ""


def test_classes_do_not_touch_each_other(known):
    found = accept(known, dataclasses.replace(WORSE, environment=ELSEWHERE)).baseline.cells[SLUG]
    assert found.accepted[str(HERE)] == known.cells[SLUG].accepted[str(HERE)]
    assert found.accepted[str(ELSEWHERE)].metrics["top1@photos"] == 755


@pytest.mark.parametrize(
    ("hits", "share", "floor"),
    [(940, 0.85, 920), (860, 0.85, 850), (870, 0.85, 850), (600, 0.85, 850), (1000, 0.99, 990)],
)
def test_floors_lie_two_percent_under_and_never_under_the_minimum(hits, share, floor):
    found = accept(baseline(), measured(top1(758), agreement(hits)), rules=Rules(agreement=share))
    assert found.baseline.cells[SLUG].floors == {"agreement@photos": floor}


def test_the_floor_follows_the_lowest_class(known):
    other = measured(top1(758), agreement(900), predictions="e", environment=ELSEWHERE)
    assert accept(known, other).baseline.cells[SLUG].floors == {"agreement@photos": 880}
    higher = measured(top1(758), agreement(990), predictions="e", environment=ELSEWHERE)
    assert accept(known, higher).baseline.cells[SLUG].floors == {"agreement@photos": 920}


def test_one_more_metric_is_taken_over_without_a_reason(known):
    more = measured(top1(758), per(104), agreement(940), top1(900, metric="top5@photos"))
    found = accept(known, more, scope=Scope.NEW, reason="").baseline
    assert found.cells[SLUG].accepted[str(HERE)].metrics["top5@photos"] == 900


def test_the_executed_share_is_accepted_and_less_needs_a_reason(known):
    for scope in (Scope.NEW, Scope.CHANGED, Scope.IMPROVED):  # the numbers are as accepted
        assert accept(known, measured(executed_macs=1.0), scope=scope).baseline is known
    first = accept(known, measured(executed_macs=1.0), reason="").baseline
    assert first.cells[SLUG].accepted[str(HERE)].executed_macs == 1.0
    assert accept(known, measured()).baseline is known
    with pytest.raises(InputError, match="reason"):
        accept(first, measured(executed_macs=0.4), reason="")
    less = accept(first, measured(executed_macs=0.4), reason="a layer has no kernel").baseline
    assert less.cells[SLUG].accepted[str(HERE)].executed_macs == 0.4


def entry(cell, when=None):
    return QuarantineEntry(
        cell=cell,
        measured="70.7",
        reason="per-tensor weights",
        owner="kernels",
        expires="2026-12-31",
        when=when,
    )


@pytest.mark.parametrize(
    ("measurement", "more", "words"),
    [
        (WORSE, {"quarantine": [entry("mobilenet_v2::*")]}, "per-tensor weights"),
        (measured(model="m2"), {}, "another model"),
        (measured(integer_macs=0.4), {}, "40 %"),
        (measured(integer_macs=float("nan")), {}, "nan"),
    ],
)
def test_what_is_never_accepted(known, measurement, more, words):
    found = accept(known, measurement, **more)
    assert found.baseline is known
    assert not found.rows
    assert words in found.refusals[0].reason


UNEQUAL = Compared(backend="ort-cpu-noopt", elements=100, differing=3, steps=1.0, relative=0.25)
BESIDE = Criterion(backend="ort-cpu-noopt", rule="suite smoke")


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("slug", [SLUG, "ort-cpu+other"])
def test_a_cell_that_is_not_what_another_backend_is_is_never_accepted(known, scope, slug):
    asked = []
    worse = measured(top1(755), compared=UNEQUAL, predictions="p2", slug=slug)
    found = accept(
        known, worse, scope=scope, criterion=lambda cell: asked.append(cell.slug) or BESIDE
    )
    assert found.baseline is known
    assert asked == [slug]
    (refusal,) = found.refusals
    assert refusal.reason.endswith(": equal_to ort-cpu-noopt (suite smoke)")


@pytest.mark.parametrize(
    "compared_and_criterion",
    [
        (UNEQUAL, dataclasses.replace(BESIDE, steps=1)),
        (UNEQUAL, None),
        (dataclasses.replace(UNEQUAL, differing=0), BESIDE),
        (None, BESIDE),
    ],
)
def test_a_cell_that_is_close_enough_or_asked_nothing_is_accepted(known, compared_and_criterion):
    compared, criterion = compared_and_criterion
    found = accept(
        known, dataclasses.replace(WORSE, compared=compared), criterion=lambda cell: criterion
    )
    assert found.rows
    assert not found.refusals


def test_one_refusal_does_not_stop_the_others(known):
    found = accept(
        known, WORSE, measured(slug="ort-cpu+new"), quarantine=[entry(f"mobilenet_v2::{SLUG}")]
    )
    assert [r.cell for r in found.refusals] == [SLUG]
    assert set(found.baseline.cells) == {SLUG, "ort-cpu+new"}


def test_quarantine_of_another_class_is_no_refusal(known):
    assert accept(known, WORSE, quarantine=[entry("*", when="x64-avx2")]).rows


def test_an_expired_entry_prevents_no_acceptance_and_gives_one_notice(known):
    day = datetime.date(2027, 1, 1)
    found = accept(
        known, WORSE, measured(slug="ort-cpu+new"), quarantine=[entry("mobilenet_v2::*")], today=day
    )
    assert {row.cell for row in found.rows} == {SLUG, "ort-cpu+new"}
    assert not found.refusals
    (notice,) = found.notices
    assert all(fact in notice for fact in ("'mobilenet_v2::*'", "2026-12-31", "kernels"))
    held = accept(
        known, WORSE, quarantine=[entry("mobilenet_v2::*")], today=datetime.date(2026, 12, 31)
    )
    assert held.refusals[0].is_listed
    assert not held.notices


def test_accepting_twice_changes_no_byte(known, tmp_path):
    path = baseline_path(tmp_path, "smoke", "mobilenet_v2")
    once = accept(known, WORSE, measured(environment=ELSEWHERE), measured(slug="ort-cpu+new"))
    assert save_baseline(path, once.baseline)
    again = accept(
        once.baseline,
        measured(slug="ort-cpu+new"),
        measured(environment=ELSEWHERE),
        WORSE,
        reason="other",
    )
    assert not again.rows
    assert not save_baseline(path, again.baseline)


def test_the_order_of_measurements_does_not_matter(known, tmp_path):
    measurements = [WORSE, measured(environment=ELSEWHERE), measured(slug="ort-cpu+new")]
    texts = set()
    for number, order in enumerate([measurements, measurements[::-1]]):
        path = baseline_path(tmp_path / str(number), "smoke", "m")
        save_baseline(path, accept(known, *order).baseline)
        texts.add(path.read_text())
    assert len(texts) == 1


def reference(base, answers=ANSWERS, reason="trained anew", **more):
    measurement = measured(**more)
    digests = {**measurement.digests, **{f"reference:{k}": a.digest for k, a in answers.items()}}
    measurement = dataclasses.replace(measurement, digests=digests)
    return accept_reference(
        base, measurement, answers, backend="ort-cpu", environment_class=str(HERE), reason=reason
    )


def test_a_first_reference():
    found = reference(None)
    assert [(r.cell, r.metric, r.old, r.new) for r in found.rows] == [
        ("fp32", "top1@photos", None, 760),
        ("fp32", "per@words", None, 100),
    ]
    assert found.baseline.metrics == {"top1@photos": 760, "per@words": 100}
    assert found.baseline.data["words"].samples == 300


def test_the_same_reference_is_no_change_even_from_elsewhere(known):
    again = accept_reference(
        known, measured(), ANSWERS, backend="ort-cpu", environment_class=str(ELSEWHERE)
    )
    assert again.baseline is known
    assert not again.rows


def test_sources_that_are_declared_later_are_stored_without_a_reason_and_change_no_result(
    known, tmp_path
):
    found = measured()
    shared = Clusters(
        sources=40, effect=2.0, interval=(-0.1, 0.1), shown=(-0.1, 0.1), p=1.0, error=0.1
    )
    scores = tuple(
        dataclasses.replace(one, clusters=shared if one.metric.endswith("@photos") else None)
        for one in found.scores
    )
    again = accept_reference(
        known,
        dataclasses.replace(found, scores=scores),
        ANSWERS,
        backend="ort-cpu",
        environment_class=str(HERE),
    )
    assert not again.rows
    assert {name: data.sources for name, data in again.baseline.data.items()} == {
        "photos": 40,
        "words": None,
    }
    assert (again.baseline.cells, again.baseline.metrics) == (known.cells, known.metrics)
    path = baseline_path(tmp_path, "smoke", "m")
    save_baseline(path, again.baseline)
    assert load_baseline(path).data == again.baseline.data
    assert path.read_text().count('"sources"') == 1


def test_a_new_reference_clears_nothing_else(known):
    photos = Answers(np.roll(ANSWERS["photos"].ids, 1, axis=0))
    found = reference(known, {**ANSWERS, "photos": photos})
    assert found.baseline.cells == known.cells
    assert found.baseline.stored["photos"] is photos
    assert found.rows


def test_what_was_accepted_of_a_former_model_judges_nothing_until_it_is_measured_anew(known):
    both = accept(known, dataclasses.replace(measured(), environment=ELSEWHERE)).baseline
    new = reference(both, model="m2").baseline
    assert new.model_digest == "m2"
    assert new.cells[SLUG].accepted == both.cells[SLUG].accepted
    assert new.cells[SLUG].former == tuple(sorted((str(HERE), str(ELSEWHERE))))
    measurement = measured(model="m2")
    expected = new.expectation(measurement.cell, measurement.digests)
    assert (expected.accepted, expected.floors, expected.cell_known) == ({}, {}, True)
    for scope in (Scope.NEW, Scope.CHANGED, Scope.ALL):
        again = accept(new, measurement, scope=scope, reason="")
        assert [row.old for row in again.rows] == [758, 104, 940]
        assert again.baseline.cells[SLUG].former == (str(ELSEWHERE),)
    assert not accept(new, measurement, scope=Scope.IMPROVED).rows


def test_a_result_declared_for_any_class_takes_the_place_of_its_own(known):
    found = accept(known, measured(), scope=Scope.NEW, reason="", for_any=True)
    assert set(found.baseline.cells[SLUG].accepted) == {"any"}
    again = accept(
        found.baseline, dataclasses.replace(measured(), environment=ELSEWHERE), scope=Scope.NEW
    )
    assert not again.rows  # it inherits
    with pytest.raises(InputError, match="no reason"):
        accept(
            known, WORSE, scope=Scope.CHANGED, reason="", for_any=True
        )  # replaces what its class had


def test_what_was_accepted_of_its_class_moves_with_its_old_values_and_the_reason(known):
    moved = accept(known, measured(), scope=Scope.NEW, reason="portable", for_any=True)
    assert [(row.old, row.new) for row in moved.rows] == [(758, 758), (104, 104), (940, 940)]
    assert moved.baseline.cells[SLUG].accepted["any"].reason == "portable"
    first = accept(baseline(), measured(), scope=Scope.NEW, reason="portable", for_any=True)
    assert [row.old for row in first.rows] == [None, None, None]
    assert first.baseline.cells[SLUG].accepted["any"].reason == "portable"
    replaced = accept(known, WORSE, scope=Scope.CHANGED, reason="a new kernel").baseline
    kept = accept(replaced, WORSE, scope=Scope.NEW, reason="", for_any=True).baseline
    assert kept.cells[SLUG].accepted["any"].reason == "a new kernel"


@pytest.mark.parametrize(
    ("scope", "is_taken"), [(Scope.NEW, False), (Scope.CHANGED, True), (Scope.ALL, True)]
)
def test_a_changed_result_is_new_in_no_class(known, scope, is_taken):
    found = accept(known, WORSE, scope=scope, reason="portable", for_any=True)
    assert bool(found.rows) == is_taken
    assert found.left_changed == (not is_taken)
    if is_taken:
        assert [row.old for row in found.rows] == [758, 104, 940]
        assert set(found.baseline.cells[SLUG].accepted) == {"any"}
    else:
        assert found.baseline is known


def test_what_another_scope_would_take_is_counted(known):
    found = accept(known, WORSE, measured(slug="ort-cpu+other"), scope=Scope.IMPROVED)
    assert (found.left_new, found.left_changed, found.rows) == (1, 1, ())
    assert accept(known, measured(), scope=Scope.NEW).left_changed == 0


def test_the_table_is_in_the_units_of_its_metrics(words):
    decibels = AcceptedRow(
        cell=SLUG,
        environment_class="any",
        metric="sqnr",
        old=2_610_584,
        new=2_607_154,
        out_of=128_000,
        unit="dB",
    )
    share = AcceptedRow(
        cell=SLUG, environment_class="any", metric="top1", old=None, new=353, out_of=400
    )
    assert accepted_lines("m", [share, decibels], most=12) == (
        "accepted in any:",
        f"  m::{SLUG}  top1          — → 88.25 %",
        f"  {' ' * len('m::' + SLUG)}  sqnr  20.395 dB → 20.368 dB",
    )
    many = [dataclasses.replace(share, cell=f"c{index:02}") for index in range(14)]
    words(accepted_lines("m", many, most=12)[-1])
    assert len(accepted_lines("m", many, most=12)) == 13


def test_what_is_not_finite_is_never_accepted(known):
    scores = (
        dataclasses.replace(top1(758), interval=(float("nan"), 0.0)),
        per(104),
        agreement(940),
    )
    found = accept(known, measured(*scores, predictions="p2"))
    assert not found.rows
    assert [refusal.reason.partition(" ")[0] for refusal in found.refusals] == ["top1@photos"]


def test_a_reference_is_replaced_for_a_reason_only(known):
    with pytest.raises(InputError, match="no reason for replacing"):
        reference(known, model="m2", reason=" ")
    assert reference(None, model="m2", reason="").rows  # the first needs none


def test_accepting_cells_leaves_the_reference_alone(known):
    found = accept(known, WORSE).baseline
    for name in (
        "model_digest",
        "preprocessing",
        "data",
        "metrics",
        "stored",
        "backend",
        "environment_class",
    ):
        assert getattr(found, name) is getattr(known, name)


def test_answers_must_be_those_that_were_counted_against():
    with pytest.raises(InputError, match="other answers to 'photos'"):
        accept_reference(
            None,
            measured(),
            {**ANSWERS, "photos": Answers(np.roll(ANSWERS["photos"].ids, 1, axis=0))},
            backend="ort-cpu",
            environment_class=str(HERE),
        )


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"complete": False}, "interrupted"), ({"limited": 20}, "a part of the samples"), ({}, None)],
)
def test_only_whole_runs(changes, words):
    if words is None:
        demand_whole(run(line(measured())))
        return
    with pytest.raises(IncompleteError, match=words):
        demand_whole(run(line(measured()), **changes))


def test_a_damaged_run_is_not_whole():
    with pytest.raises(IncompleteError, match="2 lines"):
        demand_whole(dataclasses.replace(run(), damaged=2))
