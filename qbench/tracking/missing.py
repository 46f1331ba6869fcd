"""Which cells of a plan no run of it has a line of."""

from collections.abc import Collection, Mapping
from pathlib import Path

from qbench.judging import Cell
from qbench.tracking.attempts import job_of, selection_of
from qbench.tracking.history import History
from qbench.tracking.record import CellRecord, Run
from qbench.tracking.store import HistoryStore


def missing_cells(
    place: HistoryStore | Path, plan: str, expected: Mapping[int, Collection[Cell]]
) -> dict[int, tuple[Cell, ...]]:
    """Number of a job → those of its ``expected`` cells that no attempt of a job of ``plan`` in a
    history has a line of; jobs that lack none are left out.

    A cell counts as there whatever its outcome, and whether its attempt was finished or not: it
    counts in the night, too. Jobs that were run with other options of selection are another night:
    a job that was tried with few samples is not there. Of several nights the fullest is looked at.

    Args:
        plan: the first digits of its digest, as run files have them.
    """
    nights: dict[tuple[str, ...], set[Cell]] = {}
    history = History(place)
    for head in history.heads:
        if (job := job_of(head.header)) is not None and job.plan == plan:
            _note_cells(history, head, nights.setdefault(selection_of(head.header), set()))
    found = max(nights.values(), key=len, default=set())
    lacking = (
        (index, tuple(cell for cell in cells if cell not in found))
        for index, cells in sorted(expected.items())
    )
    return {index: cells for index, cells in lacking if cells}


def _note_cells(history: History, head: Run, found: set[Cell]) -> None:
    """Add the cells of one run to ``found``; their records are not kept."""

    def note(record: CellRecord) -> None:
        found.add(record.cell)

    for _ in history.read_each([head], note):
        pass
