"""``qbench merge --expect plan.json``: which cells of a night are missing, and of which jobs."""

import itertools
import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qbench.tracking import History, merge_run_files

SUITE = """
[suite]
backends = ["ort-cpu", "ort-cpu-noopt"]
schemas = ["w8a8_asym_pt", "w8a8_asym_pc"]

[[model]]
id = "blobs"
data = "blobs_test"
calibration = { data = "blobs_train", count = 32 }
metrics = ["top1"]
"""
SCHEMAS = ("fp32", "w8a8_asym_pt", "w8a8_asym_pc")
HALVES = [
    {f"night::blobs::{backend}+{schema}" for schema in SCHEMAS}
    for backend in ("ort-cpu", "ort-cpu-noopt")
]


@pytest.fixture
def planned(project, qbench):
    """Two jobs of three cells, each on a machine of its own: ``jobs/1`` has two attempts."""
    path = project / "suites" / "night.qbench.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(SUITE)
    assert qbench("plan", str(path), "--jobs", "2", "-o", "plan.json")[0] == 0
    for index, attempt in ((1, 1), (1, 2), (2, 1)):
        folder = f"jobs/{index}-{attempt}"
        qbench("run", "--job", f"plan.json#{index}", "--history", folder, str(path))
    return project


def files(folder):
    return {path.read_bytes() for path in folder.rglob("*.jsonl")}


def test_the_cells_of_a_job_that_never_ran_are_named(planned, qbench):
    plan = json.loads((planned / "plan.json").read_text())
    code, out, _ = qbench("merge", "jobs/1-1", "-o", "all", "--expect", "plan.json", "--json")
    found = json.loads(out)
    assert code == 4
    assert (found["outcome"], found["plan"], found["cells"]) == ("incomplete", plan["digest"], 6)
    assert list(found["missing"]) == ["2"]
    assert set(found["missing"]["2"]) in HALVES
    code, out, _ = qbench("merge", "jobs/1-1", "-o", "all", "--expect", "plan.json")
    assert code == 4
    assert re.search(r"3 of 6 cells missing, of 1 of 2 jobs; run again: 2\n", out)
    assert "job 2: night::blobs::" in out
    code, out, _ = qbench("merge", "jobs/2-1", "-o", "all", "--expect", "plan.json", "--json")
    assert code == 0
    assert (json.loads(out)["outcome"], json.loads(out)["missing"]) == ("complete", {})


def test_an_unfinished_attempt_lacks_its_last_cells_alone(planned, qbench):
    (path,) = (planned / "jobs/2-1").glob("*.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    last = max(place for place, line in enumerate(lines) if line.startswith('{"type":"cell"'))
    path.write_text("".join(lines[:last]) + lines[last][:50])  # killed in the middle of a line
    cell = json.loads(lines[last])
    code, out, _ = qbench("merge", "jobs", "-o", "all", "--expect", "plan.json", "--json")
    assert code == 4
    assert json.loads(out)["missing"] == {
        "2": [f"night::blobs::{cell['backend']}+{cell['schema']}"]
    }


def test_a_job_that_was_tried_with_few_samples_is_missing(planned, qbench):
    words = ("--job", "plan.json#2", "--limit", "4", "--history", "tried")
    qbench("run", *words, str(planned / "suites" / "night.qbench.toml"))
    words = ("-o", "all", "--expect", "plan.json", "--json")
    code, out, _ = qbench("merge", "jobs/1-1", "tried", *words)
    assert (code, list(json.loads(out)["missing"])) == (4, ["2"])
    code, out, _ = qbench("merge", "jobs/2-1", *words)
    assert (code, json.loads(out)["outcome"]) == (0, "complete")


def test_runs_of_another_plan_or_of_none_are_one_sentence(planned, qbench):
    suite = planned / "suites" / "night.qbench.toml"
    qbench("run", str(suite), "--history", "plain")
    code, out, err = qbench("merge", "plain", "-o", "all", "--expect", "plan.json")
    assert code == 2
    assert "found runs of no plan" in err
    assert err.count("\n") == 1
    assert out == ""
    assert not (planned / "all").exists()
    code, out, err = qbench("merge", "plain", "jobs", "-o", "mixed", "--expect", "plan.json")
    assert (code, err.count("\n")) == (0, 1)
    assert "found runs of no plan, too" in err
    assert "all 6 cells are there" in out
    assert qbench("plan", str(suite), "--jobs", "1", "-o", "other.json")[0] == 0
    code, out, err = qbench("merge", "jobs", "-o", "all", "--expect", "other.json", "--json")
    assert code == 2
    assert re.search(r"found runs of plan '[0-9a-f]{16}'; expected runs of plan", err)
    assert (json.loads(out)["outcome"], json.loads(out)["added"]) == ("other plan", [])
    assert not (planned / "all").exists()
    suite.write_text(SUITE + "\n# changed\n")
    code, _, err = qbench("merge", "jobs", "-o", "new", "--expect", "plan.json")
    assert code == 2
    assert "with other content" in err
    assert not (planned / "new").exists()


def test_nothing_that_ran_is_all_missing(planned, qbench):
    (planned / "empty").mkdir()
    code, out, _ = qbench("merge", "empty", "-o", "all", "--expect", "plan.json", "--json")
    assert code == 4
    missing = json.loads(out)["missing"]
    assert sorted(map(len, missing.values())) == [3, 3]
    assert {cell for cells in missing.values() for cell in cells} == set().union(*HALVES)


@pytest.mark.slow
def test_any_order_twice_and_partial_is_the_same_union_of_real_run_files(planned, qbench):
    sources = sorted((planned / "jobs").iterdir())
    numbers = itertools.count()
    whole = {path.name: files(path) for path in sources}

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.lists(st.sampled_from(sources), max_size=4), min_size=1, max_size=4))
    def unions(steps):
        target = planned / f"to{next(numbers)}"
        target.mkdir()
        for step in steps:
            merge_run_files(step, target)
        merged = {path.name for step in steps for path in step}
        assert files(target) == set().union(*(whole[name] for name in merged), set())
        code, out, _ = qbench(
            "merge", str(target), "-o", str(target), "--expect", "plan.json", "--json"
        )
        held = {name.partition("-")[0] for name in merged}
        assert set(json.loads(out)["missing"]) == {"1", "2"} - held
        assert code == (0 if held == {"1", "2"} else 4)
        history = History(target)
        for night in history.each(history.nights()):
            assert len(night.cells) == 3 * len(held)  # each cell once
            assert night.complete
            assert not night.findings

    unions()
