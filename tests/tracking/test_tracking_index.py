"""The index says what the files say: whatever they are, however often it is brought up to date,
on either database.
"""

import datetime
import json
import os
import re
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tracked_results import ELSEWHERE, START, line, measured, per, top1, written

from qbench.errors import InputError, StoreError, UnavailableError
from qbench.extension import install_command
from qbench.judging import Outcome
from qbench.tracking import (
    History,
    HistoryIndex,
    Wanted,
    cell_frame,
    index_building,
    metric_rows,
    trend_series,
)

SLUGS = ("ort-cpu+w8a8_asym_pc", "ort-cpu+w8a8_asym_pt", "integer-ort-x64+w8a8_asym_pc+calib32")


def nights(folder, count=6):
    """A small history: three cells, two classes in turns, a step, and a suite beside."""
    for night in range(count):
        environment = ELSEWHERE if night % 2 else None
        more = {} if environment is None else {"environment": environment}
        lines = [
            line(measured(top1(758 - 9 * (night > 3)), per(104 + night), slug=slug, **more))
            for slug in SLUGS
        ]
        day = START + datetime.timedelta(days=night)
        written(
            folder / f"{night % 2}",
            *lines,
            started=day,
            commit=f"{night:040x}",
            suite="nightly" if night else "smoke",
        )


def same(index, folder):
    runs = History(folder).runs()
    assert index.rows() == list(metric_rows(runs))
    pd.testing.assert_frame_equal(index.frame(), cell_frame(runs))
    assert trend_series(index.runs()) == trend_series(runs) == index.series()
    commits = [run.commit for run in runs][::-1]
    assert index.series(commits=commits) == trend_series(runs, commits=commits)
    assert [(run.id, run.header, run.cells) for run in index.starts()] == [
        (run.id, run.header, ()) for run in runs
    ]


def test_the_index_says_what_the_files_say(tmp_path, place):
    nights(tmp_path / "h")
    with HistoryIndex(place) as index:
        done = index.update(tmp_path / "h")
        assert (done.added, done.changed, done.gone, done.kept, done.problems) == (6, 0, 0, 0, ())
        same(index, tmp_path / "h")
        assert len(index.rows()) == 6 * 3 * 2
        (run, *_) = index.runs()
        assert run.header == History(tmp_path / "h").runs()[0].header


def test_what_the_documentation_does_sees_the_newest_run(tmp_path, monkeypatch):
    text = (Path(__file__).parents[2] / "docs/history.md").read_text()
    (snippet,) = [
        one for one in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "HistoryIndex" in one
    ]
    monkeypatch.chdir(tmp_path)
    nights(Path("reports/history"), 3)
    for count in (3, 5):
        nights(Path("reports/history"), count)
        said: dict[str, pd.DataFrame] = {}
        exec(snippet, said)
        runs = History(Path("reports/history")).runs()
        assert sorted(set(said["frame"]["run"])) == sorted(run.id for run in runs)


def test_a_reader_sees_what_another_process_has_added(tmp_path, place):
    folder = tmp_path / "h"
    nights(folder, 3)
    with HistoryIndex(place) as reader, HistoryIndex(place) as writer:
        writer.update(folder)
        same(reader, folder)
        nights(folder, 5)
        writer.update(folder)
        same(reader, folder)
        sorted(folder.rglob("*.jsonl"))[-1].unlink()
        writer.update(folder, rebuild=True)
        same(reader, folder)


def test_a_line_that_says_almost_what_it_said_the_night_before_is_counted_again(tmp_path, place):
    folder = tmp_path / "h"
    again = line(measured(top1(758), per(104)))
    shorter = {**again, "metrics": {"per@words": again["metrics"]["per@words"]}}
    relabelled = {**again, "digests": {**again["digests"], "data:photos": "d-other"}}
    fewer = line(measured(top1(758, n=999), per(104)))
    for night, one in enumerate((again, again, shorter, relabelled, fewer, again)):
        written(folder, one, started=START + datetime.timedelta(days=night), commit=f"{night:040x}")
    with HistoryIndex(place) as index:
        index.update(folder)
        same(index, folder)
        top, _ = sorted(index.series(), key=lambda one: one.metric != "top1@photos")
    assert [point.out_of for point in top.points] == [1000, 1000, 1000, 999, 1000]
    assert [point.data for point in top.points] == [
        "d-photos",
        "d-photos",
        "d-other",
        "d-photos",
        "d-photos",
    ]


def test_two_copies_that_disagree_are_told_as_by_the_files(tmp_path, place):
    folder = tmp_path / "h"
    path = written(folder, line(measured()))
    (folder / "copy.jsonl").write_text(path.read_text().replace('"hits":758', '"hits":700'))
    with HistoryIndex(place) as index:
        done = index.update(folder)
        assert done.problems == History(folder).problems
        assert len(done.problems) == 1
        assert index.update(folder).problems == done.problems
        same(index, folder)


