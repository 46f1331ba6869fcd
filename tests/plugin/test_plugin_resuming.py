"""``--qbench-resume``: what an unfinished run measured is taken over, and nothing is lost."""

import json

import pytest

from qbench.tracking import History

KILLING = """
def pytest_qbench_update_record(config, record):
    kills = os.environ.get("KILLS", "none")
    if f"{record['model']}::{record['backend']}+{record['schema']}".startswith(kills):
        os.kill(os.getpid(), 9)


def pytest_runtest_call(item):
    if os.environ.get("STOPS", "none") in item.nodeid:
        pytest.exit("stopped")
"""


@pytest.fixture
def stoppable(project, monkeypatch):
    """A project that can be interrupted or killed at a cell; ``ran``: what pytest has begun."""
    project.write_conftest(extra=KILLING)
    project.accept()
    for path in project.run_files:
        path.unlink()
    return project


def run_of(project, index=-1):
    return project.lines(index, "run")[0]


def interrupted(project, monkeypatch, at, *args, variable="STOPS", process=False):
    monkeypatch.setenv(variable, at)
    result = project.run(*args, process=process)
    monkeypatch.delenv(variable)
    return result


AT = "tiny_b::ort-cpu+w8a8"


def test_what_was_measured_is_copied_and_the_rest_measured(stoppable, monkeypatch):
    project = stoppable
    interrupted(project, monkeypatch, AT)
    (first,) = project.run_files
    before = first.read_bytes()
    held = project.lines(0, "cell")
    assert len(held) == 5
    result = project.run("--qbench-resume", "-v")
    assert result.ret == 0
    assert result.parseoutcomes() == {"passed": 8}
    assert result.stdout.str().count("taken over") == 5 + 1
    assert first.read_bytes() == before
    identity = run_of(project, 0)["id"]
    assert run_of(project)["resumes"] == identity
    lines = project.lines(kind="cell")
    assert lines[:5] == [{**line, "resumed_from": identity} for line in held]
    assert not any("resumed_from" in line for line in lines[5:])
    begun = [(one["model"], one["backend"]) for one in project.lines(kind="started")]
    assert begun == [(one["model"], one["backend"]) for one in lines[5:]]
    history = History(project.path / "reports" / "history")
    (night,) = history.each(history.nights())
    assert (len(night.cells), night.complete) == (8, True)


def test_a_red_cell_stays_red_and_an_unsupported_one_skipped(stoppable, monkeypatch):
    project = stoppable
    project.write_suite(project.suite_path.read_text().replace("agreement = 0.5", "agreement = 1"))
    whole = project.run()
    assert whole.ret == 1
    (path,) = project.run_files
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))  # it was killed just before its end
    result = project.run("--qbench-resume")
    assert result.ret == 1
    assert result.parseoutcomes() == whole.parseoutcomes()
    result.stdout.fnmatch_lines(["*taken over: measured by run *"])
    kept, again = project.lines(0, "cell"), project.lines(1, "cell")
    identity = run_of(project, 0)["id"]
    assert again == [{**line, "resumed_from": identity} for line in kept]
    assert not project.lines(1, "started")


def test_nothing_to_resume_runs_all_and_says_so(stoppable):
    result = stoppable.run("--qbench-resume")
    assert result.parseoutcomes() == {"passed": 8}
    result.stdout.fnmatch_lines(["*nothing to resume: no unfinished run of suite 'scratch'*"])
    assert "resumes" not in run_of(stoppable)
    assert len(stoppable.lines(kind="started")) == 8
    result = stoppable.run("--qbench-resume")  # the run above is complete
    result.stdout.fnmatch_lines(["*nothing to resume: *"])


def test_an_interrupted_run_that_resumed_is_gone_on_with_from_both(stoppable, monkeypatch):
    project = stoppable
    interrupted(project, monkeypatch, "tiny_a::ort-cpu+w8a8")
    interrupted(project, monkeypatch, AT, "--qbench-resume")
    first, second = (run_of(project, place)["id"] for place in (0, 1))
    assert project.run("--qbench-resume").ret == 0
    assert run_of(project)["resumes"] == second
    origins = [line.get("resumed_from") for line in project.lines(kind="cell")]
    assert origins.count(first) == len(project.lines(0, "cell")) > 0
    assert origins.count(second) == 5 - origins.count(first)
    assert origins.count(None) == 3


@pytest.mark.parametrize(
    ("change", "options"),
    [
        ("suite", ()),
        ("conftest", ()),
        ("class", ()),
        ("", ("--qbench-limit=20",)),
        ("", ("-k", "tiny_a")),
        ("", ("--qbench-select=model=tiny_a",)),
    ],
)
def test_other_code_cells_or_processor_are_not_resumed(stoppable, monkeypatch, change, options):
    project = stoppable
    interrupted(project, monkeypatch, AT)
    if change == "suite":
        project.write_suite(project.suite_path.read_text() + "\n# another\n")
    if change == "conftest":
        project.write_conftest(extra=KILLING + "\nOTHER = 1\n")
    if change == "class":
        monkeypatch.setenv("FAKE_PROCESSOR", "arm64-test")
    project.run("--qbench-resume", *options)
    assert "resumes" not in run_of(project)


