"""Runs → Report: the newest run of a suite next to the runs before it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from msgspec import structs

from qbench.judging import (
    CHECKS,
    FP32,
    IDEAL,
    NOTHING_ACCEPTED_FOR,
    THEN,
    Cell,
    GateKind,
    LossParts,
    parts_of_counts,
)
from qbench.reporting.chance import coarse_notices, data_powers, significance_notice
from qbench.reporting.findings_view import findings_of, with_findings
from qbench.reporting.format import SYMBOLS, counted
from qbench.reporting.histories import (
    Axes,
    Costs,
    Histories,
    axes_of,
    read_cells,
)
from qbench.reporting.progress import WINDOW
from qbench.reporting.report import Matrix, Report, group_causes, headline_of
from qbench.reporting.samples_view import samples_of
from qbench.reporting.trends import Trend, group_steps, places_of, trend_of
from qbench.reporting.view import (
    ABSENT,
    Cells,
    CellView,
    MetricView,
    RunView,
    read_run,
    shown_cell,
    shown_suite,
)
from qbench.storage import ObjectFile
from qbench.tracking import (
    TREND_KEYS,
    AcceptedLevel,
    AcceptedLevels,
    Alert,
    Annotation,
    CellRecord,
    GateRecord,
    MetricRecord,
    Regression,
    Run,
    Series,
    absent_cells,
    accepted_levels,
    baseline_path,
    find_alerts,
    find_baseline,
    group_alerts,
    lines_of_others,
    load_annotations,
    main_line,
    parts_behind,
    trend_series,
)
from qbench.tracking import with_parts as with_parts_of_runs

# Which cells of a run have a loss in two parts: those whose quantized graph ``integer-ideal`` ran
# too.


def with_parts(cells: Iterable[CellView]) -> tuple[CellView, ...]:
    """``cells``, each with the parts of its lead metric's change where they are known."""
    found = tuple(cells)
    ideals = {(c.key.model, c.key.column): c for c in found if c.key.backend == IDEAL}
    return tuple(
        replace(cell, parts=_parts(cell, ideals.get((cell.key.model, cell.key.column))))
        for cell in found
    )


def _parts(cell: CellView, ideal: CellView | None) -> LossParts | None:
    """None unless both ran the same quantized graph on the same samples, compared with the same
    fp32 answers.
    """
    if (
        ideal is None
        or cell.key.backend == IDEAL
        or cell.lead is None
        or not cell.lead.against_labels
    ):
        return None
    same = cell.record.data == ideal.record.data and "quantized" in cell.record.digests
    middle = next((metric for metric in ideal.metrics if metric.name == cell.lead.name), None)
    if (
        not same
        or middle is None
        or cell.record.digests["quantized"] != ideal.record.digests.get("quantized")
    ):
        return None
    if (middle.reference_hits, middle.out_of) != (cell.lead.reference_hits, cell.lead.out_of):
        return None
    return parts_of_counts(
        cell.lead.name,
        reference=cell.lead.reference_hits,
        ideal=middle.hits,
        hits=cell.lead.hits,
        out_of=cell.lead.out_of,
        unit=cell.lead.unit,
    )


# What a report needs besides the runs: accepted results, series that got worse, and the rulings on
# them.

AcceptedHits = Mapping[tuple[Cell, str, str], AcceptedLevel]
"""(cell, metric, environment class) → what was accepted there, in one suite."""


@dataclass(frozen=True, slots=True)
class Memory:
    """``accepted`` are the results in the baselines, ``regressions`` what got worse in each suite.

    ``repository`` is where commits are shown (``read_repository``); ``meanings``: one line for each
    schema and metric. ``series`` are those that moved, with their levels; None: not known.
    """

    accepted: AcceptedLevels = field(default_factory=dict)
    regressions: Mapping[str, tuple[Regression, ...]] = field(default_factory=dict)
    repository: str = ""
    meanings: Mapping[str, str] = field(default_factory=dict)
    series: tuple[Series, ...] | None = None

    def accepted_in(self, suite: str) -> AcceptedHits:
        """What was accepted in ``suite``."""
        return {key: level for key, level in self.accepted.items() if key[0].suite == suite}


NOTHING = Memory()


