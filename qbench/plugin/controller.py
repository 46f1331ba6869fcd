"""The process that pytest was started in: it takes the records of all workers, and writes every file there is.

Its heavy half (numpy, tracking, reporting) is loaded at the first record.
"""

from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from qbench.errors import QbenchError
from qbench.lazy import loaded_whole
from qbench.plugin.options import Options
from qbench.plugin.tags import died_in

if TYPE_CHECKING:
    from qbench.plugin.pacing import PaceTeller
    from qbench.plugin.recording import Recorder

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
            from qbench.plugin.selecting import check_selection

            check_selection(options)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Refuse to prune by a part of a suite before anything is measured."""
        if self._options.prune and not _distributes(self._config):
            from qbench.plugin.pruning import demand_whole_suites

            demand_whole_suites(session)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Before the first cell: what could not be kept is not measured."""
        from qbench.plugin.foresight import check_folders, has_cells

        if not self._config.option.collectonly and not session.testsfailed and has_cells(session.items):
            check_folders(self._options)
            self._end_like_interrupted()
            self._tell_pace(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: list[str]) -> None:  # noqa: ARG002
        """The same where workers collect: they have not begun; cells in Python tests do not show in their ids."""
        if any(".qbench.toml::" in node_id for node_id in ids):
            from qbench.plugin.foresight import check_folders

            check_folders(self._options)
            self._end_like_interrupted()
            self._tell_pace(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the record down, whatever comes after it."""
        if not hasattr(report, "qbench_suite") and not died_in(report):
            return
        if self.recorder is None:
            with loaded_whole():
                from qbench.plugin.recording import Recorder

            self.recorder = Recorder(self._config, self._options)
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
                from qbench.plugin.ending import finish

            self.said = finish(self.recorder, session, int(exitstatus), self._crashes, stopped=stopped)
        except KeyboardInterrupt:  # pytest takes none here
            pytest.exit("interrupted while the results were written", returncode=int(pytest.ExitCode.INTERRUPTED))
        if self.recorder.problems and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print what was found, and where it is kept."""
        if self.recorder is not None:
            from qbench.plugin.summary import print_summary

            print_summary(self.recorder, self.said, terminalreporter)
        elif self.said:
            from qbench.plugin.summary import write_line

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
            from qbench.plugin.pacing import PaceTeller

            self._pace = PaceTeller(terminal, node_ids, self._options.history)

    def _prune_unmeasured(self, session: pytest.Session, *, whole: bool) -> None:
        """``--collect-only --qbench-prune``: the matrix is known, and nothing has to run."""
        from qbench.plugin.pruning import prune
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
