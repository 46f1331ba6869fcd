"""Runs → the cells of each; a line that says what it said the night before is read once.

Most int8 results never move, and a history of months is mostly the same lines again.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from qbench.reporting.lines import read_cell, table_of
from qbench.reporting.view import CellKey, CellView
from qbench.tracking import Run

Cells = Mapping[CellKey, CellView]

_AXES = ("model", "backend", "schema", "variant")
_SAID = (
    "outcome",
    "environment_class",
    "metrics",
    "digests",
    "gates",
    "headline",
    "rule",
    "remedy",
    "notices",
    "integer_macs",
    "refusals",
    "refusal_count",
    "changed_count",
)
"""Everything of a line that a view holds, but the seconds it took: these are shown of the newest run alone."""


READ = ("type", "suite", *_AXES, *_SAID, "excused", "seconds")
"""Everything of a line that a report reads."""


def read_cells(runs: Sequence[Run]) -> list[Cells]:
    """The cells of each of ``runs``; of a cell that was measured twice in one, the later line."""
    known: dict[tuple[object, ...], tuple[list[Any], CellView]] = {}
    return [_cells_of(run, known, is_newest=run is runs[-1]) for run in runs]


def _cells_of(run: Run, known: dict[tuple[object, ...], tuple[list[Any], CellView]], *, is_newest: bool) -> Cells:
    """The cells of ``run``; ``known`` holds what the last line of each cell said and its view, and is added to."""
    found = {}
    for line in map(table_of, run.cells):
        axes = tuple(str(line.get(axis)) for axis in _AXES)
        said = [line.get(key) for key in _SAID]
        before = known.get(axes)
        if before is None or is_newest or before[0] != said:
            before = known[axes] = said, read_cell(line)
        found[before[1].key] = before[1]
    return found
