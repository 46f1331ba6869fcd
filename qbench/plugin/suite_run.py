"""One suite run by pytest inside another program, such as ``qbench run``."""

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from qbench.errors import QbenchError
from qbench.plugin.item_state import collected_suites
from qbench.plugin.items import CellItem, RedCell
from qbench.plugin.options import ANY_NAME, JOB_COMMAND, JobCommand

if TYPE_CHECKING:
    from qbench.plugin.collecting import SuiteFile
    from qbench.plugin.controller import Controller
    from qbench.tracking import Run

_DISABLED_PLUGINS = (
    "terminal",
    "cacheprovider",
    "faulthandler",
    "logging",
    "warnings",
    "unraisableexception",
    "threadexception",
)
"""Plugins of pytest that write to the program's streams or folders, or change the process."""
_PYTEST_VARIABLES = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")
"""Variables that users set for their own pytest."""


class Progress(Protocol):
    """Receives the start and the end of every cell."""

    def begin(self, cell: str) -> None:
        """Measuring ``cell`` starts."""
        ...

    def end(self, line: Mapping[str, Any], *, is_red: bool) -> None:
        """The cell is done; ``line`` is its line of the run file."""
        ...


Listener = Callable[[Sequence[str]], AbstractContextManager[Progress]]
"""Makes the progress of cells ``suite::model::backend+schema[+variant]``; it ends before
anything else is printed.
"""


@dataclass(slots=True)
class SuiteRun:
    """The result of one run.

    Args:
        code: pytest's exit code.
        run: as in its file; None: no cell was measured.
        refused: sentences on why nothing was measured: a wrong option, a suite that cannot be read.
        messages: lines about accepted results and written reports.
        problems: sentences about failed writing, and about rules that nothing needs.
        planned: cells of the suite.
        is_of_jobs: whether jobs elsewhere measured it. missing: the cells that none of them has.
    """

    code: int = int(pytest.ExitCode.INTERNAL_ERROR)
    run: "Run | None" = None
    refused: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    planned: int = 0
    is_of_jobs: bool = False
    missing: list[str] = field(default_factory=list)

    @property
    def is_interrupted(self) -> bool:
        """Whether it was ended by Ctrl-C or SIGTERM."""
        return self.code == pytest.ExitCode.INTERRUPTED and not self.refused

    @property
    def is_empty(self) -> bool:
        """Whether no cell was selected."""
        return self.code == pytest.ExitCode.NO_TESTS_COLLECTED

    @property
    def is_broken(self) -> bool:
        """Whether pytest itself failed; it has printed its traceback."""
        return self.code == pytest.ExitCode.INTERNAL_ERROR


def run_suite(
    suite: Path,
    options: Sequence[str],
    listener: Listener,
    root: Path,
    job_command: JobCommand | None = None,
) -> SuiteRun:
    """Measure and judge the cells of ``suite``.

    Args:
        options: of pytest, ``--qbench-…``.
        root: the folder that relative paths of options start from.
        job_command: what runs one job, where ``options`` say that jobs run elsewhere.
    """
    done = SuiteRun()
    arguments = [
        str(suite),
        f"--rootdir={root}",
        # else pytest would look through every folder above the suite, up to the root of the disk
        f"--confcutdir={suite.parent}",
        "-c",
        os.devnull,
        "--noconftest",
        "--capture=no",
        "--assert=plain",
    ]
    arguments += ["--disable-plugin-autoload", "-p", "qbench.plugin"]
    for name in _DISABLED_PLUGINS:
        arguments += ["-p", f"no:{name}"]
    with _without_environment(), ExitStack() as stack:
        hooks = _RunHooks(done, suite, listener, stack, job_command)
        code = pytest.main([*arguments, *options], plugins=[hooks])
    done.code = int(code)
    return done


@contextlib.contextmanager
def _without_environment() -> Iterator[None]:
    kept = {name: os.environ.pop(name) for name in _PYTEST_VARIABLES if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


class _RunHooks:
    """Hooks that fill ``done`` and report progress."""

    def __init__(
        self,
        done: SuiteRun,
        suite: Path,
        listener: Listener,
        stack: ExitStack,
        job_command: JobCommand | None,
    ) -> None:
        self._done = done
        self._suite = suite
        self._listener = listener
        self._stack = stack
        self._job_command = job_command
        self._progress: Progress | None = None

    @pytest.hookimpl(wrapper=True)
    def pytest_cmdline_main(self) -> Generator[None, Any, Any]:
        """Keep the sentence about a wrong option, which pytest would print."""
        try:
            return (yield)
        except pytest.UsageError as error:
            self._done.refused += map(str, error.args)
            return pytest.ExitCode.USAGE_ERROR

    def pytest_configure(self, config: pytest.Config) -> None:
        """Admit any name of the file."""
        config.stash[ANY_NAME] = True
        if self._job_command is not None:
            config.stash[JOB_COMMAND] = self._job_command

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> "SuiteFile | None":
        """Collect the suite whatever its file name is."""
        from qbench.plugin.collecting import SuiteFile
        from qbench.suite import SUFFIX

        is_named = file_path.name.endswith(SUFFIX)
        return (
            None
            if is_named or file_path != self._suite
            else SuiteFile.from_parent(parent, path=file_path)
        )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep the sentence about a suite that cannot be read."""
        if report.failed:
            self._done.refused.append(str(report.longrepr))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count the cells."""
        self._done.planned = sum(facts.planned for facts in collected_suites(session.config))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Download what the cells need before they start, so that only one progress bar is
        drawn at a time.
        """
        cells = [item.planned for item in session.items if isinstance(item, CellItem)]
        if not cells or session.testsfailed:
            return
        from qbench.subjects import fetch_package, needed_packages

        names = {
            name for one in cells for name in (one.model.id, one.model.data, one.calibration.data)
        }
        names |= {metric.partition("@")[2] for one in cells for metric in one.model.metrics}
        for package in needed_packages(sorted(names)):
            with contextlib.suppress(QbenchError):
                # the cells that need it report it, the others run
                fetch_package(package)
        self._progress = self._stack.enter_context(
            self._listener([f"{one.cell.suite}::{one.cell}" for one in cells])
        )

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Report the start of a cell."""
        if self._progress is not None:
            self._progress.begin(nodeid.partition("::")[2])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Report the end of a cell."""
        line = getattr(report, "qbench", None)
        if line is not None and self._progress is not None:
            from qbench.judging import Outcome

            self._progress.end(line, is_red=Outcome(line["outcome"]).is_red)

    def pytest_exception_interact(self, node: object, call: pytest.CallInfo[object]) -> None:
        """Print the traceback of an error inside qbench; the following cells run."""
        if (
            isinstance(node, pytest.Item)
            and call.excinfo is not None
            and not isinstance(call.excinfo.value, RedCell)
        ):
            traceback.print_exception(call.excinfo.value, file=sys.stderr)

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """Take the run from the controller."""
        self._stack.close()
        controller: Controller | None = config.pluginmanager.get_plugin("qbench-controller")
        if controller is None:
            return
        self._done.messages = controller.messages
        if controller.cluster is not None:
            self._done.is_of_jobs, self._done.missing = True, controller.cluster.missing
        if controller.recorder is not None:
            self._done.problems = controller.recorder.problems
            self._done.run = next((one.run for one in controller.recorder.runs.values()), None)
