"""The course of one metric of one cell over commits, cut into levels, and what was accepted for
its points.
"""

import itertools
import math
import operator
import statistics
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

from qbench.judging import Cell, EnvironmentClass, Outcome, inherited
from qbench.tracking.baseline import Baseline
from qbench.tracking.change_points import Change, Growth, Level
from qbench.tracking.record import AXES, MetricRecord, Run
from qbench.tracking.shards import in_commit_order, joined_shards, measured_commit

# The course of one metric of one cell in one environment class over commits, cut into levels.
#
# Classes are never mixed: two computers that take turns give two flat series, not one that jumps,
# and a new version of an engine begins a series of its own. Other samples or labels begin a new
# stretch, drawn as a line with a label and never as a step. The shards of one night are one run;
# several runs of one commit are one point, their median.

CONFIRM = 3
"""Points that make a level."""

TREND_KEYS = (*AXES, "environment_class", "outcome", "metrics", "digests", "stopped", "carried")
"""The fields of a cell that a trend is made of."""

_LEAST_SAMPLES, _LEAST_POINTS = 2, 0.001
"""The least step of a share that matters: two samples, or a tenth of a point where two samples
are less.
"""

_LEAST_DECIBELS, _LEAST_PART = 0.1, 0.001
"""The least step of a value in decibels, and of one in any other unit the part of what it was
at first.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The result of one commit: the median (a fraction) of ``runs`` runs; ``run`` is the id of
    the first.

    ``data`` is the digest of the samples; ``commit`` is empty when unknown or when files were not
    committed.
    """

    run: str
    started: str
    commit: str
    value: float
    out_of: int
    data: str
    runs: int = 1


class Facts(NamedTuple):
    """What the record of a point says besides its value.

    ``accepted``: the value that was accepted for it, a fraction; None: nothing was, or an older
        qbench wrote it.
    ``noise``: as of ``KnownValue``. ``listed``: whether its cell is quarantined.
    """

    accepted: float | None = None
    noise: tuple[float, float] | None = None
    listed: bool = False


Night = tuple[str, str, str, int]
"""Run, its start, the commit that it measured, its place in the order in which runs began."""


