"""``--qbench-carry``: green cells whose whole key was measured a short time ago are carried over,
from outside.
"""

import json

import pytest

from qbench.errors import StoreError
from qbench.tracking import EarlierResults


@pytest.fixture
def measured(project):
    """The project after one green run whose cells have keys."""
    project.accept()
    result = project.once("measured", lambda: project.run("--qbench-carry=7d:0%"))
    assert result.ret == 0
    assert not any("carried" in cell for cell in project.lines(kind="cell"))
    return project


def carried(project, index=-1):
    return {
        f"{c['model']}::{c['backend']}+{c['schema']}"
        for c in project.lines(index, "cell")
        if "carried" in c
    }


def why(project):
    return {
        f"{c['model']}::{c['backend']}+{c['schema']}": c["key"]["why"]
        for c in project.lines(kind="cell")
        if "carried" not in c
    }


def test_an_unchanged_night_carries_its_cells(measured):
    before = measured.lines(kind="cell")
    source = measured.lines(kind="run")[0]
    result = measured.run("--qbench-carry=7d:0%", "-v")
    assert result.ret == 0
    assert result.parseoutcomes() == {"passed": len(before)}
    result.stdout.fnmatch_lines(["*tiny_a::ort-cpu+fp32 PASSED (carried)*"])
    after = measured.lines(kind="cell")
    for old, new in zip(before, after, strict=True):
        assert new.pop("carried") == {
            "run": source["id"],
            "measured": source["started"],
            "commit": "",
        }
        old["key"]["why"] = ""
        assert new == old


def test_the_summary_says_how_many_and_from_when(measured):
    day = measured.lines(kind="run")[0]["started"][:10]
    result = measured.run("--qbench-carry=7d:0%", "--qbench-report=md", "--qbench-report=html")
    assert f"8 of 8 cells are carried over from {day}" in result.stdout.str()
    for page in ("report.md", "index.html"):
        text = next((measured.path / "reports").rglob(page)).read_text()
        assert f"8 of 8 cells are carried over from {day}" in text, page
    pages = measured.path / "reports"
    for page in ("models/tiny_a.html", "cells.html"):
        assert "✓ passed (carried)" in (pages / page).read_text(), page
    assert "passed, carried from run" in (pages / "index.html").read_text()


def test_without_the_option_nothing_is_carried_and_no_key_is_noted(measured):
    assert measured.run().ret == 0
    assert not any({"key", "carried"} & cell.keys() for cell in measured.lines(kind="cell"))


@pytest.mark.slow
def test_an_age_of_zero_notes_keys_for_the_next_run(measured):
    measured.run("--qbench-carry=0d")
    assert set(why(measured).values()) == {"nothing is carried in this run"}
    measured.run("--qbench-carry=1h:0%")
    assert len(carried(measured)) == 8


@pytest.mark.slow
def test_a_carried_result_is_not_carried_from(measured):
    source = measured.run_files[-1]
    measured.run("--qbench-carry=7d:0%")
    source.unlink()
    measured.run("--qbench-carry=7d:0%")
    assert not carried(measured)


def test_the_age_counts_from_the_measurement(measured):
    source = measured.run_files[-1]
    measured.run("--qbench-carry=7d:0%")
    head, _, rest = source.read_text().partition("\n")
    line = json.loads(head) | {"started": "2020-01-01T00:00:00.000+00:00"}
    source.write_text(f"{json.dumps(line, separators=(',', ':'))}\n{rest}")
    measured.run("--qbench-carry=7d:0%")
    assert not carried(measured)
    assert set(why(measured).values()) == {"no result of it with a key in the last 7 d"}


def _changed(project, change):
    """The lines of the newest run file, written anew after ``change``."""
    file = project.run_files[-1]
    lines = [json.loads(one) for one in file.read_text().splitlines()]
    change(lines)
    file.write_text("".join(json.dumps(one, separators=(",", ":")) + "\n" for one in lines))


def _dirty(lines):
    lines[0]["commit"] = {"sha": "0" * 40, "short": "0" * 9, "dirty": True}


def _released(lines):
    lines[0]["releases"] = {"package": "onnxruntime", "version": "1.30"}


def _outcome(word):
    def change(lines):
        for line in lines:
            if line["type"] == "cell":
                line["outcome"] = word

    return change


def _excused(lines):
    for line in lines:
        if line["type"] == "cell":
            line["excused"] = "--qbench-missing=warn"


def _noisy(lines):
    for line in lines:
        if line["type"] == "cell":
            line["repeats"] = {"runs": 2, "differing": {"points": 3}, "flips": {}, "metrics": {}}