def remember(
    runs: Sequence[Run],
    *,
    accepted: AcceptedLevels,
    annotations: Sequence[Annotation] = (),
    commits: Sequence[str] | None = None,
) -> Memory:
    """The memory of ``runs``, oldest → newest.

    Args:
        commits: the main line of the project under test, the earliest first; None: from the runs.
    """
    line = main_line(runs, ()) if commits is None else tuple(commits)
    series = trend_series(_moving(runs, accepted), commits=line)
    alerts = find_alerts(series, commits=line, accepted=accepted, annotations=annotations)
    suites = dict.fromkeys(alert.cell.suite for alert in alerts)
    return Memory(
        accepted=accepted,
        regressions={
            suite: group_alerts([a for a in alerts if a.cell.suite == suite], line)
            for suite in suites
        },
        series=series,
    )


def read_memory(
    runs: Sequence[Run],
    baselines: Path,
    annotations: Path | ObjectFile,
    *,
    parents: Sequence[str] = (),
    equivalents: Mapping[str, Sequence[tuple[str, ...]]] = MappingProxyType({}),
) -> Memory:
    """The memory of ``runs``, from the folder of ``baselines`` and the file of ``annotations``.

    Args:
        parents: the commits of the project's main line, from its repository; empty: from the runs.
        equivalents: suite → its groups of classes whose results are comparable, as in ``Rules``.

    Raises:
        StoreError: a baseline or the annotations cannot be read.
    """
    accepted: dict[tuple[Cell, str, str], AcceptedLevel] = {}
    classes = {record.environment_class for run in runs for record in run.cells} - {""}
    models = [(run.suite, {record.model for record in run.cells}) for run in runs]
    for suite, model in sorted({(suite, model) for suite, named in models for model in named}):
        path = baseline_path(baselines, suite, model)
        stored, groups = find_baseline(path), equivalents.get(suite, ())
        if stored is not None:
            accepted.update(accepted_levels(suite, [stored], classes=classes, equivalents=groups))
    notes = load_annotations(annotations)
    return remember(runs, accepted=accepted, annotations=notes, commits=main_line(runs, parents))


def accepted_share(cell: CellView, metric: MetricView, accepted: AcceptedHits) -> float | None:
    """The accepted value of ``metric`` in the environment of ``cell``; None where it is of
    other samples.
    """
    known = accepted.get((cell.key, metric.name, cell.record.environment_class))
    if known is None or not set(cell.record.data.split("+")) <= known.data:
        return None
    return known.hits / metric.out_of


def _moving(runs: Sequence[Run], accepted: AcceptedLevels) -> list[Run]:
    """``runs`` with only those metrics that can raise an alert: they changed, or differ from
    the accepted result.

    Nine series in ten never change. A constant series has one level, hence no step. It has no slide
    either if that level is the accepted one.
    """
    before: dict[Axes, tuple[Mapping[str, MetricRecord], str | None]] = {}
    moving: dict[Axes, set[str]] = {}
    compared: set[tuple[Axes, str]] = set()
    for run in runs:
        for record in run.cells:
            axes, metrics, environment = axes_of(record), record.metrics, record.environment_class
            known, former = before.get(axes, (metrics, None))
            if metrics is known and environment == former:
                continue  # a line that repeats the one before it has its metrics
            if (axes, environment) not in compared:
                compared.add((axes, environment))
                moving.setdefault(axes, set()).update(
                    _off(record.cell, environment, metrics, accepted)
                )
            if metrics != known:
                moving[axes].update(
                    name for name, counts in metrics.items() if counts != known.get(name, counts)
                )
                metrics = {**known, **metrics}
            before[axes] = metrics, environment
    moved = {axes for axes, names in moving.items() if names}
    return [
        replace(
            run,
            cells=tuple(
                _thinned(one, moving[axes]) for one in run.cells if (axes := axes_of(one)) in moved
            ),
        )
        for run in runs
    ]


def _off(
    cell: Cell, environment: str, metrics: Mapping[str, MetricRecord], accepted: AcceptedLevels
) -> Iterator[str]:
    """The metrics of ``cell`` that differ from their accepted results."""
    for metric, counts in metrics.items():
        level = accepted.get((cell, metric, environment))
        if level is not None and counts.hits != level.hits:
            yield metric


