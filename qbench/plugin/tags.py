"""What an item that measures cells carries, what of it travels on its reports, and which collected cells run."""

import os
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qbench.errors import InputError
from qbench.plugin.options import OPTIONS, Options
from qbench.storage import neutral_text

if TYPE_CHECKING:
    from qbench.judging import Cell


@dataclass(slots=True)
class Tag:
    """Facts about a suite in this session, the same for all its items.

    Args:
        suite: its name. node: the node id of its file. file: its file. planned: how many cells it has.
        selected: how many of them this session runs, once collection has finished.
    """

    suite: str
    node: str
    planned: int
    file: Path
    selected: int = 0

    @property
    def plain(self) -> dict[str, Any]:
        """For a report."""
        return {
            "suite": self.suite,
            "node": self.node,
            "planned": self.planned,
            "selected": self.selected,
            "file": str(self.file),
        }


@dataclass(slots=True)
class Tagged:
    """What one item knows: its suite, whether it is a cell of the suite file, and what came of it."""

    tag: Tag
    is_cell: bool
    location: tuple[str, int]
    record: dict[str, Any] | None = field(default=None)
    finding: dict[str, Any] | None = field(default=None)


TAGGED = pytest.StashKey[Tagged]()
_TAGS = pytest.StashKey[dict[Path, Tag]]()


def shared_tag(config: pytest.Config, *, suite: str, planned: int, file: Path) -> Tag:
    """The one tag of ``file`` in this session: whichever of its items reports first, it says how many are selected."""
    path = Path(os.path.normpath(file))
    node = path.relative_to(config.rootpath).as_posix() if path.is_relative_to(config.rootpath) else str(path)
    return config.stash.setdefault(_TAGS, {}).setdefault(path, Tag(suite, node, planned, path))


def collected_tags(config: pytest.Config) -> tuple[Tag, ...]:
    """The tags of all suites that this process has collected items of."""
    return tuple(config.stash.get(_TAGS, {}).values())


def attach(report: pytest.TestReport, tagged: Tagged) -> None:
    """Put suite and record on ``report``; xdist carries plain attributes as they are.

    A skip of ours is shown where the cell is written, not where the plugin raised it.
    """
    facts = tagged.tag.plain | {"is_cell": tagged.is_cell}
    setattr(report, "qbench_suite", facts)  # noqa: B010 - reports are open to attributes, their type is not
    if report.when == "call" and tagged.record is not None:
        setattr(report, "qbench", tagged.record)  # noqa: B010
    if report.when == "call" and tagged.finding is not None:
        setattr(report, "qbench_finding", tagged.finding)  # noqa: B010
    if isinstance(report.longrepr, tuple) and Path(report.longrepr[0]).parent == Path(__file__).parent:
        report.longrepr = (*tagged.location, report.longrepr[2])
    report.longrepr, report.sections = _neutral(report.longrepr), _neutral(report.sections)


def _neutral(value: Any) -> Any:  # noqa: ANN401 - texts, pytest's values that hold some, and lists of these
    """``value`` with all of its texts as ``neutral_text`` writes them; pytest's own values are changed in place."""
    if isinstance(value, str):
        return neutral_text(value)
    if isinstance(value, list | tuple):
        return type(value)(map(_neutral, value))
    if is_dataclass(value):
        for name, held in vars(value).items():
            setattr(value, name, _neutral(held))
    return value


def died_in(report: pytest.TestReport) -> bool:
    """Whether xdist made ``report`` up for a cell whose worker died; its ``when`` is none of pytest's."""
    return ".qbench.toml::" in report.nodeid and report.when not in ("setup", "call", "teardown")


# ``--qbench-select`` and ``--qbench-shard``: which of the collected cells run.


def check_selection(options: Options) -> None:
    """Refuse an expression or a share that cannot be read before anything is collected.

    Raises:
        pytest.UsageError: it cannot.
    """
    from qbench.suite import Selection, Shard

    try:
        Selection.parse(options.select)
        Shard.parse(options.shard)
    except InputError as error:
        raise pytest.UsageError(str(error)) from error


def deselect_cells(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the cells that are not selected out of ``items``; tests that measure no cell stay."""
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
    """The cell that ``item``'s marker names; its suite plays no part here."""
    from qbench.judging import Cell

    axes = next((mark.kwargs for mark in item.iter_markers("qbench") if "model" in mark.kwargs), None)
    return None if axes is None else Cell("any", **axes)
