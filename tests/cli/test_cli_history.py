"""``qbench history``: red on what nobody has ruled on, and on nothing else;
numbers beside what was accepted.
"""

import json
import subprocess
from pathlib import Path

import pytest
from trend_history import CLASS, TrendHistory


def make_commits():
    TrendHistory(Path.cwd()).commits(16)


@pytest.fixture
def history(tmp_path, monkeypatch, fill_once):
    """A project of 16 commits whose nights are written with ``history.nights(…)``."""
    monkeypatch.chdir(tmp_path)
    fill_once(tmp_path, make_commits)
    made = TrendHistory(tmp_path)
    made.read_commits()
    return made


def test_a_level_history_is_fine(qbench, history, golden):
    history.nights([356] * 16)
    code, out, err = qbench("history", "check")
    assert (code, err) == (0, "")
    golden("output/history-check-level.txt", out)


def test_a_new_regression_is_red_and_names_its_commit(qbench, history, golden):
    history.nights([356] * 10 + [340] * 6)
    code, out, _ = qbench("history", "check")
    assert code == 1
    assert history.hashes[10][:9] in out
    for number, commit in enumerate(history.hashes):
        out = out.replace(commit[:9], f"COMMIT {number}")
    golden("output/history-check-red.txt", out)


@pytest.mark.parametrize(
    ("state", "code"), [("acknowledged", 0), ("expected", 0), ("invalid", 0), ("fixed", 1)]
)
def test_what_somebody_ruled_on_is_quiet(qbench, history, state, code):
    history.nights([356] * 10 + [340] * 6)
    history.annotate(history.hashes[10][:8], state)
    assert qbench("history", "check")[0] == code
    out = qbench("history", "check", "--all")[1]
    assert ("because (ann)" in out) == (state != "fixed")


def test_two_points_are_not_an_alarm_yet(qbench, history):
    history.nights([356] * 14 + [340] * 2)
    code, out, _ = qbench("history", "check")
    assert (code, "and 1 provisional" in out) == (0, True)


def test_machines_and_versions_raise_no_alarm(qbench, history):
    history.nights(
        [356, 340] * 8,
        classes=["x64-avx2+onnxruntime-1.30", "x64-avx512-vnni+onnxruntime-1.30"] * 8,
    )
    history.nights([330] * 4, classes=["x64-avx2+onnxruntime-1.31"] * 4)
    assert qbench("history", "check")[0] == 0


def test_a_slow_slide_is_seen_beside_the_baseline(qbench, history):
    history.nights([356] * 5 + [355] * 5 + [354] * 6)
    assert qbench("history", "check")[0] == 0
    history.accept(356)
    code, out, _ = qbench("history", "check")
    assert code == 1
    assert f"is worse than what was accepted since commit {history.hashes[10][:9]}" in out
    history.annotate(history.hashes[13], "acknowledged")
    assert qbench("history", "check")[::2] == (0, "")


def test_an_alert_is_told_in_the_unit_of_its_metric(qbench, history):
    history.nights([3240] * 10 + [3600] * 6)
    for path in history.folder.glob("*.jsonl"):
        of = '"perplexity": {"unit": "per token", "proportion": false, "direction": "lower", '
        path.write_text(
            path.read_text().replace('"direction":"higher"', '"x":0').replace('"top1":{', of)
        )
    code, out, _ = qbench("history", "check")
    assert code == 1
    assert "perplexity  9 per token → 10 per token  +1 " in out


def test_what_is_open_stands_before_what_is_fixed(qbench, history):
    history.commits(9)
    history.nights([356] * 10 + [340] * 5 + [356] * 5 + [340] * 5)
    code, out, _ = qbench("history", "check", "--all")
    states = [line.partition(":")[0] for line in out.splitlines() if line.startswith("step")]
    assert (code, states) == (1, ["step, detected", "step, fixed"])


@pytest.mark.parametrize("command", [("check",), ("show", TrendHistory.CELL)])
@pytest.mark.parametrize("indexed", [False, True])
def test_a_suite_that_the_history_does_not_know_is_usage(qbench, history, command, indexed):
    history.nights([356] * 4)
    if indexed:
        assert qbench("history", "index")[0] == 0
    code, _, err = qbench("history", *command, "--suite", "smokee")
    assert code == 2
    assert "suite" in err
    assert "smoke" in err.replace("smokee", "")


def test_an_incomplete_history_has_a_code_of_its_own(qbench, history):
    history.nights([356] * 4)
    history.nights([356], end=False, first=4)
    code, _, err = qbench("history", "check")
    assert code == 4
    assert "was interrupted" in err


