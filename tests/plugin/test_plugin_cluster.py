"""``--qbench-cluster`` and ``--qbench-executor``: a night of jobs on workers, read back as one run
that equals one process's, also where workers and jobs die.
"""

import contextlib
import json
import os
import signal
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE, Popen
from xml.etree import ElementTree

import pytest

from qbench.storage import digest_plain
from qbench.suite import (
    PlannedSuite,
    Unit,
    describe_code,
    load_job_plan,
    make_job_plan,
    save_job_plan,
    suite_digest,
)
from qbench.tracking import History

CELLS = 8
LOCAL = "--qbench-cluster=local:2"
# imported here, it stays loaded after the runs in this process
POOL = f"--qbench-executor=concurrent.futures:{ProcessPoolExecutor.__name__}"
PLAN = Path("plan.json")
TIMES = ("seconds", "resumed_from")


def runs_in(project):
    history = History(project.path / "reports" / "history")
    return list(history.each(history.nights()))


def digests(run):
    """Cell → the digest of its whole record, but for times; each cell once."""
    lines = {}
    for record in run.cells:
        assert str(record.cell) not in lines
        lines[str(record.cell)] = {
            key: value for key, value in record.line().items() if key not in TIMES
        }
    return {cell: digest_plain(line) for cell, line in lines.items()}