def _thinned(record: CellRecord, metrics: set[str]) -> CellRecord:
    """The fields of ``record`` that ``trend_series`` reads, with only these ``metrics``."""
    kept = {name: metric for name, metric in record.metrics.items() if name in metrics}
    return CellRecord(**{name: getattr(record, name) for name in TREND_KEYS} | {"metrics": kept})


def build_report(
    runs: Sequence[Run], suite: str | None = None, *, window: int = WINDOW, memory: Memory = NOTHING
) -> Report:
    """The report on the newest run of ``suite`` (that of the newest run when left out).

    Args:
        runs: the history, oldest → newest; runs of other suites are ignored. May be empty.
        window: how many of the newest runs are looked at.
        memory: accepted results and regressions.
    """
    if suite is None:
        suite = shown_suite(runs[-1]) if runs else ""
    chosen = [run for run in runs if shown_suite(run) == suite][-window:]
    if not chosen:
        return Report(
            suite=suite,
            headline="No runs yet: run a suite and its report will be here",
            is_red=False,
        )
    chosen, parts = _with_parts_merged(chosen)
    past, reds, histories, records = read_cells(chosen)
    views = [
        replace(_view_of(run), cells=len(cells), red=red)
        for run, cells, red in zip(chosen, past, reds, strict=True)
    ]
    cells = with_parts(
        _with_past(cell, histories[cell.key], views) for cell in _expected(past, views)
    )
    findings, unread = findings_of(chosen, views, past)
    cells = with_findings(cells, findings)
    samples, unread_samples = samples_of(cells, chosen, views, past)
    causes = group_causes(cells)
    moves = _moves(_series_alone(chosen) if memory.series is None else memory, suite)
    trends = _Trends(cells, histories, views, accepted=memory.accepted_in(suite), moves=moves)
    # a run of another release is compared with nothing that was accepted, so no class is new
    new_classes = () if views[-1].release_of else _new_classes(cells)
    return Report(
        suite=suite,
        headline=headline_of(views[-1], cells, causes),
        is_red=bool(causes),
        run=views[-1],
        runs=tuple(views),
        tallies=_tallies(cells),
        cells=cells,
        causes=causes,
        matrices=_matrices(cells, _ranks(views)),
        trends=trends,
        step_groups=group_steps([trend for key in trends.moved() for trend in trends[key]], views),
        notices=(
            *map(_part_notice, parts),
            *_notices(views[-1], cells),
            *unread,
            *unread_samples,
        ),
        quarantined=tuple(cell for cell in cells if cell.record.outcome == "quarantined"),
        unsupported=_unsupported(cells),
        regressions=memory.regressions.get(suite, ()),
        findings=findings,
        samples=samples,
        repository=memory.repository,
        meanings=memory.meanings,
        past=past,
        costs=Costs(records, views).of(cell.key for cell in cells if cell.metrics),
        new_classes=new_classes,
        class_remedy=_class_remedy(past, views) if new_classes else "",
        powers=data_powers(cells),
    )


def _finds_nothing_accepted(gate: GateRecord) -> bool:
    """Whether it could not compare the result, since the environment class is new to its cell."""
    is_open = gate.kind == GateKind.DRIFT and gate.state == "incomparable"
    return is_open and gate.detail.startswith(NOTHING_ACCEPTED_FOR)


def _new_classes(cells: Iterable[CellView]) -> tuple[str, ...]:
    """The environment classes of ``cells`` in which nothing is accepted for a cell that has
    accepted results.
    """
    return tuple(
        dict.fromkeys(
            cell.record.environment_class
            for cell in cells
            if cell.record.outcome not in ("quarantined", "accepted", ABSENT)
            and any(map(_finds_nothing_accepted, cell.record.gates))
        )
    )


def _class_remedy(past: Sequence[Cells], views: Sequence[RunView]) -> str:
    """The commands that compare the newest run with the last one of another class and then accept
    it; empty where it cannot be accepted.

    A report of one run alone does not know the run before it and names it ``previous``.
    """
    now, classes = views[-1], {cell.record.environment_class for cell in past[-1].values()}
    if not now.complete or now.limited or not now.path:
        return ""
    earlier = (
        view.id
        for cells, view in zip(reversed(past[:-1]), reversed(views[:-1]), strict=True)
        if view.complete
        and any(cell.record.environment_class not in (*classes, "") for cell in cells.values())
    )
    before = next(earlier, "previous")
    return f"qbench compare {before} {now.id} --across{THEN}qbench accept {now.id} --what new"