@pytest.mark.parametrize("indexed", [False, True])
def test_the_shards_of_a_night_are_one_run(qbench, history, indexed):
    for commit in range(3):
        history.shards(356, commit=commit)
    if indexed:
        assert qbench("history", "index")[0] == 0
    assert qbench("history", "check") == (0, "no new regression in 2 trends over 3 runs\n", "")
    (shown,) = json.loads(qbench("history", "show", "model2::ort-cpu+w8a8_asym_pc", "--json")[1])
    assert [len(point["run"].split()) for point in shown["points"]] == [2, 2, 2]
    assert shown["points"][0]["started"].startswith("2026-01-01T04")


@pytest.mark.parametrize("indexed", [False, True])
def test_a_night_that_was_cut_on_one_machine_or_lacks_one_is_incomplete(qbench, history, indexed):
    history.shards(356, commit=0, shares=("1/2",))
    history.shards(356, commit=1, cut=("1/2",))
    if indexed:
        assert qbench("history", "index")[0] == 0
    code, out, err = qbench("history", "check")
    assert (code, "over 2 runs" in out) == (4, True)
    assert "was interrupted: the cells that it did not measure are not checked" in err
    assert "lacks" not in err
    history.shards(356, commit=2, shares=("2/2",))
    code, _, err = qbench("history", "check")
    assert code == 4
    assert "lacks share 1/2: the cells of these are not checked" in err
    history.shards(356, commit=3)
    assert qbench("history", "check")[::2] == (0, "")


def test_a_damaged_file_is_told_and_a_regression_is_still_red(qbench, history):
    history.nights([356] * 10 + [340] * 6)
    (history.folder / "rubbish.jsonl").write_text("{")
    code, _, err = qbench("history", "check")
    assert code == 1
    assert "rubbish.jsonl" in err
    history.annotate(history.hashes[10], "expected")
    assert qbench("history", "check")[0] == 4


def test_an_empty_history_is_not_fine(qbench, history):
    history.folder.mkdir(parents=True)
    assert qbench("history", "check")[0] == 4


def test_no_history_and_bad_annotations_are_usage(qbench, history):
    assert qbench("history", "check")[0] == 2
    history.nights([356] * 4)
    (history.folder / "annotations.toml").write_text("[[annotation]]\ncomit = 3\n")
    code, _, err = qbench("history", "check")
    assert code == 2
    assert "Did you mean 'commit'?" in err


def test_annotations_that_fit_nothing_are_told(qbench, history):
    history.nights([356] * 10 + [340] * 6)
    history.annotate(history.hashes[10], "expected")
    history.annotate(history.hashes[3], "expected")
    code, _, err = qbench("history", "check")
    assert code == 0
    assert err.count("fits no alert") == 1
    assert history.hashes[3] in err


def test_check_prints_json(qbench, history):
    history.nights([356] * 10 + [340] * 6)
    code, out, _ = qbench("history", "check", "--json")
    facts = json.loads(out)
    assert (code, facts["new"], facts["runs"], facts["incomplete"]) == (1, 1, 16, [])
    (regression,) = facts["regressions"]
    assert regression["suspects"] == [history.hashes[10]]
    assert regression["subject"] == "change 10"
    assert regression["alerts"][0]["state"] == "detected"


def test_a_clone_without_these_commits_goes_by_time(qbench, history, tmp_path):
    history.nights([356] * 10 + [340] * 6)
    other = tmp_path / "other"
    other.mkdir()
    subprocess.run(["git", "init", "-q", str(other)], check=True)
    code, out, _ = qbench("history", "check", "--project", other)
    assert code == 1
    assert f"at {history.hashes[10][:9]}\n" in out


def test_show_prints_what_was_accepted_and_what_was_ruled(qbench, history):
    history.nights([356] * 10 + [340] * 6)
    history.accept(356)
    history.annotate(history.hashes[10], "acknowledged")
    code, out, _ = qbench("history", "show", history.CELL)
    lines = out.splitlines()
    assert code == 0
    assert lines[0].startswith(
        "top1 of digits_cnn::ort-cpu+w8a8_asym_pc on x64-avx2+onnxruntime-1.31"
    )
    assert "accepted 98.89 %" in lines[0]
    assert lines[12].split()[2:] == (
        f"{history.hashes[10][:9]} 94.44 % 360 −4.44 1 step (acknowledged); because (ann)".split()
    )


