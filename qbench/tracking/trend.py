"""The course of one metric of one cell in one environment class over runs, cut into levels.

Classes are never mixed: two machines that take turns are two flat series, not one that jumps. Other samples or
labels begin a new stretch, drawn as a line with a label and never as a step.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from qbench.judging import Cell
from qbench.tracking.change_points import Level, find_levels
from qbench.tracking.runs import Run, cell_of_line

CONFIRM = 3
"""Runs that make a level."""

_LEAST_SAMPLES, _LEAST_POINTS = 2, 0.001
"""The least step that matters: two samples, or a tenth of a point where two samples are less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One run's value (a fraction). ``data`` is the digest of the samples, ``commit`` empty when unknown."""

    run: str
    started: str
    commit: str
    value: float
    out_of: int
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The points of one (cell, metric, environment class), the earliest first.

    Args:
        breaks: indices of points from which on the samples are others. levels: over all points, in order.
    """

    cell: Cell
    metric: str
    environment_class: str
    points: tuple[Point, ...]
    breaks: tuple[int, ...] = ()
    levels: tuple[Level, ...] = ()

    @property
    def steps(self) -> tuple[int, ...]:
        """Indices of points at which a confirmed new level begins; a break is not one."""
        breaks = {0, *self.breaks}
        return tuple(level.start for level in self.levels if level.start not in breaks and not level.provisional)


def trend_series(runs: Iterable[Run], *, confirm: int = CONFIRM) -> tuple[Series, ...]:
    """Every series in ``runs`` (the earliest first), sorted by cell, metric and class, with its levels."""
    points: dict[tuple[Cell, str, str], list[Point]] = {}
    for run in runs:
        for line in run.cells:
            for metric, point in _points(run, line):
                key = (cell_of_line(line), metric, str(line.get("environment_class", "")))
                points.setdefault(key, []).append(point)
    return tuple(
        _series(cell, metric, name, tuple(found), confirm) for (cell, metric, name), found in sorted(points.items())
    )


def cut_levels(
    values: Sequence[float], *, data: Sequence[str], out_of: Sequence[int], confirm: int = CONFIRM
) -> tuple[tuple[int, ...], tuple[Level, ...]]:
    """(breaks, levels) of a series of shares; no level reaches over a break.

    Args:
        values, data, out_of: of each run, the earliest first: the share, the digest of its samples, its denominator.
        confirm: runs that make a level.
    """
    breaks = tuple(i for i in range(1, len(values)) if data[i] != data[i - 1])
    levels: list[Level] = []
    for start, stop in zip((0, *breaks), (*breaks, len(values)), strict=True):
        stretch = values[start:stop]
        if min(stretch, default=0.0) == max(stretch, default=0.0):  # most int8 series never move
            levels += [Level(start=start, stop=stop, mean=stretch[0])] if stretch else []
            continue
        levels += [
            replace(level, start=start + level.start, stop=start + level.stop)
            for level in find_levels(stretch, min_effect=_least_step(out_of[start]), confirm=confirm)
        ]
    return breaks, tuple(levels)


def _least_step(out_of: int) -> float:
    """The least step of a share of ``out_of`` that is worth a mark."""
    return max(_LEAST_SAMPLES / out_of, _LEAST_POINTS)


def _points(run: Run, line: Mapping[str, Any]) -> Iterator[tuple[str, Point]]:
    for metric, counts in line.get("metrics", {}).items():
        data = {key: value for key, value in line.get("digests", {}).items() if key.startswith("data:")}
        named = data.get(f"data:{metric.partition('@')[2]}")
        yield (
            metric,
            Point(
                run=run.id,
                started=str(run.header.get("started", "")),
                commit=run.commit,
                value=counts["hits"] / counts["out_of"],
                out_of=counts["out_of"],
                data=named or "+".join(data[key] for key in sorted(data)),
            ),
        )


def _series(cell: Cell, metric: str, environment_class: str, points: tuple[Point, ...], confirm: int) -> Series:
    breaks, levels = cut_levels(
        [p.value for p in points], data=[p.data for p in points], out_of=[p.out_of for p in points], confirm=confirm
    )
    return Series(
        cell=cell,
        metric=metric,
        environment_class=environment_class,
        points=points,
        breaks=breaks,
        levels=levels,
    )
