"""Cells in Python tests: the marker and the qbench_cell fixture."""

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qbench.errors import InputError, QbenchError, nearest, unknown_name
from qbench.plugin.item_state import ITEM_STATE, ItemState, SuiteFacts, suite_facts
from qbench.plugin.items import cell_marker, item_location, judged_cell
from qbench.plugin.opening import OpenSuite, forced_by_options, open_suite
from qbench.plugin.options import OPTIONS

if TYPE_CHECKING:
    from qbench.judging import Cell, Measurement, Verdict
    from qbench.suite import JudgedCell, ModelTable, PlannedCell

LISTS = ("models", "backends", "schemas")
_OPENED = pytest.StashKey[dict[tuple[Path, tuple[str, ...]], tuple[OpenSuite, SuiteFacts]]]()


class QbenchCell:
    """One cell, for a test with assertions of its own; ``cell`` holds its axes."""

    def __init__(self, opened: OpenSuite, planned: "PlannedCell", item: pytest.Item) -> None:
        self._opened = opened
        self._planned = planned
        self._item = item

    @property
    def cell(self) -> "Cell":
        """Model, backend, schema and variant."""
        return self._planned.cell

    def measure(self) -> "Measurement":
        """The numbers of the cell, which runs once per test. An unsupported cell skips the test
        with its reason.
        """
        measurement = self._judged.measurement
        assert measurement is not None
        return measurement

    def judge(self) -> "Verdict":
        """The verdict under the rules of the suite; the test decides what to assert about it."""
        return self._judged.verdict

    @cached_property
    def _judged(self) -> "JudgedCell":
        """Measured and judged together, so that the line is complete whatever the test asks for."""
        from qbench.judging import Outcome

        judged = judged_cell(self._item, self._opened, self._planned)
        if judged.measurement is None:
            if judged.verdict.outcome is Outcome.UNSUPPORTED:
                pytest.skip(judged.verdict.headline)
            pytest.fail(judged.verdict.headline, pytrace=False)
        return judged


def cell_of(request: pytest.FixtureRequest) -> QbenchCell:
    """The fixture's value: the cell that parametrization put into ``request``.

    Raises:
        pytest.fail.Exception: the test has no marker that names cells.
    """
    if not hasattr(request, "param"):
        pytest.fail(
            f"Preparing qbench_cell for '{request.node.nodeid}': found no marker; expected "
            "@pytest.mark.qbench(models=[…], backends=[…], schemas=[…]). Add it.",
            pytrace=False,
        )
    opened, facts, planned = request.param
    item: pytest.Item = request.node
    item.stash[ITEM_STATE] = ItemState(facts, is_cell=False, location=item_location(item))
    return QbenchCell(opened, planned, item)


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Parametrize the test with the cells of its marker.

    Raises:
        pytest.Collector.CollectError: an unknown argument or name, or no suite to take data from.
    """
    marker = metafunc.definition.get_closest_marker("qbench")
    if marker is None:
        return
    try:
        opened, facts = _opened(metafunc, marker)
    except QbenchError as error:
        raise pytest.Collector.CollectError(str(error)) from error
    metafunc.parametrize(
        "qbench_cell",
        [
            pytest.param(
                (opened, facts, planned),
                id=f"{planned.cell.model}-{planned.cell.slug}",
                marks=cell_marker(planned, pytest.mark.qbench),
            )
            for planned in opened.planned
        ],
        indirect=True,
    )


def _opened(metafunc: pytest.Metafunc, marker: pytest.Mark) -> tuple[OpenSuite, SuiteFacts]:
    """The suite that ``marker`` names, cut to its lists; equal markers share one bench."""
    doing = f"Reading the qbench marker of '{metafunc.definition.nodeid}'"
    lists = _lists(doing, marker)
    path = _suite_path(doing, marker, metafunc.config)
    known = metafunc.config.stash.setdefault(_OPENED, {})
    key = (path, tuple(f"{name}={value}" for name, value in lists.items()))
    if key not in known:
        full = open_suite(path, metafunc.config, metafunc.definition.ihook, whole=True)
        known[key] = _cut(doing, full, lists), suite_facts(metafunc.config, full)
    return known[key]


def _lists(doing: str, marker: pytest.Mark) -> dict[str, tuple[str, ...]]:
    for name in marker.kwargs:
        if name not in (*LISTS, "suite"):
            close = nearest(name, LISTS)
            raise InputError(
                doing,
                found=f"an unknown argument '{name}'",
                expected=f"{', '.join(LISTS)} or suite",
                remedy=f"Did you mean '{close}'?" if close else "Remove it.",
            )
    if marker.args:
        raise InputError(
            doing, found="an argument without a name", expected="models=[…]", remedy="Name it."
        )
    lists = {}
    for name in LISTS:
        value = marker.kwargs.get(name)
        if value is not None and (
            isinstance(value, str) or not all(isinstance(v, str) for v in value)
        ):
            raise InputError(
                doing,
                found=f"{name}={value!r}",
                expected="a list of names",
                remedy="Put it in a list.",
            )
        if value is not None:
            lists[name] = tuple(value)
    return lists


def _suite_path(doing: str, marker: pytest.Mark, config: pytest.Config) -> Path:
    named = marker.kwargs.get("suite") or config.stash[OPTIONS].suite
    if not named:
        raise InputError(
            doing,
            found="no suite",
            expected="one that gives the models their data and metrics",
            remedy="Add suite='suites/….qbench.toml', or set qbench_suite in the ini file.",
        )
    return config.rootpath / named


def _cut(doing: str, full: OpenSuite, lists: dict[str, tuple[str, ...]]) -> OpenSuite:
    """``full`` with only the listed models, backends and schemas; the tolerances stay those of
    the suite.
    """
    from qbench.judging import FP32
    from qbench.suite import expand

    tables = {table.id: table for table in full.suite.models}
    for name in lists.get("models", ()):
        if name not in tables:
            raise unknown_name(f"{doing}, suite '{full.suite.name}'", "model", name, tables)
    chosen = tuple(_narrowed(tables[name], lists) for name in lists.get("models", tuple(tables)))
    fp32 = FP32 in lists["schemas"] if "schemas" in lists else full.suite.table.fp32
    suite = replace(full.suite, table=replace(full.suite.table, fp32=fp32), models=chosen)
    planned = expand(suite, full.catalogues, whole=False)
    forced, notes = forced_by_options(planned, suite, full.config)
    return OpenSuite(suite, full.catalogues, forced, full.config, full.shown_path, notes=notes)


def _narrowed(table: "ModelTable", lists: dict[str, tuple[str, ...]]) -> "ModelTable":
    from qbench.judging import FP32, GIVEN, RECORDED

    idle = (FP32, RECORDED) if table.came_quantized else (FP32, GIVEN, RECORDED)
    schemas = (
        tuple(name for name in lists["schemas"] if name not in idle)
        if "schemas" in lists
        else table.schemas
    )
    variants = {} if lists else table.variants
    return replace(
        table, backends=lists.get("backends", table.backends), schemas=schemas, variants=variants
    )
