"""The end of a session: closes run files, accepts results, prunes baselines, writes reports,
prints the summary.
"""

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from qbench.errors import IncompleteError, QbenchError, refused_by_system
from qbench.host import first_parents, utc_now
from qbench.judging import CHECKS
from qbench.number_text import counted
from qbench.plugin.checks import accept_checks, check_sentences, left_over_sentences
from qbench.plugin.item_state import collected_suites
from qbench.plugin.opening import OpenSuite, open_suite
from qbench.plugin.options import OPTIONS
from qbench.plugin.recording import OpenRun, Recorder
from qbench.reporting import (
    GITHUB,
    PYTEST_MARKUP,
    add_step_summary,
    annotations,
    build_reports,
    front_pages,
    read_memory,
    read_repository,
    recent_runs,
    styled_lines,
    write_reports,
)
from qbench.storage import ObjectFile, neutral_line
from qbench.suite import (
    QUARANTINE_SUFFIX,
    SUFFIX,
    approve_run,
    gather,
    meanings,
    unneeded_entry_errors,
)
from qbench.tracking import (
    ANNOTATIONS_FILE,
    Acceptance,
    ObjectStore,
    StaleEntry,
    UnkeptStore,
    accepted_lines,
    complete_attempt,
    find_stale_entries,
    orphan_notes,
    prune_stale_entries,
    stale_entry_notes,
)

LISTED = 12
"""At most this many accepted cells per model are listed; the diff of the baseline shows all."""


def finish(
    recorder: Recorder,
    session: pytest.Session,
    exit_code: int,
    crashes: list[str],
    *,
    stopped: bool,
) -> list[str]:
    """Do what happens once, after the last cell; the messages about it.

    Args:
        exit_code: pytest's, for the ``end`` lines.
        crashes: a sentence per worker that died.
        stopped: whether the session ended early.
    """
    suites = {key: _suite_of(session, run) for key, run in recorder.runs.items()}
    left_over: list[str] = []
    for key, run in recorder.runs.items():
        if _is_of_checks(run):
            told = [*check_sentences(run, session.config), *_left_over(run, session)]
            for sentence in told:
                recorder.note(run, sentence)
                left_over.append(f"note: {sentence}")
        if sentence := _resumed_sentence(run):
            recorder.note(run, sentence)
            left_over.append(f"note: {sentence}")
        opened = suites[key]
        # the errors of its cells or of its collector name the reason; a job knows its cells alone
        if opened is None or opened.is_part:
            continue
        for sentence in stale_baseline_sentences(opened):
            recorder.note(run, sentence)
            left_over.append(f"note: {sentence}")
        for sentence in unneeded_entry_sentences(opened, run):
            recorder.note(run, sentence)
            recorder.problems.append(sentence)
            exit_code = exit_code or int(pytest.ExitCode.TESTS_FAILED)
    recorder.finish(exit_code, crashes, stopped=stopped)
    sentences = (
        sentence
        for run in recorder.runs.values()
        for sentence in (
            no_baseline_sentence(recorder, run),
            _nothing_resumed(recorder, run),
            _retried_sentence(recorder, run),
        )
    )
    messages = list(dict.fromkeys(filter(None, sentences)))
    for run in recorder.runs.values():
        if recorder.options.accepts:
            messages += _attempt(recorder, partial(_accept, run, session, recorder))
        if recorder.options.prune and not _is_of_checks(run):
            messages += _attempt(recorder, partial(_prune, run, session))
    messages += getattr(recorder.history, "take_notices", tuple)()
    if recorder.options.report and not stopped:
        messages += _attempt(recorder, partial(_report, recorder))
    # With -q the summary shows no notes, and accepted cells may be lost. 'qbench run' has no such
    # option.
    is_brief = session.config.getoption("verbose", 0) < 0
    return [*(left_over if is_brief else ()), *messages, *_repairing_schemas(recorder)]


