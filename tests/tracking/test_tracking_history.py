"""Run files: written whole line by line, read back whatever happened to them."""

import datetime
import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tracked_results import START, line, measured, top1, written

from qbench.errors import InputError, StoreError
from qbench.judging import Outcome, Verdict
from qbench.tracking import (
    FORMAT,
    TREND_KEYS,
    CellRecord,
    History,
    RunWriter,
    kept_keys,
    merge_run_files,
    ordered_trends,
    read_run,
    record_of_line,
)


def test_round_trip(tmp_path):
    path = written(
        tmp_path,
        {"type": "environment", "processor": "x"},
        {"type": "note", "text": "n"},
        line(measured()),
    )
    run = read_run(path)
    assert path.name == "20261121T043000000Z-abc1234-aa.jsonl"
    assert run.id == path.stem
    assert (run.suite, run.complete, run.damaged, run.notices) == ("smoke", True, 0, ())
    assert (run.environment["processor"], run.notes, len(run.cells)) == ("x", ("n",), 1)
    assert run.cells[0].measurement() == measured()


def test_every_line_has_a_type_and_a_cell_its_axes(tmp_path):
    lines = [
        json.loads(text) for text in written(tmp_path, line(measured())).read_text().splitlines()
    ]
    assert [item["type"] for item in lines] == ["run", "cell", "end"]
    assert lines[0]["format"] == FORMAT
    assert {
        "model",
        "backend",
        "schema",
        "variant",
        "environment_class",
        "metrics",
        "outcome",
    } <= lines[1].keys()
    assert (lines[2]["cells"], lines[2]["exit_code"]) == (1, 0)


def test_a_skipped_cell_has_no_measurement():
    skipped = CellRecord.of(
        measured().cell, Verdict(outcome=Outcome.UNSUPPORTED, headline="h", rule="r"), None
    ).line()
    assert record_of_line(skipped).measurement() is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda item: item["metrics"]["top1@photos"].update(hits=75.5),
        lambda item: item["metrics"]["top1@photos"].update(hits=True),
        lambda item: item["metrics"]["top1@photos"].pop("out_of"),
        lambda item: item.update(metrics=[1]),
        lambda item: item.pop("digests"),
        lambda item: item["metrics"]["top1@photos"].update(direction="sideways"),
    ],
)
def test_a_line_without_sense_is_one_sentence(damage):
    item = json.loads(json.dumps(line(measured())))
    damage(item)
    with pytest.raises(InputError, match=r"mobilenet_v2::ort-cpu\+w8a8_asym_pc"):
        record_of_line(item).measurement()


def test_two_runs_at_the_same_moment_get_two_files(tmp_path):
    paths = {written(tmp_path, line(measured())) for _ in range(3)}
    assert len(paths) == 3
    assert len(History(tmp_path).runs()) == 3


def test_lines_are_on_disk_at_once(tmp_path):
    writer = RunWriter.open(tmp_path, {"suite": "smoke"}, started=START, commit=None, token="t")
    writer.write(line(measured()))
    assert len(read_run(Path(writer.name)).cells) == 1
    assert "nogit" in writer.id
    writer.close(exit_code=1)
    writer.close(exit_code=1)
    with pytest.raises(StoreError, match="closed"):
        writer.write({"type": "note"})


def test_leaving_early_leaves_the_run_incomplete(tmp_path):
    def interrupted():
        with RunWriter.open(
            tmp_path, {"suite": "smoke"}, started=START, commit="c", token="t"
        ) as writer:
            writer.write(line(measured()))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    (run,) = History(tmp_path).runs()
    assert (run.complete, len(run.cells), run.damaged) == (False, 1, 0)


