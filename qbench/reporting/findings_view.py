"""Findings as a report shows them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from qbench.errors import InputError
from qbench.judging import Cause, Cell, Errors, Finding, NodeErrors, Repair, Suspect
from qbench.number_text import decimals_text, small_percent
from qbench.reporting.format import counted
from qbench.reporting.view import Cells, CellView, RunView
from qbench.storage import plain
from qbench.tracking import Run, finding_of_line

# A finding in a few words: one line for tables, pull requests and terminals.
#
# worst: Conv_17, isolated SQNR 9.8 dB, clipped 31 %, cause: range outlier;
# repaired by keeping 1 node in float (Conv_17), 3 % of MACs

_LEAST_CLIPPED = 0.005
"""Share of clipped numbers below which a line leaves them out."""
_NAMED = 3
"""Nodes of a repair that are named; of more only the number is given."""


def found_text(finding: Finding) -> str:
    """The worst node with its numbers and its cause, and what repairs the cell."""
    first = next(iter(finding.suspects), None)
    repair = repair_text(finding.repair)
    if first is not None:
        known = "; ".join((", ".join(_worst(finding, first)), *_crashes(finding)))
    elif finding.notes and not finding.complete:
        known = finding.notes[0]
        # the note gives the reason
        repair = repair if finding.repair is not None and finding.repair.restores else ""
    else:
        known = "no node is suspected"
    return f"{known}; {repair}" if repair else known


def _crashes(finding: Finding) -> Iterator[str]:
    """Every crash is listed, whatever its rank: it is a finding of its own."""
    return (
        f"{one.node}: {one.cause.value}" for one in finding.suspects[1:] if one.cause is Cause.CRASH
    )


def repair_text(repair: Repair | None) -> str:
    """``repaired by keeping 1 node in float (conv2), 3 % of MACs``; empty where none was looked
    for.
    """
    if repair is None:
        return ""
    if not repair.restores:
        return f"no repair among {counted(repair.probes, 'set')} of nodes in float"
    names = f" ({', '.join(repair.nodes)})" if len(repair.nodes) <= _NAMED else ""
    kept = f"{counted(len(repair.nodes), 'node')} in float{names}"
    return f"repaired by keeping {kept}, {small_percent(repair.macs_share)} of MACs"


def node_of(finding: Finding, suspect: Suspect) -> NodeErrors | None:
    """The numbers of ``suspect``; None where its node has none, as when it crashed."""
    return next((node for node in finding.nodes if node.node == suspect.node), None)


def decibels(errors: Errors | None) -> str:
    """``9.8``; empty where no number is known."""
    return "" if errors is None else decimals_text(errors.sqnr_db, 1)


def _worst(finding: Finding, suspect: Suspect) -> Iterator[str]:
    yield f"worst: {suspect.node}"
    node = node_of(finding, suspect)
    if node is not None and node.isolated is not None:
        yield f"isolated SQNR {decibels(node.isolated)} dB"
    if node is not None:
        clipped = node.clipped_low + node.clipped_high
        if clipped >= _LEAST_CLIPPED:
            yield f"clipped {small_percent(clipped)}"
        if node.clipped_weights >= _LEAST_CLIPPED:
            yield f"weights clipped {small_percent(node.clipped_weights)}"
    yield f"cause: {suspect.cause.value}"


# Lines of run files → the findings that a report shows: for each cell the newest that still
# applies.


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A finding, and the cell that it is about.

    ``outcome`` and ``judged`` (the headline) are those of the verdict, ``is_red`` whether it fails;
    ``earlier`` is the run with the finding where that is not the newest one.
    """

    key: Cell
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
) -> tuple[Mapping[Cell, Found], tuple[str, ...]]:
    """The findings on the cells of the newest run in their order, and a notice for what could
    not be read.

    A finding of an earlier run still applies if the cell has been red ever since: not every run has
    time to localise.

    Args:
        runs, views, past: the runs of one suite, the earliest first, the facts of each and its
            cells.
    """
    found: dict[Cell, Found] = {}
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
                outcome=now.record.outcome,
                is_red=now.is_red,
                judged=now.record.headline,
                earlier=None if is_newest else view,
            )
    notices = (
        (f"{counted(unread, 'finding')} of the run file could not be read.",) if unread else ()
    )
    return {key: found[key] for key in sorted(found)}, notices


def with_findings(
    cells: Iterable[CellView], findings: Mapping[Cell, Found]
) -> tuple[CellView, ...]:
    """``cells``, each with its finding in a line."""
    return tuple(
        replace(cell, found=found_text(findings[cell.key].finding))
        if cell.key in findings
        else cell
        for cell in cells
    )


def _read(
    lines: Sequence[Mapping[str, object]], wanted: set[Cell]
) -> Iterator[tuple[Cell, Finding] | None]:
    """The findings on ``wanted`` cells; None for a line that cannot be read."""
    for line in lines:
        try:
            cell, finding = finding_of_line(line)
            plain(finding)  # a file may hold NaN, of which nothing can be drawn
        except (InputError, ValueError):
            yield None
            continue
        if cell in wanted:
            yield cell, finding
