"""The cells of the runs of a report, the history of each of them, and what each cost."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

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


def read_cells(runs: Sequence[Run]) -> list[Cells]:
    """The cells of each of ``runs``. Of a cell that a run measured twice the later line counts.

    Most int8 results never change, so a history of months mostly repeats its lines: a line equal to
    that of the run before is read once.
    """
    known: dict[Axes, tuple[tuple[Any, ...], CellView]] = {}
    found: list[Cells] = []
    for run in runs:
        cells = {}
        for record in run.cells:
            axes, shown = axes_of(record), _shown_fields(record)
            before = known.get(axes)
            if before is None or run is runs[-1] or before[0] != shown:
                before = known[axes] = shown, read_cell(record)
            cells[before[1].key] = before[1]
        found.append(cells)
    return found


_shown_fields: Callable[[CellRecord], tuple[Any, ...]] = operator.attrgetter(*_SHOWN)


Histories = Mapping[Cell, Sequence[CellView | None]]
"""Cell → its view in each run, None where the run does not have it."""


def histories_of(past: Sequence[Cells]) -> Histories:
    """The history of each cell of ``past``, the cells of several runs."""
    found: dict[Cell, list[CellView | None]] = {}
    for place, cells in enumerate(past):
        for key, view in cells.items():
            history = found.get(key)
            if history is None:
                history = found[key] = [None] * len(past)
            history[place] = view
    return found


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
