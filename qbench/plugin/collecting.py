"""*.qbench.toml → file :: model :: cell."""

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pytest

from qbench.errors import InputError, QbenchError, refused_by_system
from qbench.plugin.item_state import SuiteFacts, suite_facts
from qbench.plugin.items import CellItem, cell_marker
from qbench.plugin.opening import OpenSuite, open_suite
from qbench.plugin.options import OPTIONS, SUITE_SUFFIX
from qbench.storage import digest_plain, neutral_text

if TYPE_CHECKING:
    from qbench.suite import PlannedCell


class SuiteFile(pytest.File):
    """One suite; its children are models, and all cells share its ``facts``."""

    opened: OpenSuite
    facts: SuiteFacts

    def collect(self) -> "Iterator[ModelNode]":
        """One node per model.

        Raises:
            QbenchError: the suite or a name in it is wrong.
        """
        self.opened = open_suite(self.path, self.config, self.ihook)
        self.facts = suite_facts(self.config, self.opened)
        self.facts.node = self.nodeid
        if self.config.stash[OPTIONS].cluster is not None:
            return  # its cells run as jobs elsewhere
        for model, planned in groupby(self.opened.planned, key=lambda cell: cell.model.id):
            yield ModelNode.from_parent(self, name=model, planned=tuple(planned))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:  # noqa: ANN401, ARG002
        """One sentence for what is wrong with the suite; a traceback only for errors inside
        qbench.
        """
        if isinstance(excinfo.value, QbenchError):
            return neutral_text(str(excinfo.value))
        if isinstance(excinfo.value, OSError):
            return neutral_text(
                str(refused_by_system(f"Reading the suite '{self.path}'", excinfo.value))
            )
        return super().repr_failure(excinfo)


class MisnamedSuite(pytest.File):
    """A file that holds a suite under another name than suites have."""

    def collect(self) -> Iterator[pytest.Item]:
        """Nothing.

        Raises:
            InputError: always.
        """
        raise InputError(
            f"Collecting '{self.path.name}'",
            found="a suite under this name",
            expected=f"the name of a suite, which ends in {SUITE_SUFFIX}",
            remedy=f"Rename it to '{self.path.stem}{SUITE_SUFFIX}', or give it to 'qbench run'.",
        )

    repr_failure = SuiteFile.repr_failure


class ModelNode(pytest.Collector):
    """One model of a suite: the scope that keeps its cells on one worker under ``--dist
    loadscope``.
    """

    def __init__(self, *, planned: "tuple[PlannedCell, ...]", **kwargs: object) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self._planned = planned

    def collect(self) -> Iterator[CellItem]:
        """One item per cell."""
        suite = self.parent
        assert isinstance(suite, SuiteFile)
        base = pytest.mark.qbench
        for planned in self._planned:
            yield CellItem.from_parent(
                self,
                name=planned.cell.slug,
                planned=planned,
                opened=suite.opened,
                facts=suite.facts,
                marker=cell_marker(planned, base),
            )


def count_cells(items: list[pytest.Item]) -> None:
    """Count in the facts of each suite how many of its cells this session runs, and note which
    where these are not all.
    """
    cells: dict[str, list[str]] = {}
    facts = {}
    for item in items:
        if isinstance(item, CellItem):
            item.facts.selected += 1
            facts[item.facts.node] = item.facts
            cells.setdefault(item.facts.node, []).append(str(item.planned.cell))
    for node, one in facts.items():
        if one.selected != one.planned:
            one.selection = digest_plain(sorted(cells[node]))[:16]
