"""The cells of the runs of a report, the history of each of them, and what each cost."""

import operator
from collections.abc import Callable, Mapping, Sequence
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
    """The cells of each of several runs, how many of them are red, and the history of each cell."""

    cells: tuple[Cells, ...]
    red: tuple[int, ...]
    histories: "Histories"


def read_cells(runs: Sequence[Run]) -> Past:
    """The cells of ``runs``. Of a cell that a run measured twice the later line counts.

    Most int8 results never change, so a history of months mostly repeats its lines: a line equal to
    that of the run before is read once.
    """
    known: dict[Axes, tuple[tuple[Any, ...], CellView, list[CellView | None]]] = {}
    histories: dict[Cell, list[CellView | None]] = {}
    red: dict[int, bool] = {}
    found: list[Cells] = []
    for place, run in enumerate(runs):
        cells: dict[Cell, CellView] = {}
        for record in run.cells:
            axes, shown = axes_of(record), _shown_fields(record)
            before = known.get(axes)
            if before is None or run is runs[-1] or before[0] != shown:
                view = read_cell(record)
                history = histories.setdefault(view.key, [None] * len(runs))
                before = known[axes] = shown, view, history
                red[id(view)] = view.is_red
            cells[before[1].key] = before[2][place] = before[1]
        found.append(cells)
    return Past(
        cells=tuple(found),
        red=tuple(sum(red[id(view)] for view in cells.values()) for cells in found),
        histories=histories,
    )


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


def costs_of(
    runs: Sequence[Run], views: Sequence[RunView], cells: Sequence[CellView]
) -> dict[Cell, Cost]:
    """The cost of each of ``cells``; of records as they are, whose seconds differ in every run."""
    found: dict[Cell, list[CellRecord | None]] = {
        cell.key: [None] * len(runs) for cell in cells if cell.metrics
    }
    measured: dict[Axes, list[CellRecord | None]] = {}
    for place, run in enumerate(runs):
        for record in run.cells:
            axes = axes_of(record)
            if axes not in measured:
                measured[axes] = found.get(shown_cell(record), [None] * len(runs))
            if record.carried is None:
                measured[axes][place] = record
    costs = ((key, cost_of(records, views)) for key, records in found.items())
    return {key: cost for key, cost in costs if cost is not None}