def _resumed_sentence(run: OpenRun) -> str:
    """What was taken over from the run that this one resumed; empty where it resumed none."""
    before = run.header.get("resumes")
    if not before:
        return ""
    taken = sum(bool(cell.resumed_from) for cell in run.cells)
    return (
        f"{taken} of {counted(run.header['selected'], 'cell')} taken over from the unfinished "
        f"run '{before}', not measured again"
    )


def _nothing_resumed(recorder: Recorder, run: OpenRun) -> str:
    """That ``--qbench-resume`` found nothing; empty where it did, or was not given."""
    if not recorder.options.resume or run.header.get("resumes") or _is_of_checks(run):
        return ""
    return (
        f"nothing to resume: no unfinished run of suite '{run.facts['suite']}' with these cells, "
        "this code and this class of processor, so all cells were measured"
    )


def _retried_sentence(recorder: Recorder, run: OpenRun) -> str:
    """That the job of ``run`` was complete before, which a person who meant another night should
    know; empty of any other run.
    """
    before = ""
    with contextlib.suppress(
        QbenchError, OSError
    ):  # a store that is away now: nothing depends on it
        before = complete_attempt(recorder.history, run.header)
    if not before:
        return ""
    return (
        f"this job was complete before: '{before}' counts, and this attempt is compared with it; "
        "another night takes a new plan ('qbench plan')"
    )


def _repairing_schemas(recorder: Recorder) -> Iterator[str]:
    """Where the schemas are that repair red cells; of many the folders."""
    paths = [_short(path, recorder.config) for path in recorder.overrides]
    if len(paths) <= _PATHS:
        yield from (
            f"wrote {path}: a schema that repairs the cell, with those nodes in float"
            for path in paths
        )
        return
    folders = dict.fromkeys(_short(path.parent, recorder.config) for path in recorder.overrides)
    yield from (
        f"wrote {folder}/: schemas that repair red cells, with nodes in float" for folder in folders
    )


_PATHS = 3
"""Schemas that are named one by one."""


def no_baseline_sentence(recorder: Recorder, run: OpenRun) -> str:
    """The folder of baselines, when it holds none and a cell needed one; empty otherwise.

    The folder may be the wrong one, as pytest's root folder depends on its arguments. The sentence
    is printed and not stored, since a run file holds no paths of its machine.
    """
    folder = recorder.options.baselines
    wanted = not recorder.options.accepts and any(cell.outcome == "missing" for cell in run.cells)
    if not wanted or any(folder.glob("*/*.json")):
        return ""
    return f"no baseline in '{folder}' (root folder of pytest: '{recorder.config.rootpath}')"


def unneeded_entry_sentences(opened: OpenSuite, run: OpenRun) -> tuple[str, ...]:
    """A sentence for each quarantine pattern that none of its cells needs; none for a run over
    few samples.
    """
    if run.header["limited"] is not None:
        return ()
    return unneeded_entry_errors(opened.suite, (one.cell for one in opened.planned), run.cells)


def _is_of_checks(run: OpenRun) -> bool:
    """Whether ``run`` is of plain tests with ``qbench_check``, which have no suite file."""
    return bool(run.facts["suite"] == CHECKS)


def _left_over(run: OpenRun, session: pytest.Session) -> Iterator[str]:
    """Baselines of tests that are gone, where this process collected all tests."""
    if run.facts["planned"] == 0 and session.items:
        yield from left_over_sentences(session.config, session.items)


def _suite_of(session: pytest.Session, run: OpenRun) -> OpenSuite | None:
    """The suite of ``run`` opened in this process; None where that fails, as it may for the
    suite of a Python test, and for plain tests.
    """
    if _is_of_checks(run):
        return None
    try:
        return _opened(session, Path(run.facts["file"]))
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


