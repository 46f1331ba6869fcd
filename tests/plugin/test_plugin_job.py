"""``--qbench-job``: the cells of one job and no others, and one sentence for a plan of something
else.
"""

from dataclasses import replace

import pytest

from qbench.suite import (
    PlannedSuite,
    Unit,
    describe_code,
    make_job_plan,
    save_job_plan,
    suite_digest,
)

ALL = {
    f"{model}::{backend}+{schema}"
    for model in ("tiny_a", "tiny_b")
    for backend in ("ort-cpu", "ort-cpu-noopt")
    for schema in ("fp32", "w8a8_asym_pc")
}
PART = {"tiny_a::ort-cpu-noopt+fp32", "tiny_a::ort-cpu-noopt+w8a8_asym_pc"}


def _unit(model, cells, backends=None):
    return Unit(suite="scratch", model=model, backends=backends, cells=cells, seconds=1.0)


@pytest.fixture
def planned(project):
    """The project with a plan of three jobs: a model and a part of the other, the rest of that,
    nothing.
    """

    def plan(*, wanted=None, **changed):
        suite = PlannedSuite(
            path="suites/scratch.qbench.toml",
            name="scratch",
            digest=suite_digest(project.suite_path),
            cells=8,
        )
        code = replace(describe_code(project.suite_path.parent), **changed)
        first = [_unit("tiny_b", 4), _unit("tiny_a", 2, ("ort-cpu",))]
        jobs = [first, [_unit("tiny_a", 2, ("ort-cpu-noopt",))], []]
        made = make_job_plan([suite], code, wanted, jobs)
        save_job_plan(made, project.path / "plan.json")
        return made

    project.plan = plan
    project.made = plan()
    return project


def _outcomes(project):
    return {name for index in range(len(project.run_files)) for name in project.outcomes(index)}


def test_the_jobs_have_all_cells_between_them(planned):
    """The suites are those of the plan, where the command names none."""
    planned.accept()
    for file in planned.run_files:
        file.unlink()
    result = planned.run("--qbench-job=plan.json#2", suite=False)
    assert result.parseoutcomes() == {"passed": 2}  # and none is deselected: none was made
    assert _outcomes(planned) == PART
    assert planned.run("--qbench-job=plan.json#1").parseoutcomes() == {"passed": 6}
    assert _outcomes(planned) == ALL
    result.stdout.no_fnmatch_line("*no longer uses*")


def test_the_link_of_an_editor_next_to_a_schema_is_no_file_of_the_suite(planned):
    folder = planned.suite_path.parent / "schemas"
    folder.mkdir(exist_ok=True)
    before = suite_digest(planned.suite_path)
    (folder / ".#own.toml").symlink_to("somebody@host.1234")
    assert suite_digest(planned.suite_path) == before


def test_what_the_run_file_says(planned, monkeypatch):
    monkeypatch.setenv("BUILDKITE_PARALLEL_JOB", "1")  # from 0
    planned.run("--qbench-job=plan.json", "--qbench-missing=warn")
    (header,) = planned.lines(kind="run")
    job = {"plan": planned.made.digest[:16], "index": 2, "of": 3, "attempt": 1}
    assert header["job"] == job
    assert (header["planned"], header["selected"]) == (8, 2)
    assert header["complete_selection"] is False
    assert header["backends"] == ["ort-cpu", "ort-cpu-noopt"]  # in the order of the suite


def test_with_a_selection(planned):
    options = ("--qbench-job=plan.json#1", "--qbench-missing=warn")
    result = planned.run(*options, "--qbench-select=backend=ort-cpu", "--collect-only", "-q")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*4/6 tests collected (2 deselected)*"])
    result = planned.run(*options, "-m", "qbench(model='tiny_a')", "--collect-only", "-q")
    result.stdout.fnmatch_lines(["*2/6 tests collected (4 deselected)*"])


def test_a_job_without_cells_passes_and_leaves_no_run(planned):
    assert planned.run("--qbench-job=plan.json#3", suite=False).ret == 0
    assert planned.run_files == []