DYING = """
def pytest_qbench_update_record(config, record):
    import signal
    from pathlib import Path

    cell = f"{record['model']}::{record['backend']}+{record['schema']}"
    always, once = os.environ.get("DIES_AT"), os.environ.get("DIES_ONCE_AT")
    if once and once in cell and not Path("died").exists():
        Path("died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if always and always in cell:
        os.write(2, b"no memory left, token=hidden-word\\n")
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def night(project):
    """The project, accepted; ``expected``: the digests of what one process measured then."""
    project.write_conftest(extra=DYING)
    project.accept()
    project.run()
    project.expected = digests(runs_in(project)[-1])
    assert len(project.expected) == CELLS
    for file in project.run_files:
        file.unlink()
    return project


def plan_of(project):
    (path,) = (project.path / "reports" / "plans").glob("*.json")
    return load_job_plan(path), os.path.relpath(path, project.path)


def test_jobs_in_a_process_pool_measure_what_one_process_does(night):
    result = night.run(POOL, "--qbench-jobs=2")
    assert result.ret == 0, result.stdout.str()
    assert result.parseoutcomes() == {"passed": CELLS}
    (run,) = runs_in(night)
    assert digests(run) == night.expected
    assert run.complete
    assert run.header["complete_selection"] is True
    plan, path = plan_of(night)
    assert sorted(file.name for file in night.run_files) == [
        f"{plan.short}-j000{index}-a01-scratch.jsonl" for index in (1, 2)
    ]
    result.stdout.fnmatch_lines([f"*{plan.short}*: measured after 1 try in*", f"plan: {path};*"])
    again = night.run(POOL, f"--qbench-plan={path}")
    assert again.ret == 0
    assert len(night.run_files) == 2


@pytest.mark.slow
def test_a_try_with_some_samples_or_cells_leaves_the_rest_to_the_next_command(night):
    night.run(POOL, "--qbench-jobs=1", "--qbench-limit=20")
    _, path = plan_of(night)
    again = f"--qbench-plan={path}"
    some = night.run(POOL, again, "-k", "tiny_a")
    some.stdout.fnmatch_lines(["*job 1*: measured after 1 try in*"])
    assert some.parseoutcomes() == {"passed": CELLS // 2}
    assert "complete before" not in some.stdout.str()
    result = night.run(POOL, again)
    assert result.ret == 0, result.stdout.str()
    assert result.parseoutcomes() == {"passed": CELLS}
    (found,) = [digests(run) for run in runs_in(night) if run.header["limited"] is None]
    assert found == night.expected
    assert len(night.run_files) == 3
    night.run(POOL, again)
    assert len(night.run_files) == 3


@pytest.mark.slow
def test_a_red_cell_ends_with_1_and_is_shown(night):
    (night.path / "baselines" / "scratch" / "tiny_b.json").unlink()
    result = night.run(LOCAL, "--qbench-jobs=2", "--qbench-report=md", "--junitxml=junit.xml")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    (run,) = runs_in(night)
    assert run.complete
    assert sum(record.outcome == "missing" for record in run.cells) == 4
    result.stdout.fnmatch_lines(["*qbench scratch*", "wrote reports/*.md", "MISSING *tiny_b*"])
    assert result.parseoutcomes() == {"passed": 4, "failed": 4}
    cases = ElementTree.parse(night.path / "junit.xml").getroot().iter("testcase")
    assert len(list(cases)) == CELLS


@pytest.mark.slow
def test_a_job_whose_process_dies_once_is_tried_again_and_counted_once(night, monkeypatch):
    monkeypatch.setenv("DIES_ONCE_AT", "tiny_b")
    result = night.run(LOCAL, "--qbench-jobs=2")
    assert result.ret == 0, result.stdout.str()
    (run,) = runs_in(night)
    assert digests(run) == night.expected
    assert any("-a02-" in file.name for file in night.run_files)


@pytest.mark.slow
def test_a_poison_cell_is_named_and_every_other_cell_counts_once(night, monkeypatch):
    poison = "tiny_b::ort-cpu-noopt+fp32"
    monkeypatch.setenv("DIES_AT", poison)
    result = night.run(LOCAL, "--qbench-jobs=2")
    text = result.stdout.str()
    assert result.ret == pytest.ExitCode.TESTS_FAILED, text
    (run,) = runs_in(night)
    (infra,) = [record for record in run.cells if record.outcome == "infra"]
    assert str(infra.cell) == poison
    assert "no memory left, token=…" in infra.headline
    assert "hidden-word" not in text
    found = digests(run)
    del found[poison], night.expected[poison]
    assert found == night.expected


def write_plan(project, wanted=None):
    """A plan of one job, for the class of processor ``wanted``."""
    suite = PlannedSuite(
        path="suites/scratch.qbench.toml",
        name="scratch",
        digest=suite_digest(project.suite_path),
        cells=CELLS,
    )
    units = [
        Unit(suite="scratch", model=model, cells=CELLS // 2, seconds=1.0)
        for model in ("tiny_a", "tiny_b")
    ]
    plan = make_job_plan([suite], describe_code(project.suite_path.parent), wanted, [units])
    save_job_plan(plan, project.path / PLAN)


def test_a_plan_of_another_suite_is_refused_before_a_job_is_begun(project):
    write_plan(project)
    project.write_suite(project.suite_path.read_text() + "\n# changed\n")
    result = project.run(LOCAL, f"--qbench-plan={PLAN}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.stderr.lines if line.startswith("ERROR")]
    assert "with other content" in line
    assert not project.run_files


@pytest.mark.slow
def test_another_class_of_processor_is_refused_by_each_job_and_its_cells_are_missing(night):
    write_plan(night, "arm64")
    result = night.run(LOCAL, f"--qbench-plan={PLAN}")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(
        [
            "*job 1 * refused after 3 tries*found a processor of class 'x64-test'*",
            "*8 cells of job 1*",
        ]
    )
    assert not night.run_files


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--qbench-cluster=here",), "expected local:N"),
        ((LOCAL, POOL), "found --cluster and --executor"),
        ((LOCAL, "--qbench-select=model=tiny_a"), "found --qbench-select"),
        ((LOCAL, "--qbench-shard=1/2"), "found --qbench-shard"),
        ((LOCAL, "--qbench-accept"), "found --qbench-accept"),
        ((LOCAL, "--qbench-history=off"), "found --qbench-history=off"),
        ((LOCAL, "--qbench-jobs=0"), "a whole number from 1"),
        ((LOCAL, "--qbench-plan=no.json"), "Reading the plan"),
        (("--qbench-jobs=2",), "found neither --qbench-cluster nor --qbench-executor"),
    ],
)
def test_options_that_do_not_agree_are_one_sentence(project, options, says):
    result = project.run(*options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.stderr.lines if line.startswith("ERROR")]
    assert says in line
    assert not project.run_files


FARM = """
import json, sys
from distributed import LocalCluster

