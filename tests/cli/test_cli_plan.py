"""``qbench plan``: the file and the table, by a history that says how long cells take."""

import json
import subprocess

import pytest

from qbench.judging import Cell
from qbench.suite import load_job_plan

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


@pytest.fixture
def suite(project):
    path = project / "suites" / "night.qbench.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(SUITE)
    return path


def _night(folder, seconds):
    """A run file of the suite, with these seconds by cell."""
    folder.mkdir(parents=True)
    header = {"type": "run", "format": "qbench-run/1", "id": "a", "suite": "night"}
    lines = [{**header, "started": "2026-11-20T00:00:00+00:00", "planned": 6, "selected": 6}]
    for (backend, schema), time in seconds.items():
        axes = {"model": "blobs", "backend": backend, "schema": schema, "variant": ""}
        measured = {"outcome": "passed", "seconds": {"run": time}}
        lines.append({"type": "cell", "suite": "night", **axes, **measured})
    lines.append({"type": "end", "exit_code": 0})
    (folder / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_every_cell_has_one_job_and_the_same_command_writes_the_same_bytes(suite, qbench, project):
    command = ("plan", str(suite), "--jobs", "2", "--night", "monday", "-o", "plan.json")
    code, out, _ = qbench(*command)
    assert code == 0
    first = (project / "plan.json").read_bytes()
    plan = load_job_plan(project / "plan.json")
    assert plan.suites[0].path == "suites/night.qbench.toml"
    assert plan.suites[0].cells == 6
    cells = [
        Cell("night", "blobs", backend, schema)
        for backend in ("ort-cpu", "ort-cpu-noopt")
        for schema in ("fp32", "w8a8_asym_pt", "w8a8_asym_pc")
    ]
    assert sorted(plan.holder(cell).index for cell in cells) == [1, 1, 1, 2, 2, 2]
    assert plan.short in out
    assert qbench(*command)[0] == 0
    assert (project / "plan.json").read_bytes() == first


def test_two_nights_of_the_same_cells_have_two_plans(suite, qbench, project):
    """With one plan for both, the second night was taken for attempts at the first."""
    plans = []
    for _ in range(2):
        assert qbench("plan", str(suite), "--jobs", "2", "-o", "plan.json")[0] == 0
        plans.append(load_job_plan(project / "plan.json"))
    assert plans[0].jobs == plans[1].jobs
    assert plans[0].short != plans[1].short
    assert plans[0].night < plans[1].night


def test_times_of_the_history(suite, qbench, project):
    times = {("ort-cpu", "fp32"): 50, ("ort-cpu", "w8a8_asym_pt"): 10}
    _night(project / "runs", times)
    more = ("--history", "runs", "--json")
    code, out, _ = qbench("plan", "night", "--jobs", "2", "-o", "plan.json", *more)
    facts = json.loads(out)
    assert code == 0
    assert facts["durations"] == {"history": 2, "median": 4}
    assert facts["cells"] == sum(job["cells"] for job in facts["jobs"]) == 6
    plan = load_job_plan(project / "plan.json")
    assert plan.suites[0].digest
    assert facts["digest"] == plan.digest
    # 50 + 10 + 4 · 30: the median of what is known
    assert sum(job["seconds"] for job in facts["jobs"]) == pytest.approx(180)


def test_by_minutes(suite, qbench, project):
    _night(project / "runs", {("ort-cpu", "fp32"): 60})
    arguments = ("plan", "night", "--minutes", "2", "-o", "p.json", "--history", "runs", "--json")
    code, out, _ = qbench(*arguments)
    assert code == 0
    assert [job["seconds"] for job in json.loads(out)["jobs"]] == [120, 120, 120]


def test_minutes_without_a_history_are_guessed_and_it_is_said(suite, qbench):
    code, _, err = qbench("plan", "night", "--minutes", "2", "-o", "p.json")
    assert (code, err.count("\n")) == (0, 1)
    assert "taken as one second" in err


def test_what_the_table_says(suite, qbench, words):
    words(qbench("plan", "night", "--jobs", "4", "-o", "p.json")[1].rpartition("wrote")[0])


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("nights", "--jobs", "2"), "Did you mean"),
        (("night", "night", "--jobs", "2"), "two suites of the name 'night'"),
        (("night", "--jobs", "10000"), "at most 9999"),
        (("night", "--jobs", "0"), "a whole number from 1"),
        (("night", "--minutes", "-1"), "a number above 0"),
        (("night", "--jobs", "2", "--minutes", "3"), "not allowed with"),
        (("night",), "--jobs"),
        (("night", "--jobs", "2", "--history", "none"), "no such folder"),
        (("night", "--jobs", "2", "--environment-class", "A B"), "no class of processors"),
    ],
)
def test_what_cannot_be_planned(suite, qbench, project, arguments, found):
    code, _, err = qbench("plan", *arguments, "-o", "plan.json")
    assert code == 2
    assert found in err
    assert "Traceback" not in err
    assert not (project / "plan.json").exists()