def test_accepting_and_resuming_exclude_each_other(stoppable):
    result = stoppable.run("--qbench-resume", "--qbench-accept=new")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*Accepting results: found --qbench-resume; expected *"])


@pytest.mark.slow
def test_workers_take_over_the_same_run(stoppable, monkeypatch):
    project = stoppable
    interrupted(project, monkeypatch, AT)
    project.write_ini(
        f"qbench_cache = {project.cache}", "qbench_localize = 0", "qbench_resume = true"
    )
    result = project.run(workers=2)
    assert result.ret == 0
    identity = run_of(project, 0)["id"]
    origins = [line.get("resumed_from") for line in project.lines(kind="cell")]
    assert sorted(map(str, origins)) == sorted(["None"] * 3 + [identity] * 5)


@pytest.mark.slow
def test_a_cell_that_kills_its_process_twice_is_infra_and_the_others_go_on(stoppable, monkeypatch):
    project = stoppable
    kills = "tiny_a::ort-cpu-noopt+w8a8_asym_pc"
    for _ in range(2):
        interrupted(project, monkeypatch, kills, "--qbench-resume", variable="KILLS", process=True)
    monkeypatch.setenv("KILLS", kills)
    result = project.run("--qbench-resume", process=True)
    assert result.ret == 1
    assert result.parseoutcomes() == {"passed": 7, "failed": 1}
    result.stdout.fnmatch_lines(["*its process died 2 times while running it*"])
    (lost,) = [line for line in project.lines(kind="cell") if line["outcome"] == "infra"]
    assert (lost["model"], lost["backend"]) == ("tiny_a", "ort-cpu-noopt")
    assert project.lines(kind="end")
    assert len(project.lines(kind="cell")) == 8
    monkeypatch.delenv("KILLS")
    assert project.run(process=True).ret == 0  # without --qbench-resume it is tried again


@pytest.mark.slow
def test_a_model_whose_every_cell_kills_uses_up_three_attempts(stoppable, monkeypatch):
    """Each of its cells used up two, and the models after it were never measured."""
    project = stoppable
    for _ in range(3):
        interrupted(
            project, monkeypatch, "tiny_a", "--qbench-resume", variable="KILLS", process=True
        )
    monkeypatch.setenv("KILLS", "tiny_a")
    result = project.run("--qbench-resume", process=True)
    assert result.parseoutcomes() == {"passed": 4, "failed": 4}
    outcomes = {(line["model"], line["outcome"]) for line in project.lines(kind="cell")}
    assert outcomes == {("tiny_a", "infra"), ("tiny_b", "passed")}
    assert project.lines(kind="end")


def test_a_cell_at_which_a_person_stops_the_run_is_not_given_up(stoppable, monkeypatch):
    for _ in range(3):
        interrupted(stoppable, monkeypatch, AT, "--qbench-resume")
    assert stoppable.run("--qbench-resume").parseoutcomes() == {"passed": 8}


@pytest.mark.slow
def test_a_worker_that_is_killed_is_infra_with_its_last_words(stoppable, monkeypatch):
    project = stoppable
    monkeypatch.setenv("KILLS", f"{AT}_asym_pc")
    project.run("--qbench-resume", workers=2)
    (lost,) = [line for line in project.lines(kind="cell") if line["outcome"] == "infra"]
    assert "crashed while running" in lost["headline"]
    assert not project.lines(kind="end")
    project.run("--qbench-resume", workers=2)
    result = project.run("--qbench-resume", workers=2)  # the third time it is not run
    assert result.parseoutcomes()["failed"] == 1
    (lost,) = [line for line in project.lines(kind="cell") if line["outcome"] == "infra"]
    assert "died 2 times" in lost["headline"]
    assert "crashed while running" in lost["headline"]
    assert project.lines(kind="end")


def test_a_session_that_neither_resumes_nor_is_a_job_tells_no_starts(stoppable):
    stoppable.run()
    assert not stoppable.lines(kind="started")
    assert len(json.loads(stoppable.run_files[-1].read_text().splitlines()[0])["code"]) == 16


@pytest.fixture
def planned(stoppable):
    """The project with a plan of two jobs, a model each."""
    from qbench.suite import (
        PlannedSuite,
        Unit,
        describe_code,
        make_job_plan,
        save_job_plan,
        suite_digest,
    )

    path = stoppable.suite_path
    suite = PlannedSuite(
        path="suites/scratch.qbench.toml", name="scratch", digest=suite_digest(path), cells=8
    )
    jobs = [
        [Unit(suite="scratch", model=model, cells=4, seconds=1.0)] for model in ("tiny_a", "tiny_b")
    ]
    plan = make_job_plan([suite], describe_code(path.parent), None, jobs)
    save_job_plan(plan, stoppable.path / "plan.json")
    stoppable.plan = plan
    return stoppable