def build_reports(
    runs: Sequence[Run], *, window: int = WINDOW, memory: Memory = NOTHING
) -> tuple[Report, ...]:
    """One report per suite, that of the newest run first; one empty report without runs."""
    suites = dict.fromkeys(shown_suite(run) for run in reversed(runs))
    built = (build_report(runs, suite, window=window, memory=memory) for suite in suites)
    return tuple(built) or (build_report(()),)


_Moves = Mapping[tuple[Cell, str], tuple[list[Series], list[Alert]]]
"""(cell, metric) → its series of every class that moved, and the alerts on them."""


def _moves(memory: Memory, suite: str) -> _Moves:
    found: dict[tuple[Cell, str], tuple[list[Series], list[Alert]]] = {}

    def of(one: Series | Alert) -> tuple[list[Series], list[Alert]]:
        return found.setdefault((one.cell, one.metric), ([], []))

    for series in memory.series or ():
        if series.cell.suite == suite:
            of(series)[0].append(series)
    for regression in memory.regressions.get(suite, ()):
        for alert in regression.alerts:
            of(alert)[1].append(alert)
    return found


def _series_alone(runs: Sequence[Run]) -> Memory:
    """The series of ``runs`` and nothing else, without runs and cells that lack a usable name."""
    named = [run for run in runs if {"id", "suite"} <= run.header.keys()]
    whole = [replace(run, cells=tuple(filter(_is_named, run.cells))) for run in named]
    return Memory(series=remember(whole, accepted={}).series)


def _is_named(record: CellRecord) -> bool:
    try:
        return bool(record.cell)
    except ValueError:
        return False


class _Trends(Mapping[Cell, tuple[Trend, ...]]):
    """The trends of each of ``cells`` that has metrics, one per metric, the lead's first; made
    when they are read.

    The trends of thousands of models take several times the memory of what they are made of, and a
    report draws few.
    """

    def __init__(
        self,
        cells: Iterable[CellView],
        histories: Histories,
        views: Sequence[RunView],
        *,
        accepted: AcceptedHits,
        moves: _Moves,
    ) -> None:
        self._cells = {cell.key: cell for cell in cells if cell.metrics}
        self._histories = histories
        self._views = views
        self._places = places_of(views)
        self._accepted = accepted
        self._moves = moves
        self._made: dict[Cell, tuple[Trend, ...]] = {}

    def __getitem__(self, key: Cell) -> tuple[Trend, ...]:
        cell = self._cells[key]
        made = self._made.get(key)
        if made is None:
            if len(self._made) * len(self._views) >= _MOST_POINTS:
                self._made.clear()
            made = self._made[key] = self._of(cell)
        return made

    def __iter__(self) -> Iterator[Cell]:
        return iter(self._cells)

    def __len__(self) -> int:
        return len(self._cells)

    def moved(self) -> Iterator[Cell]:
        """The cells with a series or an alert, in order: no other trend has a step."""
        moved = {key for key, _ in self._moves}
        return (key for key in self._cells if key in moved)

    def _of(self, cell: CellView) -> tuple[Trend, ...]:
        history = self._histories[cell.key]
        found = []
        for metric in sorted(cell.metrics, key=lambda metric: metric is not cell.lead):
            series, alerts = self._moves.get((cell.key, metric.name), ((), ()))
            share = accepted_share(cell, metric, self._accepted)
            trend = trend_of(
                history,
                cell,
                metric,
                self._views,
                self._places,
                series=series,
                alerts=alerts,
                accepted=share,
            )
            found.append(trend)
        return tuple(found)


_MOST_POINTS = 1_000_000
"""How many points the trends have that are kept: enough for all models of a site, and for any suite
over two years.
"""


