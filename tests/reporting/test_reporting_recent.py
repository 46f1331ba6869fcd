"""The newest runs of each suite, found by the first line of each file;
what cannot be read is said.
"""

import json
import shutil
from pathlib import Path

import pytest
from reporting_histories import make_cell, make_run

from qbench.reporting import assembly, build_report, recent_runs
from qbench.reporting.view import read_cell
from qbench.tracking import FolderStore


def write(
    folder: Path, index: int, *, suite: str = "nightly", name: str = "", whole: bool = True
) -> Path:
    run = make_run([make_cell("magika", "ort-cpu", "fp32", 0.0, suite=suite)], index, suite=suite)
    path = folder / (name or f"{run.id}.jsonl")
    lines = [
        run.header | {"id": f"{run.id}-{suite}"},
        run.environment,
        *(record.line() for record in run.cells),
        *([{"type": "end", "cells": 1}] if whole else []),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_the_newest_of_each_suite_in_order_whatever_the_files_are_called(tmp_path):
    for index in range(6):
        write(tmp_path, index, name=f"{9 - index}.jsonl")
    write(tmp_path, 2, suite="smoke", name="below/a.jsonl")
    found = recent_runs(tmp_path, 3)
    assert [(run.suite, run.header["started"][:10]) for run in found.runs] == [
        ("smoke", "2026-01-03"),
        ("nightly", "2026-01-04"),
        ("nightly", "2026-01-05"),
        ("nightly", "2026-01-06"),
    ]
    assert found.problems == ()


def test_the_older_files_are_not_read_whole(tmp_path, monkeypatch):
    paths = [write(tmp_path, index) for index in range(5)]
    whole = []
    originals = {name: getattr(FolderStore, name) for name in ("read", "blocks")}

    def noting(original):
        def read(store, name):
            yield from original(store, name)
            whole.append(name)

        return read

    for name, original in originals.items():
        monkeypatch.setattr(FolderStore, name, noting(original))
    recent_runs(tmp_path, 2)
    assert whole == [str(path) for path in paths[-2:]]


def test_the_shards_of_a_night_are_one_run_and_count_as_one(tmp_path):
    for index in range(3):
        for share in (1, 2):
            path = write(tmp_path, index, name=f"{index}-{share}.jsonl")
            head, rest = path.read_text().split("\n", 1)
            line = json.loads(head) | {
                "shard": f"{share}/2",
                "planned": 2,
                "selected": 1,
                "complete_selection": False,
            }
            line |= {"id": f"{line['id']}-{share}", "limited": None}
            path.write_text(json.dumps(line) + "\n" + rest.replace("magika", f"magika{share}"))
    runs = recent_runs(tmp_path, 2).runs
    assert [run.header["started"][:10] for run in runs] == ["2026-01-02", "2026-01-03"]
    report = build_report(runs)
    assert report.models == ("magika1", "magika2")
    assert report.notices == ()
    assert {cell.record.outcome for cell in report.cells} == {"passed"}


def test_of_a_run_copied_twice_the_fuller_copy_counts_once(tmp_path):
    write(tmp_path, 0, name="a.jsonl", whole=False)
    write(tmp_path, 0, name="b.jsonl")
    write(tmp_path, 1, name="c.jsonl")
    runs = recent_runs(tmp_path, 2).runs
    assert [(run.complete, Path(run.path).name) for run in runs] == [
        (True, "b.jsonl"),
        (True, "c.jsonl"),
    ]


@pytest.mark.parametrize(
    "text", ["", "rubbish\n", "[1]\n", '{"type": "cell"}\n', '{"type": "run", "id": 1\n', "\xff\n"]
)
def test_a_file_that_is_no_run_is_one_sentence_and_hinders_nobody(tmp_path, text):
    write(tmp_path, 0)
    (tmp_path / "zzz.jsonl").write_bytes(text.encode("latin-1"))
    found = recent_runs(tmp_path, 1)
    assert len(found.runs) == 1
    assert len(found.problems) == 1
    assert "zzz.jsonl" in found.problems[0]


def test_a_header_behind_other_lines_is_still_found(tmp_path):
    path = write(tmp_path, 0)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[1], lines[0], *lines[2:]]))
    assert len(recent_runs(tmp_path, 1).runs) == 1


def test_no_folder_holds_no_runs(tmp_path):
    assert recent_runs(tmp_path / "none").runs == ()
    shutil.copy(write(tmp_path, 0), tmp_path / "copy.jsonl")
    assert len(recent_runs(tmp_path).runs) == 1


def test_cells_of_one_run_share_equal_texts_digests_and_counts_and_keep_signs(tmp_path):
    counts = {"n": 10, "hits": 8, "out_of": 10, "reference_hits": 8, "losses": 0, "gains": 0}
    line = {
        "type": "cell",
        "suite": "s",
        "backend": "ort-cpu",
        "schema": "fp32",
        "outcome": "passed",
    }
    full = {
        "notices": ["Some words"],
        "digests": {"model": "1" * 64},
        "gates": [{"kind": "loss", "detail": "few lost"}],
    }
    lines = [
        {
            "type": "run",
            "format": "qbench-run/1",
            "id": "a",
            "started": "2026-01-03T03:00:00Z",
            "suite": "s",
        }
    ]
    for model, low in (("one", -0.0), ("two", 0.0)):
        distance = counts | {"proportion": False, "interval": [low, 0.5]}
        lines.append(line | full | {"model": model, "metrics": {"top1": counts, "rmse": distance}})
    lines += [line | {"model": "three"}, {"type": "end", "cells": 3}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    one, two, three = recent_runs(tmp_path).runs[0].cells
    assert one.metrics["top1"] is two.metrics["top1"]
    assert one.digests is two.digests
    assert one.notices is two.notices
    assert one.gates[0].detail is two.gates[0].detail
    assert [str(cell.metrics["rmse"].interval[0]) for cell in (one, two)] == ["-0.0", "0.0"]
    assert (three.digests, three.notices) == ({}, ())
    view = read_cell(one)
    assert view.record is one  # every text is on one line already: nothing is in memory twice


def test_trends_are_made_when_a_page_reads_them(tmp_path, monkeypatch):
    cells = [make_cell(f"network_{place}", "engine", "w8a8", 0.0) for place in range(4)]
    made = []
    monkeypatch.setattr(
        assembly, "trend_of", lambda history, cell, *rest, **more: made.append(cell.key.model)
    )
    report = build_report([make_run(cells, night) for night in range(3)])
    assert made == []
    assert len(report.trends) == 4
    assert report.trends[report.cells[2].key]
    assert set(made) == {"network_2"}
