"""The cells of the runs of a report, the history of each of them, and what each cost."""

import operator
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from functools import cached_property
from typing import Any, NamedTuple

from qbench.judging import Cell
from qbench.reporting.columns import READ
from qbench.reporting.trends import Cost, cost_of
from qbench.reporting.view import Cells, CellView, RunView, read_cell, shown_cell
from qbench.tracking import AXES, CellRecord, Run

# A month of nights of a large suite has half a million records, of which most repeat the one of the
# night before: what is done for each of them is done here and in ``tracking.repeated_lines``.

Axes = tuple[str, str, str, str, str]
"""Suite, model, backend, schema and variant of a record: a key that is found faster than a cell."""
axes_of: Callable[[CellRecord], Axes] = operator.attrgetter(*AXES)


_SHOWN = tuple(
    name
    for name in READ
    if name not in ("suite", "model", "backend", "schema", "variant", "seconds")
)
"""The fields of a record that a report shows of every run; the seconds are shown of the newest
run alone.
"""


class Past(NamedTuple):
    """The cells of each of several runs, how many of them are red, the history of each cell, and
    its records.
    """

    cells: tuple[Cells, ...]
    red: tuple[int, ...]
    histories: "Histories"
    records: "Records"


def read_cells(runs: Sequence[Run]) -> Past:
    """The cells of ``runs``. Of a cell that a run measured twice the later line counts.

    Most int8 results never change, so a history of months mostly repeats its lines: a line equal to
    that of the run before is read once.
    """
    known: dict[Axes, _Known] = {}
    histories: dict[Cell, list[CellView | None]] = {}
    records: dict[Cell, list[CellRecord | None]] = {}
    red: dict[int, bool] = {}
    found: list[_RunCells] = []
    for place, run in enumerate(runs):
        views: list[CellView] = []
        is_newest, is_twice = run is runs[-1], False
        for record in run.cells:
            axes, shown = axes_of(record), _shown_fields(record)
            before = known.get(axes)
            if before is None or is_newest or before[0] != shown:
                view = read_cell(record)
                history = histories.setdefault(view.key, [None] * len(runs))
                measured = records.setdefault(view.key, [None] * len(runs))
                before = known[axes] = shown, view, history, measured
                red[id(view)] = view.is_red
            _, view, history, measured = before
            is_twice = is_twice or history[place] is not None
            history[place] = view
            if record.carried is None:
                measured[place] = record
            views.append(view)
        found.append(_RunCells({view.key: view for view in views}.values() if is_twice else views))
    return Past(
        cells=tuple(found),
        red=tuple(sum(map(red.__getitem__, map(id, cells.views))) for cells in found),
        histories=histories,
        records=records,
    )


_Known = tuple[tuple[Any, ...], CellView, list[CellView | None], list[CellRecord | None]]
"""What a line of a cell shows, its view, and what the cell has in each run."""


class _RunCells(Mapping[Cell, CellView]):
    """The cells of one run, of which ``views`` has each once. A report looks for cells in few of
    its runs: the table is made when one is looked for.
    """

    def __init__(self, views: Iterable[CellView]) -> None:
        self.views = tuple(views)

    @cached_property
    def _table(self) -> dict[Cell, CellView]:
        return {view.key: view for view in self.views}

    def __getitem__(self, key: Cell) -> CellView:
        return self._table[key]

    def __iter__(self) -> Iterator[Cell]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self.views)

    def items(self) -> ItemsView[Cell, CellView]:
        return self._table.items()

    def values(self) -> ValuesView[CellView]:
        return self._table.values()


def views_of(records: Sequence[CellRecord], known: Cells) -> dict[Cell, CellView]:
    """The views of ``records`` by their cells: of ``known`` ones those whose records are equal."""
    found = {}
    for record in records:
        view = known.get(shown_cell(record))
        if view is None or _shown_fields(view.record) != _shown_fields(record):
            view = read_cell(record)
        found[view.key] = view
    return found


_shown_fields: Callable[[CellRecord], tuple[Any, ...]] = operator.attrgetter(*_SHOWN)


Histories = Mapping[Cell, Sequence[CellView | None]]
"""Cell → its view in each run, None where the run does not have it."""


Records = Mapping[Cell, Sequence[CellRecord | None]]
"""Cell → its record in each run that measured it, as it is there: seconds differ in every run."""


class Costs(Mapping[Cell, Cost]):
    """The cost of each cell of ``records`` that has one; made when it is read, since the pages of
    models are drawn by several processes.
    """

    def __init__(self, records: Records, views: Sequence[RunView]) -> None:
        self._records = records
        self._views = views

    def of(self, keys: Iterable[Cell]) -> "Costs":
        """Those of the cells ``keys`` alone."""
        return Costs({key: self._records[key] for key in keys if key in self._records}, self._views)

    @cached_property
    def _made(self) -> dict[Cell, Cost]:
        costs = ((key, cost_of(records, self._views)) for key, records in self._records.items())
        return {key: cost for key, cost in costs if cost is not None}

    def __getitem__(self, key: Cell) -> Cost:
        return self._made[key]

    def __iter__(self) -> Iterator[Cell]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)