def test_an_attempt_of_a_job_goes_on_with_the_one_before_it(planned, monkeypatch):
    project, job = planned, "--qbench-job=plan.json#1"
    interrupted(project, monkeypatch, "tiny_a::ort-cpu-noopt+w8a8", job)
    starts = project.lines(kind="started")  # a job tells them in any case
    assert [one.get("stopped", False) for one in starts] == [False] * 4 + [True]
    project.run("--qbench-job=plan.json#2", "--qbench-resume")
    assert "resumes" not in run_of(project)
    assert project.run(job, "--qbench-resume").ret == 0
    short = project.plan.digest[:16]
    names = sorted(path.stem for path in project.run_files)
    assert names == [
        f"{short}-j0001-a01-scratch",
        f"{short}-j0001-a02-scratch",
        f"{short}-j0002-a01-scratch",
    ]
    assert run_of(project)["resumes"] == names[0]
    assert sum("resumed_from" in one for one in project.lines(kind="cell")) == 3
    history = History(project.path / "reports" / "history")
    (night,) = history.each(history.nights())
    assert (night.id, night.complete, len(night.cells)) == (f"{short}-scratch", True, 8)
    assert night.header["complete_selection"]


def test_a_job_that_is_complete_costs_nothing_to_try_again(planned):
    project, job = planned, "--qbench-job=plan.json#1"
    project.run(job)
    result = project.run(job, "--qbench-resume")
    assert result.parseoutcomes() == {"passed": 4}
    result.stdout.fnmatch_lines(["*was complete before: '*-j0001-a01-scratch' counts*"])
    assert all("resumed_from" in one for one in project.lines(kind="cell"))
    history = History(project.path / "reports" / "history")
    (night,) = history.each(history.nights())
    assert len(night.cells) == 4
    assert not night.findings


def test_cells_of_a_job_that_k_chose_are_not_measured_again(planned):
    project, job = planned, "--qbench-job=plan.json#1"
    project.run(job, "-k", "noopt")
    assert project.run(job, "--qbench-resume").ret == 0
    project.run(job, "--qbench-resume", "-k", "w8a8")
    taken = [["resumed_from" in one for one in project.lines(place, "cell")] for place in range(3)]
    assert [(sum(some), len(some)) for some in taken] == [(0, 2), (2, 4), (2, 2)]
    history = History(project.path / "reports" / "history")
    (night,) = history.each(history.nights())
    assert (len(night.cells), [*night.findings]) == (4, [])


def test_nothing_is_written_while_a_cell_runs(planned, monkeypatch):
    """Whether a process lives is for its scheduler to know: qbench has no heartbeat."""
    planned.run("--qbench-job=plan.json#1")
    kinds = [line["type"] for line in planned.lines()]
    assert set(kinds) <= {"run", "environment", "started", "cell", "samples", "note", "end"}
    for place, kind in enumerate(kinds):
        if kind == "started":
            assert kinds[place + 1] == "cell"


def test_a_store_that_is_away_fails_the_job_and_keeps_its_cells(planned, monkeypatch, tmp_path):
    """The next attempt on this computer takes over what waits in the spool."""
    blocked = tmp_path / "store"
    blocked.write_text("a file where the store should be")
    options = (
        "--qbench-job=plan.json#1",
        f"--qbench-history={blocked.as_uri()}",
        "--qbench-resume",
    )
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))
    away = planned.run(*options)
    assert away.ret == 1
    assert away.parseoutcomes()["passed"] == 4
    blocked.unlink()
    again = planned.run(*options)
    assert again.ret == 0
    history = History(blocked)
    (night,) = history.each(history.nights())
    assert (len(night.cells), night.complete) == (4, True)
    files = sorted(path.name for path in blocked.rglob("*.jsonl"))
    assert len(files) == 2
    lines = [json.loads(line) for line in (blocked / files[1]).read_text().splitlines()]
    cells = [line for line in lines if line["type"] == "cell"]
    assert len(cells) == 4
    assert all("resumed_from" in line for line in cells)


def test_a_run_behind_a_url_is_gone_on_with(stoppable, monkeypatch):
    pytest.importorskip("fsspec")
    project = stoppable
    monkeypatch.setenv("QBENCH_CACHE", str(project.path / "users-cache"))
    history = f"--qbench-history=file://{project.path}/objects"
    interrupted(project, monkeypatch, AT, history)
    (first,) = (project.path / "objects").glob("*.jsonl")
    before = first.read_bytes()
    result = project.run(history, "--qbench-resume")
    assert result.ret == 0
    assert result.parseoutcomes() == {"passed": 8}
    assert first.read_bytes() == before
    (second,) = set((project.path / "objects").glob("*.jsonl")) - {first}
    header, *lines = map(json.loads, second.read_text().splitlines())
    assert header["resumes"] == first.stem
    cells = [line for line in lines if line["type"] == "cell"]
    assert [line.get("resumed_from") for line in cells] == [first.stem] * 5 + [None] * 3
