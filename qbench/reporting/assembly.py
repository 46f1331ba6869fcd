"""Runs → Report: the newest run of a suite, read beside the runs before it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from qbench.judging import FP32
from qbench.reporting.causes import group_causes, headline_of
from qbench.reporting.coarse_margins import coarse_notices
from qbench.reporting.found import findings_of, with_findings
from qbench.reporting.lines import read_run
from qbench.reporting.memory import NOTHING, AcceptedHits, Memory, accepted_share
from qbench.reporting.parts import with_parts
from qbench.reporting.past import Cells, read_cells
from qbench.reporting.recent import WINDOW
from qbench.reporting.report import Matrix, Report
from qbench.reporting.significance import significance_notice
from qbench.reporting.timeline import Trend
from qbench.reporting.trends import group_steps, trend_of
from qbench.reporting.view import ABSENT, CellKey, CellView, MetricView, RunView
from qbench.reporting.words import SYMBOLS, counted
from qbench.tracking import Run


def build_report(
    runs: Sequence[Run], suite: str | None = None, *, window: int = WINDOW, memory: Memory = NOTHING
) -> Report:
    """The report on the newest run of ``suite`` (that of the newest run when left out).

    Args:
        runs: the history, oldest → newest; other suites' runs are passed over. May be empty.
        window: how many of the newest runs are looked at. memory: what is known beside the runs.
    """
    if suite is None:
        suite = read_run(runs[-1]).suite if runs else ""
    chosen = [run for run in runs if read_run(run).suite == suite][-window:]
    if not chosen:
        return Report(suite=suite, headline="No runs yet: run a suite and its report will be here", is_red=False)
    past = read_cells(chosen)
    views = [
        replace(read_run(run), cells=len(cells), red=sum(cell.is_red for cell in cells.values()))
        for run, cells in zip(chosen, past, strict=True)
    ]
    cells = with_parts(_with_past(cell, past, views) for cell in _expected(past, views))
    findings, unread = findings_of(chosen, views, past)
    cells = with_findings(cells, findings)
    causes = group_causes(cells)
    accepted = memory.accepted_in(suite)
    trends = {cell.key: _trends(cell, past, views, accepted) for cell in cells if cell.metrics}
    return Report(
        suite=suite,
        headline=headline_of(views[-1], cells, causes),
        is_red=bool(causes),
        run=views[-1],
        runs=tuple(views),
        tallies=_tallies(cells),
        cells=cells,
        causes=causes,
        matrices=_matrices(cells),
        trends=trends,
        step_groups=group_steps([trend for several in trends.values() for trend in several], views),
        notices=(*_notices(views[-1], cells), *unread),
        quarantined=tuple(cell for cell in cells if cell.outcome == "quarantined"),
        unsupported=_unsupported(cells),
        regressions=memory.regressions.get(suite, ()),
        findings=findings,
    )


def build_reports(runs: Sequence[Run], *, window: int = WINDOW, memory: Memory = NOTHING) -> tuple[Report, ...]:
    """One report a suite, that of the newest run first; one empty report when there are no runs."""
    suites = dict.fromkeys(read_run(run).suite for run in reversed(runs))
    built = (build_report(runs, suite, window=window, memory=memory) for suite in suites)
    return tuple(built) or (build_report(()),)


def _trends(
    cell: CellView, past: Sequence[Cells], views: Sequence[RunView], accepted: AcceptedHits
) -> tuple[Trend, ...]:
    """One trend a metric of ``cell``, the lead's first."""
    history = [cells.get(cell.key) for cells in past]
    return tuple(
        trend_of(history, cell, metric, views, accepted=accepted_share(cell, metric, accepted))
        for metric in _lead_first(cell)
    )


def _expected(past: Sequence[Cells], views: Sequence[RunView]) -> list[CellView]:
    """The newest run's cells, and as absent those of the last whole run that a partial newest one left out.

    A run that selected all of a suite of another size is of another suite than that one: it is told of by itself.
    """
    newest = dict(past[-1])
    if not (views[-1].complete and views[-1].whole_selection):
        whole = (cells for cells, view in zip(past, views, strict=True) if view.complete and view.whole_selection)
        former = next(reversed(list(whole)), {})
        now = views[-1]
        is_other = now.whole_selection and now.planned not in (0, len(former))
        for key, cell in () if is_other else former.items():
            if key not in newest:
                newest[key] = replace(cell, outcome=ABSENT, is_red=False, headline="", remedy="", notices=())
    return [newest[key] for key in sorted(newest, key=_order)]


