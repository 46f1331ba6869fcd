"""The last section on the terminal: the matrix of each suite, what is red and why, and where the run is kept.

It never raises: it comes after hours of measuring.
"""

import sys

import pytest

from qbench.plugin.recording import OpenRun, Recorder
from qbench.reporting import PYTEST_MARKUP, styled_lines
from qbench.storage import neutral_line


def print_summary(recorder: Recorder, said: list[str], terminal: pytest.TerminalReporter) -> None:
    """Write the section; ``said`` are further lines, of what was accepted and drawn."""
    try:
        for run in recorder.runs.values():
            terminal.section(f"qbench {run.header['suite']}", cyan=True)
            _print_run(run, terminal)
        for command in recorder.commands:
            terminal.write_line(command)
        for line in said:
            write_line(terminal, line)
        for problem in recorder.problems:
            write_line(terminal, f"qbench: {problem}", red=True, bold=True)
    except Exception as error:
        write_line(terminal, f"qbench: the summary could not be printed ({type(error).__name__}: {error})", yellow=True)


def write_line(terminal: pytest.TerminalReporter, line: str, **markup: bool) -> None:
    """Write ``line`` on pytest's terminal, without its control characters.

    All text of qbench outside of a report goes through here: names and messages may come from files of others.
    """
    terminal.write_line(neutral_line(line), **markup)


def _print_run(run: OpenRun, terminal: pytest.TerminalReporter) -> None:
    width = terminal.config.get_terminal_writer().fullwidth
    for line in styled_lines(run.run, width, unicode=_takes_unicode()):
        write_line(terminal, line.text, **PYTEST_MARKUP[line.tone])
    if run.writer is not None:
        write_line(terminal, f"run file: {run.writer.path}", light=True)


def _takes_unicode() -> bool:
    """Whether the terminal behind pytest's capture shows more than ASCII."""
    encoding = getattr(sys.__stdout__, "encoding", None) or "ascii"
    return encoding.lower().startswith("utf")