def _report(recorder: Recorder) -> list[str]:
    options = recorder.options
    ended = [run.run for run in recorder.runs.values() if run.complete and run.run.path]
    recent = recent_runs(recorder.history, now=utc_now(), known=ended)
    parents = first_parents(recorder.config.rootpath)
    same = {run.facts["suite"]: run.facts["equivalents"] for run in recorder.runs.values()}
    notes = _annotations_of(recorder)
    memory = read_memory(recent.runs, options.baselines, notes, parents=parents, equivalents=same)
    if "html" in options.report:
        cells = [cell for run in recorder.runs.values() for cell in run.cells]
        known = gather(suites=next(map(Path, recorder.runs)).parent) if recorder.runs else gather()
        lines = meanings(
            known,
            (cell.schema for cell in cells),
            (name for cell in cells for name in cell.metrics),
        )
        memory = replace(
            memory, repository=read_repository(recorder.config.rootpath), meanings=lines
        )
    reports = build_reports(recent.runs, memory=memory)
    files = {
        run.facts["suite"]: "" if _is_of_checks(run) else _short(Path(file), recorder.config)
        for file, run in recorder.runs.items()
    }
    if GITHUB in options.report:
        ran = [one for one in reports if one.suite in files]
        recorder.commands += annotations(ran, files)
        add_step_summary(ran, os.environ.get("GITHUB_STEP_SUMMARY"))
    kinds = [kind for kind in options.report if kind != GITHUB]
    if not kinds:
        return []
    written = write_reports(
        recent.runs, options.reports, kinds, problems=recent.problems, reports=reports, ran=files
    )
    charts = [path for path in written if options.reports / "charts" in path.parents]
    messages = [
        f"wrote {_short(path, recorder.config)}" for path in front_pages(written, options.reports)
    ]
    if charts:
        count = f"{len(charts)} chart{'s' if len(charts) > 1 else ''}"
        messages.append(f"wrote {_short(options.reports / 'charts', recorder.config)}/ ({count})")
    return messages


def _annotations_of(recorder: Recorder) -> Path | ObjectFile:
    """The annotations of the history; of a store that is away none are known, and its spool has
    none.
    """
    store = recorder.history
    store = store.kept if isinstance(store, UnkeptStore) else store
    if isinstance(store, ObjectStore) and store.outage is not None:
        return store.spool / ANNOTATIONS_FILE
    return recorder.options.history / ANNOTATIONS_FILE


def _accept(run: OpenRun, session: pytest.Session, recorder: Recorder) -> list[str]:
    if not run.complete:
        return ["Nothing was accepted: the run is not whole. Run it again to its end."]
    if _is_of_checks(run):
        return _accept_checks(run, session, recorder)
    opened = _opened(session, Path(run.facts["file"]))
    planned = {str(cell.cell): cell for cell in opened.planned}
    measurements = [m for m in (record.measurement() for record in run.cells) if m is not None]
    measured = [(planned[str(m.cell)], m) for m in measurements if str(m.cell) in planned]
    approved = approve_run(opened.bench, measured)
    notices = dict.fromkeys(notice for _, change in approved for notice in change.notices)
    return [
        *(line for model, change in approved for line in _acceptance_lines(model, change)),
        *notices,
    ]


def _accept_checks(run: OpenRun, session: pytest.Session, recorder: Recorder) -> list[str]:
    """Accept what the tests of ``run`` measured, each by itself; a line for each."""
    lines: list[str] = []
    for test, done in accept_checks(run, session):
        if isinstance(done, QbenchError):
            recorder.problems.append(str(done))
        else:
            lines += [*_acceptance_lines(test, done), *done.notices]
    return lines


def _prune(run: OpenRun, session: pytest.Session) -> list[str]:
    if not run.complete or run.facts["selected"] != run.facts["planned"]:
        raise IncompleteError(
            f"Pruning the baselines of '{run.facts['suite']}'",
            found=f"a run of {len(run.finished)} of its {run.facts['planned']} cells",
            expected="a run of the whole suite, to its end",
            remedy="Prune without -n, or with --collect-only: that measures nothing.",
        )
    return prune(session, [Path(run.facts["file"])])


def _acceptance_lines(model: str, change: Acceptance) -> list[str]:
    """The table old → new, and the cells that are not in it."""
    refused = [
        f"not accepted: {model}::{one.cell}: {one.reason}"
        for one in change.refusals
        if not one.is_listed
    ]
    left_out = [
        f"left out: {model}::{one.cell}: {one.reason}" for one in change.refusals if one.is_listed
    ]
    return [*accepted_lines(model, change.rows, most=LISTED), *refused, *left_out]


