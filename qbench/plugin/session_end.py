"""The end of a session: run files closed, results accepted, reports drawn."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qbench.errors import IncompleteError, QbenchError, refused_by_system
from qbench.host import first_parents, utc_now
from qbench.judging import Measurement
from qbench.plugin.opening import OpenSuite, open_suite
from qbench.plugin.options import GITHUB, OPTIONS
from qbench.plugin.recording import OpenRun, Recorder
from qbench.plugin.tags import collected_tags
from qbench.reporting import (
    PYTEST_MARKUP,
    add_step_summary,
    annotations,
    build_reports,
    front_pages,
    read_memory,
    recent_runs,
    styled_lines,
    write_reports,
)
from qbench.storage import neutral_line
from qbench.suite import QUARANTINE_SUFFIX, SUFFIX, approve_run, load_suite, outgrown_entry_errors
from qbench.tracking import (
    ANNOTATIONS_FILE,
    Acceptance,
    StaleEntry,
    accepted_lines,
    find_stale_entries,
    orphan_notes,
    prune_stale_entries,
    stale_entry_notes,
)

if TYPE_CHECKING:
    from qbench.judging import QuarantineEntry


LISTED = 12
"""Accepted cells of a model that are listed one by one; the diff of the baseline shows them all."""


def finish(
    recorder: Recorder, session: pytest.Session, exit_code: int, crashes: list[str], *, stopped: bool
) -> list[str]:
    """Everything that happens once, after the last cell; what is to be said about it.

    Args:
        exit_code: pytest's, for the ``end`` lines. crashes: a sentence a worker that died. stopped: before its end.
    """
    suites = {key: _suite_of(session, run) for key, run in recorder.runs.items()}
    for key, run in recorder.runs.items():
        opened = suites[key]
        if opened is None:  # its cells, or its collector, say why
            continue
        for sentence in leftover_sentences(opened):
            recorder.note(run, sentence)
        for sentence in outgrown_sentences(opened, run):
            recorder.note(run, sentence)
            recorder.problems.append(sentence)
            exit_code = exit_code or int(pytest.ExitCode.TESTS_FAILED)
    recorder.finish(exit_code, crashes, stopped=stopped)
    said = list(dict.fromkeys(filter(None, (empty_sentence(recorder, run) for run in recorder.runs.values()))))
    for run in recorder.runs.values():
        if recorder.options.accepts:
            said += _attempt(recorder, partial(_accept, run, session))
        if recorder.options.prune:
            said += _attempt(recorder, partial(_prune, run, session))
    if recorder.options.report and not stopped:
        said += _attempt(recorder, partial(_report, recorder, suites))
    return said


def empty_sentence(recorder: Recorder, run: OpenRun) -> str:
    """Where baselines were looked for, when there is not one and a cell wanted it; empty otherwise.

    The folder is the whole news, as pytest's root folder moves with the paths that it is given; it is said and not
    written, since a run file holds no paths of its machine.
    """
    folder = recorder.options.baselines
    wanted = not recorder.options.accepts and any(cell.outcome == "missing" for cell in run.cells)
    if not wanted or any(folder.glob("*/*.json")):
        return ""
    return f"no baseline in '{folder}' (root folder of pytest: '{recorder.config.rootpath}')"


def outgrown_sentences(opened: OpenSuite, run: OpenRun) -> tuple[str, ...]:
    """The quarantine entries of several cells that none of them needs; none where few samples tell little."""
    if run.header["limited"] is not None:
        return ()
    return outgrown_entry_errors(opened.suite, (one.cell for one in opened.planned), run.cells)


def _suite_of(session: pytest.Session, run: OpenRun) -> OpenSuite | None:
    """The suite of ``run`` as this process opens it; None where it cannot."""
    path = Path(run.facts["file"])
    try:
        return open_suite(path, session.config, session.gethookproxy(path))
    except QbenchError:
        return None


def _attempt(recorder: Recorder, act: Callable[[], list[str]]) -> list[str]:
    try:
        return act()
    except QbenchError as error:
        recorder.problems.append(str(error))
    except OSError as error:
        recorder.problems.append(str(refused_by_system("Ending the session", error)))
    return []


def _report(recorder: Recorder, suites: Mapping[str, OpenSuite | None]) -> list[str]:
    options = recorder.options
    ended = [run.run for run in recorder.runs.values() if run.complete and run.writer is not None]
    recent = recent_runs(recorder.history, now=utc_now(), known=ended)
    parents = first_parents(recorder.config.rootpath)
    same = {}
    for file, opened in suites.items():  # one that only the conftest of a Python test completes cannot be opened here
        suite = load_suite(Path(file)) if opened is None else opened.suite
        same[suite.name] = suite.table.equivalents
    notes = options.history / ANNOTATIONS_FILE
    memory = read_memory(recent.runs, options.baselines, notes, parents=parents, equivalents=same)
    said: list[str] = []
    reports = build_reports(recent.runs, memory=memory)
    if GITHUB in options.report:
        files = {run.facts["suite"]: _short(Path(file), recorder.config) for file, run in recorder.runs.items()}
        ran = [one for one in reports if one.suite in files]
        recorder.commands += annotations(ran, files)
        add_step_summary(ran, os.environ.get("GITHUB_STEP_SUMMARY"))
    kinds = [kind for kind in options.report if kind != GITHUB]
    if not kinds:
        return said
    written = write_reports(recent.runs, options.reports, kinds, problems=recent.problems, reports=reports)
    charts = [path for path in written if options.reports / "charts" in path.parents]
    said += [f"wrote {_short(path, recorder.config)}" for path in front_pages(written, options.reports)]
    if charts:
        count = f"{len(charts)} chart{'s' if len(charts) > 1 else ''}"
        said.append(f"wrote {_short(options.reports / 'charts', recorder.config)}/ ({count})")
    return said


def _accept(run: OpenRun, session: pytest.Session) -> list[str]:
    if not run.complete:
        return ["Nothing was accepted: the run is not whole. Run it again to its end."]
    path = Path(run.facts["file"])
    opened = open_suite(path, session.config, session.gethookproxy(path))
    planned = {str(cell.cell): cell for cell in opened.planned}
    measured = [(planned[str(m.cell)], m) for m in _measurements(run) if str(m.cell) in planned]
    approved = approve_run(opened.bench, measured)
    notices = dict.fromkeys(notice for _, change in approved for notice in change.notices)
    return [*(line for model, change in approved for line in _told(model, change)), *notices]


def _prune(run: OpenRun, session: pytest.Session) -> list[str]:
    if not run.complete or run.facts["selected"] != run.facts["planned"]:
        raise IncompleteError(
            f"Pruning the baselines of '{run.facts['suite']}'",
            found=f"a run of {len(run.finished)} of its {run.facts['planned']} cells",
            expected="a run of the whole suite, to its end",
            remedy="Prune without -n, or with --collect-only: that measures nothing.",
        )
    return prune(session, [Path(run.facts["file"])])


def _measurements(run: OpenRun) -> list[Measurement]:
    return [m for m in (record.measurement() for record in run.cells) if m is not None]


def _told(model: str, change: Acceptance) -> list[str]:
    """The table old → new, and what is not in it."""
    refused = [f"not accepted: {model}::{one.cell}: {one.reason}" for one in change.refusals if not one.is_listed]
    left_out = [f"left out: {model}::{one.cell}: {one.reason}" for one in change.refusals if one.is_listed]
    return [*accepted_lines(model, change.rows, most=LISTED), *refused, *left_out]


def _short(path: Path, config: pytest.Config) -> str:
    return str(path.relative_to(config.rootpath)) if path.is_relative_to(config.rootpath) else str(path)


# ``--qbench-prune``, and what it would remove: baselines that a suite has no more, listed by every run of the suite.
#
# The matrix of a suite is known once it is collected, whatever is selected of it; removing asks for all of it to be
# selected, so that pruning is never a side effect.


def leftover_sentences(opened: OpenSuite) -> tuple[str, ...]:
    """What of the baselines of a suite nothing uses, in sentences."""
    baselines = opened.config.stash[OPTIONS].baselines
    orphans = orphan_notes(baselines, opened.suite.path.parent, SUFFIX)
    return stale_entry_notes(_leftovers(opened, baselines), opened.shown_path) + orphans


def demand_whole_suites(session: pytest.Session) -> None:
    """Refuse to prune by a part of a suite, before anything is measured.

    Raises:
        pytest.UsageError: no suite was collected, or not all of one is selected.
    """
    if session.testsfailed:  # a suite could not be read: pytest says why, and goes no further
        return
    tags = collected_tags(session.config)
    if not tags:
        raise _refusal("no suite", "the file of one: pytest suites/NAME.qbench.toml --collect-only --qbench-prune")
    for tag in tags:
        if tag.selected != tag.planned:
            raise _refusal(f"{tag.selected} of the {tag.planned} cells of '{tag.suite}' selected", "all of them")


def prune(session: pytest.Session, files: Iterable[Path]) -> list[str]:
    """Remove what the suites at ``files`` have no more; a line for each thing that went.

    Raises:
        QbenchError: a suite is wrong, or a baseline cannot be written.
    """
    folder = session.config.stash[OPTIONS].baselines
    said = []
    for file in files:
        opened = _opened(session, file)
        leftovers = _leftovers(opened, folder)
        prune_stale_entries(folder, leftovers)
        done = [f"pruned {one.name}: {one.why}" for one in leftovers]
        done += [f"left to you: {_told_entry(opened, entry)}" for entry in opened.stale_entries]
        said += done or [f"nothing to prune: {file.name}"]
    return said


def _told_entry(opened: OpenSuite, entry: "QuarantineEntry") -> str:
    """A file that people write, with their comments, is not written anew."""
    file = f"{opened.suite.name}{QUARANTINE_SUFFIX}"
    return f"the quarantine entry '{entry.cell}' is about no cell of '{opened.suite.name}': remove it from '{file}'"


def _leftovers(opened: OpenSuite, folder: Path) -> tuple[StaleEntry, ...]:
    return find_stale_entries(folder, opened.suite.name, (planned.cell for planned in opened.planned))


def _opened(session: pytest.Session, file: Path) -> OpenSuite:
    return open_suite(file, session.config, session.gethookproxy(file))


def _refusal(found: str, expected: str) -> pytest.UsageError:
    return pytest.UsageError(
        f"Pruning baselines: found {found}; expected {expected}. A part of a suite cannot tell what is left over."
    )


# The last section on the terminal: the matrix of each suite, what is red and why, and where the run is kept.
#
# It never raises: it comes after hours of measuring.


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
        write_line(terminal, f"run file: {run.writer.name}", light=True)


def _takes_unicode() -> bool:
    """Whether the terminal behind pytest's capture shows more than ASCII."""
    encoding = getattr(sys.__stdout__, "encoding", None) or "ascii"
    return encoding.lower().startswith("utf")
