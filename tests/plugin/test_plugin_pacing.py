"""Lines about the time that is left: now and then, on terminals only, for a person who waits."""

import json
from types import SimpleNamespace

import pytest

from qbench.plugin.controller import INTERVAL, PaceReporter, running_words

IDS = [f"suites/s.qbench.toml::m::b+s{i}" for i in range(4)]


class Terminal:
    def __init__(self, dist="no"):
        self.config = SimpleNamespace(option=SimpleNamespace(dist=dist))
        self.currentfspath = "somewhere"
        self.lines = []

    def ensure_newline(self):
        self.lines.append("newline")

    def write_line(self, text, **markup):
        self.lines.append(text)


def history_of(folder, seconds):
    run = {
        "type": "run",
        "format": "qbench-run/1",
        "id": "1",
        "suite": "s",
        "started": "2026-11-21",
    }
    cells = [
        {
            "type": "cell",
            "suite": "s",
            "model": "m",
            "backend": "b",
            "schema": f"s{i}",
            "seconds": {"inference": seconds},
        }
        for i in range(4)
    ]
    (folder / "1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (run, *cells)))
    return folder


def told(terminal):
    return [line for line in terminal.lines if line.startswith("qbench")]


def test_a_long_run_says_so_at_once_and_then_once_a_minute(words, tmp_path):
    terminal, now = Terminal(), [0.0]
    reporter = PaceReporter(
        terminal, ["tests/test_x.py::test", *IDS], history_of(tmp_path, 600.0), clock=lambda: now[0]
    )
    for node_id in IDS:
        now[0] += INTERVAL / 2
        reporter.finish(node_id)
    words(told(terminal))
    assert terminal.currentfspath is None


def test_a_short_run_says_nothing(tmp_path):
    terminal, now = Terminal(), [0.0]
    reporter = PaceReporter(terminal, IDS, history_of(tmp_path, 1.0), clock=lambda: now[0])
    for node_id in IDS:
        now[0] += 1.0
        reporter.finish(node_id)
    assert terminal.lines == []


def test_marks_of_workers_are_ended_first(words, tmp_path):
    terminal, now = Terminal(dist="load"), [0.0]
    reporter = PaceReporter(terminal, IDS, tmp_path, clock=lambda: now[0])
    now[0] = 2 * INTERVAL
    reporter.finish(IDS[0])
    assert terminal.lines[0] == ""
    words(told(terminal))


@pytest.mark.slow
def test_nothing_where_nobody_looks(project):
    project.accept()
    assert " left" not in project.run("-k", "fp32").stdout.str()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_a_log_hears_which_cells_run_and_how_many_are_done(project, workers):
    """Here with lines every few milliseconds; standard error is pytest's own, not what it
    captures of tests.
    """
    settings = project.path / "conftest.py"
    shorter = "import qbench.working\n\nqbench.working.INTERVAL = 0.002\n"
    settings.write_text((settings.read_text() if settings.exists() else "") + shorter)
    result = project.run("-k", "fp32", process=True, workers=workers)
    told = [
        line for line in result.stderr.str().splitlines() if line.startswith("qbench: running ")
    ]
    assert any("tiny_a::" in line and " of " in line for line in told), result.stderr.str()
    assert not [line for line in result.stdout.str().splitlines() if " so far" in line]


def test_the_line_names_what_runs_and_nothing_where_nothing_does():
    assert running_words({}) == "running the cells"
    assert running_words({"a.toml::m::b+s": None, "test_x.py": None}) == "running m::b+s, test_x.py"
    assert running_words([f"x::{n}" for n in range(6)]) == "running 0, 1, 2, 3 and 2 more"