@pytest.mark.slow
def test_with_workers(planned, monkeypatch):
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "0")
    monkeypatch.setenv("SLURM_ARRAY_TASK_MIN", "0")
    planned.accept()
    result = planned.run("--qbench-job=plan.json", suite=False, workers=2)
    assert result.parseoutcomes() == {"passed": 6}
    assert planned.lines(kind="run")[0]["job"]["index"] == 1


def test_no_baseline_is_called_stale_by_a_job(planned):
    """A job knows its own cells only."""
    planned.accept()
    planned.run("--qbench-job=plan.json#2")
    assert not [line for line in planned.lines(kind="note") if "tiny_b" in line["text"]]
    assert planned.run("--qbench-job=plan.json#2", "--qbench-prune", "--collect-only").ret != 0


def test_tests_of_python_keep_their_cells(planned):
    planned.pytester.makepyfile(
        test_own="""
        import pytest

        @pytest.mark.qbench(models=["tiny_b"], suite="suites/scratch.qbench.toml")
        def test_cell(qbench_cell):
            assert qbench_cell.cell.model == "tiny_b"
        """
    )
    result = planned.run("--qbench-job=plan.json#2", "test_own.py", "--collect-only", "-q")
    result.stdout.fnmatch_lines(["*6 tests collected*"])


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--qbench-job=plan.json#4"], "a plan of 3 jobs"),
        (["--qbench-job=plan.json#x"], "'x' after '#'"),
        (["--qbench-job=plan.json"], "no number"),
        (["--qbench-job=none.json#1"], "No such file"),
        (["--qbench-job=conftest.py#1"], "no JSON"),
        (["--qbench-job=plan.json#1", "--qbench-job=plan.json#2"], "--qbench-job twice"),
        (["--qbench-job=plan.json#1", "--qbench-shard=1/2"], "--qbench-shard=1/2 next to"),
    ],
)
def test_what_is_no_job_is_refused_before_anything_is_collected(planned, options, found):
    result = planned.run(*options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*found *{found.replace('[', '?')}*"])
    assert "Traceback" not in result.stderr.str()
    assert planned.run_files == []


@pytest.mark.parametrize(
    ("made_for", "found"),
    [
        ({"commit": "c" * 40}, "commit"),
        ({"changes": "c" * 64}, "uncommitted changes"),
        ({"qbench": "9.0.0"}, "qbench"),
        ({"source": "c" * 64}, "source files of qbench"),
        ({"versions": {"numpy": "9.0.0"}}, "numpy"),
        ({"wanted": "x64-other"}, "a processor of class 'x64-test'"),
    ],
)
def test_a_plan_for_other_code_or_another_class(planned, made_for, found):
    planned.plan(**made_for)
    result = planned.run("--qbench-job=plan.json#1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*Running a job of plan *: found {found}*"])
    assert planned.run_files == []


def test_a_plan_for_this_class(planned):
    planned.plan(wanted="x64-test")
    assert planned.run("--qbench-job=plan.json#1", "--collect-only").ret == 0


def _refused(project, found, *arguments):
    result = project.run(*arguments, "--qbench-job=plan.json#1")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines([f"*found *{found}*"])
    assert "Traceback" not in result.stdout.str()
    assert project.run_files == []


@pytest.mark.parametrize(
    "name", ["conftest.py", "suites/scratch.qbench.toml", "suites/scratch.quarantine.toml"]
)
def test_a_plan_for_other_content_of_a_suite(planned, name):
    path = planned.path / name
    path.write_text((path.read_text() if path.exists() else "") + "\n# changed\n")
    _refused(planned, "with other content")


def test_a_suite_that_the_plan_does_not_name(planned):
    other = planned.suite_path.with_name("other.qbench.toml")
    other.write_text(planned.suite_path.read_text())
    _refused(planned, "a suite that the plan does not name", str(other))


def test_units_of_other_cells(planned):
    """As in a plan that was written by hand."""
    plan = planned.made
    units = [_unit("tiny_a", 5)]
    save_job_plan(make_job_plan(plan.suites, plan.code, None, [units]), planned.path / "plan.json")
    _refused(planned, "4 cells")


def test_a_job_on_workers_is_refused(planned):
    """A new plan was made for the workers, and no test ran."""
    result = planned.run("--qbench-job=plan.json#1", "--qbench-cluster=local:2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *found --qbench-job; *"])
    assert not planned.run_files
