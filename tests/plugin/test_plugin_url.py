"""``--qbench-history`` with a URL, from outside: where runs go, and what a night does whose store
is away.
"""

import json

import pytest

from qbench.suite import (
    PlannedSuite,
    Unit,
    describe_code,
    make_job_plan,
    runs_of_job,
    save_job_plan,
    suite_digest,
)
from qbench.tracking import history_at

pytest.importorskip("fsspec")


@pytest.fixture
def remote(project, monkeypatch):
    project.accept()
    monkeypatch.setenv("QBENCH_CACHE", str(project.path / "users-cache"))
    project.url = f"file://{project.path}/objects/nights"
    return project


def objects(project, ending="jsonl"):
    return sorted((project.path / "objects").rglob(f"*.{ending}"))


def spooled(project):
    return sorted((project.path / "users-cache" / "spool").rglob("*.jsonl"))


def test_a_run_is_one_object(remote):
    before = len(remote.run_files)
    result = remote.run(f"--qbench-history={remote.url}", "--qbench-report=md")
    assert result.ret == 0
    (stored,) = objects(remote)
    result.stdout.fnmatch_lines([f"run file: {remote.url}/{stored.name}"])
    kinds = [json.loads(line)["type"] for line in stored.read_text().splitlines()]
    assert (kinds[0], kinds[-1], kinds.count("cell")) == ("run", "end", 8)
    assert (len(remote.run_files), spooled(remote)) == (before, [])
    assert [*(remote.path / "reports").rglob("report.md")]


def test_the_ini_file_names_it_too(remote):
    remote.write_ini(f"qbench_cache = {remote.cache}", f"qbench_history = {remote.url}")
    assert remote.run().ret == 0
    assert remote.run("--qbench-history=off").ret == 0
    assert len(objects(remote)) == 1


def test_a_store_that_is_away_ends_no_night(remote):
    (remote.path / "objects").write_text("a file where the folder should be")
    result = remote.run(f"--qbench-history={remote.url}", "--qbench-report=md")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.parseoutcomes()["passed"] == 8
    (waiting,) = spooled(remote)
    text = result.stdout.str()
    assert text.count(f"Storing the run '{waiting.stem}'") == 1
    assert "Not a directory" in text
    assert str(waiting) in text.replace("\n", "")
    assert "Traceback" not in text + result.stderr.str()
    assert waiting.stem in next((remote.path / "reports").rglob("report.md")).read_text()

    (remote.path / "objects").unlink()
    result = remote.run(f"--qbench-history={remote.url}")
    assert result.ret == 0
    assert len(objects(remote)) == 2
    assert waiting.name in [path.name for path in objects(remote)]
    assert f"The run '{waiting.stem}' of an earlier night is in" in result.stdout.str()
    assert spooled(remote) == []


def test_an_attempt_whose_number_another_machine_took_meanwhile_is_stored_and_said_once(
    remote, monkeypatch
):
    path = remote.suite_path
    units = [[Unit(suite="scratch", model="tiny_b", cells=4, seconds=1.0)]]
    suite = PlannedSuite(
        path="suites/scratch.qbench.toml", name="scratch", digest=suite_digest(path), cells=8
    )
    plan = make_job_plan([suite], describe_code(path.parent), None, units)
    save_job_plan(plan, remote.path / "plan.json")
    job = ("--qbench-job=plan.json#1", f"--qbench-history={remote.url}")
    (remote.path / "objects").write_text("a file where the folder should be")
    assert remote.run(*job, suite=False).ret == pytest.ExitCode.TESTS_FAILED
    (waiting,) = spooled(remote)
    (remote.path / "objects").unlink()
    monkeypatch.setenv("QBENCH_CACHE", str(remote.path / "other-cache"))
    assert remote.run(*job, suite=False).ret == 0
    assert [one.name for one in objects(remote)] == [waiting.name]
    monkeypatch.setenv("QBENCH_CACHE", str(remote.path / "users-cache"))
    content = waiting.read_bytes()
    texts = [remote.run(*job, suite=False).stdout.str() for _ in range(2)]
    assert [text.count(f"run '{waiting.stem}'") for text in texts] == [1, 0]
    assert spooled(remote) == []
    assert [one.read_bytes() for one in objects(remote)].count(content) == 1
    found = runs_of_job(history_at(remote.url), plan.short, 1)
    assert (len(found.complete["scratch"]), found.attempts) == (4, 4)


@pytest.mark.parametrize("url", ["ftp://host/x", "s3://KEY:SeCrEt@bucket/x", "s3:/bucket/x"])
def test_another_url_is_refused_before_anything_is_measured(remote, url):
    result = remote.run(f"--qbench-history={url}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [one for one in result.stderr.lines if one]
    assert line.startswith("ERROR: --qbench-history: Reading the ")
    assert "SeCrEt" not in line


def test_a_missing_package_is_said_before_anything_is_measured(remote, monkeypatch):
    import sys

    from qbench.storage.places import _file_system

    _file_system.cache_clear()
    monkeypatch.setitem(sys.modules, "fsspec", None)
    result = remote.run(f"--qbench-history={remote.url}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "the extra 'remote'" in result.stderr.str() + result.stdout.str()
    assert objects(remote) == []
    _file_system.cache_clear()


def test_a_cache_is_shared_by_computers(project, monkeypatch):
    project.accept()
    url = f"file://{project.path}/shared"
    kinds = ("fp32", "profiles", "samples")
    made = []
    for name in ("one", "two"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(project.path / name))
        monkeypatch.delenv("QBENCH_CACHE", raising=False)
        assert project.run(f"--qbench-cache={url}").ret == 0
        objects = sorted(path for path in (project.path / "shared").rglob("*") if path.is_file())
        local = {
            str(path.relative_to(project.path / name)): path.read_bytes()
            for kind in kinds
            for path in (project.path / name / "qbench" / kind).rglob("*")
            if path.is_file() and path.suffix != ".sha256"
        }
        made.append((objects, local, [path.stat().st_mtime_ns for path in objects]))
    assert made[0] == made[1]
    assert {path.parent.name for path in made[0][0]} == {"objects", "profiles", "samples"}
    assert project.lines(-1, "cell")[0]["digests"] == project.lines(-2, "cell")[0]["digests"]
