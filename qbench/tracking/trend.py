"""The course of one metric of one cell over commits, cut into levels, and what was accepted for its points."""

import itertools
import operator
import statistics
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import overload

from qbench.judging import Cell, EnvironmentClass, inherited
from qbench.tracking.baseline import Baseline
from qbench.tracking.change_points import Level, find_levels
from qbench.tracking.record import AXES, MetricRecord, Run
from qbench.tracking.shards import in_commit_order, joined_shards, measured_commit

# The course of one metric of one cell in one environment class over commits, cut into levels.
#
# Classes are never mixed: two computers that take turns give two flat series, not one that jumps, and a new version of
# an engine begins a series of its own. Other samples or labels begin a new stretch, drawn as a line with a label and
# never as a step. The shards of one night are one run; several runs of one commit are one point, their median.

CONFIRM = 3
"""Points that make a level."""

TREND_KEYS = (*AXES, "environment_class", "metrics", "digests")
"""The fields of a cell that a trend is made of."""

_LEAST_SAMPLES, _LEAST_POINTS = 2, 0.001
"""The least step that matters: two samples, or a tenth of a point where two samples are less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The result of one commit: the median (a fraction) of ``runs`` runs; ``run`` is the id of the first.

    ``data`` is the digest of the samples; ``commit`` is empty when unknown or when files were not committed.
    """

    run: str
    started: str
    commit: str
    value: float
    out_of: int
    data: str
    runs: int = 1


Night = tuple[str, str, str]
"""Run, its start, the commit that it measured."""