if __name__ == "__main__":
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, resources=json.loads(sys.argv[1])
    ) as cluster:
        processes = [one.pid for one in cluster.workers.values()]
        print(json.dumps([cluster.scheduler_address, processes]), flush=True)
        sys.stdin.read()
"""


@pytest.fixture
def dask(night):
    """A function that starts a scheduler with two workers of one thread: its address, and their
    processes. Not in this process: distributed changes how packages are found.
    """
    if find_spec("distributed") is None:
        pytest.skip("the extra 'cluster' is not installed")
    script = night.path / "farm_of_dask.py"
    script.write_text(FARM)
    with contextlib.ExitStack() as stack:

        def start(**resources):
            command = [sys.executable, script, json.dumps(resources)]
            farm = stack.enter_context(Popen(command, stdin=PIPE, stdout=PIPE, cwd=night.path))
            return json.loads(farm.stdout.readline())

        yield start


@pytest.mark.slow
def test_dask_with_a_worker_killed_and_a_poison_cell_counts_every_other_cell_once(
    night, monkeypatch, dask
):
    poison = "tiny_b::ort-cpu-noopt+fp32"
    monkeypatch.setenv("DIES_AT", poison)
    address, workers = dask()
    killed = []

    def kill_a_worker():
        while not night.run_files:
            time.sleep(0.05)
        os.kill(workers[0], signal.SIGKILL)
        killed.append(workers[0])

    thread = threading.Thread(target=kill_a_worker, daemon=True)
    thread.start()
    result = night.run(f"--qbench-cluster={address}", "--qbench-jobs=4", process=True)
    thread.join()
    text = result.stdout.str()
    assert result.ret == pytest.ExitCode.TESTS_FAILED, text
    assert killed
    (run,) = runs_in(night)
    assert [str(one.cell) for one in run.cells if one.outcome == "infra"] == [poison], text
    found = digests(run)
    del found[poison], night.expected[poison]
    assert found == night.expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("resources", "told"), [({"gpu": 1}, 0), ({}, 1)], ids=["declared", "not declared"]
)
def test_dask_gives_jobs_to_workers_that_declare_what_their_backends_need(
    night, dask, resources, told
):
    night.write_conftest(
        more=(
            "from qbench.backends import BackendEntry\n"
            "ENTRY = BackendEntry('qbench.backends.ort', 'OrtBackend', {'name': 'mine'}, "
            "resources=('gpu',))\n"
            "MORE = {'backends': {'mine': ENTRY}}"
        ),
        extra=DYING,
    )
    suite = night.suite_path.read_text().replace('"ort-cpu-noopt"', '"mine"')
    night.write_suite(suite)
    address, _ = dask(**resources)
    result = night.run(
        f"--qbench-cluster={address}", "--qbench-jobs=2", "--qbench-missing=warn", process=True
    )
    assert result.ret == 0, result.stdout.str()
    assert result.parseoutcomes() == {"passed": CELLS // 2, "missing": CELLS // 2}
    assert result.stdout.str().count("no worker of") == told


@pytest.mark.slow
def test_submitit_measures_what_one_process_does(night):
    if find_spec("submitit") is None:
        pytest.skip("submitit is not installed")
    (night.path / "farm.py").write_text(
        "import submitit\n\n\ndef local():\n"
        "    executor = submitit.LocalExecutor(folder='submitit')\n"
        "    executor.update_parameters(timeout_min=30)\n"
        "    return executor\n"
    )
    result = night.run("--qbench-executor=farm:local", "--qbench-jobs=2", process=True)
    assert result.ret == 0, result.stdout.str()
    (run,) = runs_in(night)
    assert digests(run) == night.expected