def _short(path: Path, config: pytest.Config) -> str:
    return (
        str(path.relative_to(config.rootpath))
        if path.is_relative_to(config.rootpath)
        else str(path)
    )


# Stale baselines: every run of a suite lists them, ``--qbench-prune`` removes them.
#
# Collecting a suite gives all its cells, whatever is selected. Pruning still requires that all
# cells are selected, so that it is never a side effect.


def stale_baseline_sentences(opened: OpenSuite) -> tuple[str, ...]:
    """Sentences about the baselines that no cell of the suite uses."""
    baselines = opened.config.stash[OPTIONS].baselines
    orphans = orphan_notes(baselines, opened.suite.path.parent, SUFFIX)
    return stale_entry_notes(_stale_entries(opened, baselines), opened.shown_path) + orphans


def demand_whole_suites(session: pytest.Session) -> None:
    """Refuse to prune when only a part of a suite is selected, before anything is measured.

    Raises:
        pytest.UsageError: no suite was collected, or not all of one is selected.
    """
    if session.testsfailed:  # a suite could not be read: pytest reports it and stops
        return
    suites = collected_suites(session.config)
    if not suites:
        raise _refusal(
            "no suite",
            "the file of one: pytest suites/NAME.qbench.toml --collect-only --qbench-prune",
        )
    for facts in suites:
        if facts.selected != facts.planned:
            raise _refusal(
                f"{facts.selected} of the {facts.planned} cells of '{facts.suite}' selected",
                "all of them",
            )


def prune(session: pytest.Session, files: Iterable[Path]) -> list[str]:
    """Remove the baselines that the suites at ``files`` no longer use; a line for each.

    Raises:
        QbenchError: a suite is wrong, or a baseline cannot be written.
    """
    folder = session.config.stash[OPTIONS].baselines
    messages = []
    for file in files:
        opened = _opened(session, file)
        stale = _stale_entries(opened, folder)
        prune_stale_entries(folder, stale)
        done = [f"pruned {one.name}: {one.why}" for one in stale]
        name = opened.suite.name
        done += [  # its file is not rewritten: people keep comments in it
            f"left to you: the quarantine entry '{entry.cell}' is about no cell of '{name}': "
            f"remove it from '{name}{QUARANTINE_SUFFIX}'"
            for entry in opened.stale_entries
        ]
        messages += done or [f"nothing to prune: {file.name}"]
    return messages


def _stale_entries(opened: OpenSuite, folder: Path) -> tuple[StaleEntry, ...]:
    return find_stale_entries(
        folder, opened.suite.name, (planned.cell for planned in opened.planned)
    )


def _opened(session: pytest.Session, file: Path) -> OpenSuite:
    return open_suite(file, session.config, session.gethookproxy(file))


def _refusal(found: str, expected: str) -> pytest.UsageError:
    return pytest.UsageError(
        f"Pruning baselines: found {found}; expected {expected}. A part of a suite cannot show "
        "what is unused."
    )


# The section FAILURES: equal messages of cells are printed once, and with --tb=line each cell has
# one line.


class OneLine:
    """The message of a red cell with ``--tb=line``: pytest prints ``reprcrash`` as the line,
    and otherwise nothing.
    """

    def __init__(self, path: str, message: str) -> None:
        self.message = message.partition("\n")[0]
        self._path = path

    @property
    def reprcrash(self) -> "OneLine":
        """What pytest's line and its short summary are made of."""
        return self

    def toterminal(self, writer: object) -> None:
        """Print nothing: the line follows."""

    def __str__(self) -> str:
        return f"{self._path}: {self.message}"


