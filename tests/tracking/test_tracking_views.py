"""Two runs side by side, runs as a frame, and series cut into levels."""

import dataclasses
import subprocess
import sys

import pytest
from tracked_results import ELSEWHERE, HERE, agreement, line, measured, per, run, top1

from qbench.errors import IncomparableError
from qbench.judging import Outcome, Verdict
from qbench.metrics import Against, Direction
from qbench.tracking import CellRecord, Relation, cell_frame, compare_runs, trend_series
from qbench.tracking.history import COLUMNS

CHANGED = measured(top1(750), per(104), agreement(930), predictions="p2")


def other_data(measurement):
    return dataclasses.replace(measurement, digests={**measurement.digests, "data:photos": "d2"})


def test_rows_are_old_to_new():
    (row,) = compare_runs(run(line(measured())), run(line(CHANGED, Outcome.FAILED)))
    assert row.relation is Relation.CHANGED
    assert (row.old_outcome, row.new_outcome, row.outcome_changed) == ("passed", "failed", True)
    assert [(m.metric, m.old, m.new, m.out_of) for m in row.metrics] == [
        ("top1@photos", 758, 750, 1000),
        ("per@words", 104, 104, 2000),
        ("agreement@photos", 940, 930, 1000),
    ]


def test_identical_predictions_are_the_same():
    (row,) = compare_runs(run(line(measured())), run(line(measured())))
    assert row.relation is Relation.SAME
    assert not row.outcome_changed


def distance(name, hits, *, direction, unit):
    kind = {"direction": direction, "unit": unit, "against": Against.REFERENCE, "proportion": False}
    return dataclasses.replace(
        top1(0), metric=name, hits=hits, out_of=1000, reference_hits=1000, **kind
    )


@pytest.mark.parametrize(
    ("name", "direction", "unit", "before", "after", "is_worse"),
    [
        ("sqnr", Direction.HIGHER, "dB", 35_200, 33_100, True),
        ("sqnr", Direction.HIGHER, "dB", -400, 900, False),
        ("kl", Direction.LOWER, "nats", 12, 31, True),
        ("cosine", Direction.HIGHER, "", 998, 999, False),
        ("smape", Direction.LOWER, "%", 20, 10, False),
    ],
)
def test_runs_that_differ_in_a_distance_alone_are_not_the_same(
    name, direction, unit, before, after, is_worse
):
    old, new = (
        run(line(measured(top1(758), distance(name, hits, direction=direction, unit=unit))))
        for hits in (before, after)
    )
    (row,) = compare_runs(old, new)
    assert row.relation is Relation.CHANGED
    assert "the same predictions" in row.why
    (moved,) = row.moved
    assert (moved.metric, moved.unit, moved.is_distance, moved.is_worse) == (
        name,
        unit,
        True,
        is_worse,
    )
    assert moved.moved == pytest.approx((after - before) / 1000)
    assert compare_runs(old, old)[0].relation is Relation.SAME


def test_a_metric_that_only_one_run_knows_is_no_change():
    more = measured(top1(758), distance("kl", 12, direction=Direction.LOWER, unit="nats"))
    (row,) = compare_runs(run(line(measured(top1(758)))), run(line(more)))
    assert (row.relation, row.moved) == (Relation.SAME, ())
    assert [(m.metric, m.old, m.new) for m in row.metrics] == [
        ("top1@photos", 758, 758),
        ("kl", None, 12),
    ]


def test_other_classes_and_other_data_are_incomparable_beside_a_cell_that_is():
    steady = line(measured(slug="ort-cpu+steady"))
    (row, _) = compare_runs(
        run(line(measured(slug="a+b")), steady),
        run(line(measured(slug="a+b", environment=ELSEWHERE)), steady),
    )
    assert row.relation is Relation.INCOMPARABLE
    assert str(HERE) in row.why
    assert str(ELSEWHERE) in row.why
    (row, _) = compare_runs(
        run(line(measured(slug="a+b")), steady), run(line(other_data(measured(slug="a+b"))), steady)
    )
    assert row.why == "other samples or labels"


def test_the_reason_names_the_first_metric_of_other_samples():
    """Of the metrics in their order, which is the same in every process."""
    names = [f"top1@d{i}" for i in range(20)]
    old, new = (
        run(line(measured(top1(700), *(top1(400, n=n, metric=name) for name in names))))
        for n in (900, 1000)
    )
    with pytest.raises(IncomparableError, match="found other samples: top1@d0 of 900 → 1000;"):
        compare_runs(old, new)


