"""The course of one metric of one cell in one environment class over commits, cut into levels.

Classes are never mixed: two machines that take turns are two flat series, not one that jumps, and a new version of an
engine begins a series of its own. Other samples or labels begin a new stretch, drawn as a line with a label and never
as a step. The shards of one night are one run; several runs of one commit are one point, their median.
"""

import itertools
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from qbench.judging import Cell
from qbench.tracking.change_points import Level, find_levels
from qbench.tracking.counts import Nature, counts_of_line, data_digests
from qbench.tracking.ordering import in_commit_order, measured_commit, started_and_id
from qbench.tracking.runs import Run, cell_of_line
from qbench.tracking.shards import joined_shards

CONFIRM = 3
"""Points that make a level."""

_LEAST_SAMPLES, _LEAST_POINTS = 2, 0.001
"""The least step that matters: two samples, or a tenth of a point where two samples are less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What the runs of one commit say: the median (a fraction) of ``runs`` runs, named by the first of them.

    ``data`` is the digest of the samples; ``commit`` is empty when unknown or when files were not committed.
    """

    run: str
    started: str
    commit: str
    value: float
    out_of: int
    data: str
    runs: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The points of one (cell, metric, environment class) in the order of their commits.

    Args:
        lower_is_better: of an error rate. unit: of the values; ``"%"`` ones are shares.
        is_distance: from fp32, such as SQNR: it tells that something moved, and is no loss to be alarmed about.
        breaks: indices of points from which on the samples are others. levels: over all points, in order.
    """

    cell: Cell
    metric: str
    environment_class: str
    points: tuple[Point, ...]
    lower_is_better: bool = False
    unit: str = "%"
    is_distance: bool = False
    breaks: tuple[int, ...] = ()
    levels: tuple[Level, ...] = ()

    @property
    def steps(self) -> tuple[int, ...]:
        """Indices of points at which a confirmed new level begins; a break is not one."""
        breaks = {0, *self.breaks}
        return tuple(level.start for level in self.levels if level.start not in breaks and not level.provisional)

    def worsening(self, before: float, after: float) -> float:
        """How much worse ``after`` is than ``before``, a fraction; negative where it is better."""
        return after - before if self.lower_is_better else before - after


def trend_series(runs: Iterable[Run], *, commits: Sequence[str] = (), confirm: int = CONFIRM) -> tuple[Series, ...]:
    """Every series in ``runs``, sorted by cell, metric and class, with its levels.

    Args:
        commits: the main line of the project under test, whole hashes, the earliest first; empty: runs go by time.
        confirm: points that make a level.
    """
    found: dict[TrendKey, Course] = {}
    last: dict[tuple[Cell, str], tuple[object, object, list[tuple[Course, float, int, str]]]] = {}
    for run in in_order(runs, commits):
        run_id, started, commit = run.id, str(run.header.get("started", "")), measured_commit(run)
        for line in run.cells:
            cell, name = cell_of_line(line), str(line.get("environment_class", ""))
            metrics, digests = line.get("metrics"), line.get("digests")
            before = last.get((cell, name))
            if before is None or before[0] != metrics or before[1] != digests:  # most nights say what was said before
                data = data_digests(line)
                counted = []
                for one in counts_of_line(line):
                    course = found.setdefault((cell, one.metric, name), Course(one.nature))
                    course.nature = one.nature
                    counted.append((course, one.value, one.out_of, data_of(one.metric, data)))
                before = last[cell, name] = metrics, digests, counted
            for course, value, out_of, label in before[2]:
                course.points.append(
                    Point(run=run_id, started=started, commit=commit, value=value, out_of=out_of, data=label)
                )
    return series_of(found, confirm)


TrendKey = tuple[Cell, str, str]
"""Cell, metric, environment class."""


@dataclass(slots=True)
class Course:
    """What is known of a trend before it is cut: the ``nature`` of its last point, and its points in order."""

    nature: Nature
    points: list[Point] = field(default_factory=list)


def in_order(runs: Iterable[Run], commits: Sequence[str]) -> Sequence[Run]:
    """``runs``, the shards of one night as one, in the order of ``commits``; without these by time."""
    joined = joined_shards(tuple(runs))
    return in_commit_order(joined, commits) if commits else sorted(joined, key=started_and_id)


def data_of(metric: str, data: Mapping[str, str]) -> str:
    """The digest of the samples of ``metric`` (``top1@photos``); where it names none, of all ``data`` of its cell."""
    return data.get(metric.partition("@")[2]) or "+".join(data.values())


def series_of(found: Mapping[TrendKey, Course], confirm: int) -> tuple[Series, ...]:
    """The series of what was ``found``, sorted, each cut into levels that ``confirm`` points make."""
    return tuple(_series(*key, found[key], confirm) for key in sorted(found))


def cut_levels(
    values: Sequence[float], *, data: Sequence[str], out_of: Sequence[int], confirm: int = CONFIRM
) -> tuple[tuple[int, ...], tuple[Level, ...]]:
    """(breaks, levels) of a series of shares; no level reaches over a break.

    Args:
        values, data, out_of: of each point, in order: the share, the digest of its samples, its denominator.
        confirm: points that make a level.
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
            for level in find_levels(stretch, min_effect=least_step(out_of[start]), confirm=confirm)
        ]
    return breaks, tuple(levels)


def least_step(out_of: int) -> float:
    """The least step of a share of ``out_of`` that is worth a mark."""
    return max(_LEAST_SAMPLES / out_of, _LEAST_POINTS)


def _series(cell: Cell, metric: str, environment_class: str, course: Course, confirm: int) -> Series:
    nature, points = course.nature, tuple(course.points)
    if any(before.commit == after.commit != "" for before, after in itertools.pairwise(points)):
        points = tuple(_collapsed(points))
    breaks, levels = cut_levels(
        [p.value for p in points], data=[p.data for p in points], out_of=[p.out_of for p in points], confirm=confirm
    )
    return Series(
        cell=cell,
        metric=metric,
        environment_class=environment_class,
        points=points,
        lower_is_better=nature.lower_is_better,
        unit=nature.unit,
        is_distance=nature.is_distance,
        breaks=breaks,
        levels=levels,
    )


def _collapsed(points: Sequence[Point]) -> Iterator[Point]:
    """One point for each commit and its samples; a run of no commit stays alone."""
    numbered = ((point.commit or f"no commit {place}", point) for place, point in enumerate(points))
    for _, group in itertools.groupby(numbered, key=lambda pair: (pair[0], pair[1].data)):
        same = [point for _, point in group]
        if len(same) == 1:
            yield same[0]
            continue
        yield replace(same[0], value=statistics.median(point.value for point in same), runs=len(same))
