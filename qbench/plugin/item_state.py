"""The state of an item that measures a cell, what its reports carry of it, and which collected
cells run.
"""

import os
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qbench.errors import InputError
from qbench.plugin.options import OPTIONS, SUITE_SUFFIX, Options
from qbench.storage import neutral_text

if TYPE_CHECKING:
    from qbench.judging import Cell
    from qbench.plugin.opening import OpenSuite


@dataclass(slots=True)
class SuiteFacts:
    """Facts about a suite in this session, the same for all its items.

    Args:
        suite: its name.
        node: the node id of its file.
        file: its file.
        planned: how many cells it has.
        equivalents: groups of processors, as in its table.
        backends: those of its cells, in the order of the file.
        selected: how many of them this session runs, once collection has finished.
        selection: a digest of which these are; empty: all.
        resumes: the id of the unfinished run that this session goes on with, once a cell has begun.
    """

    suite: str
    node: str
    planned: int
    file: Path
    equivalents: tuple[tuple[str, ...], ...]
    backends: tuple[str, ...] = ()
    selected: int = 0
    selection: str = ""
    resumes: str = ""

    @property
    def plain(self) -> dict[str, Any]:
        """The facts as plain values for a report."""
        return {**asdict(self), "file": str(self.file)}


@dataclass(slots=True)
class ItemState:
    """Of one item: the facts of its suite, whether it is a cell of the suite file, its lines
    and notes of the run; ``previews`` of the samples in its lines; ``check``: the arguments of its
    ``qbench_check``; ``begins``: the axes of a cell that is about to be measured.
    """

    facts: SuiteFacts
    is_cell: bool
    location: tuple[str, int]
    line: dict[str, Any] | None = None
    finding: dict[str, Any] | None = None
    samples: dict[str, Any] | None = None
    previews: tuple[tuple[str, str, dict[str, Any]], ...] = ()
    check: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()
    begins: dict[str, str] | None = None

    def forget(self) -> None:
        """Forget what a run of the item left."""
        self.line, self.finding, self.check, self.notes = None, None, None, ()
        self.samples, self.previews = None, ()


ITEM_STATE = pytest.StashKey[ItemState]()
_SUITES = pytest.StashKey[dict[Path, SuiteFacts]]()


def suite_facts(config: pytest.Config, opened: "OpenSuite") -> SuiteFacts:
    """The facts of the suite ``opened``: one object per session, so that every item reports the
    same counts.
    """
    suite = opened.suite
    path = Path(os.path.normpath(suite.path))
    node = (
        path.relative_to(config.rootpath).as_posix()
        if path.is_relative_to(config.rootpath)
        else str(path)
    )
    used = dict.fromkeys(planned.cell.backend for planned in opened.planned)
    # reports show the cells of other jobs, too, whose backends a job does not know
    listed = (name for name in suite.table.backends if name in used or opened.is_part)
    ordered = dict.fromkeys((*listed, *used))
    facts = SuiteFacts(
        suite.name, node, opened.count, path, suite.table.equivalents, tuple(ordered)
    )
    return config.stash.setdefault(_SUITES, {}).setdefault(path, facts)


def collected_suites(config: pytest.Config) -> tuple[SuiteFacts, ...]:
    """The facts of all suites that this process has collected items of."""
    return tuple(config.stash.get(_SUITES, {}).values())


def attach(report: pytest.TestReport, state: ItemState) -> None:
    """Attach suite, line and finding to ``report``; xdist transports plain attributes.

    A skip is shown at the line of the cell, not at the line of the plugin that raised it.
    """
    facts = state.facts.plain | {"is_cell": state.is_cell}
    setattr(report, "qbench_suite", facts)  # noqa: B010 - reports are open to attributes, their type is not
    if state.begins is not None and report.when == "setup" and report.passed:
        setattr(report, "qbench_begins", state.begins)  # noqa: B010
    if report.when == "call" or (report.when == "setup" and not report.passed):
        found = {
            "qbench": state.line,
            "qbench_finding": state.finding,
            "qbench_samples": state.samples,
            "qbench_previews": state.previews,
            "qbench_check": state.check,
            "qbench_notes": state.notes,
        }
        for name, value in found.items():
            if value:
                setattr(report, name, value)
    if (
        isinstance(report.longrepr, tuple)
        and Path(report.longrepr[0]).parent == Path(__file__).parent
    ):
        report.longrepr = (*state.location, report.longrepr[2])
    report.longrepr, report.sections = _neutral(report.longrepr), _neutral(report.sections)


def _neutral(value: Any) -> Any:  # noqa: ANN401 - texts, pytest's values that hold some, and lists of these
    """``value`` with all of its texts as ``neutral_text`` writes them; pytest's own values are
    changed in place.
    """
    if isinstance(value, str):
        return neutral_text(value)
    if isinstance(value, list | tuple):
        return type(value)(map(_neutral, value))
    if is_dataclass(value):
        for name, held in vars(value).items():
            setattr(value, name, _neutral(held))
    return value


def is_of_dead_worker(report: pytest.TestReport) -> bool:
    """Whether xdist made ``report`` for a cell whose worker died: its ``when`` is none of
    pytest's.
    """
    return f"{SUITE_SUFFIX}::" in report.nodeid and report.when not in ("setup", "call", "teardown")


def check_selection(options: Options) -> None:
    """Check ``--qbench-select`` and ``--qbench-shard`` before anything is collected.

    Raises:
        pytest.UsageError: one of them cannot be read.
    """
    from qbench.suite import Selection, Shard

    try:
        Selection.parse(options.select)
        Shard.parse(options.shard)
    except InputError as error:
        raise pytest.UsageError(str(error)) from error


def deselect_cells(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Remove the cells that are not selected from ``items``; tests that measure no cell stay."""
    from qbench.suite import Selection, Shard

    options = config.stash[OPTIONS]
    selection, shard = Selection.parse(options.select), Shard.parse(options.shard)
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item in items:
        cell = _cell_of(item)
        runs = cell is None or (selection.covers(cell) and shard.holds(cell.model))
        (kept if runs else dropped).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


def _cell_of(item: pytest.Item) -> "Cell | None":
    """The cell that the marker of ``item`` names; its suite does not matter for the selection."""
    from qbench.judging import Cell

    axes = next(
        (mark.kwargs for mark in item.iter_markers("qbench") if "model" in mark.kwargs), None
    )
    return None if axes is None else Cell("any", **axes)