def test_show_compares_no_result_of_other_samples_with_what_was_accepted(qbench, history):
    history.nights([300] * 3 + [356] * 3)
    for file in sorted(history.folder.glob("*.jsonl"))[:3]:
        file.write_text(file.read_text().replace('"d1"', '"d0"'))
    history.accept(356)
    code, out, _ = qbench("history", "show", history.CELL)
    rows = [line.split() for line in out.splitlines()[2:]]
    assert code == 0
    assert [row[6] for row in rows] == ["—", "—", "—", "+0.00", "+0.00", "+0.00"]
    assert rows[3][8:] == ["other", "samples", "from", "here", "on"]
    _, out, _ = qbench("history", "show", history.CELL, "--json")
    (series,) = json.loads(out)
    assert [point["to_accepted"] for point in series["points"]] == [None, None, None, 0, 0, 0]


@pytest.mark.parametrize("indexed", [False, True])
def test_show_marks_commits_with_files_that_were_not_committed(qbench, history, indexed):
    history.nights([356] * 2)
    history.nights([350], first=1, dirty=True)
    if indexed:
        assert qbench("history", "index")[0] == 0
    lines = qbench("history", "show", history.CELL)[1].splitlines()
    short = history.hashes[1][:9]
    assert [line.split()[2:4] for line in lines[-2:]] == [[short, "98.89"], [short, "dirty"]]
    (series,) = json.loads(qbench("history", "show", history.CELL, "--json")[1])
    assert [(point["commit"], point["dirty"]) for point in series["points"]] == [
        *((commit, "") for commit in history.hashes[:2]),
        ("", history.hashes[1]),
    ]


@pytest.mark.parametrize("options", [["--metric", "top2"], ["--class", "arm"], []])
def test_unknown_names_are_usage(qbench, history, options):
    history.nights([356] * 2)
    cell = history.CELL if options else "digits_cnn::ort-cpu+w8a8"
    code, _, err = qbench("history", "show", cell, *options)
    assert code == 2
    assert "found unknown" in err


def test_show_prints_json(qbench, history):
    history.nights([356] * 10 + [340] * 6)
    (series,) = json.loads(qbench("history", "show", history.CELL, "--json", "--metric", "top1")[1])
    assert series["steps"] == [10]
    assert series["accepted"] is None
    assert series["alerts"][0]["commit"] == history.hashes[10]


@pytest.mark.parametrize("state", ["current", "behind", "damaged"])
def test_show_says_the_same_with_an_index(qbench, history, state):
    history.nights([356] * 8)
    if state == "current":
        history.nights([340] * 4, first=8)
    assert qbench("history", "index")[0] == 0
    if state != "current":
        history.nights([340] * 4, first=8)
    place = history.folder / "index.sqlite"
    if state == "damaged":
        place.write_bytes(b"no database at all, but long enough to be one" * 100)
    told = qbench("history", "show", history.CELL)
    assert ("The run files are read instead" in told[2]) == (state == "damaged")
    place.unlink()
    assert told[:2] == qbench("history", "show", history.CELL)[:2]
    assert told[0] == 0


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("state", ["current", "behind", "damaged"])
def test_check_asks_the_index_and_says_the_same(qbench, history, monkeypatch, state):
    from qbench.tracking import History

    history.nights([356] * 10 + [340] * (6 if state == "current" else 2))
    assert qbench("history", "index")[0] == 0
    if state != "current":
        history.nights([340] * 4, first=12)
    history.nights([356], end=False, first=15)
    history.accept(356)
    place = history.folder / "index.sqlite"
    if state == "damaged":
        place.write_bytes(b"no database at all, but long enough to be one" * 100)
    with monkeypatch.context() as patched:
        if state != "damaged":
            patched.setattr(History, "runs", lambda *_: pytest.fail("the files were read"))
        told = qbench("history", "check", "--all")
    assert ("history index --rebuild' makes it anew. The run files are read" in told[2]) == (
        state == "damaged"
    )
    place.unlink()
    code, out, err = qbench("history", "check", "--all")
    assert (told[0], told[1]) == (code, out)
    assert told[2].endswith(err)
    assert code == 1


def test_a_damaged_index_is_made_anew_where_that_is_asked_for(qbench, history):
    history.nights([356] * 4)
    place = history.folder / "index.sqlite"
    place.write_bytes(b"no database at all, but long enough to be one" * 100)
    code, out, err = qbench("history", "index")
    assert (code, out) == (2, "")
    assert "found file is not a database; expected an SQLite database" in err
    code, out, err = qbench("history", "index", "--rebuild")
    assert (code, "4 run files added" in out) == (0, True)
    assert err.strip().endswith("it was created again from the run files.")
    assert qbench("history", "index", "--rebuild")[::2] == (0, "")


def test_a_cell_that_the_index_does_not_know_is_told_with_its_neighbours(qbench, history):
    history.nights([356] * 3)
    assert qbench("history", "index")[0] == 0
    code, _, err = qbench("history", "show", history.CELL + "x")
    assert code == 2
    assert history.CELL in err


