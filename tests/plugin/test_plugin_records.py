"""Run files: written by one process, line by line, so that whatever ends it,
what was measured is kept.
"""

import signal
import time
from collections import Counter

import pytest

from qbench.tracking import read_run

SLOW = '''
import os
import time
from collections import Counter
from qbench.backends import get_backend


class Engine:
    """Runs as ort-cpu does; its second model hangs, or takes the process with it."""

    name, capabilities, packages = "odd", get_backend("ort-cpu").capabilities, ()
    seen = []

    def prepare(self, model, *, taps=(), threads=1):
        self.seen.append(id(model))
        if len(self.seen) > 1 and "HANG" in os.environ:
            time.sleep(600)
        if "DIE" in os.environ and os.path.exists("armed"):
            os.remove("armed")
            os._exit(9)
        return get_backend("ort-cpu").prepare(model, taps=taps, threads=threads)


MORE = {"backends": {"odd": Engine}}
'''


INTERRUPTED = """
MORE = {}

@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report):
    if hasattr(report, "qbench"):
        raise KeyboardInterrupt
"""


SHOWN = """
from pathlib import Path
MORE = {}
shown = set()

def pytest_report_teststatus(report):
    if hasattr(report, "qbench"):
        shown.add(report.nodeid)
        lines = "".join(path.read_text() for path in Path("reports/history").glob("*.jsonl"))
        print("RECORDED", lines.count('"type":"cell"') >= len(shown))
"""


@pytest.fixture
def odd(project):
    text = project.suite_path.read_text()
    project.write_suite(
        text.replace('backends = ["ort-cpu", "ort-cpu-noopt"]', 'backends = ["odd"]')
    )
    project.write_conftest(SLOW)
    return project


@pytest.mark.slow
def test_first_lines_say_what_and_where(project):
    project.run("-k", "tiny_a")
    header, environment, *others, end = project.lines()
    assert (header["type"], header["format"], header["suite"]) == ("run", "qbench-run/1", "scratch")
    assert (header["planned"], header["selected"], header["complete_selection"]) == (8, 4, False)
    assert environment["versions"]["onnxruntime"]
    assert environment["features"]
    # four cells, and what each of the two quantized ones lost or gained
    assert Counter(line["type"] for line in others) == {"cell": 4, "samples": 2}
    assert end["cells"] == 4
    assert end["exit_code"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "workers"),
    [
        (signal.SIGKILL, ()),
        (signal.SIGINT, ()),
        (signal.SIGKILL, ("-n1", "--dist", "loadscope")),
    ],
)
def test_an_interrupted_run_keeps_what_was_measured(odd, monkeypatch, how, workers):
    monkeypatch.setenv("HANG", "1")
    command = odd.pytester._getpytestargs()
    process = odd.pytester.popen(
        [*command, "--assert=plain", "suites/scratch.qbench.toml", *workers]
    )
    try:
        until = time.monotonic() + 600
        while not (odd.run_files and '"type":"cell"' in odd.run_files[0].read_text()):
            assert time.monotonic() < until, "no cell was recorded"
            time.sleep(0.05)
        process.send_signal(how)
        process.wait(timeout=600)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
    run = read_run(odd.run_files[0])
    assert not run.complete
    assert [cell.model for cell in run.cells] == ["tiny_a"]
    if how == signal.SIGINT:
        assert any("3 of 4 selected cells" in note for note in run.notes)


@pytest.mark.slow
def test_a_cell_is_recorded_before_pytest_shows_how_it_ended(project):
    project.write_conftest(SHOWN)
    result = project.run("-s", "-k", "tiny_a", process=True)
    assert result.stdout.str().count("RECORDED True") >= 4
    assert "RECORDED False" not in result.stdout.str()


@pytest.mark.slow
def test_an_interrupt_before_teardown_counts_the_recorded_cell_as_run(project):
    project.accept()
    project.write_conftest(INTERRUPTED)
    project.run("-k", "tiny_a", process=True)
    run = read_run(project.run_files[-1])
    assert not run.complete
    assert len(run.cells) == 1
    (note,) = run.notes
    assert "3 of 4 selected cells" in note


@pytest.mark.slow
def test_a_worker_that_dies_marks_the_run_and_its_cell(odd, monkeypatch):
    monkeypatch.setenv("DIE", "1")
    odd.run("-k", "tiny_a", workers=1)  # unarmed: nobody dies
    assert read_run(odd.run_files[-1]).complete
    (odd.path / "armed").touch()
    result = odd.accept("--dist", "loadscope", workers=1)
    assert result.ret != 0
    run = read_run(odd.run_files[-1])
    assert not run.complete
    assert any("ended early" in note for note in run.notes)
    assert not (odd.path / "baselines").exists()


@pytest.mark.slow
def test_reports_are_drawn_from_the_history(project):
    project.accept()
    result = project.run(
        "--qbench-report", "html", "--qbench-report", "md", "--qbench-report", "png"
    )
    assert result.ret == 0
    result.stdout.fnmatch_lines(["wrote reports/charts/ (2 charts)"])
    assert result.stdout.str().count("charts") == 2
    for name in ("index.html", "report.md", "matrix.png", "charts/tiny_a.png"):
        assert (project.path / "reports" / name).stat().st_size > 500
    assert "tiny_b" in (project.path / "reports" / "report.md").read_text().replace("\\", "")


