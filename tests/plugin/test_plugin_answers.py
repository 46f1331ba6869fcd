"""Answers that were recorded elsewhere, in a suite: their cells, their environment class,
accepting and drift.
"""

import json
import sys

import numpy as np
import pytest

SUITE = """
[suite]
tolerance = 0.2
backends = ["ort-cpu", "answers-pixel"]
schemas = ["w8a8_asym_pc"]

[[model]]
id = "tiny_a"
data = "points"
calibration = { data = "spare", count = 64 }
metrics = ["top1", "agreement"]
"""
CELL = "tiny_a::answers-pixel+recorded"


@pytest.fixture
def record(project):
    """Write the answers of the float model to ``points``,
    ``flips`` of them turned to another class.
    """
    project.write_suite(SUITE)
    rng = np.random.default_rng(5)
    order = rng.random((400, 7)).argsort(axis=1)[:, :3].tolist()

    def write(flips=0, device="pixel-8", rows=400, right=None):
        answers = order if right is None else right
        lines = [
            {"format": "qbench-answers/1", "provenance": {"device": device, "firmware": "14.1"}}
        ]
        for row in reversed(range(rows)):
            one = answers[row] if row >= flips else answers[row][::-1]
            lines.append({"id": f"points-{row}", "answer": one})
        folder = project.path / "suites" / "answers"
        folder.mkdir(exist_ok=True)
        (folder / "pixel.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    return write


def right_answers(project):
    """Of each sample the class that ``tiny_a`` gives, from its stored reference, and two others."""
    with np.load(next((project.path / "baselines").rglob("tiny_a*.npz"))) as arrays:
        name = next(
            name for name in arrays.files if arrays[name].ndim == 2 and len(arrays[name]) == 400
        )
        return arrays[name].tolist()


@pytest.mark.slow
def test_one_cell_that_drifts_and_loses_like_any_other(project, record):
    record()
    project.run("--qbench-accept-fp32", "--qbench-accept=new", "--qbench-select=backend=ort-cpu")
    answers = right_answers(project)
    record(right=answers)
    project.accept()
    assert project.outcomes()[CELL] in ("accepted", "passed")
    (cell,) = [line for line in project.lines(kind="cell") if line["backend"] == "answers-pixel"]
    assert cell["schema"] == "recorded"
    assert cell["environment_class"] == "pixel-8+firmware-14.1"
    assert (cell["n"], cell["losses"], cell["gains"]) == (400, 0, 0)
    assert project.run().ret == 0

    record(right=answers, flips=1)  # the class of results is the same, the answers are not
    assert project.run().ret == 1
    assert project.outcomes()[CELL] == "drifted"

    record(right=answers, flips=200)
    assert project.run().ret == 1
    assert project.outcomes()[CELL] == "failed"

    record(right=answers, flips=1, device="pixel-9")  # of another device: no drift is judged
    project.run()
    assert project.outcomes()[CELL] != "drifted"


@pytest.mark.slow
def test_a_missing_sample_breaks_the_cell_and_no_other(project, record):
    record(rows=399)
    project.accept()
    result = project.run()
    assert project.outcomes()[CELL] == "error"
    assert project.outcomes()["tiny_a::ort-cpu+w8a8_asym_pc"] == "passed"
    result.stdout.fnmatch_lines(["*1 sample without an answer ('points-399')*"])


def test_a_part_of_the_samples_uses_a_part_of_the_answers(project, record):
    record()
    project.run("--qbench-limit=50", "--qbench-select=backend=answers-pixel")
    assert project.outcomes()[CELL] != "error"
    (cell,) = project.lines(kind="cell")
    assert cell["n"] == 50


def test_a_path_in_a_suite_names_the_folder(project):
    project.write_suite(SUITE.replace("answers-pixel", "answers:run.jsonl"))
    result = project.run()
    assert result.ret
    assert "next to the suite" in result.stdout.str() + result.stderr.str()


def test_answers_that_are_only_read_are_not_repeated(project, record):
    record()
    project.write_suite(SUITE.replace("tolerance", "repeats = 3\ntolerance"))
    project.run("--qbench-select=backend=answers-pixel")
    (cell,) = project.lines(kind="cell")
    assert cell["outcome"] == "error"
    assert "repeats = 3 for answers that were recorded elsewhere" in cell["headline"]
    assert 'repeats = { "answers-pixel" = 1 }' in cell["remedy"]


@pytest.mark.slow
def test_reports_and_commands_that_read_a_run_take_them(project, record, capsys):
    from qbench.cli.program import main

    record()
    project.accept()
    capsys.readouterr()
    project.run("--qbench-report=html")
    assert "answers-pixel" in (project.path / "reports" / "index.html").read_text()
    for words in (("compare", "latest", "latest"), ("export", "latest", "--format", "csv")):
        capsys.readouterr()
        assert main(words) in (0, 1), words
    for words in (("doctor", "suites/scratch.qbench.toml"), ("list", "backends")):
        result = project.pytester.run(sys.executable, "-m", "qbench", *words)
        assert result.ret in (0, 1), result.stderr.str()
    result.stdout.fnmatch_lines(["answers-pixel*recorded elsewhere*"])
