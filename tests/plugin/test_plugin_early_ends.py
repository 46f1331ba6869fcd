"""What skips a cell or ends a session early is never green where a result was accepted."""

import pytest

from qbench.tracking import read_run

ENDS = """
import ctypes
import sys
import unittest

from qbench.backends import get_backend
from qbench.errors import NotFetchedError

ACTS = {
    "skip": lambda: pytest.skip("no torch here"),
    "importorskip": lambda: pytest.importorskip("no_such_package"),
    "xfail": lambda: pytest.xfail("known"),
    "SkipTest": lambda: (_ for _ in ()).throw(unittest.SkipTest("not here")),
    "unfetched": lambda: (_ for _ in ()).throw(
        NotFetchedError("Downloading x", found="no index", expected="one", remedy="Look for it.")
    ),
    "exit": lambda: pytest.exit("enough", returncode=0),
    "SystemExit": lambda: sys.exit(0),
    "fail": lambda: pytest.fail("no"),
    "os._exit": lambda: os._exit(0),
}


def end_at(place, name="tiny_b"):
    chosen, _, act = os.environ.get("ENDS", "").partition(":")
    if chosen == place and "tiny_b" in name:
        ACTS[act]()


class Engine:
    name, packages = "engine", ("onnxruntime",)
    capabilities = property(lambda self: get_backend("ort-cpu").capabilities)

    def prepare(self, graph, *, taps=(), threads=1):
        end_at("backend")
        return get_backend("ort-cpu").prepare(graph, taps=taps)


plain_model, plain_data = model, data


def model(name, seed):
    def make():
        end_at("loader", name)
        return plain_model(name, seed)()
    return make


def data(name, seed, count=SAMPLES):
    def make():
        end_at("data")
        return plain_data(name, seed, count)()
    return make


MORE = {"backends": {"engine": Engine}}
"""

HOOKS = """
def pytest_runtest_setup(item):
    end_at("setup", item.nodeid)


def pytest_runtest_call(item):
    end_at("call", item.nodeid)


def pytest_collection_modifyitems(items):
    end_at("collection")
    if os.environ.get("ENDS") == "removed:cells":
        items[:] = [item for item in items if "tiny_b" not in item.nodeid]
    for item in items:
        if "tiny_b" in item.nodeid and os.environ.get("ENDS", "").startswith("mark:"):
            kind = os.environ["ENDS"].partition(":")[2]
            xfail = pytest.mark.xfail(run=kind == "run")
            item.add_marker(pytest.mark.skip if kind == "skip" else xfail)


def pytest_qbench_update_record(config, record):
    end_at("record", record["model"])


def pytest_runtest_protocol(item):
    return True if os.environ.get("ENDS") == "protocol:none" and "tiny_b" in item.nodeid else None


def pytest_terminal_summary():
    end_at("summary")


def pytest_unconfigure():
    end_at("unconfigure")


def pytest_sessionfinish(session):
    if os.environ.get("ENDS") == "session:zero":
        session.exitstatus = 0
"""


@pytest.fixture
def accepted(project):
    text = project.suite_path.read_text()
    project.write_suite(
        text.replace('backends = ["ort-cpu", "ort-cpu-noopt"]', 'backends = ["engine"]')
    )
    project.write_conftest(ENDS, HOOKS)
    project.accept()
    return project


def outcomes(project):
    return [cell["outcome"] for cell in project.lines(kind="cell") if cell["model"] == "tiny_b"]


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    "where",
    [
        *("loader:skip", "loader:importorskip", "loader:xfail", "loader:SkipTest"),
        *("backend:SkipTest", "loader:unfetched"),
        *("setup:skip", "call:xfail", "mark:skip", "mark:xfail"),
    ],
)
def test_an_accepted_cell_that_is_skipped_has_a_line_and_is_red(accepted, monkeypatch, where):
    monkeypatch.setenv("ENDS", where)
    result = accepted.run()
    failed = 4 if where.startswith("backend") else 2
    assert result.ret == 1
    assert result.parseoutcomes()["failed"] == failed
    assert outcomes(accepted) == ["drifted", "drifted"]


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("where", ["loader:skip", "loader:SkipTest", "setup:skip", "mark:xfail"])
def test_where_nothing_was_accepted_a_skip_is_unsupported(accepted, monkeypatch, where):
    monkeypatch.setenv("ENDS", where)
    monkeypatch.setenv("FAKE_PROCESSOR", "arm64-test")
    result = accepted.run("--qbench-missing=skip")
    assert (result.ret, outcomes(accepted)) == (0, ["unsupported", "unsupported"])
    assert accepted.run("-k", "tiny_b").ret == 1  # nothing was measured


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    "where", ["loader:SystemExit", "loader:fail", "loader:os._exit", "record:skip"]
)
def test_what_ends_the_process_or_the_test_is_an_error_of_the_cell_and_the_others_run(
    accepted, monkeypatch, where
):
    monkeypatch.setenv("ENDS", where)
    result = accepted.run()
    assert (result.ret, result.parseoutcomes()) == (1, {"failed": 2, "passed": 2})
    assert len(outcomes(accepted)) == 2


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("where", "code"),
    [("backend:exit", 2), ("collection:exit", 2), ("protocol:none", 2), ("call:exit", 2)],
)
def test_a_session_that_ends_early_with_0_ends_with_another_code(
    accepted, monkeypatch, where, code
):
    monkeypatch.setenv("ENDS", where)
    assert accepted.run().ret == code


