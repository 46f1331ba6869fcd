"""The pytest plugin: hooks of a line or two, so that a session without a suite loads almost
nothing.

Only the process that pytest was started in has a ``Controller``, which writes all files.
"""

import os
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qbench.lazy import loaded_whole

if TYPE_CHECKING:
    from qbench.plugin.checks import QbenchCheck
    from qbench.plugin.collecting import MisnamedSuite, SuiteFile
    from qbench.plugin.controller import Controller
    from qbench.plugin.options import JobCommand as JobCommand
    from qbench.plugin.processor_name import session_processor as session_processor
    from qbench.plugin.python_tests import QbenchCell
    from qbench.plugin.suite_run import Progress as Progress
    from qbench.plugin.suite_run import SuiteRun as SuiteRun
    from qbench.plugin.suite_run import run_suite as run_suite


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """The public name of this package, loaded on first use."""
    if name not in _PUBLIC:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)


_PUBLIC = {
    "JobCommand": "options",
    "Progress": "suite_run",
    "SuiteRun": "suite_run",
    "run_suite": "suite_run",
    "session_processor": "processor_name",
}
"""Name → the module of this package that has it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    from qbench.plugin.options import add_options

    add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the hooks that conftest files may implement."""
    from qbench.plugin import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    """Check the options; register the controller in the process that writes files."""
    from qbench.plugin.options import OPTIONS, parse_options

    options = config.stash[OPTIONS] = parse_options(config)
    if options.size_limits is not None:
        from qbench.storage import limits_times

        scope = ExitStack()
        scope.enter_context(limits_times(options.size_limits))
        config.add_cleanup(scope.close)
    config.addinivalue_line(
        "markers",
        "qbench(models, backends, schemas, suite): cells of qbench; on each cell: model, backend, "
        "schema, variant",
    )
    if hasattr(config, "workerinput") and options.resume:
        from qbench.plugin.resuming import CANDIDATES, INPUT

        config.stash[CANDIDATES] = config.workerinput.get(INPUT, {})
    if not hasattr(config, "workerinput"):
        if config.getoption("qbench_job"):
            from qbench.plugin.jobs import check_session_job

            check_session_job(config)
        from qbench.plugin.controller import Controller, JobsElsewhere

        controller = Controller(config, options)
        config.pluginmanager.register(controller, "qbench-controller")
        if options.cluster is not None:
            config.pluginmanager.register(JobsElsewhere(controller), "qbench-jobs-elsewhere")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    """End with another code than 0 where a selected cell has no result, whatever ended the
    session.
    """
    from qbench.plugin.options import GUARDS, RESULT, asks_only, names_suite

    names_cells = names_suite(config) and not asks_only(config)
    with ExitStack() as guards:
        config.stash[GUARDS] = guards
        if names_cells:
            from qbench.plugin.controller import notice_early_end

            notice_early_end(config)
        try:
            code = yield
        except SystemExit as error:  # of a hook after the last cell
            if error.code:
                raise
            code = 0
    if hasattr(config, "workerinput") or code is None:
        return code
    controller: Controller | None = config.pluginmanager.get_plugin("qbench-controller")
    if controller is not None:
        config.stash[RESULT] = int(controller.exit_code(int(code)))
        return config.stash[RESULT]
    # a hook ended it before it was set up
    return pytest.ExitCode.INTERRUPTED if names_cells and not code else code


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, args: list[str]
) -> Generator[None, Any, Any]:
    """Refuse a conftest that ends the process with 0 while it is imported, where a suite is to
    be run; add the suites of a job.

    Keep standard error for lines about long work: this is called before pytest captures it.
    """
    from qbench.plugin.options import ERRORS, SUITE_SUFFIX

    if early_config.known_args_namespace.qbench_job:
        from qbench.plugin.jobs import choose_session_job

        choose_session_job(early_config, args)
    with suppress(OSError):  # closed
        early_config.stash[ERRORS] = kept = os.dup(2)
        early_config.add_cleanup(partial(os.close, kept))
    try:
        return (yield)
    except SystemExit as error:
        if error.code or not any(SUITE_SUFFIX in one for one in args):
            raise
        raise pytest.UsageError(
            "Loading the conftest files: found one that ends the process with 0; expected fixtures "
            "and hooks. Remove its sys.exit(0)."
        ) from error


def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> "SuiteFile | MisnamedSuite | None":
    """Collect suite files; one of another name, where it was named itself, is an error."""
    from qbench.plugin.options import SUITE_SUFFIX, is_misnamed_suite

    if file_path.name.endswith(SUITE_SUFFIX):
        with loaded_whole():
            from qbench.plugin.collecting import SuiteFile
            from qbench.plugin.controller import notice_early_end

        notice_early_end(parent.config)
        return SuiteFile.from_parent(parent, path=file_path)
    if parent.session.isinitpath(file_path) and is_misnamed_suite(file_path, parent.config):
        from qbench.plugin.collecting import MisnamedSuite

        return MisnamedSuite.from_parent(parent, path=file_path)
    return None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize functions that take ``qbench_cell``."""
    if "qbench_cell" in metafunc.fixturenames:
        from qbench.plugin.python_tests import parametrize

        parametrize(metafunc)


@pytest.fixture
def qbench_cell(request: pytest.FixtureRequest) -> "QbenchCell":
    """A cell of the marker ``qbench(models=[…], backends=[…], schemas=[…])``: ``measure()``,
    ``judge()``, ``cell``.
    """
    from qbench.plugin.python_tests import cell_of

    return cell_of(request)


@pytest.fixture
def qbench_check(request: pytest.FixtureRequest) -> "QbenchCheck":
    """``qbench_check("int8.onnx", fp32="net.onnx", data="val.npz")``: measured, judged and
    remembered as the cell of this test.
    """
    from qbench.plugin.checks import check_of

    return check_of(request)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, Any, Any]:
    """Apply ``--qbench-select`` and ``--qbench-shard``; refuse hooks that lose cells in silence."""
    from qbench.plugin.options import OPTIONS

    collected = list(items)
    result = yield
    if len(items) < len(collected):
        from qbench.plugin.controller import refuse_lost_cells

        refuse_lost_cells(config, collected, items)
    if config.stash[OPTIONS].select or config.stash[OPTIONS].shard:
        from qbench.plugin.item_state import deselect_cells

        deselect_cells(config, items)
    return result


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Note the tests that this session leaves out, and those with a check."""
    from qbench.plugin.options import DESELECTED, LEFT_OUT

    for item in items:
        item.config.stash.setdefault(DESELECTED, set()).add(item.nodeid)
        if "qbench_check" in getattr(item, "fixturenames", ()):
            item.config.stash.setdefault(LEFT_OUT, set()).add(item.nodeid)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Count the selected cells: the end of the session needs to know whether the run was whole."""
    if collecting := sys.modules.get("qbench.plugin.collecting"):  # loaded by the first suite
        collecting.count_cells(session.items)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the record of the cell to the report."""
    from qbench.plugin.item_state import ITEM_STATE, attach

    report = yield
    if items := sys.modules.get("qbench.plugin.items"):  # loaded by the first suite
        items.complete_report(item, call, report)
    if ITEM_STATE in item.stash:
        attach(report, item.stash[ITEM_STATE])
    return report


def pytest_report_teststatus(report: pytest.TestReport, config: pytest.Config) -> Any:  # noqa: ANN401
    """Show outcomes that pytest does not know, such as ``quarantined``."""
    if hasattr(report, "qbench"):
        from qbench.plugin.items import status_of

        return status_of(report, verbose=config.get_verbosity() > 0)
    return None