class Points(Sequence[Point]):
    """The points of one series, in order; each is made when it is requested.

    Years of nights are millions of points: all that is kept of one are four numbers, by which ``nights`` (run, start,
    commit) and ``kinds`` (out_of, data), which many series share, are found.
    """

    __slots__ = ("_counts", "_kind_of", "_kinds", "_night_of", "_nights", "values")

    def __init__(self, nights: Sequence[Night], kinds: Sequence[tuple[int, str]]) -> None:
        self._nights, self._kinds = nights, kinds
        self._night_of, self._kind_of, self._counts = array("l"), array("l"), array("l")
        self.values = array("d")

    def add(self, night: int, kind: int, value: float, *, runs: int = 1) -> None:
        """Append a point: positions in ``nights`` and ``kinds``, its value (a fraction), how many runs it is of."""
        self._night_of.append(night)
        self._kind_of.append(kind)
        self._counts.append(runs)
        self.values.append(value)

    def collapsed(self) -> "Points":
        """One point for each commit and its samples, the median; a run of no commit stays alone."""
        commits = [self._nights[night][2] or place for place, night in enumerate(self._night_of)]
        if not any(map(operator.eq, commits, commits[1:])):
            return self
        merged = Points(self._nights, self._kinds)
        samples = (self._kinds[kind][1] for kind in self._kind_of)
        for _, group in itertools.groupby(enumerate(zip(commits, samples, strict=True)), key=lambda pair: pair[1]):
            same = [place for place, _ in group]
            first, value = same[0], statistics.median(self.values[place] for place in same)
            merged.add(self._night_of[first], self._kind_of[first], value, runs=len(same))
        return merged

    def cut(self, confirm: int) -> tuple[tuple[int, ...], tuple[Level, ...]]:
        """``cut_levels`` of them."""
        kinds = [self._kinds[kind] for kind in self._kind_of]
        data, out_of = [label for _, label in kinds], [count for count, _ in kinds]
        return cut_levels(self.values.tolist(), data=data, out_of=out_of, confirm=confirm)

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, place: int) -> Point: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Point, ...]: ...

    def __getitem__(self, place: int | slice) -> Point | tuple[Point, ...]:
        if isinstance(place, slice):
            return tuple(self[one] for one in range(*place.indices(len(self))))
        run, started, commit = self._nights[self._night_of[place]]
        out_of, data = self._kinds[self._kind_of[place]]
        value, runs = self.values[place], self._counts[place]
        return Point(run=run, started=started, commit=commit, value=value, out_of=out_of, data=data, runs=runs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(operator.eq, self, other))

    __hash__ = None  # type: ignore[assignment]  # as every sequence that can grow


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The points of one (cell, metric, environment class) in the order of their commits.

    Args:
        lower_is_better: of an error rate. unit: of the values; ``"%"`` ones are shares.
        is_distance: from fp32, such as SQNR: it shows that something changed, but is not a loss that raises an alert.
        breaks: indices of points from which on the samples are others. levels: over all points, in order.
    """

    cell: Cell
    metric: str
    environment_class: str
    points: Sequence[Point]
    lower_is_better: bool = False
    unit: str = "%"
    is_distance: bool = False
    breaks: tuple[int, ...] = ()
    levels: tuple[Level, ...] = ()

    @property
    def steps(self) -> tuple[int, ...]:
        """Indices of points at which a confirmed new level begins."""
        return tuple(after.start for _, after in steps_between(self.breaks, self.levels) if not after.provisional)

    def worsening(self, before: float, after: float) -> float:
        """How much worse ``after`` is than ``before``, a fraction; negative where it is better."""
        return after - before if self.lower_is_better else before - after


def trend_series(runs: Iterable[Run], *, commits: Sequence[str] = (), confirm: int = CONFIRM) -> tuple[Series, ...]:
    """Every series in ``runs``, sorted by cell, metric and class, with its levels.

    Args:
        runs: in the order in which they began, as a ``History`` has them; the shards of one night are joined.
        commits: the main line of the project under test, whole hashes, the earliest first; empty: nothing moves.
        confirm: points that make a level.
    """
    return ordered_trends(in_commit_order(joined_shards(tuple(runs)), commits), confirm=confirm)


def ordered_trends(runs: Iterable[Run], *, confirm: int = CONFIRM) -> tuple[Series, ...]:
    """``trend_series`` of runs that are in the order of the trend already, shards joined; only one is in memory."""
    found = SeriesBuilder()
    last: dict[tuple[Cell, str], tuple[object, object, list[tuple[Course, float, int]]]] = {}
    for run in runs:
        night = found.night(run.id, str(run.header.get("started", "")), measured_commit(run))
        for record in run.cells:
            cell, name, metrics, digests = record.cell, record.environment_class, record.metrics, record.digests
            before = last.get((cell, name))
            if before is None or before[0] != metrics or before[1] != digests:  # most nights repeat the one before
                data = record.digests_of("data")
                counted = []
                for metric, one in record.counted():
                    course = found.course((cell, metric, name), one)
                    counted.append((course, one.value, found.kind(one.out_of, data_of(metric, data))))
                before = last[cell, name] = metrics, digests, counted
            for course, value, kind in before[2]:
                course.points.add(night, kind, value)
    return found.series(confirm)


TrendKey = tuple[Cell, str, str]
"""Cell, metric, environment class."""


@dataclass(slots=True)
class Course:
    """A series before it is cut into levels: the record of its last point, and its points in order."""

    last: MetricRecord
    points: Points


class SeriesBuilder:
    """Collects the points of every series, night by night."""

    def __init__(self) -> None:
        self._found: dict[TrendKey, Course] = {}
        self._nights: list[Night] = []
        self._kinds: dict[tuple[int, str], int] = {}
        self._kind_list: list[tuple[int, str]] = []

    def night(self, run: str, started: str, commit: str) -> int:
        """The position of a new night."""
        self._nights.append((run, started, commit))
        return len(self._nights) - 1

    def kind(self, out_of: int, data: str) -> int:
        """The position of the denominator of a point and the digest of its samples."""
        position = self._kinds.setdefault((out_of, data), len(self._kinds))
        if position == len(self._kind_list):
            self._kind_list.append((out_of, data))
        return position

    def course(self, key: TrendKey, last: MetricRecord) -> Course:
        """The series of ``key``; the direction and unit of its ``last`` record are used."""
        course = self._found.get(key)
        if course is None:
            course = self._found[key] = Course(last, Points(self._nights, self._kind_list))
        course.last = last
        return course

    def series(self, confirm: int) -> tuple[Series, ...]:
        """The series, sorted, each cut into levels that ``confirm`` points make."""
        return tuple(_series(*key, self._found[key], confirm) for key in sorted(self._found))


def data_of(metric: str, data: Mapping[str, str]) -> str:
    """The digest of the samples of ``metric`` (``top1@photos``); where it names none, of all ``data`` of its cell."""
    return data.get(metric.partition("@")[2]) or "+".join(data.values())


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


def steps_between(breaks: Sequence[int], levels: Sequence[Level]) -> tuple[tuple[Level, Level], ...]:
    """(level before, level after) of every step, provisional ones included; a break is not a step."""
    return tuple(pair for pair in itertools.pairwise(levels) if pair[1].start not in breaks)


def least_step(out_of: int) -> float:
    """The least step of a share of ``out_of`` that is reported."""
    return max(_LEAST_SAMPLES / out_of, _LEAST_POINTS)


def _series(cell: Cell, metric: str, environment_class: str, course: Course, confirm: int) -> Series:
    last, points = course.last, course.points.collapsed()
    breaks, levels = points.cut(confirm)
    return Series(
        cell=cell,
        metric=metric,
        environment_class=environment_class,
        points=points,
        lower_is_better=last.lower_is_better,
        unit=last.unit,
        is_distance=last.is_distance,
        breaks=breaks,
        levels=levels,
    )


# What was accepted for a point of a series: the fixed level that a slow slide is measured against.
#
# A trend compares a point with earlier ones, so that it does not see a slow slide; what was accepted is fixed.


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedLevel:
    """Accepted hits of one metric, and the samples (their digests) that these were counted on."""

    hits: int
    data: frozenset[str]

    def value_for(self, point: Point) -> float | None:
        """The accepted share where ``point`` was measured on the same samples; None elsewhere."""
        same = set(point.data.split("+")) <= self.data
        return self.hits / point.out_of if same else None


AcceptedLevels = Mapping[tuple[Cell, str, str], AcceptedLevel]
"""(cell, metric, environment class) → what was accepted there."""


def accepted_levels(
    suite: str,
    baselines: Iterable[Baseline],
    *,
    classes: Iterable[str] = (),
    equivalents: Iterable[tuple[str, ...]] = (),
) -> dict[tuple[Cell, str, str], AcceptedLevel]:
    """What ``baselines`` of ``suite`` hold, by cell, metric and class.

    Args:
        classes: further ones to look for: drift compares a result with one of a class that the suite declares
            equivalent, or accepted for ``any``, and so do trends. equivalents: as in ``Rules``.
    """
    groups, asked = tuple(equivalents), frozenset(classes)
    found = {}
    for baseline in baselines:
        data = frozenset(stored.digest for stored in baseline.data.values())
        for slug, known in baseline.cells.items():
            backend, schema, *variant = slug.split("+")
            cell = Cell(suite, baseline.model, backend, schema, *variant)
            for name in asked.union(known.accepted):
                of = inherited(known.accepted, EnvironmentClass.parse(name), groups)
                for metric, hits in known.accepted[of].metrics.items() if of else ():
                    found[cell, metric, name] = AcceptedLevel(hits=hits, data=data)
    return found


def accepted_value(series: Series, levels: AcceptedLevels) -> float | None:
    """The accepted share of the last point of ``series``; None where nothing was accepted for it."""
    known = levels.get((series.cell, series.metric, series.environment_class))
    return None if known is None or not series.points else known.value_for(series.points[-1])
