"""A carried result is no measurement: every statistic is what it is without it; and the rule, the
keys and the texts of carrying.
"""

import datetime

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tracked_results import ELSEWHERE, HERE, START, line, measured, per, run, top1, written

from qbench.errors import InputError
from qbench.judging import Cell
from qbench.reporting import build_report
from qbench.reporting.carried import carried_sentence, measured_reasons
from qbench.tracking import (
    Carried,
    CarryRule,
    CellKey,
    CellRecord,
    EarlierResults,
    History,
    HistoryIndex,
    cell_frame,
    find_alerts,
    metric_rows,
    record_of_line,
    trend_series,
)

SOURCE = {"run": "r0", "measured": "2026-11-20T01:02:03.000+00:00", "commit": "c"}


def night(number, hits, *, carried=False, environment=HERE):
    cell = line(measured(top1(hits), per(104), environment=environment))
    return run(cell | ({"carried": SOURCE} if carried else {}), number=number)


NIGHTS = st.lists(
    st.tuples(st.sampled_from([760, 759, 700]), st.booleans(), st.sampled_from([HERE, ELSEWHERE])),
    max_size=14,
)


@given(NIGHTS)
def test_series_levels_changes_and_alerts_are_those_of_the_measured_nights(nights):
    every = [
        night(day, hits, carried=carried, environment=environment)
        for day, (hits, carried, environment) in enumerate(nights)
    ]
    alone = [one for one in every if not one.cells[0].is_carried]
    series, expected = trend_series(every), trend_series(alone)
    assert series == expected
    assert find_alerts(series) == find_alerts(expected)
    assert list(metric_rows(every)) == list(metric_rows(alone))


def test_a_chart_has_the_measured_points_and_the_newest():
    carried = [False, True, False, True, True]
    runs = [night(day, 760 - day, carried=one) for day, one in enumerate(carried)]
    report = build_report(runs)
    (cell,) = report.cells
    trend, *_ = report.trends[cell.key]
    assert [point.position for point in trend.points] == [0, 2, 4]
    assert cell.outcome_words == "passed (carried)"
    assert cell.seconds is None
    assert len(report.costs[cell.key].times) == 2
    assert report.carried.startswith("1 of 1 cell is carried over from 2026-11-20")


def test_the_index_has_no_carried_result(tmp_path):
    for day in range(4):
        cell = line(measured(top1(760 - day)))
        more = {"carried": SOURCE} if day % 2 else {}
        written(tmp_path / "runs", cell | more, started=START + datetime.timedelta(days=day))
    runs = History(tmp_path / "runs").runs()
    with HistoryIndex(str(tmp_path / "index.sqlite")) as index:
        index.update(tmp_path / "runs")
        assert [row.hits for row in index.rows()] == [760, 758]
        pd.testing.assert_frame_equal(index.frame(), cell_frame(runs))
        assert index.series() == trend_series(runs)


def test_a_record_with_key_and_source_is_read_as_it_was_written():
    written_line = line(measured(top1(760))) | {
        "key": {"version": 1, "parts": {"model": "#1"}, "why": "w"},
        "carried": SOURCE,
    }
    record = record_of_line(written_line)
    assert record.carried == Carried(**SOURCE)
    assert record.key == CellKey(parts={"model": "#1"}, why="w")
    assert record.line() == written_line
    assert list(record.counted()) == []
    damaged = record_of_line(written_line | {"key": 3})
    assert damaged.left_out == ("key",)


TEXTS = st.text(min_size=1, max_size=6)
PARTS = st.dictionaries(TEXTS, TEXTS, min_size=1, max_size=5)


@given(PARTS, st.data())
def test_keys_are_equal_only_where_every_part_is(parts, data):
    key = CellKey(parts=parts)
    assert key.equals(CellKey(parts=dict(parts), why="other words"))
    assert not key.equals(CellKey(parts=parts, version=key.version + 1))
    name = data.draw(st.sampled_from(sorted(parts)))
    other = CellKey(parts={**parts, name: parts[name] + "x"})
    assert not key.equals(other)
    assert key.changed_from(other).startswith(f"{name} changed")
    fewer = CellKey(parts={one: text for one, text in parts.items() if one != name})
    assert not key.equals(fewer)
    if fewer.parts:
        assert key.changed_from(fewer) == f"{name} is new"
        assert fewer.changed_from(key) == f"{name} is gone"


def test_a_key_without_parts_equals_nothing():
    assert not CellKey().equals(CellKey())


def test_what_changed_is_named_with_its_values_where_they_are_words():
    old = CellKey(parts={"package onnxruntime": "1.22.0", "model": "#1", "a": "1", "b": "1"})
    new = CellKey(parts={"package onnxruntime": "1.23.0", "model": "#2", "a": "2", "b": "2"})
    assert new.changed_from(old) == (
        "package onnxruntime changed: 1.22.0 → 1.23.0; model changed; a changed: 1 → 2; and 1 more"
    )


@pytest.mark.parametrize(
    ("text", "hours", "share"),
    [("7d", 168, 0.05), ("12h", 12, 0.05), ("7d:10%", 168, 0.1), ("1d:0%", 24, 0), ("0d", 0, 0.05)],
)
def test_a_rule_is_an_age_and_a_share(text, hours, share):
    rule = CarryRule.parse(text)
    assert rule.age == datetime.timedelta(hours=hours)
    assert rule.share == share


def test_no_rule_and_what_is_none():
    assert CarryRule.parse("") is None
    assert CarryRule.parse("off") is None
    with pytest.raises(InputError) as refused:
        CarryRule.parse("7 days")
    assert refused.value.found == "'7 days'"


def test_results_are_of_the_time_the_suite_and_the_models(tmp_path):
    key = {"version": 1, "parts": {"model": "#1"}, "why": ""}
    for day in range(5):
        cell = line(measured(top1(760))) | {"key": key}
        written(tmp_path, cell, started=START + datetime.timedelta(days=day))
    cell, now = Cell("smoke", "mobilenet_v2", "ort-cpu", "w8a8_asym_pc"), START.replace(day=24)

    def found(suite="smoke", models=("mobilenet_v2",), **age):
        results = EarlierResults.read(
            tmp_path, suite, models, now=now, age=datetime.timedelta(**age)
        )
        return [one.source.measured[:10] for one in results.of(cell)]

    assert found(days=7) == ["2026-11-24"]  # not those that began after now
    assert found(days=7, suite="other") == []
    assert found(days=7, models=("resnet",)) == []
    assert found(seconds=0) == ["2026-11-24"]


def test_how_many_and_why_in_words():
    def record(day="", why=""):
        carried = Carried(run="r", measured=f"{day}T01:00:00+00:00") if day else None
        return structs.replace(CellRecord(), carried=carried, key=CellKey(why=why))

    records = [record("2026-11-20"), record("2026-11-23"), record(why="b"), record(why="b")]
    assert carried_sentence(records) == (
        "2 of 4 cells are carried over from 2026-11-20 … 2026-11-23, not measured in this run"
    )
    assert measured_reasons([*records, record(why="a")]) == "measured: 2 cells (b), 1 cell (a)"
    assert carried_sentence(records[2:]) == ""
    assert measured_reasons([CellRecord()]) == ""