@pytest.mark.slow_but(3)
@pytest.mark.parametrize(
    "change",
    [
        _dirty,
        _released,
        lambda lines: lines.pop(),
        lambda lines: lines.remove(next(one for one in lines if one["type"] == "cell")),
        _outcome("failed"),
        _outcome("error"),
        _outcome("inconclusive"),
        _outcome("quarantined"),
        _outcome("accepted"),
        _outcome("unheard of"),
        _excused,
        _noisy,
    ],
    ids=[
        *("dirty", "another release", "interrupted", "a line is missing", "failed", "error"),
        *("inconclusive", "quarantined", "accepted", "unknown outcome", "excused", "noisy"),
    ],
)
def test_what_is_never_carried(measured, change):
    _changed(measured, change)
    assert measured.run("--qbench-carry=7d:0%").ret == 0
    assert not carried(measured)
    assert all(why(measured).values())


def test_a_failure_hides_an_older_green_result(measured):
    measured.run("--qbench-carry=0d")
    _changed(measured, _outcome("failed"))
    measured.run("--qbench-carry=7d:0%")
    assert not carried(measured)
    assert set(why(measured).values()) == {
        "its last result with this key is 'failed', not 'passed'"
    }
    measured.run("--qbench-carry=7d:0%")  # the new measurement is green
    assert len(carried(measured)) == 8


@pytest.mark.slow
def test_an_interrupted_run_does_not_hide_an_older_green_result(measured):
    source = measured.lines(kind="run")[0]["id"]
    measured.run("--qbench-carry=0d")
    _changed(measured, lambda lines: lines.pop())
    measured.run("--qbench-carry=7d:0%")
    assert {cell["carried"]["run"] for cell in measured.lines(kind="cell")} == {source}


@pytest.mark.slow
def test_a_resumed_result_is_as_old_as_the_run_that_measured_it(measured):
    source = measured.lines(kind="run")[0]["id"]
    measured.run("--qbench-carry=0d")

    def resumed(run):
        def change(lines):
            for line in lines:
                if line["type"] == "cell":
                    line["resumed_from"] = run

        return change

    _changed(measured, resumed(source))
    measured.run("--qbench-carry=7d:0%")
    assert {cell["carried"]["run"] for cell in measured.lines(kind="cell")} == {source}
    for file in measured.run_files[:-2]:
        file.unlink()
    measured.run_files[-1].unlink()
    _changed(measured, resumed("gone"))
    measured.run("--qbench-carry=7d:0%")
    assert not carried(measured)


@pytest.mark.slow
def test_two_answers_to_one_key_are_not_carried(measured):
    measured.run("--qbench-carry=0d")

    def change(lines):
        for line in lines:
            if line["type"] == "cell":
                line["digests"]["predictions:points"] = "0" * 64

    _changed(measured, change)
    measured.run("--qbench-carry=7d:0%")
    assert not carried(measured)


def test_a_share_is_measured_all_the_same_and_agrees(measured):
    result = measured.run("--qbench-carry=7d:100%")
    assert result.ret == 0
    assert not carried(measured)
    (said,) = set(why(measured).values())
    assert said.startswith("random share of 100 % on 20")


def test_a_carried_result_that_does_not_hold_is_red(measured):
    def change(lines):
        for line in lines:
            if line["type"] == "cell" and line["model"] == "tiny_a":
                line["digests"]["predictions:points"] = "0" * 64

    _changed(measured, change)
    source = measured.lines(kind="run")[0]["id"]
    result = measured.run("--qbench-carry=7d:100%")
    assert result.ret == 1
    red = [cell for cell in measured.lines(kind="cell") if cell["outcome"] != "passed"]
    assert {cell["model"] for cell in red} == {"tiny_a"}
    for cell in red:
        assert cell["outcome"] == "drifted"
        assert cell["headline"].startswith("carried result does not hold: other answers on points")
        assert source in cell["headline"]
    measured.run("--qbench-carry=7d:0%")  # the older result is not used either
    assert {name.partition("::")[0] for name in carried(measured)} == {"tiny_b"}


@pytest.mark.slow
def test_equal_answers_with_other_counts_do_not_hold_either(measured):
    def change(lines):
        for line in lines:
            if line["type"] == "cell" and line["model"] == "tiny_b":
                line["metrics"]["agreement"]["gains"] += 1

    _changed(measured, change)
    assert measured.run("--qbench-carry=7d:100%").ret == 1
    red = [cell for cell in measured.lines(kind="cell") if cell["outcome"] != "passed"]
    assert {cell["model"] for cell in red} == {"tiny_b"}
    assert all("does not hold: other counts of agreement" in cell["headline"] for cell in red)


@pytest.mark.slow
def test_a_run_that_accepts_measures(measured):
    result = measured.run("--qbench-carry=7d:0%", "--qbench-accept=new")
    assert result.ret == 0
    assert not carried(measured)


def test_accepting_from_a_run_leaves_carried_cells_out(measured, monkeypatch, capsys):
    from qbench.cli import main

    measured.run("--qbench-carry=7d:0%")
    monkeypatch.chdir(measured.path)
    code = main(["accept", str(measured.run_files[-1]), "--what", "all", "--reason", "r"])
    assert code == 2
    assert "8 cells of run" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["foo", "7", "7d:", "7d:101%", "7d:5", "-1d", "7w", "99999d"])
