"""The cells of a model in whose history there is nothing to see: a row each; what their gates say, equal words once.

Most int8 results never move. A chart of them would say in a kilobyte what a row says in eighty letters.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from qbench.reporting.report import Report
from qbench.reporting.timeline import Trend
from qbench.reporting.trends import is_eventful
from qbench.reporting.view import CellView, GateView, MetricView


@dataclass(frozen=True, slots=True, kw_only=True)
class StillRow:
    """One cell: its metrics in the order of the columns, and the 95 % interval of its lead, fractions, if it has one.

    ``runs`` counts those in which it was measured.
    """

    cell: CellView
    metrics: tuple[MetricView | None, ...]
    interval: tuple[float, float] | None
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Something that is said of several cells, and what is said of each: (names of the cells, words)."""

    what: GateView | None
    lines: tuple[tuple[tuple[str, ...], str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StillCells:
    """The rows, backend by backend; ``metrics`` are the columns; ``said``: gates first, then notices."""

    metrics: tuple[str, ...]
    rows: tuple[StillRow, ...]
    said: tuple[Said, ...]


def stands_still(cell: CellView, trends: Sequence[Trend]) -> bool:
    """Whether a row says as much of ``cell`` as a chart: its lead has one value, one reference and one limit."""
    if cell.lead is None or cell.remedy or not trends or is_eventful(cell, trends):
        return False
    lead = trends[0]
    values = {pair for series in lead.series for pair in zip(series.values, series.flips, strict=True)}
    return len(values) == 1 and len(lead.marks) == 1 and lead.accepted in (None, cell.lead.value)


def still_cells(report: Report, model: str) -> StillCells:
    """The table of the cells of ``model`` that stand still."""
    cells = (cell for cell in report.cells if cell.key.model == model)
    found = [cell for cell in cells if stands_still(cell, report.trends.get(cell.key, ()))]
    names = tuple(dict.fromkeys(metric.name for cell in found for metric in (cell.lead, *cell.metrics) if metric))
    return StillCells(metrics=names, rows=tuple(_row(cell, report, names) for cell in found), said=_said(found))


def _row(cell: CellView, report: Report, names: Sequence[str]) -> StillRow:
    metrics = {metric.name: metric for metric in cell.metrics}
    series = report.trends[cell.key][0].series
    newest = max(series, key=lambda one: one.positions[-1])
    return StillRow(
        cell=cell,
        metrics=tuple(metrics.get(name) for name in names),
        interval=newest.band[-1] if newest.band else None,
        runs=sum(len(one.positions) for one in series),
    )


def _said(cells: Sequence[CellView]) -> tuple[Said, ...]:
    """Gates of one kind, state and rule together; below each, cells of which the same is said."""
    groups: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    notices: dict[str, list[str]] = {}
    for cell in cells:
        for gate in cell.gates:
            words = groups.setdefault((gate.kind, gate.state, gate.rule), {}).setdefault(gate.detail, [])
            words.append(f"{cell.key.backend} {cell.key.column}")
        more = cell.refusal_count - len(cell.refusals)
        rest = (f"and {more} more nodes left in float",) if more > 0 else ()
        for text in (*cell.notices, *cell.refusals, *rest):
            notices.setdefault(text, []).append(f"{cell.key.backend} {cell.key.column}")
    said = [
        Said(what=GateView(kind=kind, metric="", state=state, detail="", rule=rule), lines=_lines(words))
        for (kind, state, rule), words in groups.items()
    ]
    return (*said, *([Said(what=None, lines=_lines(notices))] if notices else []))


def _lines(words: dict[str, list[str]]) -> tuple[tuple[tuple[str, ...], str], ...]:
    return tuple((tuple(dict.fromkeys(names)), text) for text, names in words.items())
