"""``qbench backfill`` from the outside: environments that are there, one run file for each,
trends over releases.
"""

import json
from pathlib import Path

import pytest
from trend_history import TrendHistory

from qbench.tracking import History

LATER = "import onnxruntime\nreal = onnxruntime.InferenceSession.run\n"
SWAPPED = (
    LATER + "onnxruntime.InferenceSession.run = lambda *a: [one[:, ::-1] for one in real(*a)]\n"
)
BROKEN = (
    LATER + "def run(*a): raise RuntimeError('no kernel')\nonnxruntime.InferenceSession.run = run\n"
)
SUITE = "suites/tiny.qbench.toml"
CELL = "blobs::ort-cpu+w8a8_asym_pc"
FOLDER = Path("reports/backfill/toy")


def backfill(qbench, environments, *options):
    there = [word for folder in environments for word in ("--venv", folder)]
    axes = ["--select", "backend=ort-cpu schema=w8a8_asym_pc"]
    code, out, err = qbench(
        "backfill", SUITE, "--package", "toy", *there, *axes, "--json", *options
    )
    return code, json.loads(out) if out else None, err


def states(facts):
    return [(one["version"], one["state"]) for one in facts["releases"]]


@pytest.mark.slow
def test_releases_are_one_series_in_the_order_of_their_versions(qbench, project, small_python):
    starts = {"1.10": SWAPPED, "1.9": BROKEN, "1.2": ""}
    made = [small_python(version, at_start=code) for version, code in starts.items()]
    code, facts, err = backfill(qbench, made, "--jobs", 2)
    assert code == 0, err
    measured = ["1.2", "1.9", "1.10"]
    assert states(facts) == [(one, "skipped" if one == "1.9" else "measured") for one in measured]
    assert "no kernel" in facts["releases"][1]["reason"]
    assert facts["history"] == str(FOLDER)

    runs = History(FOLDER).runs()
    assert [run.commit for run in runs] == measured
    assert {run.header["releases"]["package"] for run in runs} == {"toy"}
    assert {run.environment["versions"]["toy"] for run in runs} == set(measured)

    code, out, err = qbench(
        "history", "show", CELL, "--metric", "top1", "--history", FOLDER, "--json"
    )
    assert code == 0, err
    (series,) = json.loads(out)
    assert [point["commit"] for point in series["points"]] == ["1.2", "1.10"]
    before, after = (point["value"] for point in series["points"])
    assert after < before / 2
    assert (
        qbench("compare", "1.2", "1.10", "--history", FOLDER)[0] == 1
    )  # without --across: one class
    assert qbench("report", "--history", FOLDER, "-o", "pages", "--report", "html")[0] == 0
    assert "1.10" in Path("pages/models/blobs.html").read_text()

    code, _, err = qbench("accept", "1.10", "--history", FOLDER)
    assert (code, "another release of toy" in err) == (2, True)


@pytest.mark.slow
def test_what_is_there_is_kept_and_what_broke_off_is_measured_again(qbench, project, small_python):
    made = [small_python(version) for version in ("1.0", "1.1")]
    code, facts, err = backfill(qbench, made, "--jobs", 1)
    assert (code, states(facts)) == (0, [("1.0", "measured"), ("1.1", "measured")]), err
    one, other = (Path(release["path"]) for release in facts["releases"])
    lines = other.read_text().splitlines(keepends=True)
    assert json.loads(lines[-1])["type"] == "end"
    other.write_text("".join(lines[:-1]))
    before = one.read_bytes()
    code, facts, err = backfill(qbench, made, "--to", "1.1")
    assert (code, states(facts)) == (0, [("1.0", "kept"), ("1.1", "measured")]), err
    assert one.read_bytes() == before
    assert not other.exists()
    assert len(list(FOLDER.glob("*.jsonl"))) == 2