def test_what_is_no_age_is_refused_at_once(project, text):
    result = project.run(f"--qbench-carry={text}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [one for one in result.stderr.lines if one]
    assert line.startswith(f"ERROR: Reading --qbench-carry: found '{text}'; expected an age")


@pytest.mark.slow
def test_off_overrides_the_ini_file(measured):
    measured.write_ini(f"qbench_cache = {measured.cache}", "qbench_carry = 7d:0%")
    measured.run()
    assert len(carried(measured)) == 8
    measured.run("--qbench-carry=off")
    assert not carried(measured)
    assert not any("key" in cell for cell in measured.lines(kind="cell"))


def test_no_history_is_said_once(project):
    project.accept()
    for file in project.run_files:
        file.unlink()
    result = project.run("--qbench-carry=7d")
    assert result.ret == 0
    (note,) = [one["text"] for one in project.lines(kind="note") if "carried" in one["text"]]
    assert note.startswith("Nothing is carried: found no run of 'scratch' with keys")


@pytest.mark.slow
def test_an_unreadable_run_file_is_one_sentence(measured):
    broken = measured.path / "reports" / "history" / "broken.jsonl"
    broken.mkdir()
    result = measured.run("--qbench-carry=7d:0%")
    assert result.ret == 0
    assert len(carried(measured)) == 8
    (note,) = [one["text"] for one in measured.lines(kind="note") if "broken" in one["text"]]
    assert "not a plain file" in note


@pytest.mark.slow
def test_workers_carry(project):
    """Both runs by workers: this process has what earlier tests left in its modules."""
    project.accept()
    for _ in range(2):
        assert project.run("--qbench-carry=7d:0%", workers=2).ret == 0
    assert len(carried(project)) == 8


LATENCY = """
[suite]
tolerance = 0.2
agreement = 0.5
backends = ["ort-cpu"]
schemas = ["w8a8_asym_pc"]
fp32 = false
max_latency_ratio = 1e9

[[model]]
id = "tiny_a"
data = "points"
calibration = { data = "spare", count = 64 }
metrics = ["top1"]
"""


def _twice(project):
    """Why the one cell of ``project`` is measured on the second night."""
    for _ in range(2):
        assert project.run("--qbench-carry=7d:0%").ret == 0
        (cell,) = project.lines(kind="cell")
        assert "carried" not in cell
        assert cell["key"]["parts"] == {}
    return cell["key"]["why"]


@pytest.mark.slow
def test_a_cell_whose_time_is_judged_is_measured(project):
    project.write_suite(LATENCY)
    project.accept()
    assert _twice(project) == "its latency is judged, and no key holds a time"


@pytest.mark.slow
def test_a_cell_that_is_listed_as_known_bad_is_measured(project):
    project.write_suite(LATENCY.replace("max_latency_ratio = 1e9", "integer_macs = 0.0"))
    project.accept()
    listed = (
        '[[cell]]\ncell = "tiny_a::*"\nmeasured = "97 %"\nreason = "no headroom"\nowner = "ann"\n'
        'expires = "2999-01-01"\n'
    )
    (project.suite_path.parent / "scratch.quarantine.toml").write_text(listed)
    project.run("--qbench-carry=7d:0%")
    (cell,) = project.lines(kind="cell")
    assert cell["key"] == {"version": 1, "parts": {}, "why": "it is listed as known bad"}


@pytest.mark.slow
def test_a_task_that_no_key_can_follow_is_measured(project):
    project.write_suite(LATENCY.replace("max_latency_ratio = 1e9", ""))
    path = project.path / "conftest.py"
    text = path.read_text().replace("task=Classification(k=3)", "task=Mine(k=3)")
    path.write_text(f"{text}\nclass Mine(Classification):\n    made = open(__file__)\n")
    project.accept()
    assert "holds what no key can follow" in _twice(project)


@pytest.mark.slow
def test_a_crash_without_a_key_hides_an_older_green_result(measured):
    def change(lines):
        for line in lines:
            if line["type"] == "cell":
                line["outcome"] = "error"
                del line["key"]

    measured.run("--qbench-carry=0d")
    source = measured.lines(kind="run")[0]["id"]
    _changed(measured, change)
    measured.run("--qbench-carry=7d:0%")
    assert not carried(measured)
    assert set(why(measured).values()) == {f"its result in run {source} is 'error', and has no key"}


def test_a_store_that_is_gone_carries_nothing_and_says_so(measured, monkeypatch):
    def gone(*_, **__):
        raise StoreError("Listing runs", found="a server that is away", expected="one", remedy="…")

    monkeypatch.setattr(EarlierResults, "read", gone)
    assert measured.run("--qbench-carry=7d:0%").ret == 0
    assert not carried(measured)
    (note,) = [one["text"] for one in measured.lines(kind="note") if "carried" in one["text"]]
    assert note.startswith("Nothing is carried: Listing runs: found a server that is away")
