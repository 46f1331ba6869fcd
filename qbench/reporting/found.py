"""Lines of run files → the findings that a report shows: of each cell the newest one that is about what it is now."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from qbench.errors import InputError
from qbench.judging import Finding, Suspect
from qbench.reporting.found_words import found_text
from qbench.reporting.past import Cells
from qbench.reporting.view import CellKey, CellView, RunView
from qbench.reporting.words import counted
from qbench.storage import plain
from qbench.tracking import Run, finding_of_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A finding, and the cell that it is about.

    ``outcome`` and ``judged`` (the headline of its verdict) are what came of the cell, ``is_red`` whether it fails;
    ``earlier`` is the run that it was found in where that is not the newest one.
    """

    key: CellKey
    finding: Finding
    outcome: str = ""
    is_red: bool = False
    judged: str = ""
    earlier: RunView | None = None

    @property
    def worst(self) -> Suspect | None:
        """The first suspect."""
        return next(iter(self.finding.suspects), None)


def findings_of(
    runs: Sequence[Run], views: Sequence[RunView], past: Sequence[Cells]
) -> tuple[Mapping[CellKey, Found], tuple[str, ...]]:
    """The findings on the cells of the newest run in their order, and a notice for what could not be read.

    A finding of an earlier run stands as long as the cell has been red ever since: not every night has the time.

    Args:
        runs, views, past: the runs of one suite, the earliest first, the facts of each and its cells.
    """
    found: dict[CellKey, Found] = {}
    unread = 0
    red = {key for key, cell in past[-1].items() if cell.is_red}
    for run, view, cells in zip(runs[::-1], views[::-1], past[::-1], strict=True):
        is_newest = run is runs[-1]
        red = {key for key in red if key not in cells or cells[key].is_red}
        wanted = set(past[-1]) if is_newest else red - found.keys()
        if not wanted:
            break
        for one in _read(run.findings, wanted):
            if one is None:
                unread += is_newest
                continue
            key, finding = one
            now = past[-1][key]
            found[key] = Found(
                key=key,
                finding=finding,
                outcome=now.outcome,
                is_red=now.is_red,
                judged=now.headline,
                earlier=None if is_newest else view,
            )
    notices = (f"{counted(unread, 'finding')} of the run file could not be read.",) if unread else ()
    return {key: found[key] for key in sorted(found)}, notices


def with_findings(cells: Iterable[CellView], findings: Mapping[CellKey, Found]) -> tuple[CellView, ...]:
    """``cells``, each with its finding in a line."""
    return tuple(
        replace(cell, found=found_text(findings[cell.key].finding)) if cell.key in findings else cell for cell in cells
    )


def _read(lines: Sequence[Mapping[str, object]], wanted: set[CellKey]) -> Iterator[tuple[CellKey, Finding] | None]:
    """The findings on ``wanted`` cells; None for a line that cannot be read."""
    for line in lines:
        try:
            cell, finding = finding_of_line(line)
            plain(finding)  # a file may hold NaN, of which nothing can be drawn
        except (InputError, ValueError):
            yield None
            continue
        key = CellKey(cell.model, cell.backend, cell.schema, cell.variant)
        if key in wanted:
            yield key, finding