@pytest.mark.slow
def test_releases_behind_a_url_are_kept_and_what_broke_off_is_measured_again(
    qbench, project, small_python, monkeypatch
):
    pytest.importorskip("fsspec")
    monkeypatch.setenv("QBENCH_CACHE", str(project / "users-cache"))
    made, stored = [small_python("1.0")], project / "stored"
    words = ("--jobs", 1, "--history", f"file://{stored}")
    code, facts, err = backfill(qbench, made, *words)
    assert (code, states(facts)) == (0, [("1.0", "measured")]), err
    (first,) = stored.glob("*.jsonl")
    assert states(backfill(qbench, made, *words)[1]) == [("1.0", "kept")]
    first.write_text("".join(first.read_text().splitlines(keepends=True)[:-1]))
    assert states(backfill(qbench, made, *words)[1]) == [("1.0", "measured")]
    assert len(list(stored.glob("*.jsonl"))) == 2


@pytest.mark.slow
def test_a_release_without_an_engine_has_a_reason(qbench, project, small_python):
    code, facts, err = backfill(qbench, [small_python("1.0", engine=False)])
    assert code == 2
    assert states(facts) == [("1.0", "skipped")]
    assert "nothing: 1.0 says" in err


@pytest.mark.slow
def test_a_release_that_cannot_be_installed_has_the_reason_of_pip(qbench, project, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    code, out, _ = qbench("backfill", SUITE, "--versions", "0.0.1", "--json")
    assert code == 2
    (release,) = json.loads(out)["releases"]
    assert (release["state"], "pip said" in release["reason"]) == ("skipped", True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--from", "2"], "none among 1, 1.0 … 1.0"),
        (["--from", "new"], "'new' for a version"),
        (["--versions", "1.0"], "--venv with --versions"),
    ],
)
def test_a_wrong_option_is_a_sentence(qbench, project, small_python, options, words):
    code, facts, err = backfill(qbench, [small_python("1.0", engine=False)], *options)
    assert (code, facts) == (2, None)
    assert words in err


@pytest.mark.parametrize(
    ("value", "words"), [("toy", "expected NAME=PYTHON"), ("toy=nowhere", "No such file")]
)
def test_a_wrong_release_of_a_run_is_a_sentence(qbench, project, value, words):
    code, _, err = qbench("run", SUITE, "--release", value)
    assert code == 2
    assert words in " ".join(err.split())


def test_classes_of_releases_are_one_and_their_versions_are_their_order(
    qbench, tmp_path, monkeypatch
):
    """Whatever the order in which they were measured, from the files and from an index."""
    monkeypatch.chdir(tmp_path)
    history = TrendHistory(tmp_path)
    history.hashes = ["1.9.1", "1.10.0", "1.2", "1.11.0", "1.8.0", "1.7.0", "1.12.0"]
    hits = [350, 300, 350, 300, 350, 350, 300]
    history.nights(hits, classes=[f"x64-avx2+onnxruntime-{version}" for version in history.hashes])
    for path in history.folder.glob("*.jsonl"):
        first, *rest = path.read_text().splitlines()
        header = json.loads(first)
        header["releases"] = {
            "package": "onnxruntime",
            "version": header["commit"]["sha"],
            "later": True,
        }
        path.write_text("\n".join([json.dumps(header), *rest, ""]))
    ordered = ["1.2", "1.7.0", "1.8.0", "1.9.1", "1.10.0", "1.11.0", "1.12.0"]
    for _ in range(2):
        code, out, err = qbench(
            "history", "show", TrendHistory.CELL, "--history", history.folder, "--json"
        )
        assert code == 0, err
        (series,) = json.loads(out)
        assert series["environment_class"] == "x64-avx2+onnxruntime-any"
        assert [point["commit"] for point in series["points"]] == ordered
        assert series["steps"] == [4]
        code, out, _ = qbench("history", "check", "--history", history.folder)
        assert code == 1
        assert "at onnxruntime 1.10.0" in out
        assert qbench("history", "index", "--history", history.folder)[0] == 0
    history.annotate("1.10.0", "expected")
    assert qbench("history", "check", "--history", history.folder)[0] == 0