@pytest.mark.slow
def test_a_damaged_history_file_hinders_nobody(project):
    project.accept()
    folder = project.path / "reports" / "history"
    (folder / "20200101T000000Z-abc-123.jsonl").write_text('{"type": "run", "id": 1\nrubbish\n')
    result = project.run("--qbench-report=md")
    assert result.ret == 0
    assert "20200101T000000Z" in (project.path / "reports" / "report.md").read_text()


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("option", "other"),
    [
        ("--qbench-history", ()),
        ("--qbench-reports", ("--qbench-report=md",)),
        ("--qbench-baselines", ("--qbench-accept=new",)),
    ],
)
def test_a_folder_that_cannot_be_written_is_noticed_before_anything_is_measured(
    project, option, other, workers
):
    (project.path / "blocked").touch()  # a file in the place of the folder: it hinders root too
    result = project.run(f"{option}=blocked/folder", *other, workers=workers)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: Writing the *blocked*found *expected a writable folder. Nothing was measured*"]
    )
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    assert "passed" not in result.stdout.str()
    assert "failed" not in result.stdout.str()
    assert not project.run_files
    assert not (project.path / "baselines").exists()


@pytest.mark.slow
def test_folders_that_this_session_does_not_write_may_be_what_they_are(project):
    (project.path / "blocked").touch()
    blocked = [f"--qbench-{name}=blocked/folder" for name in ("history", "reports")]
    assert project.run("--collect-only", *blocked).ret == 0
    assert project.run("-k", "nothing", *blocked).ret == pytest.ExitCode.NO_TESTS_COLLECTED
    project.pytester.makepyfile(test_plain="def test_x(): pass")
    assert project.run("test_plain.py", *blocked, suite=False).ret == 0
    project.accept()
    assert project.run(blocked[1]).ret == 0
    assert not (project.path / "blocked").is_dir()


def test_cells_in_python_tests_are_not_measured_in_vain_either(project):
    project.pytester.makepyfile(
        test_cells="""
        import pytest

        @pytest.mark.qbench(models=["tiny_a"], suite="suites/scratch.qbench.toml")
        def test_cell(qbench_cell):
            open("measured", "w").close()
        """
    )
    (project.path / "blocked").touch()
    result = project.run("test_cells.py", "--qbench-history=blocked/folder", suite=False)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert not (project.path / "measured").exists()


@pytest.mark.slow
def test_a_folder_that_breaks_while_measuring_is_one_sentence_and_red(project):
    project.accept()
    hook = "def pytest_qbench_update_record(config, record):\n    open('blocked', 'a').close()\n"
    project.write_conftest(extra=hook)
    result = project.run("--qbench-reports=blocked/folder", "--qbench-report=md")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.parseoutcomes() == {"passed": 8}
    result.stdout.fnmatch_lines(
        ["scratch: All 8 cells pass", "qbench: Writing *blocked*found *expected a writable*"]
    )
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


@pytest.mark.slow
def test_two_suites_make_two_run_files(project):
    (project.path / "suites" / "other.qbench.toml").write_text(project.suite_path.read_text())
    project.run("suites/other.qbench.toml", "-k", "tiny_a and fp32")
    assert {project.lines(i, "run")[0]["suite"] for i in (0, 1)} == {"scratch", "other"}
    assert [len(project.lines(i, "cell")) for i in (0, 1)] == [2, 2]


@pytest.mark.slow
def test_a_session_without_cells_writes_nothing(project):
    project.pytester.makepyfile("def test_x(): pass")
    result = project.run(suite=False)
    assert result.ret == pytest.ExitCode.TESTS_FAILED or result.ret == 0
    (project.path / "suites").rename(project.path / "away")
    for path in project.run_files:
        path.unlink()
    result = project.run("test_a_session_without_cells_writes_nothing.py", suite=False)
    assert result.ret == 0
    assert not project.run_files
    assert "qbench" not in "\n".join(
        line for line in result.outlines if not line.startswith(("rootdir", "plugins"))
    )


@pytest.mark.slow
def test_a_run_that_is_not_kept_is_reported_and_leaves_no_file(project):
    project.accept()
    kept = project.files().keys()
    result = project.run("--qbench-history=off", "--qbench-report=md")
    assert result.ret == 0
    assert {name for name in project.files() if name not in kept} == {"reports/report.md"}
    assert read_run(project.run_files[0]).id not in (project.path / "reports/report.md").read_text()
    result.stdout.fnmatch_lines(["run file: none (--qbench-history=off)"])
    project.write_ini(
        f"qbench_cache = {project.cache}", "qbench_localize = 0", "qbench_history = off"
    )
    project.run()
    assert len(project.run_files) == 1
    project.run("--qbench-history=elsewhere")
    assert len(list((project.path / "elsewhere").glob("*.jsonl"))) == 1