def test_a_killed_process_leaves_what_it_wrote(tmp_path):
    code = f"""
        import datetime, os, signal
        from pathlib import Path
        from qbench.tracking import RunWriter
        writer = RunWriter.open(Path({str(tmp_path)!r}), {{"suite": "smoke"}},
                                commit="abc", token="t",
                                started=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
        axes = {{"suite": "smoke", "model": "m", "schema": "s"}}
        for number in range(3):
            writer.write({{"type": "cell", "backend": f"b{{number}}", **axes}})
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert done.returncode == -signal.SIGKILL
    (run,) = History(tmp_path).runs()
    assert (run.complete, len(run.cells), run.damaged) == (False, 3, 0)


def test_a_full_disk_tears_one_line_only(tmp_path, monkeypatch):
    writer = RunWriter.open(tmp_path, {"suite": "smoke"}, started=START, commit="c", token="t")
    real, calls = os.write, []

    def half(handle, data):
        calls.append(data)
        if len(calls) == 1:
            return real(handle, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(StoreError, match="No space left"):
        writer.write(line(measured()))
    monkeypatch.setattr(os, "write", real)
    writer.write(line(measured()))
    writer.close(exit_code=1)
    run = read_run(Path(writer.name))
    assert (len(run.cells), run.damaged, run.complete) == (1, 1, True)


def test_a_disk_that_fails_at_the_end_is_one_sentence(tmp_path, monkeypatch):
    writer = RunWriter.open(tmp_path, {"suite": "smoke"}, started=START, commit="c", token="t")

    def refuse(_handle):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StoreError, match="Input/output error"):
        writer.close(exit_code=0)


def test_two_files_that_tell_of_one_run_differently_are_told(tmp_path):
    path = written(tmp_path / "a", line(measured()))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / path.name).write_text(path.read_text().replace('"hits":758', '"hits":759'))
    history = History(tmp_path)
    assert len(history.runs()) == 1
    assert "other content for run" in history.problems[0]
    (tmp_path / "b" / path.name).write_text(path.read_text())
    assert History(tmp_path).problems == ()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "deeper"):
        with pytest.raises(StoreError, match="expected a writable folder"):
            RunWriter.open(folder, {"suite": "s"}, started=START, commit=None, token="t")


def test_a_read_only_folder_is_one_sentence(tmp_path, monkeypatch):
    def refuse(*_arguments):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(
        os, "open", refuse
    )  # root may write anywhere, so the mode bits would prove nothing
    with pytest.raises(StoreError, match="Permission denied"):
        RunWriter.open(tmp_path, {"suite": "s"}, started=START, commit=None, token="t")


@pytest.mark.parametrize(
    ("tail", "damaged"),
    [
        (b'{"type":"cell","model":"m', 1),
        (b"garbage\n\x00\xff\n", 2),
        (b"[1]\n3\nnull\n", 3),
        (b'{"no":"type"}\n', 1),
        (b'{"type":"cell"}\n', 1),
        (b'{"type":"cell","suite":"s","model":"m","backend":"b","schema":"s","x":NaN}\n', 1),
        (b'{"type":"from the future","x":1}\n', 0),
        (b"\n\n", 0),
        (b"[" * 100_000, 1),
    ],
)
def test_damaged_lines_are_counted_and_the_rest_is_kept(tmp_path, tail, damaged):
    path = written(tmp_path, line(measured()), end=False)
    path.write_bytes(path.read_bytes() + tail)
    before = path.read_bytes()
    run = read_run(path)
    assert (len(run.cells), run.damaged, run.complete) == (1, damaged, False)
    assert bool(run.notices) == bool(damaged)
    assert path.read_bytes() == before


@given(st.integers(1, 5000), st.integers(0, 255))
def test_a_file_cut_or_spoilt_anywhere_is_never_a_traceback(tmp_path_factory, cut, byte):
    folder = tmp_path_factory.mktemp("cut")
    path = written(folder, line(measured()), line(measured(slug="ort-cpu+other")))
    content = path.read_bytes()
    place = cut % len(content)
    path.write_bytes(content[:place])
    History(folder).runs()
    path.write_bytes(content[:place] + bytes([byte]) + content[place + 1 :])
    history = History(folder)
    assert history.problems or history.runs()


def test_a_newer_format_is_read_with_a_notice(tmp_path):
    path = written(tmp_path, line(measured()))
    path.write_text(path.read_text().replace("qbench-run/1", "qbench-run/2"))
    run = read_run(path)
    assert "a newer qbench (qbench-run/2" in run.notices[0]
    assert len(run.cells) == 1
    assert History(tmp_path).problems == run.notices


@pytest.mark.parametrize(
    "content", [b"", b"garbage\n", b'{"type":"note","text":"x"}\n', b'{"type":"run"}\n']
)
def test_a_file_that_is_no_run_is_a_problem_and_not_the_end(tmp_path, content):
    written(tmp_path, line(measured()))
    (tmp_path / "bad.jsonl").write_bytes(content)
    with pytest.raises(StoreError, match="no 'run' line"):
        read_run(tmp_path / "bad.jsonl")
    history = History(tmp_path)
    assert len(history.runs()) == 1
    assert "bad.jsonl" in history.problems[0]


def test_a_missing_file_is_one_sentence(tmp_path):
    with pytest.raises(StoreError, match="No such file"):
        read_run(tmp_path / "none.jsonl")


def test_history_is_sorted_by_time_and_looks_deep(tmp_path):
    days = [datetime.timedelta(days=n) for n in (2, 0, 1)]
    for number, day in enumerate(days):
        suite = "nightly" if number == 0 else "smoke"
        written(tmp_path / str(number) / "deep", line(measured()), suite=suite, started=START + day)
    history = History(tmp_path)
    assert [run.id[:8] for run in history.runs()] == ["20261121", "20261122", "20261123"]
    assert [run.id[:8] for run in history.runs("smoke")] == ["20261121", "20261122"]
    assert history.latest().suite == "nightly"
    assert history.latest("smoke").id.startswith("20261122")
    assert history.latest("none") is None


def test_merging_is_copying(tmp_path):
    path = written(tmp_path / "a", line(measured()))
    content = path.read_bytes()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / path.name).write_bytes(
        content[: len(content) // 2]
    )  # an unfinished copy of the same run
    (run,) = History(tmp_path).runs()
    assert run.complete


def test_a_history_that_does_not_exist_is_empty(tmp_path):
    assert History(tmp_path / "none").runs() == ()
    assert History(tmp_path / "none").latest() is None


def test_runs_of_one_second_are_in_the_order_they_began(tmp_path):
    moment = datetime.datetime(2026, 11, 21, 4, 30, tzinfo=datetime.UTC)
    for number, token in enumerate(["zz", "mm", "aa"]):
        later = moment + datetime.timedelta(milliseconds=number)
        RunWriter.open(
            tmp_path, {"suite": "s", "n": number}, started=later, commit=None, token=token
        ).close(exit_code=0)
    assert [run.header["n"] for run in History(tmp_path).runs()] == [0, 1, 2]
    assert [path.name[-8:-6] for path in sorted(tmp_path.glob("*.jsonl"))] == ["zz", "mm", "aa"]


def test_what_is_no_plain_file_is_passed_over_and_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, line(measured()))
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "folder.jsonl" / "inside.jsonl").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("s.jsonl")
        history = History(tmp_path)
        assert len(history.runs()) == 1
        assert [sentence.split("'")[1].rpartition("/")[2] for sentence in history.problems] == [
            "folder.jsonl",
            "inside.jsonl",
            "pipe.jsonl",
            "s.jsonl",
        ]
        done = merge_run_files([tmp_path, tmp_path / "pipe.jsonl"], tmp_path / "merged")
        assert (len(done.added), len(done.problems)) == (1, 4)


@pytest.mark.parametrize(
    "odd",
    [
        {"metrics": []},
        {"metrics": None},
        {"metrics": {"top1": 5}},
        {"digests": "abc"},
        {"digests": {"model": 1}},
        {"suite": 1},
        {"x": "1e999"},
        {"x": "-1e+99999"},
        {"x": "9" * 400},
        {"x": "9" * 400 + ".5"},
        {"x": "9" * 250 + "E99"},
        {"x": "9" * 5000},
        {"x": "NaN"},
    ],
    ids=lambda odd: str(odd)[:30],
)
def test_a_line_that_does_not_hold_together_is_counted_and_left(tmp_path, odd):
    path = written(tmp_path, line(measured()), end=False)
    text = re.sub(
        r'"x": "([^"]*)"', r'"x": \1', json.dumps({**line(measured()), **odd})
    )  # a number as it is spelled
    path.write_text(path.read_text() + text + "\n")
    run = read_run(path)
    assert (len(run.cells), run.damaged, len(run.notices)) == (1, 1, 1)


def test_half_characters_and_names_that_are_not_utf8_can_be_written_down(tmp_path):
    path = written(tmp_path)
    cell = json.dumps(
        {**line(measured()), "headline": "\ud800", "notices": ["a\udfffb", "\U0001f600"]}
    )
    path.write_text(path.read_text() + cell + '\n{"type":"note","text":"\\ud83d"}\n' + "garbage\n")
    odd = tmp_path / os.fsdecode(b"\xff\xfe.jsonl")
    path.rename(odd)
    (tmp_path / os.fsdecode(b"\xfe.jsonl")).write_text("garbage\n")
    history = History(tmp_path)
    (run,) = history.runs()
    for text in (
        *history.problems,
        *run.notes,
        run.path,
        json.dumps([one.line() for one in run.cells], ensure_ascii=False),
    ):
        text.encode("utf-8")
    assert run.cells[0].notices == ("a?b", "\U0001f600")
    assert len(history.problems) == 2
    assert history.latest() == run


def small_history(folder, runs):
    """``runs`` files of twenty cells that move each night."""
    for number in range(runs):
        lines = [
            line(
                measured(top1(700 + number % 9), slug=f"ort-cpu+s{cell}", predictions=f"p{number}")
            )
            for cell in range(20)
        ]
        written(folder, *lines, started=START + datetime.timedelta(days=number))


def peak_of(work):
    """Bytes that ``work`` holds at most at one time."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["trends", "latest", "problems"])
def test_memory_grows_by_little_with_each_run(tmp_path, reader):
    few, many = 6, 24
    small_history(tmp_path / "few", few)
    small_history(tmp_path / "many", many)
    size = sum(path.stat().st_size for path in (tmp_path / "many").iterdir()) / many

    def read(folder):
        history = History(folder)
        if reader == "trends":
            assert ordered_trends(history.each(history.nights(), kept_keys(*TREND_KEYS)))
        elif reader == "latest":
            assert history.latest()
        else:
            assert history.problems == ()

    read(tmp_path / "few")  # what is imported and cached once
    read(tmp_path / "many")
    growth = (
        peak_of(lambda: read(tmp_path / "many")) - peak_of(lambda: read(tmp_path / "few"))
    ) / (many - few)
    assert (
        growth < 6000 < size / 3
    )  # bytes a run; one that is kept whole takes several times its size


@pytest.mark.parametrize("place", ["nope", None, 3, ["runs"], b"runs"])
def test_a_history_of_something_else_is_refused_in_one_sentence(place):
    with pytest.raises(InputError, match=r"expected a pathlib\.Path"):
        History(place)