def test_cells_in_one_run_only_are_listed():
    steady = line(measured(slug="ort-cpu+steady"))
    rows = compare_runs(
        run(line(measured(slug="a+old")), steady), run(line(measured(slug="a+new")), steady)
    )
    assert [(row.cell.slug, row.relation) for row in rows] == [
        ("a+new", Relation.ONLY_NEW),
        ("a+old", Relation.ONLY_OLD),
        ("ort-cpu+steady", Relation.SAME),
    ]
    assert [m.old for m in rows[0].metrics] == [None] * 3
    assert [m.new for m in rows[1].metrics] == [None] * 3


def test_a_cell_that_was_skipped_is_incomparable():
    skipped = CellRecord.of(
        measured().cell, Verdict(outcome=Outcome.UNSUPPORTED, headline="h", rule="r"), None
    ).line()
    steady = line(measured(slug="ort-cpu+steady"))
    rows = compare_runs(run(line(measured()), steady), run(skipped, steady))
    (why,) = (row.why for row in rows if row.relation is Relation.INCOMPARABLE)
    assert why.endswith("(unsupported)")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (run(line(measured())), run(line(measured(environment=ELSEWHERE))), "environment class"),
        (run(line(measured())), run(line(measured(slug="a+b"))), "no cell that is in both"),
        (run(), run(), "no cell that is in both"),
    ],
)
def test_nothing_to_compare(old, new, words):
    with pytest.raises(IncomparableError, match=words) as caught:
        compare_runs(old, new)
    assert caught.value.exit_code == 3


def test_the_frame_has_a_row_for_each_metric():
    skipped = CellRecord.of(
        measured().cell, Verdict(outcome=Outcome.UNSUPPORTED, headline="h", rule="r"), None
    ).line()
    frame = cell_frame([run(line(measured()), skipped), run(line(CHANGED), number=1)])
    assert tuple(frame.columns) == COLUMNS
    assert len(frame) == 6
    assert frame["value"].tolist()[:2] == [0.758, 0.052]
    assert frame["commit"].tolist()[-1] == f"{1:040x}"
    assert str(frame["started"].dt.tz) == "UTC"
    pivot = frame[frame["metric"] == "top1@photos"].pivot_table(
        index="started", columns="schema", values="hits"
    )
    assert pivot["w8a8_asym_pc"].tolist() == [758, 750]


def test_an_empty_history_is_an_empty_frame():
    frame = cell_frame([])
    assert tuple(frame.columns) == COLUMNS
    assert frame.empty


def test_pandas_is_loaded_only_for_a_frame():
    code = (
        "import sys, qbench.tracking; assert 'pandas' not in sys.modules; "
        "assert 'onnx' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def series_of(runs, metric="top1@photos"):
    return [series for series in trend_series(runs) if series.metric == metric]


def test_a_step_is_marked_at_its_run():
    (series,) = series_of(
        [run(line(measured() if n < 6 else CHANGED), number=n) for n in range(12)]
    )
    assert series.steps == (6,)
    assert series.points[6].commit == f"{6:040x}"
    assert [level.value for level in series.levels] == pytest.approx([0.758, 0.750])


def test_machines_that_take_turns_are_two_flat_series():
    runs = [
        run(
            line(measured() if n % 2 else dataclasses.replace(CHANGED, environment=ELSEWHERE)),
            number=n,
        )
        for n in range(20)
    ]
    found = series_of(runs)
    assert {series.environment_class for series in found} == {str(HERE), str(ELSEWHERE)}
    assert all(series.steps == () for series in found)


def test_other_samples_are_a_break_and_not_a_step():
    runs = [run(line(measured() if n < 6 else other_data(CHANGED)), number=n) for n in range(12)]
    (series,) = series_of(runs)
    assert series.breaks == (6,)
    assert series.steps == ()
    assert [level.start for level in series.levels] == [0, 6]


def test_other_words_do_not_break_the_photos():
    words = dataclasses.replace(measured(), digests={**measured().digests, "data:words": "w2"})
    (series,) = series_of([run(line(measured() if n < 6 else words), number=n) for n in range(12)])
    assert series.breaks == ()


def test_a_new_level_is_provisional_until_it_lasts():
    (series,) = series_of(
        [run(line(measured() if n < 10 else CHANGED), number=n) for n in range(11)]
    )
    assert series.steps == ()
    assert series.levels[-1].provisional