@pytest.mark.slow
def test_a_hook_that_clears_the_exit_code_does_not_make_red_cells_green(accepted, monkeypatch):
    accepted.write_conftest(
        ENDS.replace("plain_model(name, seed)", "plain_model(name, seed + 1)"), HOOKS
    )
    monkeypatch.setenv("ENDS", "session:zero")
    assert accepted.run().ret == 1


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("where", ["summary:SystemExit", "unconfigure:SystemExit", "summary:exit"])
def test_a_hook_that_ends_the_process_after_red_cells_does_not_make_them_green(
    accepted, monkeypatch, where
):
    accepted.write_conftest(
        ENDS.replace("plain_model(name, seed)", "plain_model(name, seed + 1)"), HOOKS
    )
    monkeypatch.setenv("ENDS", where)
    assert accepted.run().ret == 1


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_hook_that_removes_cells_in_silence_is_refused(accepted, monkeypatch, workers):
    monkeypatch.setenv("ENDS", "removed:cells")
    result = accepted.run(workers=workers)
    assert result.ret != 0
    text = result.stdout.str() + result.stderr.str()
    assert "without reporting it" in text.replace("\n", " ")
    assert "tiny_b::engine+fp32 and 1 more" in text


@pytest.mark.slow
def test_a_red_cell_that_is_expected_to_fail_stays_red(accepted, monkeypatch):
    accepted.write_conftest(
        ENDS.replace("plain_model(name, seed)", "plain_model(name, seed + 1)"), HOOKS
    )
    monkeypatch.setenv("ENDS", "mark:run")
    result = accepted.run()
    assert (result.ret, result.parseoutcomes()) == (1, {"failed": 4})


@pytest.mark.slow
def test_a_python_test_that_is_skipped_by_a_loader_or_a_mark_is_red(accepted, monkeypatch):
    accepted.pytester.makepyfile(
        test_cells="""
        import pytest

        @pytest.mark.qbench(models=["tiny_b"], suite="suites/scratch.qbench.toml")
        def test_cell(qbench_cell):
            assert qbench_cell.judge().outcome.value == "passed"
        """
    )
    assert accepted.run("test_cells.py", suite=False).parseoutcomes() == {"passed": 2}
    for where in ("loader:skip", "mark:skip"):
        monkeypatch.setenv("ENDS", where)
        result = accepted.run("test_cells.py", "-k", "tiny_b", suite=False)
        assert (result.ret, result.parseoutcomes()) == (1, {"failed": 2})


@pytest.mark.slow
def test_a_run_with_an_end_is_whole_only_with_a_line_of_each_selected_cell(accepted):
    accepted.run()
    path = max((accepted.path / "reports" / "history").glob("*.jsonl"))
    assert read_run(path).complete
    lines = path.read_text().splitlines(keepends=True)
    first = next(
        place for place, line in enumerate(lines) if '"type":"cell"' in line.replace(" ", "")
    )
    path.write_text("".join(lines[:first] + lines[first + 1 :]))
    assert not read_run(path).complete


def test_cells_that_a_suite_no_longer_has_are_named_also_with_q(accepted):
    text = accepted.suite_path.read_text()
    accepted.write_suite(text.replace('schemas = ["w8a8_asym_pc"]', ""))
    result = accepted.run("-q")
    assert (result.ret, result.parseoutcomes()) == (0, {"passed": 2})
    result.stdout.fnmatch_lines(["note: * left over *"])
