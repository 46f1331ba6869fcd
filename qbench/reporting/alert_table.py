"""What got worse and stayed, as rows of a table: what nobody has ruled on first, and within that the worst."""

from dataclasses import dataclass

from qbench.reporting.report import Report
from qbench.reporting.view import MetricView
from qbench.reporting.words import change_text, percent, points, value_text
from qbench.tracking import Alert, Regression


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