def _with_parts_merged(chosen: list[Run]) -> tuple[list[Run], list[Run]]:
    """``chosen`` up to the last run of the whole suite, which takes the cells of later runs of a
    part; and those later runs.

    A run of a few cells does not stand for the suite: it replaces only the cells that it measured.
    """
    count = parts_behind(chosen)
    if not count:
        return chosen, []
    parts = chosen[-count:]
    whole = with_parts_of_runs(chosen[-count - 1], parts)
    later = {shown_cell(record) for part in parts for record in part.cells}
    whole = replace(
        whole,
        findings=(*whole.findings, *(line for part in parts for line in part.findings)),
        samples=(
            *lines_of_others(whole.samples, later),
            *(line for part in parts for line in part.samples),
        ),
    )
    return [*chosen[: -count - 1], whole], parts


def _view_of(run: Run) -> RunView:
    """The view of ``run``. A run that lacks the line of a selected cell did not end, whatever it
    says.
    """
    absent = absent_cells(run)
    view = read_run(run)
    return replace(view, absent=absent, complete=view.complete and not absent)


def _part_notice(part: Run) -> str:
    """``1 of the 16 cells of the suite was selected in the later run of …; …``."""
    view = read_run(part)
    where = f" at {view.commit}" if view.commit else ""
    chosen = f"{view.selected} of the {counted(view.planned, 'cell')} of the suite"
    verb = "was" if view.selected == 1 else "were"
    return (
        f"{chosen} {verb} selected in the later run of {view.started}{where}; the others are of "
        "the last whole run."
    )


def _expected(past: Sequence[Cells], views: Sequence[RunView]) -> list[CellView]:
    """The cells of the newest run; if it is partial, also those of the last whole run that it
    lacks, as absent.

    Where the newest run selected all cells of its suite and their number differs, the suite has
    changed: nothing is added.
    """
    newest = dict(past[-1])
    if not (views[-1].complete and views[-1].whole_selection):
        whole = (
            cells
            for cells, view in zip(past, views, strict=True)
            if view.complete and view.whole_selection
        )
        former = next(reversed(list(whole)), {})
        now = views[-1]
        is_other = now.whole_selection and now.planned not in (0, len(former))
        for key, cell in () if is_other else former.items():
            if key not in newest:
                record = structs.replace(
                    cell.record, outcome=ABSENT, headline="", remedy="", notices=()
                )
                newest[key] = replace(cell, record=record)
    ranks = _ranks(views)
    return [newest[key] for key in sorted(newest, key=lambda key: _order(key, ranks))]


def _ranks(views: Sequence[RunView]) -> dict[str, int]:
    """Backend → its place in the suite, those of the newest run first."""
    named = dict.fromkeys(name for view in reversed(views) for name in view.backends)
    return {name: place for place, name in enumerate(named)}


def _order(key: Cell, ranks: Mapping[str, int]) -> tuple[str, int, bool, str, str]:
    return key.model, ranks[key.backend], key.schema != FP32, key.schema, key.variant


def _with_past(
    cell: CellView, history: Sequence[CellView | None], views: Sequence[RunView]
) -> CellView:
    """``cell`` with how far it moved since its last run, and how long it has been red."""
    earlier = list(zip(history[:-1], views[:-1], strict=True))
    before = next(
        (
            c
            for c, _ in reversed(earlier)
            if c
            and c.record.environment_class == cell.record.environment_class
            and c.record.data == cell.record.data
        ),
        None,
    )
    moved = None
    if before and cell.lead and cell.record.outcome != ABSENT:
        old = next((m for m in before.metrics if m.name == cell.lead.name), None)
        moved = None if old is None else cell.lead.value - old.value
    red_runs, since = 1, views[-1]
    for then, view in reversed(earlier):
        if then is None:  # the run did not select it
            continue
        if not then.is_red:
            break
        red_runs, since = red_runs + 1, view
    if not cell.is_red or not any(then for then, _ in earlier):
        return replace(cell, moved=moved)
    return replace(cell, moved=moved, red_runs=red_runs, red_since=since.commit or since.started)


def _tallies(cells: Sequence[CellView]) -> tuple[tuple[str, int], ...]:
    """(outcome, count) in the order of the symbols' legend, unknown outcomes last."""
    counts = Counter(cell.shown_outcome for cell in cells)
    known = list(SYMBOLS)
    return tuple(
        sorted(
            counts.items(),
            key=lambda item: known.index(item[0]) if item[0] in known else len(known),
        )
    )