class Points(Sequence[Point]):
    """The points of one series, in order; each is made when it is requested.

    Years of nights are millions of points: all that is kept of one are four numbers, by which
    ``nights`` (run, start, commit) and ``kinds`` (out_of, data), which many series share, are
    found.
    """

    __slots__ = (
        "_counts",
        "_facts",
        "_kind_of",
        "_kinds",
        "_night_of",
        "_nights",
        "_source",
        "values",
    )

    def __init__(self, nights: Sequence[Night], kinds: Sequence[tuple[int, str]]) -> None:
        self._nights, self._kinds = nights, kinds
        self._facts: dict[int, Facts] = {}
        """Position of a run → its facts; those of a run that repeats the one before it are not
        stored again.
        """
        self._night_of, self._kind_of, self._counts = array("l"), array("l"), array("l")
        self._source = self
        self.values = array("d")

    def add(
        self,
        night: int,
        kind: int,
        value: float,
        *,
        runs: int = 1,
        facts: Facts = Facts(),  # noqa: B008
    ) -> None:
        """Append a point: positions in ``nights`` and ``kinds``, its value (a fraction), how
        many runs it is of.
        """
        if facts != self._last_facts():
            self._facts[len(self.values)] = facts
        self._night_of.append(night)
        self._kind_of.append(kind)
        self._counts.append(runs)
        self.values.append(value)

    def _last_facts(self) -> Facts:
        return next(reversed(self._facts.values()), Facts())

    def facts(self) -> list[Facts]:
        """The facts of each run, in the order in which the runs began: that of ``arrivals``."""
        order, known, each = self._source.order(), Facts(), []
        for place in range(len(order)):
            known = self._facts.get(place, known)
            each.append(known)
        return [each[place] for place in sorted(range(len(order)), key=order.__getitem__)]

    def collapsed(self) -> "Points":
        """One point for each commit and its samples, the median; a run of no commit stays alone."""
        commits = [self._nights[night][2] or place for place, night in enumerate(self._night_of)]
        if not any(map(operator.eq, commits, commits[1:])):
            return self
        merged = Points(self._nights, self._kinds)
        samples = (self._kinds[kind][1] for kind in self._kind_of)
        for _, group in itertools.groupby(
            enumerate(zip(commits, samples, strict=True)), key=lambda pair: pair[1]
        ):
            same = [place for place, _ in group]
            first, value = same[0], statistics.median(self.values[place] for place in same)
            merged.add(self._night_of[first], self._kind_of[first], value, runs=len(same))
        merged._source, merged._facts = self, self._facts
        return merged

    @property
    def kinds(self) -> list[tuple[int, str]]:
        """(out_of, data) of each."""
        return [self._kinds[kind] for kind in self._kind_of]

    def order(self) -> list[int]:
        """The place of the night of each in the order in which the runs began."""
        return [self._nights[night][3] for night in self._night_of]

    def arrivals(self) -> Iterator[tuple[int, float]]:
        """(place, its value from then on) of each run, in the order in which the runs began."""
        source, order = self._source, self._source.order()
        if source is self and not any(map(operator.gt, order, order[1:])):
            yield from enumerate(self.values)
            return
        places = [place for place, count in enumerate(self._counts) for _ in range(count)]
        known: dict[int, list[float]] = {}
        for run in sorted(range(len(order)), key=order.__getitem__):
            found = known.setdefault(places[run], [])
            found.append(source.values[run])
            yield places[run], statistics.median(found)

    @property
    def of_runs(self) -> Sequence[float]:
        """The value of each run: what a point had at any time lies between the least and the
        greatest.
        """
        return self._source.values

    def runs_between(self, start: int, stop: int) -> Sequence[float]:
        """The values of the runs of the points ``start`` … ``stop`` − 1."""
        if self._source is self:
            return self.values[start:stop]
        first = sum(self._counts[:start])
        return self._source.values[first : first + sum(self._counts[start:stop])]

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, place: int) -> Point: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Point, ...]: ...

    def __getitem__(self, place: int | slice) -> Point | tuple[Point, ...]:
        if isinstance(place, slice):
            return tuple(self[one] for one in range(*place.indices(len(self))))
        run, started, commit, _ = self._nights[self._night_of[place]]
        out_of, data = self._kinds[self._kind_of[place]]
        value, runs = self.values[place], self._counts[place]
        return Point(
            run=run,
            started=started,
            commit=commit,
            value=value,
            out_of=out_of,
            data=data,
            runs=runs,
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Sequence)
            and len(self) == len(other)
            and all(map(operator.eq, self, other))
        )

    __hash__ = None  # type: ignore[assignment]  # as every sequence that can grow


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The points of one (cell, metric, environment class) in the order of their commits.

    Args:
        lower_is_better: of an error rate.
        unit: of the values; ``"%"`` ones are shares.
        is_distance: from fp32, such as SQNR.
        breaks: indices of points from which on the samples are others.
        levels: over all points, in order; the value of one is the median of the runs that it
            covers.
        changes: what was confirmed, by the replay of the runs in the order in which they began.
    """

    cell: Cell
    metric: str
    environment_class: str
    points: Points
    lower_is_better: bool = False
    unit: str = "%"
    is_distance: bool = False
    breaks: tuple[int, ...] = ()
    levels: tuple[Level, ...] = ()
    changes: tuple[Change, ...] = ()

    @property
    def steps(self) -> tuple[int, ...]:
        """Indices of points at which a confirmed new level begins."""
        return tuple(
            after.start
            for _, after in steps_between(self.breaks, self.levels)
            if not after.provisional
        )

    def worsening(self, before: float, after: float) -> float:
        """How much worse ``after`` is than ``before``, a fraction; negative where it is better."""
        return after - before if self.lower_is_better else before - after


def trend_series(
    runs: Iterable[Run], *, commits: Sequence[str] = (), confirm: int = CONFIRM
) -> tuple[Series, ...]:
    """Every series in ``runs``, sorted by cell, metric and class, with its levels.

    Args:
        runs: in the order in which they began, as a ``History`` has them; the shards of one night
            are joined.
        commits: the main line of the project under test, whole hashes, the earliest first; empty:
            nothing moves.
        confirm: points that make a level.
    """
    nights = joined_shards(tuple(runs))
    return ordered_trends(
        in_commit_order(nights, commits), [run.id for run in nights], confirm=confirm
    )


def ordered_trends(
    runs: Iterable[Run], began: Sequence[str] = (), *, confirm: int = CONFIRM
) -> tuple[Series, ...]:
    """``trend_series`` of runs that are in the order of the trend already, shards joined; only
    one is in memory.

    Args:
        began: the ids of the runs in the order in which they began; empty: the given one.
    """
    found = SeriesBuilder(began)
    last: dict[
        tuple[Cell, str],
        tuple[object, object, tuple[bool, ...], list[tuple[UncutSeries, float, int, Facts]]],
    ] = {}
    for run in runs:
        night = found.night(run.id, str(run.header.get("started", "")), measured_commit(run))
        for record in run.cells:
            cell = record.cell
            name = record.environment_class
            metrics = record.metrics
            digests = record.digests
            before, listed = last.get((cell, name)), record.outcome == Outcome.QUARANTINED.value
            kind_of = (listed, record.is_carried, record.stopped is not None)
            if before is None or before[:3] != (metrics, digests, kind_of):
                # most nights repeat the one before
                data = record.digests_of("data")
                counted = []
                for metric, one in record.counted():
                    course = found.course((cell, metric, name), one)
                    kind = found.kind(one.out_of, data_of(metric, data))
                    counted.append((course, one.value, kind, facts_of(one, listed=listed)))
                before = last[cell, name] = metrics, digests, kind_of, counted
            for course, value, kind, facts in before[3]:
                course.points.add(night, kind, value, facts=facts)
    return found.series(confirm)


def facts_of(metric: MetricRecord, *, listed: bool) -> Facts:
    """What the record of a ``metric`` says besides its value; ``listed``: whether its cell is
    quarantined.
    """
    accepted = None if metric.accepted is None else metric.accepted / metric.out_of
    return Facts(
        accepted, None if metric.noise is None else (metric.noise[0], metric.noise[1]), listed
    )


TrendKey = tuple[Cell, str, str]
"""Cell, metric, environment class."""


@dataclass(slots=True)
class UncutSeries:
    """A series before it is cut into levels: the record of its last point, and its points in
    order.
    """

    last: MetricRecord
    points: Points


class SeriesBuilder:
    """Collects the points of every series, night by night; ``began``: the ids of runs in the
    order they began.
    """

    def __init__(self, began: Sequence[str] = ()) -> None:
        self._began = {run: place for place, run in enumerate(began)}
        self._found: dict[TrendKey, UncutSeries] = {}
        self._nights: list[Night] = []
        self._kinds: dict[tuple[int, str], int] = {}
        self._kind_list: list[tuple[int, str]] = []

    def night(self, run: str, started: str, commit: str) -> int:
        """The position of a new night."""
        self._nights.append((run, started, commit, self._began.get(run, len(self._nights))))
        return len(self._nights) - 1

    def kind(self, out_of: int, data: str) -> int:
        """The position of the denominator of a point and the digest of its samples."""
        position = self._kinds.setdefault((out_of, data), len(self._kinds))
        if position == len(self._kind_list):
            self._kind_list.append((out_of, data))
        return position

    def course(self, key: TrendKey, last: MetricRecord) -> UncutSeries:
        """The series of ``key``; the direction and unit of its ``last`` record are used."""
        course = self._found.get(key)
        if course is None:
            course = self._found[key] = UncutSeries(last, Points(self._nights, self._kind_list))
        course.last = last
        return course

    def series(self, confirm: int) -> tuple[Series, ...]:
        """The series, sorted, each cut into levels that ``confirm`` points make."""
        return tuple(_series(*key, self._found[key], confirm) for key in sorted(self._found))


def data_of(metric: str, data: Mapping[str, str]) -> str:
    """The digest of the samples of ``metric`` (``top1@photos``); where it names none, of all
    ``data`` of its cell.
    """
    return data.get(metric.partition("@")[2]) or "+".join(data.values())


def cut_levels(
    values: Sequence[float], *, data: Sequence[str], out_of: Sequence[int], confirm: int = CONFIRM
) -> tuple[tuple[int, ...], tuple[Level, ...]]:
    """(breaks, levels) of a series of shares, one run a point; no level reaches over a break.

    Args:
        values, data, out_of: of each point, in order: the share, the digest of its samples, its
            denominator.
        confirm: points that make a level.
    """
    points = Points([("", "", "", 0)], list(zip(out_of, data, strict=True)))
    for kind, value in enumerate(values):
        points.add(0, kind, value)
    breaks, levels, _ = _cut(points, confirm)
    return breaks, levels


def _cut(
    points: Points, confirm: int, unit: str = "%"
) -> tuple[tuple[int, ...], tuple[Level, ...], tuple[Change, ...]]:
    """(breaks, levels, changes) of the points of a series."""
    kinds = points.kinds
    breaks = tuple(i for i in range(1, len(kinds)) if kinds[i][1] != kinds[i - 1][1])
    stretches = itertools.pairwise((0, *breaks, len(points)))
    spread = max(points.of_runs, default=0.0) - min(points.of_runs, default=0.0)
    if not spread:  # most int8 series never move
        whole = ((start, stop) for start, stop in stretches if start < stop)
        return breaks, tuple(Level(start=a, stop=b, value=points.values[a]) for a, b in whole), ()
    least = least_steps(points, unit)
    growth = Growth([data for _, data in kinds], least, confirm)
    for (place, value), (noise, _) in zip(points.arrivals(), noise_after(points), strict=True):
        growth.arrive(place, value, noise=noise)
    possible = growth.provisional()
    starts = {change.start: change.before for change in growth.changes if not change.is_gradual}
    if possible is not None:
        starts[possible[1]] = possible[0]
    levels = []
    for start, stop in stretches:
        begins = [start, *sorted(one for one in starts if start < one < stop)]
        for begin, after in itertools.zip_longest(begins, begins[1:]):
            end = stop if after is None else max(begin + 1, min(starts[after] + 1, after))
            value = statistics.median_low(points.runs_between(begin, end))
            is_possible = possible is not None and begin == possible[1]
            levels.append(Level(start=begin, stop=end, value=value, provisional=is_possible))
    return breaks, tuple(levels), tuple(growth.changes)


def steps_between(
    breaks: Sequence[int], levels: Sequence[Level]
) -> tuple[tuple[Level, Level], ...]:
    """(level before, level after) of every step, also of provisional ones; no break is a step."""
    return tuple(pair for pair in itertools.pairwise(levels) if pair[1].start not in breaks)


def least_step(out_of: int) -> float:
    """The least step of a share of ``out_of`` that is reported."""
    return max(_LEAST_SAMPLES / out_of, _LEAST_POINTS)


def least_steps(points: Points, unit: str) -> list[float]:
    """Of each point the least step that is reported, in the ``unit`` of the values (a fraction
    where that is ``%``).
    """
    if unit == "%":
        return [least_step(count) for count, _ in points.kinds]
    if unit == "dB":
        return [_LEAST_DECIBELS] * len(points)
    first = next((abs(value) for value in points.values if value), 0.0)
    return [max(_LEAST_PART * first, _LEAST_SAMPLES / count) for count, _ in points.kinds]


# The noise of an engine that is known not to repeat its answers, after each run.
#
#     σ = max(√ mean of the variances that the runs measured,  1.5 (1 + 3/m) rms(|d|) / √2)
#
# d are the m differences of neighbours on the same samples, without the largest fifth: a change of
# level makes one large difference, and 1.5 makes up for what is left out of Gaussian ones. Repeats
# see the noise within a run and not that between nights, and metrics of outputs (dB) are not
# repeated at all.

_DIFFERENCES = 120
"""The number of differences that are looked at, the newest ones."""


def noise_after(points: Points) -> list[tuple[float, float]]:
    """After each run the standard deviations by noise of a value and of one run; 0 where no
    noise is known.

    Infinite where a run said that its answers differ between repeats, and too few values show by
    how much.
    """
    facts = points.facts()
    if not any(one.noise for one in facts):
        return [(0.0, 0.0)] * len(facts)
    found: list[tuple[float, float]] = []
    squares, count = [0.0, 0.0], 0
    kinds, values = points.kinds, dict[int, float]()
    differences: list[float] = []
    before: int | None = None
    for (place, value), one in zip(points.arrivals(), facts, strict=True):
        if before is not None and kinds[before][1] == kinds[place][1]:
            differences.append(abs(value - values[before]))
        values[place], before = value, place
        if one.noise is not None:
            squares = [total + part**2 for total, part in zip(squares, one.noise, strict=True)]
            count += 1
        if not count:
            found.append((0.0, 0.0))
            continue
        own, single = (math.sqrt(total / count) for total in squares)
        seen = _scatter(differences[-_DIFFERENCES:])
        if seen is None:
            seen = 0.0 if own else math.inf
        found.append((max(own, seen), max(single, seen)))
    return found


def _scatter(differences: Sequence[float]) -> float | None:
    """The standard deviation of values by the differences of neighbours; None: there are too
    few.
    """
    count = len(differences)
    if count < _FEWEST:
        return None
    kept = sorted(differences)[: count - max(1, math.ceil(count / 5))]
    spread = math.sqrt(sum(one * one for one in kept) / len(kept) / 2)
    return 1.5 * (1 + 3 / count) * spread


_FEWEST = 4
"""Differences under which nothing is known of a scatter."""


def _series(
    cell: Cell, metric: str, environment_class: str, course: UncutSeries, confirm: int
) -> Series:
    last, points = course.last, course.points.collapsed()
    breaks, levels, changes = _cut(points, confirm, last.unit)
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
        changes=changes,
    )


# What was accepted for a point of a series: the fixed level that a slow slide is measured against.
#
# A trend compares a point with earlier ones, so that it does not see a slow slide; what was
# accepted is fixed.


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
        classes: further ones to look for: drift compares a result with one of a class that the
            suite declares equivalent, or accepted for ``any``, and so do trends.
        equivalents: as in ``Rules``.
    """
    groups, asked = tuple(equivalents), frozenset(classes)
    # the cells of a suite are accepted for few sets of classes: each is looked up once
    sources: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    found = {}
    for baseline in baselines:
        data = frozenset(stored.digest for stored in baseline.data.values())
        for slug, known in baseline.cells.items():
            backend, schema, *variant = slug.split("+")
            cell = Cell(suite, baseline.model, backend, schema, *variant)
            names = tuple(known.accepted)
            if names not in sources:
                sources[names] = _sources(names, asked.union(names), groups)
            for name, of in sources[names]:
                for metric, hits in known.accepted[of].metrics.items():
                    found[cell, metric, name] = AcceptedLevel(hits=hits, data=data)
    return found


def _sources(
    accepted: Sequence[str], classes: Iterable[str], groups: Sequence[tuple[str, ...]]
) -> list[tuple[str, str]]:
    """(class, which of the ``accepted`` classes it is compared with) of those that have one."""
    known = dict.fromkeys(accepted)
    pairs = ((name, inherited(known, EnvironmentClass.parse(name), groups)) for name in classes)
    return [(name, of) for name, of in pairs if of is not None]


def accepted_value(
    series: Series, levels: AcceptedLevels, point: Point | None = None
) -> float | None:
    """The accepted share of ``point`` of ``series``, the last when it is left out; None where
    nothing was accepted on its samples.
    """
    known = levels.get((series.cell, series.metric, series.environment_class))
    if known is None or not series.points:
        return None
    return known.value_for(series.points[-1] if point is None else point)
