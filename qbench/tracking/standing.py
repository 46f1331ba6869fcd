"""Whether a run is whole, the newest result of every cell, and which cells were lost."""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from qbench.judging import Cell, Outcome
from qbench.number_text import counted
from qbench.tracking.baseline import AcceptedCell
from qbench.tracking.record import AXES, CellRecord, Run, absent_cells

# A run is whole when it ended by itself, every line of it can be read, and every cell that it
# selected has a line.
#
#     selected   by its header: all cells of the suite, or those of -k, of a shard, of one file
#     absent     selected cells without a line: they skipped themselves, or the process ended early
#     lost       cells that an earlier run measured, or that a baseline has, and this run of the
#                whole suite does not


def is_whole(run: Run) -> bool:
    """Whether ``run`` ended by itself, can be read, and has a line for each selected cell."""
    return run.complete and not run.damaged and not absent_cells(run)


def is_of_all(run: Run) -> bool:
    """Whether ``run`` selected all cells of its suite; of an older file without the number it
    is taken to be so.
    """
    selected, planned = run.header.get("selected"), run.header.get("planned")
    if type(selected) is int and type(planned) is int:
        return selected >= planned
    return run.header.get("complete_selection") is not False


def incomplete_words(run: Run, name: str) -> Iterator[str]:
    """What ``run`` lacks, each a clause that calls it ``name``; nothing of a whole run."""
    if run.was_interrupted:
        yield f"{name} was interrupted"
    if run.damaged:
        yield f"{counted(run.damaged, 'line')} of {name} cannot be read"
    if absent := absent_cells(run):
        lines = "no line" if absent == 1 else "no lines"
        yield (
            f"{absent} of {counted(run.header['selected'], 'selected cell')} of {name} have {lines}"
        )


def with_parts(whole: Run, parts: Sequence[Run]) -> Run:
    """``whole`` with the cells of ``parts`` (the earliest first) in place of its own, or after."""
    cells = {_axes(record): record for record in whole.cells}
    for part in parts:
        cells |= {_axes(record): record for record in part.cells}
    return replace(whole, cells=tuple(cells.values()))


def parts_behind(runs: Sequence[Run]) -> int:
    """How many of the newest ``runs`` (of one suite, the earliest first) selected a part of it,
    after a whole one.

    0 where the newest is a share of a night or was interrupted, or no run before it is of the whole
    suite.
    """
    for count, run in enumerate(reversed(runs)):
        if is_of_all(run):
            return count if run.complete else 0
        if not run.complete or run.header.get("shard"):
            return 0
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LostCells:
    """Cells measured, or accepted, before: ``gone`` from the suite, or ``unsupported`` now."""

    gone: tuple[Cell, ...] = ()
    unsupported: tuple[Cell, ...] = ()

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.gone) + len(self.unsupported)


def lost_cells(new: Run, known: Collection[Cell]) -> LostCells:
    """Which of the ``known`` cells ``new``, a run of the whole suite, does not have or does not
    support any more.
    """
    now = {record.cell: record for record in new.cells}
    no_longer = (
        cell
        for cell, record in now.items()
        if record.outcome == Outcome.UNSUPPORTED.value and cell in known
    )
    return LostCells(
        gone=tuple(sorted(set(known) - now.keys())), unsupported=tuple(sorted(no_longer))
    )


def measured_cells(run: Run) -> frozenset[Cell]:
    """The cells of ``run`` that have numbers."""
    return frozenset(record.cell for record in run.cells if record.is_measured)


# The newest result of every cell of a suite, and what of it needs a look although no alert is about
# it yet.

STANDING_KEYS = (*AXES, "outcome", "headline", "excused", "environment_class", "metrics", "digests")
"""The fields of a cell that a standing is made of."""

_ACCEPTABLE = frozenset((Outcome.DRIFTED.value, Outcome.MISSING.value, Outcome.STALE.value))
"""The red outcomes that accepting what was measured ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The newest result of every cell of a suite.

    Args:
        run: the newest run of the whole suite that came to its end, with what later runs of a part
            or interrupted ones measured; without such a run all that runs of parts, as of shards,
            measured.
        newest: the newest run.
        red: its red cells, without those whose result was accepted since.
        lost: cells that it does not have any more.
    """

    suite: str
    run: Run
    newest: Run
    red: tuple[CellRecord, ...]
    lost: LostCells


def standing_of(
    suite: str, runs: Iterable[Run], stored: Mapping[Cell, AcceptedCell]
) -> Standing | None:
    """The standing of ``suite``; None where it has no run.

    Args:
        runs: of the suite, the newest first, with ``STANDING_KEYS``; as few as needed are taken.
        stored: what its baselines hold.
    """
    left = iter(runs)
    newest = next(left, None)
    if newest is None:
        return None
    parts = [newest]
    while (
        not _is_base(parts[-1])
        and len(parts) < _SEARCHED
        and (earlier := next(left, None)) is not None
    ):
        parts.append(earlier)
    run, lost = with_parts(parts[-1], parts[-2::-1]), LostCells()
    if _is_base(parts[-1]):
        before = next(
            (one for one in itertools.islice(left, _SEARCHED) if is_of_all(one) and is_whole(one)),
            None,
        )
        known = measured_cells(before) if before is not None else frozenset()
        lost = lost_cells(run, known | {cell for cell, held in stored.items() if held.current})
    red = tuple(
        record for record in run.cells if record.is_red and not _is_accepted_since(record, stored)
    )
    return Standing(suite=suite, run=run, newest=newest, red=red, lost=lost)


def _is_base(run: Run) -> bool:
    """Whether ``run`` was to measure every cell and came to its end, so that a cell that it
    lacks is lost.

    One that was interrupted says nothing of the cells that it did not reach: it is a part, as one
    of ``-k`` is.
    """
    return is_of_all(run) and not run.was_interrupted


_SEARCHED = 60
"""The most runs that are read to find an earlier one of the whole suite."""


def _is_accepted_since(record: CellRecord, stored: Mapping[Cell, AcceptedCell]) -> bool:
    """Whether the answers of a red cell are what a baseline holds by now."""
    known = stored.get(record.cell)
    accepted = None if known is None else known.current.get(record.environment_class)
    if accepted is None or record.outcome not in _ACCEPTABLE:
        return False
    now = record.digests_of("predictions")
    return bool(now) and now.items() <= dict(accepted.predictions).items()


def _axes(record: CellRecord) -> tuple[str, ...]:
    return record.model, record.backend, record.schema, record.variant