def _order(key: CellKey) -> tuple[str, str, bool, str, str]:
    return key.model, key.backend, key.schema != FP32, key.schema, key.variant


def _with_past(cell: CellView, past: Sequence[Cells], views: Sequence[RunView]) -> CellView:
    """``cell`` with how far it moved since its last run, and how long it has been red."""
    earlier = [(p.get(cell.key), view) for p, view in zip(past[:-1], views[:-1], strict=True)]
    before = next((c for c, _ in reversed(earlier) if c and c.environment_class == cell.environment_class), None)
    moved = None
    if before and cell.lead and cell.outcome != ABSENT:
        old = next((m for m in before.metrics if m.name == cell.lead.name), None)
        moved = None if old is None else cell.lead.value - old.value
    red_runs, since = 1, views[-1]
    for then, view in reversed(earlier):
        if then is None:  # the run did not select it: no news
            continue
        if not then.is_red:
            break
        red_runs, since = red_runs + 1, view
    if not cell.is_red or not any(then for then, _ in earlier):
        return replace(cell, moved=moved)
    return replace(cell, moved=moved, red_runs=red_runs, red_since=since.commit or since.started)


def _lead_first(cell: CellView) -> list[MetricView]:
    return sorted(cell.metrics, key=lambda metric: metric is not cell.lead)


def _tallies(cells: Sequence[CellView]) -> tuple[tuple[str, int], ...]:
    """(outcome, count) in the order of the symbols' legend, unknown outcomes last."""
    counts = Counter(cell.outcome for cell in cells)
    known = list(SYMBOLS)
    return tuple(sorted(counts.items(), key=lambda item: known.index(item[0]) if item[0] in known else len(known)))


def _matrices(cells: Sequence[CellView]) -> tuple[Matrix, ...]:
    """One matrix a backend; every backend has the same columns, so that they can be compared by eye."""
    by_key = {(c.key.model, c.key.backend, c.key.column): c for c in cells}
    columns = tuple(dict.fromkeys(c.key.column for c in sorted(cells, key=lambda c: _order(c.key)[2:])))
    backends = sorted({c.key.backend for c in cells})
    return tuple(_matrix(backend, columns, by_key) for backend in backends)


def _matrix(backend: str, columns: tuple[str, ...], by_key: Mapping[tuple[str, str, str], CellView]) -> Matrix:
    models = sorted({model for model, name, _ in by_key if name == backend})
    used = tuple(c for c in columns if any((model, backend, c) in by_key for model in models))
    rows = tuple((model, tuple(by_key.get((model, backend, column)) for column in used)) for model in models)
    return Matrix(backend=backend, columns=used, rows=rows)


def _notices(run: RunView, cells: Sequence[CellView]) -> tuple[str, ...]:
    """What is to be known about the run as a whole, then the cells' notices, equal ones counted once."""
    found = []
    if not run.complete:
        found.append("The run was interrupted: it holds what was measured until then.")
    if run.limited:
        found.append(f"At most {counted(run.limited, 'sample')} of each data set were scored.")
    if not run.whole_selection and not (run.limited and run.selected == run.planned):
        part = f"{run.selected} of the {counted(run.planned, 'cell')}" if run.selected < run.planned else "Only a part"
        others = "; the others are shown as they were last known" if any(c.outcome == ABSENT for c in cells) else ""
        found.append(f"{part} of the suite {'was' if part.startswith(('Only', '1 ')) else 'were'} selected{others}.")
    if run.damaged:
        found.append(f"{counted(run.damaged, 'line')} of the run file could not be read and is left out.")
    found.extend(run.notes)
    counts = Counter(notice for cell in cells for notice in cell.notices)
    found.extend(text if count == 1 else f"{text} ({count} cells)" for text, count in counts.most_common())
    found.extend(filter(None, [*coarse_notices(cells), significance_notice(cells)]))
    return tuple(found)


def _unsupported(cells: Sequence[CellView]) -> tuple[tuple[str, tuple[CellKey, ...]], ...]:
    """Unsupported cells by reason, the most frequent reason first."""
    groups: dict[str, list[CellKey]] = {}
    for cell in cells:
        if cell.outcome == "unsupported":
            groups.setdefault(cell.headline or cell.rule or "no reason given", []).append(cell.key)
    return tuple((reason, tuple(keys)) for reason, keys in sorted(groups.items(), key=lambda item: -len(item[1])))
