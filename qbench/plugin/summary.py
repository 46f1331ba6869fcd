"""The last section on the terminal: the matrix of each suite, what is red and why, and where the run is kept.

It never raises: it comes after hours of measuring.
"""

import sys

import pytest

from qbench.plugin.recording import OpenRun, Recorder
from qbench.reporting import PYTEST_MARKUP, styled_lines


def print_summary(recorder: Recorder, said: list[str], terminal: pytest.TerminalReporter) -> None:
    """Write the section; ``said`` are further lines, of what was accepted and drawn."""
    try:
        for run in recorder.runs.values():
            terminal.section(f"qbench {run.header['suite']}", cyan=True)
            _print_run(run, terminal)
        for line in said:
            terminal.write_line(line)
        for problem in recorder.problems:
            terminal.write_line(f"qbench: {problem}", red=True, bold=True)
    except Exception as error:
        terminal.write_line(f"qbench: the summary could not be printed ({type(error).__name__}: {error})", yellow=True)


def _print_run(run: OpenRun, terminal: pytest.TerminalReporter) -> None:
    width = terminal.config.get_terminal_writer().fullwidth
    for line in styled_lines(run.run, width, unicode=_takes_unicode()):
        terminal.write_line(line.text, **PYTEST_MARKUP[line.tone])
    if run.writer is not None:
        terminal.write_line(f"run file: {run.writer.path}", light=True)


def _takes_unicode() -> bool:
    """Whether the terminal behind pytest's capture shows more than ASCII."""
    encoding = getattr(sys.__stdout__, "encoding", None) or "ascii"
    return encoding.lower().startswith("utf")