def test_what_is_wanted_is_what_comes(tmp_path, place):
    nights(tmp_path / "h")
    rows = list(metric_rows(History(tmp_path / "h").runs()))
    with HistoryIndex(place) as index:
        index.update(tmp_path / "h")
        for axis in ("suite", "backend", "schema", "variant", "metric", "environment_class"):
            for value in sorted({getattr(row, axis) for row in rows} | {"nothing"}):
                expected = [row for row in rows if getattr(row, axis) == value]
                wanted = Wanted(**{axis: value})
                assert index.rows(wanted) == expected
                assert list(metric_rows(index.runs(wanted))) == expected
        backend, metric = "ort-cpu", "top1@photos"
        both = [row for row in rows if (row.backend, row.metric) == (backend, metric)]
        assert index.rows(Wanted(backend=backend, metric=metric)) == both != []


def test_an_update_reads_what_is_new_alone(tmp_path, place, monkeypatch):
    folder = tmp_path / "h"
    nights(folder)
    with HistoryIndex(place) as index:
        index.update(folder)
        grown, copied, gone, *_ = sorted(folder.rglob("*.jsonl"))
        grown.write_text(grown.read_text() + json.dumps(line(measured(slug="a+b"))) + "\n")
        os.utime(copied, ns=(1, 1))
        gone.unlink()
        written(folder, line(measured()), started=START + datetime.timedelta(days=40))
        read = []
        from qbench.tracking import index_tables

        parse = index_tables.parse_run
        monkeypatch.setattr(
            index_tables,
            "parse_run",
            lambda data, path, keep: (read.append(path), parse(data, path, keep))[1],
        )
        done = index.update(folder)
        assert (done.added, done.changed, done.gone, done.kept) == (1, 1, 1, 4)
        assert len(read) == 2
        same(index, folder)
        assert index.update(folder).kept == 6
        assert len(read) == 2
        assert index.update(folder, rebuild=True).added == 6
        same(index, folder)


@pytest.mark.slow_but(2)
@pytest.mark.parametrize("at_once", [1, 7, 10**9])
def test_how_many_are_written_at_once_changes_nothing(tmp_path, place, monkeypatch, at_once):
    monkeypatch.setattr(index_building, "_AT_ONCE", at_once)
    nights(tmp_path / "h")
    with HistoryIndex(place) as index:
        index.update(tmp_path / "h")
        same(index, tmp_path / "h")


def test_what_numbers_are_is_kept(tmp_path, place):
    folder = tmp_path / "h"
    item = line(measured(top1(758), per(104)))
    item["metrics"]["sqnr@photos"] = {
        **item["metrics"]["top1@photos"], "unit": "dB", "against": "reference", "proportion": False
    }  # fmt: skip
    written(folder, item)
    with HistoryIndex(place) as index:
        index.update(folder)
        same(index, folder)
        found = {
            one.metric: (one.unit, one.is_distance, one.lower_is_better)
            for one in trend_series(index.runs())
        }
    assert found["sqnr@photos"] == ("dB", True, False)
    assert found["per@words"] == ("%", False, True)


def test_a_run_that_measured_nothing_is_a_run_of_its_suite(tmp_path, place):
    folder = tmp_path / "h"
    written(folder, line(measured()), suite="smoke")
    written(folder, suite="smoke", started=START + datetime.timedelta(days=1), end=False)
    written(folder, suite="other", started=START + datetime.timedelta(days=2))
    with HistoryIndex(place) as index:
        index.update(folder)
        assert [(len(run.cells), run.complete) for run in index.runs(Wanted(suite="smoke"))] == [
            (1, True),
            (0, False),
        ]
        assert [run.id for run in index.runs()] == [run.id for run in History(folder).runs()]


def test_a_variant_that_is_no_text_is_a_damaged_line(tmp_path, place):
    folder = tmp_path / "h"
    path = written(folder, line(measured()), end=False)
    with path.open("a") as file:
        for variant in (None, 0, [], {}):
            file.write(json.dumps({**line(measured()), "variant": variant}) + "\n")
    with HistoryIndex(place) as index:
        assert "4 lines" in index.update(folder).problems[0]
        same(index, folder)


