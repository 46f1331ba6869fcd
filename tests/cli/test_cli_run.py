"""``run``, ``compare``, ``accept``, ``report``,
``history`` and ``doctor`` on a small project, end to end.
"""

import datetime
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SUITE = "suites/tiny.qbench.toml"
CELLS = 6


def accept_all():
    from qbench.host import utc_today
    from qbench.storage import Cache
    from qbench.suite import Bench, Settings, approve_run, expand, gather, load_suite
    from qbench.tracking import Accepting, Scope

    suite = load_suite(Path(SUITE))
    catalogues = gather(suites=Path("suites"))
    settings = Settings(
        baselines=Path("baselines"),
        suite_path=SUITE,
        today=utc_today(),
        cache=Cache.default(),
        accepting=Accepting(scope=Scope.NEW, fp32=True),
    )
    bench = Bench(suite, catalogues, settings)
    approve_run(bench, [(planned, bench.measure(planned)) for planned in expand(suite, catalogues)])


@pytest.fixture
def accepted(project, fill_once):
    """The project with a baseline, made of its own first run."""
    fill_once(project, accept_all)
    return project


def only_run(folder="reports/history"):
    (path,) = Path(folder).glob("*.jsonl")
    return path


def rewritten(path, name, change):
    """A copy of a run file under another id, each cell line passed through ``change``."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line["type"] == "run":
            line["id"] = name
        if line["type"] == "cell":
            change(line)
    copy = path.with_name(f"{name}.jsonl")
    copy.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return copy


def test_a_green_run_ends_with_0_and_leaves_a_whole_file(accepted, qbench):
    code, out, err = qbench("run", SUITE)
    assert code == 0, out + err
    assert len([line for line in err.splitlines() if line.startswith("[")]) == CELLS
    lines = [json.loads(line) for line in only_run().read_text().splitlines()]
    types = [line["type"] for line in lines if line["type"] != "samples"]
    assert types == ["run", "environment", *["cell"] * CELLS, "end"]
    assert lines[0]["complete_selection"] is True
    assert lines[1]["versions"]["onnxruntime"]
    assert {line["outcome"] for line in lines if line["type"] == "cell"} == {"passed"}
    assert lines[-1]["exit_code"] == 0
    assert str(only_run()) in out


def test_a_red_run_ends_with_1(project, qbench):
    code, out, _ = qbench("run", SUITE, "--select", "backend=ort-cpu schema=*_pc")
    assert code == 1
    assert "missing" in out
    assert "--qbench-accept-fp32" in out
    header = json.loads(only_run().read_text().splitlines()[0])
    assert (header["planned"], header["selected"], header["complete_selection"]) == (
        CELLS,
        1,
        False,
    )


@pytest.mark.slow
def test_json_is_the_run(accepted, qbench):
    code, out, _ = qbench("run", SUITE, "--select", "schema=fp32", "--json")
    facts = json.loads(out)
    assert code == facts["exit_code"] == 0
    assert {cell["backend"] for cell in facts["cells"]} == {"ort-cpu", "ort-cpu-noopt"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["suites/none.qbench.toml"], "No such file"),
        ([Path(SUITE).name.partition(".")[0], "--limit", "0"], "a whole number from 1"),
        ([SUITE.replace(".qbench", "")], f"Did you mean '{SUITE}'?"),
        ([SUITE, "--select", "modell=blobs"], "Did you mean 'model'?"),
        ([SUITE, "--select", "model=other"], "no cell that 'model=other' selects among 6"),
        ([SUITE, "--limit", "0"], "a whole number from 1"),
    ],
)
def test_bad_input_is_one_sentence_and_2(project, qbench, arguments, says):
    code, out, err = qbench("run", *arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert len(err.splitlines()) == 1
    assert not Path("reports").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_history_is_found_before_anything_is_measured(accepted, qbench):
    Path("reports").mkdir(mode=0o555)
    code, _, err = qbench("run", SUITE)
    assert code == 2
    assert "expected a writable folder" in err


@pytest.mark.slow
def test_a_history_that_cannot_be_made_is_found_before_anything_is_measured(accepted, qbench):
    Path("reports").write_text("a file where a folder should be")
    code, out, err = qbench("run", SUITE)
    assert (code, out) == (2, "")
    assert "Writing the history folder" in err
    assert "--history" in err


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_measured(accepted, shapes_package):
    program = (
        "import sys, qbench.suite, qbench.cli\n"
        "def slow(self, planned, run=qbench.suite.Bench.run, seen=[]):\n"
        "    if seen:\n"
        "        print('waiting', flush=True)\n"
        "        import time; time.sleep(600)\n"
        "    seen.append(planned)\n"
        "    return run(self, planned)\n"
        "qbench.suite.Bench.run = slow\n"
        f"sys.exit(qbench.cli.main(['run', '{SUITE}']))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(shapes_package)}
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "waiting\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=600)
    assert process.returncode == 4, out + err
    assert "Traceback" not in err
    assert f"interrupted; 1 of {CELLS} cells are kept" in err
    types = [json.loads(line)["type"] for line in only_run().read_text().splitlines()]
    assert types == ["run", "environment", "cell", "note"]


@pytest.mark.slow
def test_a_fault_of_ours_is_a_red_cell_and_not_the_end(accepted, qbench, monkeypatch):
    from qbench.suite import Bench

    run = Bench.run
    monkeypatch.setattr(
        Bench, "run", lambda self, one: 1 / 0 if one.cell.is_fp32 else run(self, one)
    )
    code, _, err = qbench("run", SUITE)
    assert code == 1
    assert "ZeroDivisionError" in err
    outcomes = [json.loads(line).get("outcome") for line in only_run().read_text().splitlines()]
    assert outcomes.count("error") == 2
    assert outcomes.count("passed") == CELLS - 2


@pytest.mark.slow
def test_report_and_reports_of_a_run(accepted, qbench):
    assert qbench("run", SUITE, "--report", "md")[0] == 0
    assert Path("reports/report.md").read_text()
    code, out, _ = qbench("report", "-o", "pages", "--report", "html", "--report", "md")
    assert (code, out) == (0, "pages/index.html\npages/report.md\n")
    assert "blobs" in Path("pages/index.html").read_text()


@pytest.mark.slow
def test_report_compares_two_runs_and_looks_back_as_far_as_told(accepted, qbench):
    assert qbench("run", SUITE)[0] == 0
    first = only_run()
    assert qbench("run", SUITE)[0] == 0
    code, out, _ = qbench("report", "--compare", str(first), "latest", "-o", "pages")
    assert (code, out) == (0, "pages/compare.html\n")
    assert first.stem in Path("pages/compare.html").read_text()
    assert qbench("report", "-o", "site", "--report", "html")[0] == 0
    assert (
        qbench("report", "--compare", "latest", str(first), "-o", "site")[1]
        == "site/compare.html\n"
    )
    page = Path("site/compare.html").read_text()
    assert [f'<a href="{name}.html">' in page for name in ("index", "cells", "known", "run")] == [
        True
    ] * 4
    assert qbench("report", "-o", "short", "--report", "html", "--runs", "1")[0] == 0
    assert not Path("short/compare.html").exists()
    code, _, err = qbench("report", "--runs", "0")
    assert (code, "--runs" in err) == (2, True)


@pytest.mark.slow
def test_report_tells_github(accepted, qbench, monkeypatch):
    from qbench.suite import Bench

    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    monkeypatch.setattr(Bench, "run", lambda self, one: 1 / 0)
    qbench("run", SUITE)
    Path("summary.md").write_text("before\n")
    code, out, _ = qbench("report", "--report", "github")
    assert code == 0
    assert out.startswith("::error file=suites/")
    assert Path("summary.md").read_text().startswith("before\n# qbench ")


def test_report_without_a_history(project, qbench):
    code, _, err = qbench("report")
    assert code == 2
    assert "Name it with --history" in err


@pytest.mark.slow
def test_compare_says_same_changed_and_incomparable(accepted, qbench):
    qbench("run", SUITE)
    first = only_run()
    same = rewritten(first, "same", lambda line: None)

    def flip(line):
        if line["schema"] == "w8a8_asym_pc":
            line["digests"]["predictions:blobs_test"] = "0" * 64
            line["metrics"]["top1"]["hits"] -= 3

    changed = rewritten(first, "changed", flip)
    elsewhere = rewritten(
        first, "elsewhere", lambda line: line.update(environment_class="arm64-dotprod")
    )
    assert qbench("compare", first, same)[0] == 0
    code, out, _ = qbench("compare", first.stem, "changed")
    assert code == 1
    assert f"{CELLS} cells, 2 differ" in out
    assert "blobs::ort-cpu+w8a8_asym_pc" in out
    assert "blobs::ort-cpu+w8a8_asym_pt" not in out
    code, out, _ = qbench("compare", first, changed, "--json")
    facts = json.loads(out)
    assert (code, facts["differ"], len(facts["cells"])) == (1, 2, CELLS)
    code, _, err = qbench("compare", first, elsewhere)
    assert code == 3
    assert "environment class" in err


def test_compare_with_what_is_no_run(project, qbench):
    Path("junk.jsonl").write_text("not json\n")
    assert qbench("compare", "junk.jsonl", "junk.jsonl")[0] == 2
    code, _, err = qbench("compare", "latest", "latest")
    assert code == 2
    assert "no such run" in err


@pytest.mark.slow
def test_accept_takes_a_run_from_another_machine(accepted, qbench):
    qbench("run", SUITE)
    elsewhere = rewritten(
        only_run(), "elsewhere", lambda line: line.update(environment_class="arm64-dotprod")
    )
    baseline = Path("baselines/tiny/blobs.json")
    before = baseline.read_text()
    code, out, _ = qbench("accept", elsewhere, "--cell", "blobs::ort-cpu+w8a8_*", "--dry-run")
    assert code == 0
    assert baseline.read_text() == before
    assert qbench("accept", elsewhere, "--cell", "blobs::ort-cpu+w8a8_*")[:2] == (0, out)
    cells = json.loads(baseline.read_text())["cells"]
    assert "arm64-dotprod" in cells["ort-cpu+w8a8_asym_pc"]["accepted"]
    assert "arm64-dotprod" not in cells["ort-cpu-noopt+w8a8_asym_pc"]["accepted"]
    row = next(
        line.split() for line in out.splitlines() if "w8a8_asym_pc" in line and "top1" in line
    )
    assert row[1:4] == ["arm64-dotprod", "top1", "—"]
    code, out, _ = qbench("accept", elsewhere, "--cell", "blobs::ort-cpu+w8a8_*", "--json")
    assert (code, json.loads(out)) == (0, [])


def test_accept_replaces_only_with_a_reason(accepted, qbench):
    qbench("run", SUITE)

    def better(line):
        line["metrics"]["top1"]["hits"] += 1
        line["digests"]["predictions:blobs_test"] = "1" * 64

    run = rewritten(only_run(), "better", better)
    before = Path("baselines/tiny/blobs.json").read_text()
    code, _, err = qbench("accept", run, "--what", "changed")
    assert code == 2
    assert "Add --reason" in err
    assert Path("baselines/tiny/blobs.json").read_text() == before
    code, out, _ = qbench("accept", run, "--what", "changed", "--reason", "a better rule")
    assert code == 0
    assert "a better rule" in Path("baselines/tiny/blobs.json").read_text()
    assert len(out.splitlines()) == 1 + 2 * CELLS


@pytest.mark.slow
def test_accept_says_what_it_refused_and_ends_with_1(accepted, qbench):
    qbench("run", SUITE)

    def other_model(line):
        line["digests"]["model"] = "0" * 64

    run = rewritten(only_run(), "other", other_model)
    code, out, err = qbench("accept", run, "--what", "changed", "--reason", "why", "--dry-run")
    assert code == 1
    assert (
        out.splitlines()[-1] == f"nothing accepted, {CELLS} cells refused (the reasons are above)"
    )
    command = (
        'pytest "suites/tiny.qbench.toml::blobs" --qbench-accept-fp32 --qbench-accept=all '
        '--qbench-reason "…"'
    )
    assert err.count("not accepted: blobs::") == err.count(f"({command})") == CELLS


@pytest.mark.slow
def test_accept_is_refused_in_ci_for_incomplete_runs_and_without_a_baseline(
    accepted, qbench, monkeypatch
):
    qbench("run", SUITE)
    path = only_run()
    monkeypatch.setenv("CI", "true")
    assert qbench("accept", path)[0] == 2
    assert qbench("accept", path, "--in-ci")[0] == 0
    monkeypatch.delenv("CI")
    assert qbench("accept", path, "--cell", "nothing")[0] == 2
    cut = path.with_name("cut.jsonl")
    cut.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    code, _, err = qbench("accept", cut)
    assert code == 4
    assert "interrupted" in err
    Path("baselines/tiny/blobs.json").unlink()
    code, _, err = qbench("accept", path)
    assert code == 2
    assert "--qbench-accept-fp32" in err


def test_history_of_one_cell(accepted, qbench):
    qbench("run", SUITE)
    code, out, _ = qbench("history", "show", "blobs::ort-cpu+w8a8_asym_pc")
    assert code == 0
    assert "top1" in out
    code, _, err = qbench("history", "show", "blobs::ort-cpu+w8a8_asym_pcc")
    assert code == 2
    assert "blobs::ort-cpu+w8a8_asym_pc" in err


def test_doctor_knows_what_is_missing(project, qbench):
    code, out, _ = qbench("doctor")
    assert code == 1
    assert "blobs has no baseline" in out


def test_doctor_says_what_a_sample_can_decide(accepted, qbench):
    code, out, _ = qbench("doctor", SUITE)
    assert code == 0, out
    assert "no problems" in out
    facts = json.loads(qbench("doctor", SUITE, "--json")[1])
    assert "shapes" in facts["machine"]["extensions"]  # the zoo may be installed, too
    (suite,) = facts["suites"]
    (model,) = suite["models"]
    (top1,) = model["metrics"]
    assert (suite["cells"], suite["gated"], suite["excused"]) == (CELLS, 4, 0)
    assert top1["n"] == 400
    assert top1["margin_samples"] == int(0.02 * top1["fp32_hits"])
    assert top1["sources"] is None
    assert "has too few samples" in suite["undecided"] or top1["settles"] == ""


def test_doctor_counts_the_sources_of_the_data_of_today(accepted, qbench):
    (path,) = Path("baselines").rglob("blobs.json")
    stored = json.loads(path.read_text())
    (data,) = [one for one in stored["data"].values() if one["samples"] == 400]
    data["sources"] = 32
    path.write_text(json.dumps(stored))
    (model,) = json.loads(qbench("doctor", SUITE, "--json")[1])["suites"][0]["models"]
    (top1,) = model["metrics"]
    assert (top1["n"], top1["sources"], top1["other_data"]) == (400, None, True)


@pytest.mark.slow
def test_doctor_has_the_tolerances_of_metrics_and_cells():
    """PP-OCR's right lines have a tolerance of their own: 6 % of them,
    not the suite's half a percent.
    """
    from qbench.cli.doctor import suite_facts
    from qbench.storage import Cache

    root = Path(__file__).parents[2]
    suite, today = root / "suites/nightly.qbench.toml", datetime.date(2026, 1, 1)
    facts = suite_facts(suite, root / "baselines", Cache.default(), "x64-avx512-vnni", today)
    models = {
        model["model"]: {metric["metric"]: metric for metric in model["metrics"]}
        for model in facts["models"]
    }
    exact = models["ppocr_v6_rec"]["exact"]
    assert (exact["tolerance"], exact["largest_tolerance"]) == (0.06, 0.06)
    assert (exact["margin_samples"], exact["largest_margin_samples"]) == (10, 10)
    assert facts["unknown_until_started"] == []
    voices = models["resemblyzer"]["top1"]
    assert (voices["n"], voices["sources"]) == (200, 4)
    assert voices["settles"].endswith("more sources settle it")
    assert "resemblyzer top1 may lose" in facts["undecided"]


def test_doctor_has_the_range_where_cells_differ(accepted, qbench):
    path = Path(SUITE)
    path.write_text(
        path.read_text()
        + '[model.tolerance]\n"ort-cpu+w8a8_asym_pc" = { value = 0.1, when = "riscv64" }\n'
        '"ort-cpu+*" = { value = 0.02, metrics = { top1 = 0.05 } }\n'
    )
    (model,) = json.loads(qbench("doctor", SUITE, "--json")[1])["suites"][0]["models"]
    (top1,) = model["metrics"]
    assert (top1["tolerance"], top1["largest_tolerance"]) == (0.02, 0.05)
    assert top1["margin_samples"] == int(0.02 * top1["fp32_hits"])
    assert top1["largest_margin_samples"] == int(0.05 * top1["fp32_hits"])
    assert (
        f"{top1['margin_samples']} to {top1['largest_margin_samples']}"
        in qbench("doctor", SUITE)[1]
    )


def test_doctor_tells_a_machine_of_another_class(accepted, qbench):
    assert "incomparable" not in qbench("doctor", SUITE)[1]
    baseline = Path("baselines/tiny/blobs.json")
    names = json.loads(baseline.read_text())["cells"]["ort-cpu+fp32"]["accepted"]
    (name,) = names
    baseline.write_text(baseline.read_text().replace(name.split("+")[0], "riscv64-rvv"))
    code, out, _ = qbench("doctor", SUITE)
    assert code == 0
    assert "drift is incomparable here: results are accepted for riscv64-rvv+onnxruntime-" in out


def test_doctor_counts_excuses_and_dates(accepted, qbench):
    Path("suites/tiny.quarantine.toml").write_text(
        '[[cell]]\ncell = "blobs::ort-cpu+*"\nmeasured = "bad"\n'
        'reason = "known"\nowner = "me"\nexpires = "2020-01-01"\n'
    )
    code, out, _ = qbench("doctor", SUITE)
    assert code == 1
    assert "the quarantine of blobs::ort-cpu+* ended on 2020-01-01 (me)" in out
    assert "2 of 4 gated cells" in out
    assert "\n2 problems\n" in out
    Path("suites/tiny.quarantine.toml").write_text(
        Path("suites/tiny.quarantine.toml").read_text().replace("2020", "2999")
    )
    assert "\n1 problem\n" in qbench("doctor", SUITE)[1]
    path = Path(SUITE)
    path.write_text(path.read_text().replace("[suite]", "[suite]\nmost_excused = 0.5", 1))
    code, out, _ = qbench("doctor", SUITE)
    assert (code, "no problems" in out) == (0, True), out


def test_folders_above_the_suite_are_not_listed(project, qbench, monkeypatch):
    listed = []
    scandir = os.scandir

    def noting(path="."):
        listed.append(Path(os.path.abspath(path)))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", noting)
    assert qbench("run", "suites/tiny.qbench.toml", "--select", "model=nothing")[0] == 2
    assert listed
    assert not set(listed) & {*project.parents}
