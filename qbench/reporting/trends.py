"""The history of a cell as series with their steps, and alerts as a table."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from qbench.judging import FP32, paired_interval
from qbench.number_text import percent, points
from qbench.reporting.format import change_text, value_text
from qbench.reporting.report import Report
from qbench.reporting.timeline import Mark, Series, Step, StepGroup, Switch, Trend
from qbench.reporting.view import CellKey, CellView, MetricView, RunView
from qbench.tracking import Alert, Regression, cut_levels

# The history of a cell as series: one a metric and environment class, with its steps and what else changed.
#
#     band of a value = reference + Bonett–Price interval of (gains − losses) / n, 95 %, for shares of samples
#
# A step is a new level of ``tracking.cut_levels``, provisional until enough runs confirm it. Another environment
# class or other samples are a labelled line and never a step.

OTHER_SAMPLES = "other samples"


@dataclass(frozen=True, slots=True)
class _Point:
    position: int
    cell: CellView
    metric: MetricView

    @property
    def environment_class(self) -> str:
        return self.cell.environment_class


def trend_of(
    history: Sequence[CellView | None],
    cell: CellView,
    metric: MetricView,
    runs: Sequence[RunView] = (),
    *,
    accepted: float | None = None,
) -> Trend:
    """The trend of ``metric`` of ``cell``; ``history`` is what each run, oldest first, says of it, or None.

    ``runs``, where given, are the same runs: commits and package versions that changed are named beside a step.
    ``accepted`` is what was approved for the class of the newest run, a fraction. Only the lead of a
    quantized cell has a band.
    """
    points = []
    last: CellView | None = None
    found: MetricView | None = None
    for position, past in enumerate(history):
        if past is not last:  # the same view again holds the same metric
            last = past
            found = None if past is None else next((m for m in past.metrics if m.name == metric.name), None)
        if past is not None and found is not None:
            points.append(_Point(position, past, found))
    classes = dict.fromkeys(point.environment_class for point in points)
    banded = metric is cell.lead and cell.key.schema != FP32 and metric.proportion and metric.n == metric.out_of
    series = (
        _series([p for p in points if p.environment_class == name], name, runs, banded=banded) for name in classes
    )
    return Trend(
        key=cell.key,
        metric=metric,
        series=tuple(series),
        switches=_switches(points),
        marks=tuple(_marks(points)),
        accepted=accepted,
    )


def _marks(points: Sequence[_Point]) -> Iterator[Mark]:
    """The stretches of runs with one reference and one limit."""
    for (reference, limit), group in itertools.groupby(points, key=lambda p: (p.metric.reference, p.metric.limit)):
        places = [point.position for point in group]
        yield Mark(first=places[0], last=places[-1], reference=reference, limit=limit)


def _series(points: Sequence[_Point], environment_class: str, runs: Sequence[RunView], *, banded: bool) -> Series:
    values = tuple(point.metric.value for point in points)
    breaks, levels = cut_levels(values, data=[p.cell.data for p in points], out_of=[p.metric.out_of for p in points])
    return Series(
        environment_class=environment_class,
        positions=tuple(point.position for point in points),
        values=values,
        steps=tuple(
            Step(
                position=points[after.start].position,
                before=before.mean,
                after=after.mean,
                since=points[before.stop - 1].position,
                provisional=after.provisional,
                causes=_causes(points[before.stop - 1], points[after.start], runs),
            )
            for before, after in itertools.pairwise(levels)
            if after.start not in breaks
        ),
        band=tuple(_band(point.metric) for point in points) if banded else (),
        flips=tuple((point.metric.losses, point.metric.gains) for point in points),
    )


def _band(metric: MetricView) -> tuple[float, float]:
    """The 95 % interval of the value, as fractions; the value itself where the counts make no sense."""
    if metric.n != metric.out_of or metric.losses + metric.gains > metric.n or min(metric.losses, metric.gains) < 0:
        return metric.value, metric.value
    low, high = paired_interval(metric.losses, metric.gains, metric.n, method="bonett-price")
    if metric.lower_is_better:
        low, high = -high, -low
    return max(metric.reference + low, 0.0), min(metric.reference + high, 1.0)


_CAUSES = (
    ("model", "model changed"),
    ("preprocessing", "preprocessing changed"),
    ("data", "data changed"),
    ("quantized", "quantized graph changed"),
    ("arithmetic", "arithmetic changed"),
)
"""What a digest is of (its key up to a colon), and the words for another one."""


def _causes(before: _Point, after: _Point, runs: Sequence[RunView]) -> tuple[str, ...]:
    """What is known to be new in ``after``, the likeliest cause first; what only one of the two knows is not named."""
    old, new = before.cell.digests, after.cell.digests
    changed = {key.partition(":")[0] for key in new if key in old and new[key] != old[key]}
    found = [words for kind, words in _CAUSES if kind in changed]
    if not runs:
        return tuple(found)
    earlier, later = runs[before.position], runs[after.position]
    versions = dict(earlier.versions)
    for name, version in later.versions:
        if version != versions.get(name, version):
            found.append(f"{name} {versions[name]} → {version}")
    if later.commit and later.commit != earlier.commit:
        first = runs[before.position + 1].commit
        found.append(f"commit {later.commit}" if first in ("", later.commit) else f"commits {first} … {later.commit}")
    return tuple(found)


def _switches(points: Sequence[_Point]) -> tuple[Switch, ...]:
    found = []
    for before, after in itertools.pairwise(points):
        if before.environment_class != after.environment_class:
            label = class_difference(before.environment_class, after.environment_class)
            found.append(Switch(position=after.position, label=label))
        elif before.cell.data != after.cell.data:
            found.append(Switch(position=after.position, label=OTHER_SAMPLES))
    return tuple(found)


def class_difference(before: str, after: str) -> str:
    """What is new in ``after``, written ``processor+package-version+…``: only the parts that differ."""
    old = before.split("+")
    parts = enumerate(after.split("+"))
    new = [part if place == 0 else " ".join(part.rsplit("-", 1)) for place, part in parts if part not in old]
    return ", ".join(new) or after


def group_steps(trends: Sequence[Trend], runs: Sequence[RunView]) -> tuple[StepGroup, ...]:
    """The steps of ``trends`` by the run that first showed them, newest run first, largest step first.

    Machines that take turns show one change in different runs: the same cell's step in the same direction belongs to
    the earliest of them that lies after the last run of its own level before.
    """
    found: dict[int, list[tuple[CellKey, MetricView, Step]]] = {}
    first: dict[tuple[CellKey, str, bool], list[int]] = {}
    every = [(trend.key, trend.metric, step) for trend in trends for step in trend.steps]
    for key, metric, step in sorted(every, key=lambda one: one[2].position):
        seen = first.setdefault((key, metric.name, step.after > step.before), [])
        position = next((known for known in seen if step.since < known), step.position)
        if position == step.position:
            seen.append(position)
        found.setdefault(position, []).append((key, metric, step))
    return tuple(
        StepGroup(
            position=position,
            run=runs[position],
            steps=tuple(sorted(found[position], key=lambda s: (-abs(s[2].after - s[2].before), s[0]))),
        )
        for position in sorted(found, reverse=True)
    )


def is_eventful(cell: CellView, trends: Sequence[Trend]) -> bool:
    """Whether something is to be seen in the history of ``cell``: red, in quarantine, or with a step."""
    return cell.is_red or cell.outcome == "quarantined" or any(trend.steps for trend in trends)


# What got worse and stayed, as rows of a table: what nobody has ruled on first, and within that the worst.


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRow:
    """One regression in words: its worst series, and how many more have the same cause.

    ``place`` names the commit, the commits of which one did it, or the run; ``why`` says who ruled, or what tells the
    state. ``lines`` has a line for each of its series, the worst first.
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
        """What is said of its worst series."""
        return self.worst.why

    @property
    def title(self) -> str:
        """``step at 1a2b3c4d5`` or ``slide since 1a2b3c4d5``."""
        return f"{self.kind} {'at' if self.kind == 'step' else 'since'} {self.place}"


def alert_rows(report: Report) -> tuple[AlertRow, ...]:
    """The regressions of ``report``, the worst of what is new first, then the worst of the rest."""
    metrics = _metrics(report)
    ranked = sorted(report.regressions, key=lambda found: (not found.is_new, -found.alerts[0].loss))
    return tuple(_row(found, metrics) for found in ranked)


def _metrics(report: Report) -> dict[str, MetricView]:
    """A metric of each name: what its values are does not depend on the cell."""
    shown = (trend.metric for trends in report.trends.values() for trend in trends)
    return {metric.name: metric for metric in shown}


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
    """(before, after, change) in the unit of the metric; one that no cell of the run has is taken for a share."""
    metric, change = metrics.get(alert.metric), alert.after - alert.before
    if metric is None:
        return percent(alert.before), percent(alert.after), points(change)
    return value_text(metric, alert.before), value_text(metric, alert.after), change_text(metric, change)