@pytest.mark.parametrize("declared", [False, True])
def test_show_compares_with_a_class_that_the_suite_declares_equivalent(qbench, history, declared):
    history.nights([350] * 3, classes=[CLASS.replace("avx2", "avx512")] * 3)
    history.accept(356)
    groups = 'equivalents = [["x64-avx2", "x64-avx512"]]' if declared else ""
    suites = history.project / "suites"
    suites.mkdir()
    model = '[[model]]\nid = "digits_cnn"\ndata = "digits"\nmetrics = ["top1"]\n'
    calibration = 'calibration = { data = "digits", count = 8 }\n'
    head = f'[suite]\nbackends = ["ort-cpu"]\nschemas = ["w8a8_asym_pc"]\n{groups}\n'
    (suites / "smoke.qbench.toml").write_text(head + model + calibration)
    code, out, err = qbench("history", "show", history.CELL)
    assert (code, err) == (0, "")
    assert ("(accepted 98.89 %)" in out) == declared
    assert ("nothing accepted in this class" in out) != declared


def test_show_takes_a_pattern_of_cells(qbench, history):
    history.shards(350, commit=0)
    history.nights([356])
    code, out, _ = qbench("history", "show", "model*::ort-cpu+*", "--json")
    assert (code, [one["cell"]["model"] for one in json.loads(out)]) == (0, ["model1", "model2"])
    assert len(json.loads(qbench("history", "show", "*", "--json")[1])) == 3
    code, _, err = qbench("history", "show", "nothing::*")
    assert (code, "digits_cnn" in err) == (2, True)
    assert qbench("history", "index")[0] == 0
    assert len(json.loads(qbench("history", "show", "model*", "--json")[1])) == 2


def rewritten(history, pairs, *, newest=1):
    """Replace texts in the newest run files."""
    for path in sorted(history.folder.glob("*.jsonl"))[-newest:]:
        text = path.read_text()
        for old, new in pairs:
            text = text.replace(old, new)
        path.write_text(text)


RED = [('"outcome":"passed"', '"outcome":"drifted","headline":"another calibration"')]


def test_a_red_cell_is_listed_before_there_is_an_alert(qbench, history):
    history.nights([356] * 5)
    rewritten(history, RED)
    code, out, _ = qbench("history", "check")
    assert code == 1
    assert TrendHistory.CELL in out
    assert "another calibration" in out
    (red,) = json.loads(qbench("history", "check", "--json")[1])["red"]
    assert [one["cell"] for one in red["cells"]] == [TrendHistory.CELL]
    history.nights([356], first=5)
    assert qbench("history", "check")[0] == 0, "the next night is green"


@pytest.mark.parametrize(("state", "code"), [("acknowledged", 0), ("expected", 0), ("fixed", 1)])
def test_a_red_cell_whose_alert_was_ruled_on_is_quiet(qbench, history, state, code):
    history.nights([356] * 10 + [340] * 6)
    rewritten(history, RED)
    history.annotate(history.hashes[10][:8], state)
    assert qbench("history", "check")[0] == code


def test_cells_without_a_line_or_that_were_lost_end_with_4(qbench, history):
    history.nights([356] * 4)
    rewritten(
        history, [('"suite":"smoke","commit"', '"planned":3,"selected":3,"suite":"smoke","commit"')]
    )
    code, _, err = qbench("history", "check")
    assert (code, "2 of 3 selected cells" in err) == (4, True)
    history.nights([356], first=4)
    assert qbench("history", "check")[0] == 0
    rewritten(history, [('"schema":"w8a8_asym_pc"', '"schema":"w8a8_sym_pc"')])
    code, _, err = qbench("history", "check")
    assert (code, TrendHistory.CELL in err) == (4, True), "the night before had it"


def test_a_night_that_supports_nothing_ends_with_4(qbench, history):
    history.nights([356] * 4)
    for path in sorted(history.folder.glob("*.jsonl"))[-1:]:
        lines = [json.loads(one) for one in path.read_text().splitlines()]
        for one in lines:
            if one["type"] == "cell":
                one["outcome"] = "unsupported"
                del one["metrics"], one["digests"]
        path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    code, _, err = qbench("history", "check")
    assert (code, "unsupported now" in err) == (4, True)


def test_a_run_of_a_part_does_not_hide_what_is_red(qbench, history):
    history.nights([356] * 4)
    rewritten(history, RED)
    history.nights([356], first=4)
    other = [('"suite":"smoke","commit"', '"planned":9,"selected":1,"suite":"smoke","commit"')]
    rewritten(history, [*other, ('"model":"digits_cnn"', '"model":"other"')])
    assert qbench("history", "check")[0] == 1
