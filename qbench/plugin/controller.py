"""The process that pytest was started in: it takes the records of all workers, and writes every file there is.

Its heavy half (numpy, tracking, reporting) is loaded at the first record.
"""

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qbench.errors import QbenchError, StoreError
from qbench.lazy import loaded_whole
from qbench.plugin.options import Options
from qbench.plugin.tags import died_in

if TYPE_CHECKING:
    from qbench.plugin.recording import Recorder
    from qbench.tracking import HistoryStore


_STOPPED = (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR)


class Controller:
    """Hooks of the controlling process; ``recorder`` holds its runs, ``said`` what its end has to say."""

    def __init__(self, config: pytest.Config, options: Options) -> None:
        self._config = config
        self._options = options
        self.recorder: Recorder | None = None
        self._crashes: list[str] = []
        self.said: list[str] = []
        self._pace: PaceTeller | None = None
        self._is_guarded = False
        if options.select or options.shard:
            from qbench.plugin.tags import check_selection

            check_selection(options)

    @cached_property
    def _history(self) -> "HistoryStore | Path":
        """Where the runs of this session are kept: the store that a conftest gives, or the history folder."""
        store: HistoryStore | None = self._config.hook.pytest_qbench_history_store(config=self._config)
        return self._options.history if store is None else store

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Refuse to prune by a part of a suite before anything is measured."""
        if self._options.prune and not _distributes(self._config):
            from qbench.plugin.session_end import demand_whole_suites

            demand_whole_suites(session)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Before the first cell: what could not be kept is not measured."""
        if not self._config.option.collectonly and not session.testsfailed and has_cells(session.items):
            check_folders(self._options, self._history)
            self._end_like_interrupted()
            self._tell_pace(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: list[str]) -> None:  # noqa: ARG002
        """The same where workers collect: they have not begun; cells in Python tests do not show in their ids."""
        if any(".qbench.toml::" in node_id for node_id in ids):
            check_folders(self._options, self._history)
            self._end_like_interrupted()
            self._tell_pace(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the record down, whatever comes after it."""
        if not hasattr(report, "qbench_suite") and not died_in(report):
            return
        if self.recorder is None:
            with loaded_whole():
                from qbench.plugin.recording import Recorder

            self.recorder = Recorder(self._config, self._options, self._history)
        self.recorder.receive(report)
        if self._pace is not None and report.when == "call":
            self._pace.finish(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:  # noqa: ANN401 - a type of xdist
        """Remember a worker that died: then nobody can say that the run was whole."""
        if error:
            self._crashes.append(f"worker {node.gateway.id} ended early: {str(error).strip().splitlines()[-1]}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """End the run files, accept, draw reports; what could not be written, or a rule that is idle, is red."""
        if self.recorder is None:
            if self._options.prune:
                self._prune_unmeasured(session, whole=exitstatus == pytest.ExitCode.OK)
            return
        stopped = exitstatus in _STOPPED or bool(session.shouldstop) or bool(session.shouldfail)
        try:
            with loaded_whole():
                from qbench.plugin.session_end import finish

            self.said = finish(self.recorder, session, int(exitstatus), self._crashes, stopped=stopped)
        except KeyboardInterrupt:  # pytest takes none here
            pytest.exit("interrupted while the results were written", returncode=int(pytest.ExitCode.INTERRUPTED))
        if self.recorder.problems and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print what was found, and where it is kept."""
        if self.recorder is not None:
            from qbench.plugin.session_end import print_summary

            print_summary(self.recorder, self.said, terminalreporter)
        elif self.said:
            from qbench.plugin.session_end import write_line

            for line in self.said:
                write_line(terminalreporter, line)

    def _end_like_interrupted(self) -> None:
        """From now on, until pytest ends: what was measured is kept when another program ends this one."""
        if not self._is_guarded:
            from qbench.host import ended_like_interrupted

            self._is_guarded = True
            guard = ExitStack()
            guard.enter_context(ended_like_interrupted())
            self._config.add_cleanup(guard.close)

    def _tell_pace(self, node_ids: Iterable[str]) -> None:
        """Begin to tell how long it will take, where a person is looking."""
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if self._pace is None and terminal is not None and terminal.isatty:
            self._pace = PaceTeller(terminal, node_ids, self._history)

    def _prune_unmeasured(self, session: pytest.Session, *, whole: bool) -> None:
        """``--collect-only --qbench-prune``: the matrix is known, and nothing has to run."""
        from qbench.plugin.session_end import prune
        from qbench.plugin.tags import collected_tags

        if not whole:
            self.said = ["Nothing was pruned: collecting did not end well."]
            return
        try:
            self.said = prune(session, [tag.file for tag in collected_tags(self._config)])
        except QbenchError as error:
            self.said = [f"qbench: {error}"]
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _distributes(config: pytest.Config) -> bool:
    """Whether workers of xdist collect, and not this process."""
    return bool(getattr(config.option, "dist", "no") != "no" and not config.option.collectonly)


# Before the first cell is measured: can what this session is going to write be written?
#
# Nothing is left behind by asking: the file that tries is nameless or gone at once, and no folder is made.


def check_folders(options: Options, history: "HistoryStore | Path") -> None:
    """Refuse to measure what could not be kept.

    Raises:
        pytest.UsageError: a folder this session is going to write cannot be written.
    """
    folders = [("history", history)] if isinstance(history, Path) else []
    if options.writes_baselines:
        folders.append(("baselines", options.baselines))
    if options.report:
        folders.append(("reports", options.reports))
    try:
        for name, folder in folders:
            _try(name, folder)
    except StoreError as error:
        raise pytest.UsageError(str(error)) from error


def has_cells(items: Iterable[pytest.Item]) -> bool:
    """Whether any of ``items`` measures a cell; asked without loading anything."""
    if "qbench.plugin.opening" not in sys.modules:  # loaded by the first suite, whatever names it
        return False
    from qbench.plugin.items import CellItem

    return any(isinstance(item, CellItem) or "qbench_cell" in getattr(item, "fixturenames", ()) for item in items)


def _try(name: str, folder: Path) -> None:
    """Make a file in ``folder``, or in the nearest folder above that is there already.

    Raises:
        StoreError: that fails; nothing was measured yet.
    """
    import tempfile  # not before there is something to write

    there = next(place for place in (folder, *folder.parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            return
    except OSError as error:
        raise StoreError(
            f"Writing the {name} folder '{folder}'",
            found=f"'{there}': {error.strerror or error}",
            expected="a writable folder",
            remedy=f"Nothing was measured. Mend the folder or --qbench-{name}.",
        ) from error


# Now and then, between pytest's own marks, a line that says how long a long run will still take; on terminals only.

EVERY = 60.0
"""Seconds between two lines; a run that is over sooner has none."""

_SUFFIX = ".qbench.toml"


class PaceTeller:
    """Told of every cell that ends; writes to ``terminal``."""

    def __init__(
        self,
        terminal: pytest.TerminalReporter,
        node_ids: Iterable[str],
        history: "HistoryStore | Path",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from qbench.reporting import Pace, last_seconds

        self._terminal = terminal
        self._clock = clock
        self._told = clock()
        self._pace = Pace(filter(None, map(_cell, node_ids)), last_seconds(history), started=self._told)
        left = self._pace.left(self._told)
        if left is not None and left > EVERY:
            self._tell(left)

    def finish(self, node_id: str) -> None:
        """The item ``node_id`` is done."""
        self._pace.finish(_cell(node_id))
        now = self._clock()
        left = self._pace.left(now)
        if now - self._told >= EVERY and left:
            self._told = now
            self._tell(left)

    def _tell(self, left: float) -> None:
        from qbench.reporting import left_text

        if self._pace.count and getattr(self._terminal.config.option, "dist", "no") != "no":
            self._terminal.write_line("")  # xdist's marks leave no trace that ensure_newline could see
        self._terminal.ensure_newline()
        text = f"qbench: {self._pace.count} of {self._pace.total} cells, {left_text(left)}"
        self._terminal.write_line(text, light=True)
        self._terminal.currentfspath = None  # the next mark begins a line, with its file


def _cell(node_id: str) -> str:
    """``suite::model::cell`` of the item of a cell; empty for any other item."""
    path, _, rest = node_id.partition("::")
    return f"{Path(path).name.removesuffix(_SUFFIX)}::{rest}" if path.endswith(_SUFFIX) else ""
