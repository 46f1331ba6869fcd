"""Lines that repeat the line of their cell: the same records as when each line is decoded."""

import json

import pytest

from qbench.storage import json_line
from qbench.tracking import FolderStore, History, RepeatedLines
from qbench.tracking.record import is_started_line, known_record

CELL = {
    "type": "cell",
    "suite": "s",
    "model": "m",
    "backend": "b",
    "schema": "w8",
    "variant": "",
    "outcome": "passed",
    "environment_class": "x64-avx2+onnxruntime-1.20.0",
    "metrics": {
        "top1": {
            "direction": "higher",
            "against": "labels",
            "n": 40,
            "hits": 7,
            "out_of": 40,
            "reference_hits": 8,
            "losses": 1,
            "gains": 0,
        }
    },
    "digests": {"data:points": "ab"},
    "seconds": {"prepare": 1.5, "inference": 0.25},
    "constant_bytes": 251,
}


def line(**changes):
    return json_line(CELL | changes).encode()


def hits(number):
    return {"metrics": {"top1": CELL["metrics"]["top1"] | {"hits": number}}}


NIGHTS = {
    "seconds": [line(), line(seconds={"inference": 0.5}), line(seconds={})],
    "hits": [line(), line(**hits(6)), line(**hits(6), seconds={"prepare": 2.0}), line()],
    "not measured": [line(outcome="unsupported", metrics={}, digests={}, seconds={})] * 3,
    "no seconds": [line().replace(b'"seconds":{"prepare":1.5,"inference":0.25},', b"")] * 2,
    "a key in a text": [line(headline='"seconds":{"a":1}'), line(headline='"seconds":{"a":2}')],
    "a key twice": [
        line(seconds={"a": 1.0}, kept={"seconds": "1"}),
        line(seconds={"a": 2.0}, kept={"seconds": "2"}),
    ],
    "a key in another table": [
        line(seconds={}, calibrated={"seconds": {"a": 1.0}}),
        line(seconds={}, calibrated={"seconds": {"a": 2.0}}),
    ],
    "more tables": [line(), line().replace(b'"inference":0.25}', b'"a":1},"macs":{"b":2}')],
    "another type": [line(), line().replace(b"0.25", b'"x"'), line()],
    "a newer key": [line(), line(seconds={"inference": 0.5}, newer=[1]), line()],
    "shorter": [line(), line()[:-30] + b"\n", line()],
    "half a character": [line(), line().replace(b'"passed"', b'"\\ud800"'), line()],
    "several cells": [line() + line(model="n"), line(model="n") + line(seconds={"a": 3.0})],
    "another package": [line(), line(environment_class="x64-avx2+onnxruntime-1.21.0")],
}


def started(**changes):
    axes = {name: CELL[name] for name in ("suite", "model", "backend", "schema", "variant")}
    return json_line({"type": "started", **axes, **changes}).encode()


def samples(*lost):
    return json_line({"type": "samples", "model": "m", "lost": lost}).encode()


NIGHT = started() + line() + samples("a") + started(model="n") + line(model="n") + samples("b")
NIGHTS |= {
    "lines between": [NIGHT] * 3,
    "other samples": [NIGHT, NIGHT.replace(b'"a"', b'"c"'), NIGHT],
    "without a line": [NIGHT, NIGHT.replace(samples("a"), b""), NIGHT],
    "one more line": [NIGHT, NIGHT.replace(samples("a"), samples("a") + b"{}\n"), NIGHT],
    "a torn end": [NIGHT, NIGHT[:-1], NIGHT[:-3], NIGHT],
    "a torn cell": [NIGHT, NIGHT[: NIGHT.rindex(line(model="n")) + 150], NIGHT],
    "two lines in one": [NIGHT, NIGHT.replace(line() + samples("a"), line()[:-1] + samples("a"))],
    "other seconds": [NIGHT, NIGHT.replace(b"0.25", b"0.5"), NIGHT],
    "no table of seconds": [NIGHT, NIGHT.replace(b'"inference":0.25}', b'"inference":0.25'), NIGHT],
    "the other order": [NIGHT, samples("b") + line(model="n") + line() + started(), NIGHT],
    "lines of Windows": [NIGHT, NIGHT.replace(b"\n", b"\r\n"), NIGHT],
}


