"""Which cells of a plan no run of it has a line of."""

from collections.abc import Collection, Mapping
from pathlib import Path

from qbench.judging import Cell
from qbench.tracking.attempts import job_of
from qbench.tracking.history import History
from qbench.tracking.record import CellRecord
from qbench.tracking.store import HistoryStore


def missing_cells(
    place: HistoryStore | Path, plan: str, expected: Mapping[int, Collection[Cell]]
) -> dict[int, tuple[Cell, ...]]:
    """Number of a job → those of its ``expected`` cells that no attempt of a job of ``plan`` in a
    history has a line of; jobs that lack none are left out.

    A cell counts as there whatever its outcome, and whether its attempt was finished or not: it
    counts in the night, too.

    Args:
        plan: the first digits of its digest, as run files have them.
    """
    found: set[Cell] = set()

    def note(record: CellRecord) -> None:
        found.add(record.cell)

    history = History(place)
    heads = (head for head in history.heads if (job := job_of(head.header)) and job.plan == plan)
    for _ in history.read_each(heads, note):
        pass
    lacking = (
        (index, tuple(cell for cell in cells if cell not in found))
        for index, cells in sorted(expected.items())
    )
    return {index: cells for index, cells in lacking if cells}