def fold_failures(terminal: pytest.TerminalReporter) -> None:
    """Let pytest print one of the red cells of ``terminal`` with equal messages, with the names
    of the others.

    Counts and the short summary keep every cell.
    """
    reports = [
        one
        for one in terminal.getreports("failed")
        if getattr(one, "qbench_suite", {}).get("is_cell")
    ]
    by_line = terminal.config.option.tbstyle == "line"
    groups: dict[str, list[pytest.TestReport]] = {}
    for report in reports:
        groups.setdefault(_message_of(report, by_line=by_line), []).append(report)
    for first, *others in groups.values():
        same = f"the same in {counted(len(others), 'other cell')}" if others else ""
        if by_line:
            message = _sentence_of(first)
            line: Any = OneLine(first.nodeid, f"{message} ({same})" if same else message)
            first.longrepr = line
        elif others:
            names = [one.nodeid.partition("::")[2] for one in others]
            shown = ", ".join(names[:LISTED]) + (
                f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
            )
            first.sections.append((same, shown))
        for one in others:
            setattr(one, "_pdbshown", True)  # noqa: B010 - pytest leaves such reports out of the section, nowhere else
            if _is_error(one):
                one.longrepr = f"the same as of {first.nodeid.partition('::')[2]}"


_OF_ITS_CELL = re.compile(r"  (cause: |[·✓] .* executed in integers by )")
"""Lines of a red cell that name it or its backend, and are not a reason for being red."""


def _message_of(report: pytest.TestReport, *, by_line: bool) -> str:
    """What equal reports have in common: the sentence of an error, of a verdict its message
    without the cell's name.

    With ``by_line`` each verdict has a line of its own.
    """
    if _is_error(report):
        return _sentence_of(report)
    if by_line:
        return report.nodeid
    lines = str(report.longrepr).replace(report.nodeid.partition("::")[2], "").splitlines()
    return "\n".join(line for line in lines if not _OF_ITS_CELL.match(line))


def _sentence_of(report: pytest.TestReport) -> str:
    line: Mapping[str, object] = getattr(report, "qbench", None) or {}
    return str(line["headline"] if _is_error(report) else report.longrepr).partition("\n")[0]


def _is_error(report: pytest.TestReport) -> bool:
    line: Mapping[str, object] = getattr(report, "qbench", None) or {}
    return line.get("outcome") == "error"


def print_summary(
    recorder: Recorder, messages: list[str], terminal: pytest.TerminalReporter
) -> None:
    """Print the matrix of each suite, the red cells, the run file and ``messages``.

    It never raises: it comes after hours of measuring.
    """
    try:
        for run in recorder.runs.values():
            terminal.section(f"qbench {run.header['suite']}", cyan=True)
            _print_run(run, terminal)
        for command in recorder.commands:
            terminal.write_line(command)
        for line in messages:
            write_line(terminal, line)
        for problem in recorder.problems:
            write_line(terminal, f"qbench: {problem}", red=True, bold=True)
    except Exception as error:
        write_line(
            terminal,
            f"qbench: the summary could not be printed ({type(error).__name__}: {error})",
            yellow=True,
        )


def write_line(terminal: pytest.TerminalReporter, line: str, **markup: bool) -> None:
    """Write ``line`` on pytest's terminal, without its control characters.

    All text of qbench outside of reports is written here: names and messages may come from files
        that others made.
    """
    terminal.write_line(neutral_line(line), **markup)


def _print_run(run: OpenRun, terminal: pytest.TerminalReporter) -> None:
    width = terminal.config.get_terminal_writer().fullwidth
    brief = terminal.config.getoption("verbose", 0) < 0
    for line in styled_lines(run.run, width, unicode=_takes_unicode(), brief=brief):
        write_line(terminal, line.text, **PYTEST_MARKUP[line.tone])
    if run.writer is not None:
        where = run.writer.name if run.is_kept else "none (--qbench-history=off)"
        write_line(terminal, f"run file: {where}", light=True)


def _takes_unicode() -> bool:
    """Whether the terminal shows more than ASCII; ``sys.stdout`` is captured by pytest."""
    encoding = getattr(sys.__stdout__, "encoding", None) or "ascii"
    return encoding.lower().startswith("utf")