def _matrices(cells: Sequence[CellView], ranks: Mapping[str, int]) -> tuple[Matrix, ...]:
    """One matrix per backend; all have the same columns, so that they can be compared by eye."""
    by_key = {(c.key.model, c.key.backend, c.key.column): c for c in cells}
    columns = tuple(
        dict.fromkeys(c.key.column for c in sorted(cells, key=lambda c: _order(c.key, ranks)[2:]))
    )
    backends = sorted({c.key.backend for c in cells}, key=ranks.__getitem__)
    found = []
    for backend in backends:
        models = sorted({model for model, name, _ in by_key if name == backend})
        used = tuple(c for c in columns if any((model, backend, c) in by_key for model in models))
        rows = tuple(
            (model, tuple(by_key.get((model, backend, column)) for column in used))
            for model in models
        )
        found.append(Matrix(backend=backend, columns=used, rows=rows))
    return tuple(found)


def _selected_part(run: RunView, cells: Sequence[CellView]) -> str:
    """Which part of the suite was selected, as one sentence."""
    part, verb = "Only a part", "was"
    if run.selected < run.planned:
        part = f"{run.selected} of the {counted(run.planned, 'cell')}"
        verb = "was" if run.selected == 1 else "were"
    text = f"{part} of the suite {verb} selected"
    if any(cell.record.outcome == ABSENT for cell in cells):
        text += "; the others are shown with their last known result"
    return f"{text}."


def _notices(run: RunView, cells: Sequence[CellView]) -> tuple[str, ...]:
    """Notices about the run as a whole, then those of the cells, equal ones counted once."""
    found = []
    if run.absent:
        found.append(
            f"{run.absent} of {counted(run.selected, 'selected cell')} have no line: they were not "
            "measured."
        )
    elif not run.complete and not any(note.startswith("ended early: ") for note in run.notes):
        found.append("The run was interrupted: it holds only what was measured before that.")
    if run.limited:
        found.append(f"At most {counted(run.limited, 'sample')} of each data set were scored.")
    if not run.selected and run.planned and cells:
        # the cells of Python tests are not selected from those of the suite
        found.append(
            "Only a part of the tests with a check ran."
            if run.suite == CHECKS
            else "Only Python tests measured cells of the suite."
        )
    elif not run.whole_selection and not (run.limited and run.selected == run.planned):
        found.append(_selected_part(run, cells))
    if run.damaged:
        found.append(
            f"{counted(run.damaged, 'line')} of the run file could not be read and is left out."
        )
    found.extend(run.notes)
    counts = Counter(
        notice for cell in cells for notice in cell.record.notices if not _says_power(cell, notice)
    )
    found.extend(
        text if count == 1 else f"{text} ({count} cells)" for text, count in counts.most_common()
    )
    found.extend(filter(None, [*coarse_notices(cells), significance_notice(cells)]))
    return tuple(found)


def _says_power(cell: CellView, notice: str) -> bool:
    """Whether ``notice`` says how many samples would decide an open gate of ``cell``.

    `Report.undecided` and `Report.powers` say it for all cells of a model at once. Where runs of
    one cell differ, the notice is about the number of runs, which neither of them says.
    """
    if cell.record.outcome != "inconclusive" or cell.record.repeats is not None:
        return False
    open_gates = (
        gate
        for gate in cell.record.gates
        if gate.kind == GateKind.LOSS and gate.state == "inconclusive"
    )
    return notice.partition(": ")[0] in {gate.metric for gate in open_gates}


def _unsupported(cells: Sequence[CellView]) -> tuple[tuple[str, tuple[Cell, ...]], ...]:
    """Unsupported cells by reason, the most frequent reason first. Reasons that differ in the name
    of their cell are one: the first is shown.
    """
    groups: dict[str, list[tuple[str, Cell]]] = {}
    for cell in cells:
        if cell.record.outcome == "unsupported":
            reason = cell.record.headline or cell.record.rule or "no reason given"
            groups.setdefault(reason.replace(str(cell.key), "…"), []).append((reason, cell.key))
    return tuple(
        (found[0][0], tuple(key for _, key in found))
        for found in sorted(groups.values(), key=len, reverse=True)
    )