def test_the_fuller_copy_of_a_run_counts_whichever_comes_first(tmp_path, place):
    folder = tmp_path / "h"
    whole = written(folder / "b", line(measured()), line(measured(slug="x+y")))
    content = whole.read_bytes()
    with HistoryIndex(place) as index:
        index.update(folder)
        (folder / "a").mkdir()
        (folder / "a" / whole.name).write_bytes(content[: len(content) // 2])
        index.update(folder)
        same(index, folder)
        assert len(index.rows()) == 6
        whole.unlink()
        index.update(folder)
        same(index, folder)
        assert len(index.rows()) < 6


def test_files_that_are_no_runs_are_told_each_time_until_they_are(tmp_path, place):
    folder = tmp_path / "h"
    good = written(folder, line(measured()))
    (folder / "bad.jsonl").write_text("nonsense\n")
    (folder / "newer.jsonl").write_text(
        good.read_text().replace("qbench-run/1", "qbench-run/9").replace("-aa", "-bb")
    )
    with HistoryIndex(place) as index:
        for _ in range(2):
            done = index.update(folder)
            assert done.unreadable == 1
            bad, newer = done.problems
            assert f"'{folder / 'bad.jsonl'}'" in bad
            assert newer.startswith(f"'{folder / 'newer.jsonl'}' ")
            assert "(qbench-run/9, not qbench-run/1)" in newer
            assert index.problems == done.problems
        assert len(index.runs()) == 2
        (folder / "bad.jsonl").unlink()
        assert index.update(folder).unreadable == 0


def test_cells_that_were_not_measured_have_no_rows(tmp_path, place):
    skipped = line(measured(), Outcome.UNSUPPORTED)
    del skipped["metrics"]
    written(tmp_path / "h", skipped, line(measured(top1(1), slug="a+b")))
    with HistoryIndex(place) as index:
        index.update(tmp_path / "h")
        same(index, tmp_path / "h")
        assert len(index.rows()) == 1


@pytest.mark.parametrize(
    "text", ["nul \0 here", "half a pair \ud800", "ünïcode ✓", "'; DROP TABLE qbench_run; --"]
)
def test_any_text_can_be_kept(tmp_path, place, text):
    item = line(measured(top1(758)))
    item["metrics"] = {text: item["metrics"]["top1@photos"]}
    item |= {"environment_class": text, "outcome": text, "digests": {f"data:{text}": text}}
    path = written(tmp_path / "h")
    path.write_text(path.read_text() + json.dumps(item) + "\n")
    with HistoryIndex(place) as index:
        index.update(tmp_path / "h")
        (row,) = index.rows()
        kept = text.replace("\0", "\ufffd").replace("\ud800", "?")
        assert (row.metric, row.environment_class, row.outcome) == (kept, kept, kept)


@pytest.mark.parametrize("hits", [2**63, -1, 0.5, True, None, "7"])
def test_counts_that_are_none_are_passed_over(tmp_path, place, hits):
    item = line(measured(top1(758), per(104)))
    item["metrics"]["top1@photos"]["hits"] = hits
    path = written(tmp_path / "h")
    path.write_text(path.read_text() + json.dumps(item) + "\n")
    with HistoryIndex(place) as index:
        index.update(tmp_path / "h")
        assert [row.metric for row in index.rows()] == ["per@words"]
        assert [row.metric for row in metric_rows(History(tmp_path / "h").runs())] == ["per@words"]


@settings(max_examples=20)
@given(cut=st.integers(1, 5000), byte=st.integers(0, 255))
def test_files_cut_or_spoilt_anywhere_are_indexed_as_they_are_read(tmp_path_factory, cut, byte):
    folder = tmp_path_factory.mktemp("spoilt")
    path = written(folder, line(measured()), line(measured(slug="ort-cpu+other")))
    content = path.read_bytes()
    at = cut % len(content)
    path.write_bytes(content[:at] + bytes([byte]) + content[at + 1 :])
    with HistoryIndex(str(folder / "index.sqlite")) as index:
        index.update(folder)
        assert index.rows() == list(metric_rows(History(folder).runs()))


def test_an_index_of_another_version_is_made_anew_or_refused(tmp_path, place):
    import sqlalchemy

    nights(tmp_path / "h", 2)
    with HistoryIndex(place) as index:
        index.update(tmp_path / "h")
        engine = index._engine

        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("CREATE TABLE qbench_of_old (key INTEGER)"))

        def call_it(version):
            with engine.begin() as connection:
                connection.execute(
                    sqlalchemy.text("UPDATE qbench_index SET version = :v"), {"v": version}
                )

        call_it(0)
        with HistoryIndex(place) as other, pytest.raises(StoreError, match="an index of version 0"):
            other.rows()
        assert index.update(tmp_path / "h").added == 2
        assert not sqlalchemy.inspect(engine).has_table("qbench_of_old")
        call_it(99)
        with pytest.raises(InputError, match="version 99"):
            index.update(tmp_path / "h")
        assert index.update(tmp_path / "h", rebuild=True).added == 2
        same(index, tmp_path / "h")


def test_reading_where_there_is_none_makes_none(tmp_path, place):
    with HistoryIndex(place) as index, pytest.raises(StoreError, match="qbench history index"):
        index.rows()
    assert not (tmp_path / "index.sqlite").exists()


@pytest.mark.parametrize(
    "place", ["mysql://host/db", "sqlite:x://y", "://", "postgresql://host:port/db"]
)
def test_a_place_that_is_none_is_one_sentence(place):
    with pytest.raises(InputError, match="expected the path of an SQLite"):
        HistoryIndex(place)


@pytest.mark.parametrize(("package", "extra"), [("sqlalchemy", "db"), ("psycopg", "postgres")])
def test_without_the_extra_it_is_one_sentence(monkeypatch, package, extra):
    import sys

    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UnavailableError, match=re.escape(install_command(extra))):
        HistoryIndex("postgresql://host/db")
