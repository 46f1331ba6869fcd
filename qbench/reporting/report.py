"""All facts about one suite as a value; pages and tables are drawn from it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from qbench.judging import (
    FAILING,
    GATES,
    IMPROVED,
    NO_LONGER_FAILS,
    Cell,
    DataPower,
    GateKind,
    open_sentence,
)
from qbench.number_text import change_text as change_text_of
from qbench.number_text import value_text as value_text_of
from qbench.reporting.carried import carried_sentence
from qbench.reporting.findings_view import Found
from qbench.reporting.format import change_text, counted, value_text
from qbench.reporting.histories import Costs
from qbench.reporting.samples_view import SchemaSamples
from qbench.reporting.trends import StepGroup, Trend
from qbench.reporting.view import ABSENT, UNJUDGED, Cells, CellView, MetricView, RunView
from qbench.tracking import Alert, Regression


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Cells that are red for the same kind of reason, worst first, and what to do next (most
    frequent first).
    """

    name: str
    title: str
    cells: tuple[CellView, ...]
    remedies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """One backend: models down, schemas (with variants) across; None where the suite has no
    such cell.
    """

    backend: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[CellView | None, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All facts about one suite: its newest run, and the runs before it.

    ``runs`` are oldest → newest; positions in series count them. ``unsupported`` groups cells by
    reason. ``regressions`` are results that got worse and stayed worse, or slid away from accepted
    ones, with their rulings. ``findings`` are about cells that were localised: which node went
    wrong, why, and what repairs the cell. ``samples``: model and schema (with variant) → what its
    cells lost and gained. ``past`` has the cells of each of ``runs``.
    ``repository`` shows commits; ``meanings`` explain schemas and metrics. ``costs`` are time and
    size of each cell over the runs. ``new_classes``: environment classes for which nothing is
    accepted though something is for others: nothing gates drift there. ``class_remedy``: what to
    type then; empty elsewhere. ``powers``: what the data of each model can tell from chance, metric
    by metric.
    """

    suite: str
    headline: str
    is_red: bool
    run: RunView | None = None
    runs: tuple[RunView, ...] = ()
    tallies: tuple[tuple[str, int], ...] = ()
    cells: tuple[CellView, ...] = ()
    causes: tuple[Cause, ...] = ()
    matrices: tuple[Matrix, ...] = ()
    trends: Mapping[Cell, tuple[Trend, ...]] = field(default_factory=dict)
    step_groups: tuple[StepGroup, ...] = ()
    notices: tuple[str, ...] = ()
    quarantined: tuple[CellView, ...] = ()
    unsupported: tuple[tuple[str, tuple[Cell, ...]], ...] = ()
    regressions: tuple[Regression, ...] = ()
    findings: Mapping[Cell, Found] = field(default_factory=dict)
    samples: Mapping[tuple[str, str], SchemaSamples] = field(default_factory=dict)
    repository: str = ""
    meanings: Mapping[str, str] = field(default_factory=dict)
    past: tuple[Cells, ...] = ()
    costs: Costs = field(default_factory=lambda: Costs({}, ()))
    new_classes: tuple[str, ...] = ()
    class_remedy: str = ""
    powers: tuple[DataPower, ...] = ()

    @property
    def eventful(self) -> frozenset[Cell]:
        """The cells that are red, in quarantine, or have a step in their history."""
        stepped = (step[0] for group in self.step_groups for step in group.steps)
        telling = (
            cell.key for cell in self.cells if cell.is_red or cell.record.outcome == "quarantined"
        )
        return frozenset((*stepped, *telling))

    @property
    def undecided(self) -> str:
        """Which models have too little data for their own margins; empty: none."""
        return open_sentence(self.powers)

    @property
    def carried(self) -> str:
        """How many cells are carried over from earlier runs, and from when; empty: none."""
        return carried_sentence(cell.record for cell in self.cells if cell.record.outcome != ABSENT)

    @property
    def state(self) -> str:
        """The state of the run in one word: red, incomplete, empty (nothing was measured) or
        green.
        """
        if self.is_red:
            return "red"
        if self.run is not None and not self.run.complete:
            return "incomplete"
        return (
            "green"
            if any(cell.record.outcome not in (ABSENT, "unsupported") for cell in self.cells)
            else "empty"
        )

    @property
    def models(self) -> tuple[str, ...]:
        """Every model, sorted."""
        return tuple(sorted({cell.key.model for cell in self.cells}))


# Red cells grouped by the kind of reason, worst kind first, and the sentence at the top of a
# report.

UNPROVEN = "unproven"
_FAILS = [spec for spec in GATES if spec.title and spec.kind in FAILING]
_DRIFTS = [spec for spec in GATES if spec.title and spec.kind not in FAILING]

TITLES = {
    "error": "Could not be measured",
    "infra": "The process that ran it died",
    GateKind.LOSS.value: "",  # its place: its words come from its row
    UNPROVEN: "Is not proven to lose less against fp32 than its tolerance allows",
    **{spec.kind.value: spec.title for spec in _FAILS},
    "failed": "Fails for another reason",
    "expired": "Fails, and the date of its quarantine entry has passed",
    **{spec.kind.value: spec.title for spec in _DRIFTS},
    "drifted": "Differs from its accepted result",
    "stale": "Its baseline is of another model, data or preprocessing",
    "missing": "Has no baseline yet",
    "improved": "Is better than its accepted result, by more than the tolerance",
    "fixed": "No longer fails, though a quarantine entry lists it as known bad",
}
"""Kinds of reason, worst first."""
_DRIFTING = {spec.kind.value for spec in _DRIFTS}

SHORT = {
    "error": "not measurable",
    "infra": "whose process died",
    GateKind.LOSS.value: "",  # its place: its words come from its row
    UNPROVEN: "not proven within tolerance",
    **{spec.kind.value: spec.short for spec in _FAILS},
    "failed": "for another reason",
    "expired": "with an expired quarantine entry",
    **{spec.kind.value: spec.short for spec in _DRIFTS},
    "drifted": "drifted",
    "stale": "with a stale baseline",
    "missing": "without a baseline",
    "improved": "improved",
    "fixed": "no longer failing, but listed as known bad",
}


def cause_name(cell: CellView) -> str:
    """Why ``cell`` is red, a key of ``TITLES``: its outcome, or the kind of its first broken
    gate.
    """
    first = cell.told_by_gate or next(
        (gate for gate in cell.record.gates if gate.state == "broken"), None
    )
    if cell.record.outcome == "failed":
        if first is None or first.kind not in FAILING:
            return "failed"
        strict = first.kind == GateKind.LOSS and "decision strict" in first.rule
        return UNPROVEN if strict and "INCONCLUSIVE" in first.detail else first.kind
    if cell.record.outcome == "drifted" and cell.record.headline.startswith(IMPROVED):
        return "improved"
    if cell.record.outcome == "drifted" and first is not None:
        return first.kind if first.kind in _DRIFTING else "drifted"
    if cell.record.outcome == "expired" and cell.record.headline.startswith(NO_LONGER_FAILS):
        return "fixed"
    return cell.record.outcome if cell.record.outcome in TITLES else "failed"


def group_causes(cells: Iterable[CellView]) -> tuple[Cause, ...]:
    """The red cells of ``cells`` by cause; causes and cells worst first."""
    groups: dict[str, list[CellView]] = {}
    for cell in cells:
        if cell.is_red:
            groups.setdefault(cause_name(cell), []).append(cell)
    for group in groups.values():
        group.sort(key=lambda cell: (-cell.excess, cell.key))
    return tuple(
        Cause(
            name=name,
            title=title,
            cells=tuple(groups[name]),
            remedies=tuple(
                text
                for text, _ in Counter(
                    c.record.remedy for c in groups[name] if c.record.remedy
                ).most_common()
            ),
        )
        for name, title in TITLES.items()
        if name in groups
    )


def headline_of(run: RunView, cells: Sequence[CellView], causes: Sequence[Cause]) -> str:
    """One sentence: how many cells are red and why, or that all is well."""
    text = _headline(cells, causes)
    if run.complete:
        return text
    return f"Incomplete run. So far: {text[0].lower()}{text[1:]}"


def _headline(cells: Sequence[CellView], causes: Sequence[Cause]) -> str:
    ran = [cell for cell in cells if cell.record.outcome not in (ABSENT, "unsupported")]
    if not ran:
        return _nothing_measured(cells)
    if causes:
        return _red_headline(len(ran), causes)
    others = _not_passing(ran)
    if others:
        passing = len(ran) - sum(count for count, _ in others)
        return f"No cell is red: {', '.join([f'{passing} pass', *(words for _, words in others)])}"
    if len(ran) == 1:
        return "The one cell passes"
    return f"All {counted(len(ran), 'cell')} pass"


def _nothing_measured(cells: Sequence[CellView]) -> str:
    unsupported = sum(cell.record.outcome == "unsupported" for cell in cells)
    if not unsupported:
        return "Nothing was measured"
    return f"Nothing was measured: {counted(unsupported, 'cell')} unsupported"


def _red_headline(ran: int, causes: Sequence[Cause]) -> str:
    red = sum(len(cause.cells) for cause in causes)
    verb = "is" if red == 1 else "are"
    why = ", ".join(f"{len(cause.cells)} {SHORT[cause.name]}" for cause in causes)
    return f"{red} of {counted(ran, 'cell')} {verb} red: {why}"


def _not_passing(ran: Sequence[CellView]) -> list[tuple[int, str]]:
    """Of a run without red cells: how many cells do not simply pass, in words, by their reason."""
    counts = Counter(cell.record.outcome for cell in ran)
    below = sum(cell.is_below_tolerance for cell in ran)
    unjudged = sum(cell.shown_outcome == UNJUDGED for cell in ran)
    owner = "its" if below == 1 else "their"
    every = (
        (below, f"accepted below {owner} tolerance"),
        (counts["inconclusive"], "inconclusive"),
        (unjudged, "judged by no gate"),
        (counts["missing"], "without a baseline"),
        (counts["quarantined"], "in quarantine"),
    )
    return [(count, f"{count} {words}") for count, words in every if count]


# Alerts as rows of a table: those without a ruling first, and among these the worst.


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRow:
    """One regression in words: its worst series, and how many more have the same cause.

    ``place`` names the commit, the commits one of which is the cause, or the run. ``why`` gives the
    ruling and its author, or the reason for the state. ``lines`` has a line for each of its series,
    the worst first.
    """

    kind: str
    place: str
    among: int
    state: str
    is_new: bool
    worst: Alert
    before: str
    after: str
    change: str
    lines: tuple[str, ...]

    @property
    def why(self) -> str:
        """The ruling on its worst series, or the reason for its state."""
        return self.worst.why

    @property
    def title(self) -> str:
        """``step at 1a2b3c4d5`` or ``slide since 1a2b3c4d5``."""
        preposition = "at" if self.kind == "step" else "since"
        return f"{self.kind} {preposition} {self.place}"


def alert_rows(report: Report) -> tuple[AlertRow, ...]:
    """The regressions of ``report``, the worst of what is new first, then the worst of the rest."""
    if not report.regressions:
        return ()
    # the report may show some models only
    cells = [cell for newest in report.past[-1:] for cell in newest.values()]
    metrics = {metric.name: metric for cell in (*cells, *report.cells) for metric in cell.metrics}
    ranked = sorted(report.regressions, key=lambda found: (not found.is_new, -found.alerts[0].loss))
    return tuple(_row(found, metrics) for found in ranked)


def _row(found: Regression, metrics: dict[str, MetricView]) -> AlertRow:
    worst = found.alerts[0]
    before, after, change = _values(worst, metrics)
    return AlertRow(
        kind=found.kind.value,
        place=_place(found, worst),
        among=len(found.suspects),
        state=worst.state.value,
        is_new=found.is_new,
        worst=worst,
        before=before,
        after=after,
        change=change,
        lines=tuple(_line(alert, metrics) for alert in found.alerts),
    )


def _place(found: Regression, worst: Alert) -> str:
    suspects = [commit[:9] for commit in found.suspects]
    if len(suspects) > 2:
        return f"{suspects[0]} … {suspects[-1]}"
    return ", ".join(suspects) or worst.commit[:9] or f"run {worst.run}"


def _line(alert: Alert, metrics: dict[str, MetricView]) -> str:
    before, after, change = _values(alert, metrics)
    return f"{alert.cell}, {alert.metric}: {before} → {after} ({change}), {alert.environment_class}"


def _values(alert: Alert, metrics: dict[str, MetricView]) -> tuple[str, str, str]:
    """(before, after, change) in the unit of the metric, the same in all cells; an unknown one
    is a share.
    """
    metric, change = metrics.get(alert.metric), alert.after - alert.before
    if metric is None:
        before, after = (value_text_of(one, alert.unit) for one in (alert.before, alert.after))
        return before, after, change_text_of(change, alert.unit)
    return (
        value_text(metric, alert.before),
        value_text(metric, alert.after),
        change_text(metric, change),
    )
