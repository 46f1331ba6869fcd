"""The first lines of a run file: the same whichever door opened it, and never half of them
without being told.
"""

import datetime
import json
from pathlib import Path

import pytest

from qbench.errors import StoreError
from qbench.suite import describe_start
from qbench.tracking import RunWriter

START = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)


def start(folder, *, planned=8, selected=8, limit=None, processor=None):
    extent = {
        "suite": "smoke",
        "planned": planned,
        "selected": selected,
        "select": "model=a",
        "limit": limit,
    }
    return describe_start(folder, **extent, started=START, token="abc123", processor=processor)


@pytest.mark.parametrize(
    ("selected", "limit", "whole"),
    [(8, None, True), (7, None, False), (8, 10, False), (7, 10, False)],
)
def test_a_selection_is_whole_when_nothing_was_left_out(tmp_path, selected, limit, whole):
    assert start(tmp_path, selected=selected, limit=limit).header == {
        "suite": "smoke",
        "commit": None,
        "complete_selection": whole,
        "planned": 8,
        "selected": selected,
        "limited": limit,
        "select": "model=a",
    }


def test_the_processor_is_probed_unless_it_is_named(tmp_path):
    probed, named = start(tmp_path).environment, start(tmp_path, processor="arm64-sve").environment
    assert named == {**probed, "processor": "arm64-sve"}
    assert probed["processor"] not in ("", "arm64-sve")
    assert {"type", "processor", "features", "versions"} <= set(probed)


def test_the_file_begins_with_both_lines(tmp_path):
    begun = start(tmp_path)
    with begun.open(tmp_path / "history") as writer:
        header, environment = map(json.loads, Path(writer.name).read_text().splitlines())
    assert writer.id == "20260131T120000000Z-nogit-abc123"
    assert begun.header.items() <= header.items()
    assert (header["type"], header["started"]) == ("run", "2026-01-31T12:00:00.000+00:00")
    assert environment == begun.environment


def test_a_disk_that_fills_up_after_the_first_line_is_told(tmp_path, monkeypatch):
    write, close = RunWriter.write, RunWriter.abandon
    closed = []

    def abandon(self):
        closed.append(self.name)
        close(self)

    def full(self, line):
        if line["type"] == "environment":
            raise StoreError("Writing", found="no space", expected="some", remedy="Make room.")
        write(self, line)

    monkeypatch.setattr(RunWriter, "write", full)
    monkeypatch.setattr(RunWriter, "abandon", abandon)
    with pytest.raises(StoreError, match="no space"):
        start(tmp_path).open(tmp_path / "history")
    assert len(closed) == 1
