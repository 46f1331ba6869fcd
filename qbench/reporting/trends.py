"""The history of a cell as series: one a metric and environment class, with its steps and what else changed.

A step is a new level by ``find_levels`` with the least step that matters, confirmed by 3 runs. Another environment
class or other samples are a labelled line and never a step.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from qbench.reporting.view import CellKey, CellView, MetricView, RunView, Series, Step, StepGroup, Switch, Trend
from qbench.tracking import find_levels, least_step

CONFIRM = 3
"""Runs that make a level."""


@dataclass(frozen=True, slots=True)
class _Point:
    position: int
    environment_class: str
    data: str
    value: float


def trend_of(history: Sequence[CellView | None], cell: CellView, metric: MetricView) -> Trend:
    """The trend of ``metric`` of ``cell``; ``history`` is what each run, oldest first, says of it, or None."""
    points = []
    for position, past in enumerate(history):
        found = next((m for m in past.metrics if m.name == metric.name), None) if past else None
        if past and found:
            points.append(_Point(position, past.environment_class, past.data, found.value))
    classes = dict.fromkeys(point.environment_class for point in points)
    series = (_series([p for p in points if p.environment_class == name], metric, name) for name in classes)
    return Trend(key=cell.key, metric=metric, series=tuple(series), switches=_switches(points))


def _series(points: Sequence[_Point], metric: MetricView, environment_class: str) -> Series:
    breaks = [i for i in range(1, len(points)) if points[i].data != points[i - 1].data]
    steps: list[Step] = []
    for start, stop in zip((0, *breaks), (*breaks, len(points)), strict=True):
        steps.extend(_steps(points[start:stop], metric))
    return Series(
        environment_class=environment_class,
        positions=tuple(point.position for point in points),
        values=tuple(point.value for point in points),
        steps=tuple(steps),
    )


def _steps(points: Sequence[_Point], metric: MetricView) -> Iterable[Step]:
    values = [point.value for point in points]
    if len(set(values)) < 2:  # most int8 series never move
        return
    levels = find_levels(values, min_effect=least_step(metric.out_of), confirm=CONFIRM)
    for before, after in itertools.pairwise(levels):
        yield Step(
            position=points[after.start].position, before=before.mean, after=after.mean, provisional=after.provisional
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