def write(folder, nights, **header):
    for place, text in enumerate(nights):
        first = {"type": "run", "format": "qbench-run/1", "id": f"r{place}", "suite": "s"}
        first |= {"started": f"2026-01-0{place + 1}T00:00:00Z"} | header
        (folder / f"r{place}.jsonl").write_bytes(json_line(first).encode() + text)


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("releases", [{}, {"package": "onnxruntime", "version": "1.20.0"}])
@pytest.mark.parametrize("nights", NIGHTS.values(), ids=NIGHTS)
def test_the_runs_are_those_without_repeated_lines(tmp_path, nights, releases, in_order):
    write(tmp_path, nights, releases=releases)
    history = History(tmp_path)
    told = [head.id for head in history.heads][1:]
    alone = list(history.each(history.heads, lambda record: record, samples=told))
    repeated = RepeatedLines(in_order=in_order)
    together = history.each(history.heads, lambda record: record, samples=told, repeated=repeated)
    assert list(together) == alone


@pytest.mark.parametrize("size", [1, 7, 300, 2000])
def test_the_size_of_the_blocks_that_are_compared_changes_nothing(tmp_path, monkeypatch, size):
    write(tmp_path, [NIGHT, NIGHT.replace(b"0.25", b"0.5"), NIGHT + line(model="o")[:-9], NIGHT])
    history = History(tmp_path)
    alone = list(history.each(history.heads, lambda record: record))
    monkeypatch.setattr("qbench.tracking.store._BLOCK_BYTES", size)
    together = history.each(
        history.heads, lambda record: record, repeated=RepeatedLines(in_order=True)
    )
    assert list(together) == alone


def test_a_store_that_reads_its_files_in_another_way_is_asked_for_lines(tmp_path):
    class Renaming(FolderStore):
        def read(self, name):
            return (text.replace(b'"m"', b'"another"') for text in super().read(name))

    write(tmp_path, [NIGHT, NIGHT])
    history = History(Renaming(tmp_path))
    repeated = RepeatedLines(in_order=True)
    for run in history.each(history.heads, lambda record: record, repeated=repeated):
        assert "another" in {cell.model for cell in run.cells}


def test_samples_that_are_as_in_the_run_before_are_in_memory_once(tmp_path):
    write(tmp_path, [NIGHT, NIGHT])
    history = History(tmp_path)
    told = [head.id for head in history.heads]
    first, second = history.each(
        history.heads, lambda record: record, samples=told, repeated=RepeatedLines(in_order=True)
    )
    assert all(one is other for one, other in zip(first.samples, second.samples, strict=True))


def test_a_repeated_line_is_not_decoded_and_shares_its_values():
    repeated, first = RepeatedLines(), known_record(line())
    repeated.remember(line(), first, first)
    (again,) = repeated.find(line(seconds={"inference": 4.0})).cells
    assert again.metrics is first.metrics
    assert (again.seconds, first.seconds) == ({"inference": 4.0}, CELL["seconds"])
    assert repeated.find(line(**hits(6))) is None
    assert repeated.find(line(model="n")) is None


def test_a_line_of_a_cell_that_began_is_passed_over_where_it_is_whole():
    axes = {name: CELL[name] for name in ("suite", "model", "backend", "schema", "variant")}
    text = json_line({"type": "started", **axes}).encode()
    assert is_started_line(text)
    assert not is_started_line(text[:-3])
    assert not is_started_line(text.replace(b'"m"', b"7"))
    assert not is_started_line(json.dumps({"type": "started", **axes, "at": 1e400}).encode())
