"""The process that pytest was started in: it receives the records of all workers and writes all
files.

The modules that need numpy (recording, session_end) are loaded at the first record.
"""

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qbench.errors import QbenchError, StoreError, UnavailableError
from qbench.lazy import loaded_whole
from qbench.plugin.item_state import collected_suites, is_of_dead_worker
from qbench.plugin.jobs import JOB
from qbench.plugin.options import (
    DESELECTED,
    ERRORS,
    GUARDS,
    RESULT,
    SUITE_SUFFIX,
    Options,
    asks_only,
    history_place,
    names_suite,
)
from qbench.working import Step, telling, working

if TYPE_CHECKING:
    from qbench.plugin.cluster import ClusterRun
    from qbench.plugin.recording import Recorder
    from qbench.tracking import HistoryStore


_STOPPED = (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR)


class Controller:
    """Hooks of the controlling process; ``recorder`` holds its runs, ``messages`` lines for the
    end of the session.
    """

    def __init__(self, config: pytest.Config, options: Options) -> None:
        self._config = config
        self._options = options
        self.recorder: Recorder | None = None
        self.cluster: ClusterRun | None = None
        self._crashes: list[str] = []
        self.messages: list[str] = []
        self._pace: PaceReporter | None = None
        self._step: Step | None = None
        self._running: dict[str, None] = {}
        self._is_guarded = False
        self._has_begun = False
        self._has_asked = False
        self._was_ended = False
        self._selected: Counter[str] = Counter()
        if options.select or options.shard:
            from qbench.plugin.item_state import check_selection

            check_selection(options)

    @cached_property
    def _history(self) -> "HistoryStore | Path":
        """Where the runs of this session are kept."""
        place = history_place(self._config)
        if self._options.keeps_history:
            return place
        from qbench.tracking import UnkeptStore, store_of

        return UnkeptStore(store_of(place))

    @cached_property
    def _resumable(self) -> dict[str, list[list[str]]]:
        """The unfinished runs that this session may resume."""
        from qbench.plugin.resuming import find_candidates
        from qbench.tracking import store_of

        return find_candidates(self._config, store_of(self._history))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:  # noqa: ANN401 - a type of xdist
        """Tell a worker which runs may be resumed."""
        if self._options.resume:
            from qbench.plugin.resuming import INPUT

            node.workerinput[INPUT] = self._resumable

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Refuse to prune when only a part of a suite is selected, before anything is measured."""
        if self._options.prune and not _distributes(self._config):
            from qbench.plugin.session_end import demand_whole_suites

            demand_whole_suites(session)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Check the folders before the first cell: results that cannot be stored are not
        measured.
        """
        self._has_begun = True
        if (
            not self._config.option.collectonly
            and not session.testsfailed
            and has_cells(session.items)
        ):
            self._check_folders()
            self._handle_sigterm()
            notice_early_end(self._config)
            if self._options.resume:
                from qbench.plugin.resuming import CANDIDATES

                self._config.stash[CANDIDATES] = self._resumable
            self._expect([item.nodeid for item in session.items])

    def run_on_cluster(self, session: pytest.Session) -> None:
        """Run the collected suites as jobs elsewhere."""
        if not collected_suites(self._config) or asks_only(self._config):
            return
        check_folders(self._options, self._history)
        self._handle_sigterm()
        with loaded_whole():
            from qbench.plugin.cluster import refuse_with_cluster, run_on_cluster

        refuse_with_cluster(self._config, self._options)
        self.recorder, self.cluster = run_on_cluster(session, self._history)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: list[str]) -> None:  # noqa: ARG002
        """The same where workers collect; ids do not show the cells of Python tests."""
        if any(f"{SUITE_SUFFIX}::" in node_id for node_id in ids):
            self._check_folders()
            self._handle_sigterm()
            self._expect(ids)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, None, None]:
        """Write the record before anybody says how its cell ended: no end of this process loses
        what was shown.
        """
        if not hasattr(report, "qbench_suite") and not is_of_dead_worker(report):
            yield
            return
        if self.recorder is None:
            with loaded_whole():
                from qbench.plugin.recording import Recorder

            self.recorder = Recorder(self._config, self._options, self._history)
        self.recorder.receive(report)
        yield
        self.recorder.notice_hidden(report)
        if self._pace is not None and hasattr(report, "qbench"):
            self._pace.finish(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:  # noqa: ANN401 - a type of xdist
        """Remember a worker that died: the run is then not complete."""
        if error:
            self._crashes.append(
                f"worker {node.gateway.id} ended early: {str(error).strip().splitlines()[-1]}"
            )

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Close the run files, accept, write reports; fail if writing failed or a rule matched
        nothing.
        """
        if self.recorder is None:
            if self._options.prune:
                self._prune_unmeasured(session, whole=exitstatus == pytest.ExitCode.OK)
            return
        try:
            with loaded_whole():
                from qbench.plugin.session_end import finish, fold_failures

            # -x at the last cell stops nothing; xdist ends such a session as if it had been
            # interrupted
            ends_early = bool(session.shouldstop or session.shouldfail)
            stopped = self.recorder.lacks_cells if ends_early else exitstatus in _STOPPED

            self.messages = finish(
                self.recorder, session, int(exitstatus), self._crashes, stopped=stopped
            )
            self.messages += [] if self.cluster is None else self.cluster.messages
        except KeyboardInterrupt:  # pytest does not catch it in this hook
            pytest.exit(
                "interrupted while the results were written",
                returncode=int(pytest.ExitCode.INTERRUPTED),
            )
        if self.cluster is not None and self.cluster.missing:
            session.exitstatus = pytest.ExitCode.INTERRUPTED
        elif self.recorder.problems and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif session.exitstatus == pytest.ExitCode.OK and not self.recorder.is_whole:
            session.exitstatus = pytest.ExitCode.INTERRUPTED
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            fold_failures(terminal)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the summary and where the results are stored."""
        if self.recorder is not None:
            from qbench.plugin.session_end import print_summary

            print_summary(self.recorder, self.messages, terminalreporter)
        elif self.messages:
            from qbench.plugin.session_end import write_line

            for line in self.messages:
                write_line(terminalreporter, line)

    def _check_folders(self) -> None:
        """Check what is written, and say at once where the store of the history does not answer:
        the cells are measured all the same.
        """
        check_folders(self._options, self._history)
        if isinstance(self._options.history, Path) or self._has_asked:
            return
        self._has_asked = True
        from qbench.tracking import ObjectStore

        store = self._history
        if not isinstance(store, ObjectStore):
            return
        try:
            store.require_open()
        except UnavailableError as error:
            raise pytest.UsageError(str(error)) from error
        if store.outage is not None:
            text = f"qbench: {store.outage} Runs are kept in '{store.spool}' until it answers."
            terminal = self._config.pluginmanager.get_plugin("terminalreporter")
            if terminal is None:
                sys.stderr.write(f"{text}\n")
            else:
                terminal.ensure_newline()
                terminal.write_line(text)

    def _handle_sigterm(self) -> None:
        """Handle SIGTERM like Ctrl-C until pytest ends, so that measured cells are kept."""
        if not self._is_guarded:
            from qbench.host import ended_like_interrupted

            self._is_guarded = True
            guard = ExitStack()
            guard.enter_context(ended_like_interrupted())
            self._config.add_cleanup(guard.close)

    def pytest_keyboard_interrupt(self) -> None:
        """Remember that an interrupt or ``pytest.exit`` ended the session."""
        self._was_ended = True

    def exit_code(self, code: int) -> int:
        """``code`` of pytest, unless it is 0 although a selected cell has no result or a red one.

        A hook, a loader or an engine can end the session with the code 0: ``pytest.exit("…",
            returncode=0)``.
        """
        if code == pytest.ExitCode.NO_TESTS_COLLECTED and self._has_empty_job:
            return int(pytest.ExitCode.OK)
        if code or asks_only(self._config):
            return code
        runs = [] if self.recorder is None else list(self.recorder.runs.values())
        finished = {run.facts["node"]: len(run.finished) for run in runs}
        lacking = sum(
            max(count - finished.get(node, 0), 0) for node, count in self._selected.items()
        )
        about_suites = bool(collected_suites(self._config)) or names_suite(self._config)
        if lacking or (about_suites and (self._was_ended or not self._has_begun)):
            what = (
                f"{lacking} of {self._selected.total()} selected cells were not run"
                if lacking
                else "no cell was run"
            )
            sys.stderr.write(f"qbench: the session ended early: {what}\n")
            return int(pytest.ExitCode.INTERRUPTED)
        if self.recorder is not None and (
            self.recorder.problems or any(run.has_red for run in runs)
        ):
            return int(pytest.ExitCode.TESTS_FAILED)
        return code

    @property
    def _has_empty_job(self) -> bool:
        """Whether the plan gives no cell to the job of this session: there are fewer units than
        jobs.
        """
        choice = self._config.stash.get(JOB, None)
        return choice is not None and not choice.job.units

    def _expect(self, node_ids: Sequence[str]) -> None:
        """Remember which cells this session is to run, and start to print the remaining time."""
        self._selected = Counter(
            one.partition("::")[0] for one in node_ids if f"{SUITE_SUFFIX}::" in one
        )
        self._start_pace(node_ids)
        self._start_telling(len(node_ids))

    def _start_telling(self, count: int) -> None:
        """Start to tell a log every 30 s which cells run, and how many are done; workers tell
        nothing.
        """
        if self._step is not None:
            return
        from qbench.storage import neutral_line

        stack = ExitStack()
        self._config.add_cleanup(stack.close)
        stream = self._config.stash.get(ERRORS, 2)
        if not os.isatty(stream):
            stack.enter_context(
                telling(lambda line: os.write(stream, f"{neutral_line(line)}\n".encode()))
            )
        self._step = stack.enter_context(working(_RUNNING, count, "tests"))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note what runs, here or in a worker."""
        self._running[nodeid] = None
        self._name_running()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Note that it is done."""
        self._running.pop(nodeid, None)
        if self._step is not None:
            self._step.done += 1
        self._name_running()

    def _name_running(self) -> None:
        if self._step is not None:
            self._step.what = running_words(self._running)

    def _start_pace(self, node_ids: Iterable[str]) -> None:
        """Start to print the remaining time, on terminals only."""
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if self._pace is None and terminal is not None and terminal.isatty:
            self._pace = PaceReporter(terminal, node_ids, self._history)

    def _prune_unmeasured(self, session: pytest.Session, *, whole: bool) -> None:
        """Prune in ``--collect-only --qbench-prune``: the cells are known without running any."""
        from qbench.plugin.session_end import prune

        if not whole:
            self.messages = ["Nothing was pruned: the collection failed."]
            return
        try:
            self.messages = prune(session, [facts.file for facts in collected_suites(self._config)])
        except QbenchError as error:
            self.messages = [f"qbench: {error}"]
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


class JobsElsewhere:
    """The hook that runs suites as jobs elsewhere, once the other tests have run here."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, bool, bool]:
        """Run the jobs; a wrapper, because pytest's own loop takes red cells for errors of the
        collection.
        """
        result = yield
        self._controller.run_on_cluster(session)
        return result


def notice_early_end(config: pytest.Config) -> None:
    """From here to the end of the session, an engine or a hook cannot end the process with 0; a
    worker may end.
    """
    from qbench.host import early_end_noticed

    guards = config.stash.get(GUARDS, None)
    if guards is None or hasattr(config, "workerinput") or config.stash.get(_IS_GUARDED, False):
        return
    config.stash[_IS_GUARDED] = True

    def say(sentence: str) -> None:
        capture = config.pluginmanager.getplugin("capturemanager")
        if capture is not None:
            # else the sentence ends with the process, in a stream that pytest reads
            capture.suspend_global_capture(in_=True)
        os.write(2, f"\nqbench: {sentence}; the run is not whole\n".encode())

    is_program = Path(sys.argv[0]).name in _PROGRAMS
    guards.enter_context(
        early_end_noticed(say, (lambda: config.stash.get(RESULT, 0)) if is_program else None)
    )


_IS_GUARDED = pytest.StashKey[bool]()
_PROGRAMS = ("pytest", "py.test", "__main__.py")
"""Names by which pytest itself is started; a program that calls it has an end of its own."""


def _distributes(config: pytest.Config) -> bool:
    """Whether workers of xdist collect instead of this process."""
    return bool(getattr(config.option, "dist", "no") != "no" and not config.option.collectonly)


def check_folders(options: Options, history: "HistoryStore | Path") -> None:
    """Check before the first cell that the folders of this session can be written; this creates
    no file or folder.

    Raises:
        pytest.UsageError: a folder cannot be written.
    """
    folders = [("history", history)] if isinstance(history, Path) else []
    if options.writes_baselines:
        folders.append(("baselines", options.baselines))
    if options.report:
        folders.append(("reports", options.reports))
    try:
        for name, folder in folders:
            _check_writable(name, folder)
    except StoreError as error:
        raise pytest.UsageError(str(error)) from error


def has_cells(items: Iterable[pytest.Item]) -> bool:
    """Whether any of ``items`` measures a cell; loads nothing when no suite was collected."""
    return next(_measuring(items), None) is not None


def refuse_lost_cells(
    config: pytest.Config, collected: Iterable[pytest.Item], kept: Iterable[pytest.Item]
) -> None:
    """Make it an error of the collection that a hook took cells out of the collected tests and
    did not report them as deselected; which hook, pytest does not tell.
    """
    deselected = config.stash.setdefault(DESELECTED, set())
    known = deselected.union(one.nodeid for one in kept)
    lost = [one.nodeid for one in _measuring(collected) if one.nodeid not in known]
    if not lost:
        return
    more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
    sentence = (
        "Selecting the tests to run: found a hook 'pytest_collection_modifyitems' that removes "
        f"{lost[0]}{more} without reporting it; expected that what is not run is said. Call "
        "config.hook.pytest_deselected(items=…) with them in that hook, or leave the cells out of "
        "the suite."
    )
    config.hook.pytest_collectreport(
        report=pytest.CollectReport(lost[0].partition("::")[0], "failed", sentence, [])
    )


def _measuring(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Those of ``items`` that measure a cell."""
    # loaded by the first suite, also by that of a Python test
    has_suites = "qbench.plugin.opening" in sys.modules
    for item in items:
        names = getattr(item, "fixturenames", ())
        if "qbench_check" in names or (has_suites and _is_of_suite(item, names)):
            yield item


def _is_of_suite(item: pytest.Item, names: Sequence[str]) -> bool:
    from qbench.plugin.items import CellItem

    return isinstance(item, CellItem) or "qbench_cell" in names


def _check_writable(name: str, folder: Path) -> None:
    """Create a temporary file in ``folder``, or in the nearest folder above it that exists.

    Raises:
        StoreError: that fails.
    """
    import tempfile  # slow to import, and not needed in most sessions

    existing = next(one for one in (folder, *folder.parents) if one.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            return
    except OSError as error:
        raise StoreError(
            f"Writing the {name} folder '{folder}'",
            found=f"'{existing}': {error.strerror or error}",
            expected="a writable folder",
            remedy=f"Nothing was measured. Correct the folder or --qbench-{name}.",
        ) from error


_NAMED = 4
"""Cells that run at the same time in workers and are named in a line."""
_RUNNING = "running the cells"
INTERVAL = 60.0
"""Seconds between two lines about the remaining time; a shorter run prints none."""


def running_words(node_ids: Collection[str]) -> str:
    """``running m::ort-cpu+w8a8, …``: which tests run; between two of them, and behind the last,
    none does.
    """
    if not node_ids:
        return _RUNNING
    first = ", ".join(one.partition("::")[2] or one for one in islice(node_ids, _NAMED))
    more = len(node_ids) - _NAMED
    return f"running {first}" + (f" and {more} more" if more > 0 else "")


class PaceReporter:
    """Prints the remaining time of a long run to ``terminal``, between the marks of pytest."""

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
        self._last_line = clock()
        self._pace = Pace(
            filter(None, map(_cell, node_ids)), last_seconds(history), started=self._last_line
        )
        left = self._pace.left(self._last_line)
        if left is not None and left > INTERVAL:
            self._print(left)

    def finish(self, node_id: str) -> None:
        """The item ``node_id`` is done."""
        self._pace.finish(_cell(node_id))
        now = self._clock()
        left = self._pace.left(now)
        if now - self._last_line >= INTERVAL and left:
            self._last_line = now
            self._print(left)

    def _print(self, left: float) -> None:
        from qbench.working import left_text

        if self._pace.count and getattr(self._terminal.config.option, "dist", "no") != "no":
            # ensure_newline does not know of the marks that xdist wrote
            self._terminal.write_line("")
        self._terminal.ensure_newline()
        text = f"qbench: {self._pace.count} of {self._pace.total} cells, {left_text(left)}"
        self._terminal.write_line(text, light=True)
        self._terminal.currentfspath = None  # the next mark begins a line, with its file


def _cell(node_id: str) -> str:
    """``suite::model::cell`` of the item of a cell; empty for any other item."""
    path, _, rest = node_id.partition("::")
    return (
        f"{Path(path).name.removesuffix(SUITE_SUFFIX)}::{rest}"
        if path.endswith(SUITE_SUFFIX)
        else ""
    )
