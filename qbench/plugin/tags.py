"""What an item that measures cells carries, and what of it travels on its reports, as plain values."""

import os
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from qbench.storage import neutral_text


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
