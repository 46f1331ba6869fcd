"""``--qbench-shard``: models spread over machines,
each with a run of its own that says it is a part.
"""

from pathlib import Path

import pytest

from qbench.suite import Shard
from qbench.tracking import merge_run_files, read_run


def models(project):
    return {cell["model"] for cell in project.lines(kind="cell")}


@pytest.mark.slow
def test_two_machines_share_the_models_and_merge_their_runs(project):
    project.accept()
    seen = []
    for index in (1, 2, 3):
        result = project.run(f"--qbench-shard={index}/3", "--qbench-history", f"runs/{index}")
        files = list((project.path / "runs" / str(index)).rglob("*.jsonl"))
        assert result.ret == (0 if files else pytest.ExitCode.NO_TESTS_COLLECTED)
        seen += files
    assert len(seen) == 2  # tiny_a and tiny_b fall to different thirds
    merge = merge_run_files([project.path / "runs"], project.path / "all")
    assert len(merge.added) == 2
    runs = [read_run(Path(name)) for name in merge.added]
    assert {cell.model for run in runs for cell in run.cells} == {"tiny_a", "tiny_b"}
    for run in runs:
        assert run.header["shard"].endswith("/3")
        assert run.header["complete_selection"] is False


def test_a_share_is_no_whole_suite_to_prune_by(project):
    project.accept()
    for index in (1, 2, 3):
        assert project.run(f"--qbench-shard={index}/3", "--qbench-prune", "--collect-only").ret != 0


@pytest.mark.slow
def test_with_workers(project):
    project.accept()
    index = next(i for i in (1, 2, 3) if Shard(i, 3).holds("tiny_a"))
    assert project.run(f"--qbench-shard={index}/3", workers=2).parseoutcomes() == {"passed": 4}
    assert models(project) == {"tiny_a"}


def test_what_is_no_share_is_refused_at_once(project):
    result = project.run("--qbench-shard=3/2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*Reading the shard '3/2'*"])
