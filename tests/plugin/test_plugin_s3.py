"""Nights whose history and cache are behind s3://, against a server on this computer, in processes
of their own: an outage in the middle, expired credentials, two machines with one job.
"""

import json
import threading

import pytest
from object_server import BUCKET, SECRETS, ObjectServer

from qbench.cli import main
from qbench.storage import place_of
from qbench.suite import (
    PlannedSuite,
    Unit,
    describe_code,
    make_job_plan,
    save_job_plan,
    suite_digest,
)

pytestmark = pytest.mark.slow

URL = f"s3://{BUCKET}/history"
HISTORY = f"--qbench-history={URL}"


@pytest.fixture
def server(project, monkeypatch):
    project.accept()
    monkeypatch.setenv("QBENCH_CACHE", str(project.path / "users-cache"))
    monkeypatch.chdir(project.path)
    server = ObjectServer.of_test(monkeypatch)
    yield server
    server.end()


def night(project, *options):
    """A session in a process of its own; nothing that it wrote has a secret."""
    result = project.run(HISTORY, *options, process=True)
    written = [path for path in project.path.rglob("*") if path.is_file()]
    texts = [result.stdout.str(), result.stderr.str()]
    texts += [path.read_bytes().decode("utf-8", "replace") for path in written]
    assert not [secret for secret in SECRETS for text in texts if secret in text]
    assert "Traceback" not in texts[0] + texts[1]
    return result


def objects(ending=".jsonl"):
    return sorted(place_of(URL).listing(ending))


def spooled(project):
    return sorted((project.path / "users-cache" / "spool").rglob("*.jsonl"))


def test_verbs_read_what_nights_stored(project, server, capsys):
    for _ in range(2):
        assert night(project, "--qbench-report=html").ret == 0
    assert len(objects()) == 2
    for words in (
        ("history", "check"),
        ("history", "index"),
        ("history", "check"),
        ("compare", "previous", "latest"),
        ("samples", "tiny_a::*"),
        ("accept", "latest", "--dry-run"),
    ):
        code = main([*words, "--history", URL])
        out, err = capsys.readouterr()
        assert (words, code, err if words[0] != "samples" else "") == (words, 0, "")
        assert out
    assert main(["merge", URL, "-o", "copy", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["added"]) == 2


@pytest.mark.parametrize("what", ["stopped", "expired", "read-only"])
def test_a_night_without_its_store_is_measured_and_stored_by_the_next(project, server, what):
    if what == "stopped":
        server.stop()
    else:
        server.refuses = what
    result = night(project)
    if what == "stopped":
        server.start()
    server.refuses = ""
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.parseoutcomes() == {"passed": 8}
    (waiting,) = spooled(project)
    said = result.stdout.str()
    assert said.count(f"Storing the run '{waiting.stem}'") == 1
    words = {"stopped": "no connection", "expired": "ExpiredToken", "read-only": "AccessDenied"}
    assert words[what] in said
    assert night(project).ret == 0
    assert (len(objects()), spooled(project)) == (2, [])
    assert f"{waiting.stem}.jsonl" in objects()


def test_an_outage_in_the_middle_of_a_night(project, server):
    gate = project.path / "gate"
    project.write_conftest(
        extra=f"""
import pathlib, time

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logfinish(nodeid):
    COUNT.append(nodeid)
    if len(COUNT) == 2:
        gate = pathlib.Path({str(gate)!r})
        gate.touch()
        while gate.exists():
            time.sleep(0.05)

COUNT = []
"""
    )
    ended = threading.Event()

    def stop():
        while not gate.exists() and not ended.wait(0.05):
            pass
        server.stop()
        gate.unlink(missing_ok=True)

    thread = threading.Thread(target=stop)
    thread.start()
    result = night(project)
    ended.set()
    thread.join()
    server.start()
    assert (result.ret, result.parseoutcomes()) == (1, {"passed": 8})
    (waiting,) = spooled(project)
    assert (objects(), objects(".begun")) == ([], [f"{waiting.stem}.begun"])
    assert main(["merge", str(waiting), "-o", URL]) == 0
    assert objects() == [waiting.name]


def test_one_job_on_two_machines_is_two_attempts(project, server, monkeypatch):
    plan = project.path / "plan.json"
    suite = PlannedSuite(
        path="suites/scratch.qbench.toml",
        name="scratch",
        digest=suite_digest(project.suite_path),
        cells=8,
    )
    units = [Unit(suite="scratch", model="tiny_a", cells=4, seconds=1.0)]
    units = [[*units, Unit(suite="scratch", model="tiny_b", cells=4, seconds=1.0)]]
    code = describe_code(project.suite_path.parent)
    save_job_plan(make_job_plan([suite], code, None, units), plan)
    for name in ("one", "two"):
        monkeypatch.setenv("QBENCH_CACHE", str(project.path / name))
        assert night(project, f"--qbench-job={plan}#1").ret == 0
    first, second = objects()
    assert first.replace("-a01-", "-a02-") == second
    assert "-j0001-a01-" in first


def test_the_cache_is_shared(project, server, monkeypatch):
    monkeypatch.delenv("QBENCH_CACHE")
    for name in ("one", "two"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(project.path / name))
        assert night(project, f"--qbench-cache=s3://{BUCKET}/cache").ret == 0
        found = sorted(place_of(f"s3://{BUCKET}/cache").listing())
        if name == "one":
            first = found
    assert found == first
    assert {path.partition("/")[0] for path in found} == {"objects", "profiles", "samples"}
    server.refuses = "expired"
    monkeypatch.setenv("XDG_CACHE_HOME", str(project.path / "three"))
    result = project.run(f"--qbench-cache=s3://{BUCKET}/cache", process=True)
    assert result.ret == 0
    said = result.stdout.str() + result.stderr.str()
    assert f"s3://{BUCKET}/cache" in said
    assert not [secret for secret in SECRETS if secret in said]
