"""The history of a cell as series: one a metric and environment class, with its steps and what else changed.

A step is a new level of ``tracking.cut_levels``, provisional until enough runs confirm it. Another environment
class or other samples are a labelled line and never a step.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from qbench.reporting.view import CellKey, CellView, MetricView, RunView, Series, Step, StepGroup, Switch, Trend
from qbench.tracking import cut_levels


@dataclass(frozen=True, slots=True)
class _Point:
    position: int
    environment_class: str
    data: str
    value: float
    out_of: int


def trend_of(history: Sequence[CellView | None], cell: CellView, metric: MetricView) -> Trend:
    """The trend of ``metric`` of ``cell``; ``history`` is what each run, oldest first, says of it, or None."""
    points = []
    for position, past in enumerate(history):
        found = next((m for m in past.metrics if m.name == metric.name), None) if past else None
        if past and found:
            points.append(_Point(position, past.environment_class, past.data, found.value, found.out_of))
    classes = dict.fromkeys(point.environment_class for point in points)
    series = (_series([p for p in points if p.environment_class == name], name) for name in classes)
    return Trend(key=cell.key, metric=metric, series=tuple(series), switches=_switches(points))


def _series(points: Sequence[_Point], environment_class: str) -> Series:
    values = tuple(point.value for point in points)
    breaks, levels = cut_levels(values, data=[p.data for p in points], out_of=[p.out_of for p in points])
    return Series(
        environment_class=environment_class,
        positions=tuple(point.position for point in points),
        values=values,
        steps=tuple(
            Step(
                position=points[after.start].position,
                before=before.mean,
                after=after.mean,
                provisional=after.provisional,
            )
            for before, after in itertools.pairwise(levels)
            if after.start not in breaks
        ),
    )


def _switches(points: Sequence[_Point]) -> tuple[Switch, ...]:
    found = []
    for before, after in itertools.pairwise(points):
        if before.environment_class != after.environment_class:
            label = class_difference(before.environment_class, after.environment_class)
            found.append(Switch(position=after.position, label=label))
        elif before.data != after.data:
            found.append(Switch(position=after.position, label="other samples"))
    return tuple(found)


def class_difference(before: str, after: str) -> str:
    """What is new in ``after``, written ``processor+package-version+…``: only the parts that differ."""
    old = before.split("+")
    parts = enumerate(after.split("+"))
    new = [part if place == 0 else " ".join(part.rsplit("-", 1)) for place, part in parts if part not in old]
    return ", ".join(new) or after


def group_steps(trends: Sequence[Trend], runs: Sequence[RunView]) -> tuple[StepGroup, ...]:
    """The steps of ``trends`` by the run that first showed them, newest run first, largest step first."""
    found: dict[int, list[tuple[CellKey, MetricView, Step]]] = {}
    for trend in trends:
        for step in trend.steps:
            found.setdefault(step.position, []).append((trend.key, trend.metric, step))
    return tuple(
        StepGroup(
            position=position,
            run=runs[position],
            steps=tuple(sorted(found[position], key=lambda s: (-abs(s[2].after - s[2].before), s[0]))),
        )
        for position in sorted(found, reverse=True)
    )