def test_the_suite_is_not_written_over(suite, qbench):
    code, _, err = qbench("plan", str(suite), "--jobs", "2", "-o", str(suite))
    assert code == 2
    assert "which is read here" in err
    assert suite.read_text() == SUITE


def test_a_file_that_is_no_plan_is_not_written_over(suite, qbench, project):
    plan = ("plan", "night", "--jobs", "2", "-o", "plan.json")
    for text in ("notes\n", '{"format": "other"}\n'):
        (project / "plan.json").write_text(text)
        code, _, err = qbench(*plan)
        assert (code, err.count("\n")) == (2, 1)
        assert "no plan" in err
        assert (project / "plan.json").read_text() == text
    (project / "plan.json").write_text("")  # as mktemp makes it
    assert qbench(*plan)[0] == qbench(*plan)[0] == 0


def test_a_file_that_git_tracks_is_not_written_over(suite, qbench, project):
    """Each job was refused for the change of the plan, and no new plan could help."""
    plan = ("plan", "night", "--jobs", "2", "-o", "plan.json")
    assert qbench(*plan)[0] == 0
    for command in ("init -q", "add .", "-c user.name=a -c user.email=a@b commit -qm all"):
        subprocess.run(["git", *command.split()], check=True)
    code, _, err = qbench(*plan)
    assert (code, err.count("\n")) == (2, 1)
    assert "a file that git tracks" in err
    subprocess.run(["git", "rm", "-q", "--cached", "plan.json"], check=True)
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "out"], check=True
    )
    assert qbench(*plan)[0] == 0
    code, _, err = qbench("run", "--job", "plan.json#1", "--json")
    assert "uncommitted changes" not in err
    assert code == 1  # nothing is accepted yet


def test_a_job_that_takes_more_than_the_minutes_is_said(suite, qbench, project):
    _night(project / "runs", {("ort-cpu", "fp32"): 60})
    command = ("plan", "night", "-o", "p.json", "--history", "runs", "--minutes")
    assert "takes longer" in qbench(*command, "0.5")[2]
    assert qbench(*command, "1")[2] == ""


def test_a_job_under_qbench_run(suite, qbench, project):
    """The plan names the suite; of the jobs together each cell is measured once."""
    assert qbench("plan", "night", "--jobs", "7", "-o", "plan.json")[0] == 0
    plan = load_job_plan(project / "plan.json")
    measured = []
    empty = next(job.index for job in plan.jobs if not job.units)
    for index in (1, 2, empty):
        code, out, err = qbench("run", "--job", f"plan.json#{index}", "--json")
        assert (code, err.startswith("qbench: nothing to run")) == (
            (0, True) if index == empty else (1, False)
        )  # nothing is accepted yet
        measured += [] if index == empty else json.loads(out)["cells"]
    axes = [(cell["backend"], cell["schema"]) for cell in measured]
    assert len(axes) == len(set(axes)) == 2
    code, _, err = qbench("run", "--json")
    assert (code, "found no suite" in err) == (2, True)
    code, _, err = qbench("run", "--job", "plan.json#8")
    assert (code, "a plan of 7 jobs" in err) == (2, True)


@pytest.mark.slow
def test_here_is_the_class_that_the_sessions_of_the_jobs_name(suite, qbench):
    command = ("plan", str(suite), "--jobs", "2", "--environment-class", "here", "-o", "plan.json")
    conftest = suite.with_name("conftest.py")
    conftest.write_text(
        "def pytest_qbench_processor(config):\n"
        "    print('asked by', 'the plan', end='')\n"
        "    return 'x64-named'\n"
    )
    code, out, err = qbench(*command, "--json")
    assert code == 0, err
    assert json.loads(out)["environment_class"] == "x64-named"
    conftest.write_text("import no_such_module\n")
    code, _, err = qbench(*command)
    assert code == 2
    assert "Asking pytest for the class" in err
    assert "no_such_module" in err
    assert err.count("\n") == 1
