"""The history of a cell: one trend for each metric, with its steps in each environment class
and their causes.
"""

import functools
import itertools
import operator
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from qbench.judging import FP32, Cell
from qbench.reporting.view import CellView, MetricView, RunView
from qbench.tracking import (
    Alert,
    CellRecord,
    Kind,
    Series,
    data_of,
    sources_change,
    steps_between,
)

#     band of a value = reference + Bonett–Price interval of (gains − losses) / n, 95 %, for shares
#                       of samples
#
# A step is a new level of the series of ``tracking.trend_series``, provisional until it is
# confirmed, or an alert that names a commit: the same as in ``qbench history check``. Another
# environment class or other samples are a labelled line and never a step. Positions count the runs
# of a report, the oldest is 0; values, medians, references and limits are fractions.

OTHER_SAMPLES = "other samples"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A new level in one environment class, first seen in run ``position``; medians before and
    after, fractions.

    ``since`` is the last run of the level before; where machines take turns, not the run before
    ``position``.
    ``provisional``: too few runs confirm it. ``causes``: what else is new since the last run of the
        level before.
    """

    position: int
    before: float
    after: float
    since: int = -1
    provisional: bool = False
    causes: tuple[str, ...] = ()


class RunPoint(NamedTuple):
    """The ``metric`` of ``cell`` as run ``position`` has them, the first of the runs of one commit.

    ``several``: the points of these runs, oldest first; empty where it is one run. This one is
        their median.
    ``data``: the digest of the samples of the metric; empty: not known.
    """

    position: int
    cell: CellView
    metric: MetricView
    several: tuple["RunPoint", ...] = ()
    data: str = ""

    @property
    def each(self) -> tuple["RunPoint", ...]:
        """The points of its runs, one where it is one run."""
        return self.several or (self,)

    @property
    def spread(self) -> tuple[float, float] | None:
        """The least and the largest value of the runs, as fractions; None where all are equal."""
        values = [point.metric.value for point in self.several]
        return (min(values), max(values)) if len(set(values)) > 1 else None

    @property
    def environment_class(self) -> str:
        """Where it was measured."""
        return self.cell.record.environment_class

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the value, as fractions; the value itself where the counts make
        no sense.
        """
        return self.metric.value_interval or (self.metric.value, self.metric.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """From run ``position`` on, another environment class or other samples: ``label`` names
    what is new.

    ``of_samples``: the results before it are of other samples, so that no line joins the two.
    """

    position: int
    label: str
    of_samples: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The reference and the limit (None: no gate) as they were in runs ``first`` … ``last``,
    fractions.

    ``data``: the digest of the samples that both are of.
    """

    first: int
    last: int
    reference: float
    limit: float | None
    data: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """The history of one metric of one cell: a point for each run that has it, and the
    references and limits over time.

    ``steps``: of every class, oldest first. ``has_intervals``: whether the points have a 95 %
    interval, as shares of samples do. ``accepted``: the accepted value for the newest class, a
    fraction; None: not known. ``places``: of each run its place along an axis, where runs of one
    commit have one place; empty: the position.
    """

    key: Cell
    metric: MetricView
    points: tuple[RunPoint, ...]
    steps: tuple[Step, ...] = ()
    has_intervals: bool = False
    switches: tuple[Switch, ...] = ()
    marks: tuple[Mark, ...] = ()
    accepted: float | None = None
    places: tuple[int, ...] = ()

    @property
    def metrics(self) -> tuple[MetricView, ...]:
        """The metric of every run, each that is in memory once: most nights repeat the one
        before.
        """
        points = self.points
        if any(map(_several, points)):
            points = tuple(one for point in points for one in point.each)
        metrics = tuple(map(_metric, points))
        return tuple(dict(zip(map(id, metrics), metrics, strict=True)).values())

    @property
    def by_class(self) -> tuple[tuple[RunPoint, ...], ...]:
        """The points of each environment class, that of the newest run first."""
        return tuple(
            sorted(
                _by_class(self.points).values(),
                key=lambda points: points[-1].each[-1].position,
                reverse=True,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Time and size of one cell over the runs that have them, oldest first; shown, never gated.

    ``times``: milliseconds per sample on computers of the newest run's class, the newest at the
    end. ``size``: bytes of the constants of the model as the backend runs it, 0: not known;
    ``before``: the size until the run ``resized``.
    """

    times: tuple[float, ...]
    size: int = 0
    before: int = 0
    resized: RunView | None = None

    @property
    def usual(self) -> float | None:
        """The median of the runs before the newest; None: there are none."""
        return statistics.median(self.times[:-1]) if len(self.times) > 1 else None

    @property
    def line(self) -> str:
        """The times as bars of text, from the least to the largest: at most 12, each the median
        of its runs.
        """
        count = min(len(self.times), _BARS)
        if count < 2:
            return ""
        edges = [round(place * len(self.times) / count) for place in range(count + 1)]
        levels = [statistics.median(self.times[a:b]) for a, b in itertools.pairwise(edges)]
        low, high = min(levels), max(levels)
        if low == high:
            return _LEVELS[0] * len(levels)
        return "".join(_LEVELS[round(7 * (level - low) / (high - low))] for level in levels)


_BARS, _LEVELS = 12, "▁▂▃▄▅▆▇█"


def cost_of(records: Sequence[CellRecord | None], runs: Sequence[RunView]) -> Cost | None:
    """The cost of a cell from its record in each run (None: not measured there); None: the
    newest has no time.
    """
    last = next((record for record in reversed(records) if record is not None), None)
    if last is None or "inference" not in last.seconds:
        return None
    times: list[float] = []
    size, before = 0, 0
    resized: RunView | None = None
    metrics, samples = None, 0
    for record, run in zip(records, runs, strict=True):
        if record is None:
            continue
        if record.metrics is not metrics:  # most nights repeat the one before
            metrics = record.metrics
            samples = next((metric.n for metric in metrics.values()), 0)
        seconds = record.seconds.get("inference")
        is_here = record.environment_class == last.environment_class
        if is_here and seconds is not None and samples > 0:
            times.append(1000 * seconds / samples)
        here = record.constant_bytes or size
        if here != size:
            before, resized, size = size, run if size else None, here
    return Cost(times=tuple(times), size=size, before=before, resized=resized) if times else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGroup:
    """Every step that was first seen in one run, or in another machine's first run after it:
    most likely one cause.
    """

    position: int
    run: RunView
    steps: tuple[tuple[Cell, MetricView, Step], ...]


def trend_of(
    history: Sequence[CellView | None],
    cell: CellView,
    metric: MetricView,
    runs: Sequence[RunView] = (),
    places: tuple[int, ...] | None = None,
    *,
    series: Sequence[Series] = (),
    alerts: Sequence[Alert] = (),
    accepted: float | None = None,
) -> Trend:
    """The trend of ``metric`` of ``cell``; ``history`` has the cell of each run, oldest first,
    or None.

    ``runs`` are the same runs: they name the commits and package versions that changed at a step.
    ``places``: those of ``places_of(runs)``, where they are known. ``series`` and ``alerts`` are
    those of this metric, which have the steps. ``accepted`` is the accepted value for the class of
    the newest run, a fraction. Only the lead of a quantized cell has intervals.
    """
    points: list[RunPoint] = []
    newest = len(history) - 1
    for past, positions in _unbroken(history):
        found = next((m for m in past.metrics if m.name == metric.name), None)
        if found is None:
            continue
        data = data_of(metric.name, past.record.digests_of("data"))
        # one that was carried is no measurement; the newest shows what the report shows
        is_carried = past.record.is_carried
        shown = [one for one in positions if one == newest or not is_carried]
        points += map(_point, product(shown, [past], [found], [()], [data]))
    places = places_of(runs) if places is None else places
    if places and places[-1] < len(places) - 1:
        points = list(_by_commit(points, places))
    classes = _by_class(points) if series or alerts else {}
    steps = (
        step for name, same in classes.items() for step in _steps(name, same, runs, series, alerts)
    )
    return Trend(
        key=cell.key,
        metric=metric,
        points=tuple(points),
        steps=tuple(sorted(steps, key=lambda step: step.position)),
        has_intervals=(
            metric is cell.lead
            and cell.key.schema != FP32
            and metric.proportion
            and metric.n == metric.out_of
        ),
        switches=_switches(points),
        marks=tuple(_marks(points)),
        accepted=accepted,
        places=places,
    )


_several: Callable[[RunPoint], tuple[RunPoint, ...]] = operator.attrgetter("several")
_metric: Callable[[RunPoint], MetricView] = operator.attrgetter("metric")
_cell: Callable[[RunPoint], CellView] = operator.attrgetter("cell")
_point: Callable[[tuple[object, ...]], RunPoint] = functools.partial(tuple.__new__, RunPoint)
"""What the name of the class does in a third of the time: a month of a large suite has millions."""


def _unbroken(history: Sequence[CellView | None]) -> Iterator[tuple[CellView, list[int]]]:
    """Each view of ``history`` with the positions that it has one after the other, but for runs
    without the cell: most nights repeat the one before.
    """
    last: CellView | None = None
    positions: list[int] = []
    for position, past in enumerate(history):
        if past is None:
            continue
        if past is not last:
            if last is not None:
                yield last, positions
            last, positions = past, []
        positions.append(position)
    if last is not None:
        yield last, positions


def turns_of(points: Sequence[RunPoint]) -> list[int]:
    """The places in ``points`` of those whose view is not that of the point before."""
    if not points:
        return []
    cells = list(map(_cell, points))
    others = map(operator.is_not, cells, cells[1:])
    return [0, *itertools.compress(range(1, len(cells)), others)]


def places_of(runs: Sequence[RunView]) -> tuple[int, ...]:
    """The place of each of ``runs`` along an axis: neighbours that measured one commit as it is
    have one place.
    """
    found: list[int] = []
    for before, run in zip([None, *runs], runs, strict=False):
        is_clean = bool(run.sha) and run.commit == run.sha[: len(run.commit)]
        same = (
            is_clean and before is not None and (before.sha, before.commit) == (run.sha, run.commit)
        )
        found.append(found[-1] + (not same) if found else 0)
    return tuple(found)


def _by_commit(points: Sequence[RunPoint], places: Sequence[int]) -> Iterator[RunPoint]:
    """``points``, where those of one place, environment class and data are one: the run with
    the median value.
    """
    groups: dict[tuple[int, str, str], list[RunPoint]] = {}
    for point in points:
        key = places[point.position], point.environment_class, point.data
        groups.setdefault(key, []).append(point)
    for same in groups.values():
        ranked = sorted(same, key=lambda point: point.metric.value)
        median = ranked[(len(ranked) - 1) // 2]
        yield RunPoint(
            same[0].position,
            median.cell,
            median.metric,
            tuple(same) if len(same) > 1 else (),
            data=median.data,
        )


def _by_class(points: Sequence[RunPoint]) -> dict[str, tuple[RunPoint, ...]]:
    found: dict[str, list[RunPoint]] = {}
    before: CellView | None = None
    same: list[RunPoint] = []
    for point in points:
        if point.cell is not before:  # most nights repeat the one before
            before = point.cell
            same = found.setdefault(point.environment_class, [])
        same.append(point)
    return {name: tuple(same) for name, same in found.items()}


def stretches(points: Sequence[RunPoint]) -> list[tuple[RunPoint, ...]]:
    """``points``, cut where the samples become others: no line joins results of other samples."""
    return [tuple(same) for _, same in itertools.groupby(points, key=lambda point: point.data)]


def _marks(points: Sequence[RunPoint]) -> Iterator[Mark]:
    """The stretches of runs with one reference and one limit, on the same samples."""
    turns = turns_of(points)
    begun: RunPoint | None = None
    for place in turns:
        point = points[place]
        if begun is not None and _bounds(point) != _bounds(begun):
            yield _mark(begun, points[place - 1])
            begun = point
        begun = begun or point
    if begun is not None:
        yield _mark(begun, points[-1])


def _bounds(point: RunPoint) -> tuple[float, float | None, str]:
    return point.metric.reference_value, point.metric.limit, point.data


def _mark(first: RunPoint, last: RunPoint) -> Mark:
    reference, limit, data = _bounds(first)
    return Mark(
        first=first.position, last=last.position, reference=reference, limit=limit, data=data
    )


def _steps(
    name: str,
    points: Sequence[RunPoint],
    runs: Sequence[RunView],
    series: Sequence[Series],
    alerts: Sequence[Alert],
) -> Iterator[Step]:
    """The steps of the environment class ``name``: the levels of its series, and alerts that
    name a commit.
    """
    places = {
        runs[one.position].id: place for place, point in enumerate(points) for one in point.each
    }
    shown: set[int] = set()
    for one in series:
        for before, after in (
            steps_between(one.breaks, one.levels) if one.environment_class == name else ()
        ):
            good = places.get(one.points[before.stop - 1].run)
            bad = places.get(one.points[after.start].run)
            if good is not None and bad is not None:
                shown.add(bad)
                yield _step(
                    points,
                    runs,
                    (good, bad),
                    (before.value, after.value),
                    provisional=after.provisional,
                )
    for alert in alerts:
        bad = places.get(alert.run)
        if alert.kind is Kind.STEP and alert.environment_class == name and bad and bad not in shown:
            yield _step(points, runs, (bad - 1, bad), (alert.before, alert.after))


def _step(
    points: Sequence[RunPoint],
    runs: Sequence[RunView],
    between: tuple[int, int],
    levels: tuple[float, float],
    *,
    provisional: bool = False,
) -> Step:
    """The step between two of ``points``, the first runs of a good and of a bad commit."""
    good, bad = between
    commit = runs[points[good].position].commit
    while commit and good + 1 < bad and runs[points[good + 1].position].commit == commit:
        good += 1  # the last run of the good commit
    return Step(
        position=points[bad].position,
        before=levels[0],
        after=levels[1],
        since=points[good].each[-1].position,
        provisional=provisional,
        causes=_causes(points[good], points[bad], runs),
    )


_CAUSES = (
    ("model", "model changed"),
    ("preprocessing", "preprocessing changed"),
    ("data", "data changed"),
    ("quantized", "quantized graph changed"),
    ("arithmetic", "arithmetic changed"),
)
"""The kind of a digest (its key up to a colon), and the words for a change of it."""


def _causes(before: RunPoint, after: RunPoint, runs: Sequence[RunView]) -> tuple[str, ...]:
    """What is known to be new in ``after``, the likeliest cause first; only facts that both
    have are compared.
    """
    old, new = before.cell.record.digests, after.cell.record.digests
    changed = {key.partition(":")[0] for key in new if key in old and new[key] != old[key]}
    found = [words for kind, words in _CAUSES if kind in changed]
    if not runs:
        return tuple(found)
    earlier, later = runs[before.position], runs[after.position]
    versions = dict(earlier.versions)
    for name, version in later.versions:
        if version != versions.get(name, version):
            found.append(f"{name} {versions[name]} → {version}")
    if later.commit and later.commit != earlier.commit and not later.release_of:
        first = runs[before.each[-1].position + 1].commit
        found.append(
            f"commit {later.commit}"
            if first in ("", later.commit)
            else f"commits {first} … {later.commit}"
        )
    return tuple(found)


def _switches(points: Sequence[RunPoint]) -> tuple[Switch, ...]:
    found = []
    for place in turns_of(points)[1:]:
        before, after = points[place - 1], points[place]
        is_other = before.data != after.data
        words = [_remade(before.cell.record, after.cell.record, is_other=is_other)]
        if before.environment_class != after.environment_class:
            words = [OTHER_SAMPLES] * is_other
            words.append(class_difference(before.environment_class, after.environment_class))
        if label := ", ".join(filter(None, words)):
            found.append(Switch(position=after.position, label=label, of_samples=is_other))
    return tuple(found)


def _remade(before: CellRecord, after: CellRecord, *, is_other: bool) -> str:
    """What two results of one class were not made with alike, in few words: ``32 sources → 8
    sources``; ``is_other``: their samples are others.
    """
    words = list(sources_change(before, after))
    if is_other and not words:
        words.append(OTHER_SAMPLES)
    moved = [key for key, one in before.made.items() if after.made.get(key, one) != one]
    words += ["schema edited" if key == "schema" else f"{key} {after.made[key]}" for key in moved]
    if before.made and after.made and ("ranges" in before.made) != ("ranges" in after.made):
        words.append("ranges by hand" if "ranges" in after.made else "no ranges by hand")
    return ", ".join(words)


def class_difference(before: str, after: str) -> str:
    """What is new in ``after``, written ``processor+package-version+…``: only the parts that
    differ.
    """
    old = before.split("+")
    parts = enumerate(after.split("+"))
    new = [
        part if place == 0 else " ".join(part.rsplit("-", 1))
        for place, part in parts
        if part not in old
    ]
    return ", ".join(new) or after


def group_steps(trends: Sequence[Trend], runs: Sequence[RunView]) -> tuple[StepGroup, ...]:
    """The steps of ``trends`` by the run that first showed them, newest run first, largest step
    first.

    Machines that take turns show one change in different runs. A step of the same cell in the same
    direction belongs to the earliest such run after the last run of its own level before.
    """
    found: dict[int, list[tuple[Cell, MetricView, Step]]] = {}
    first: dict[tuple[Cell, str, bool], list[int]] = {}
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
            steps=tuple(
                sorted(found[position], key=lambda s: (-abs(s[2].after - s[2].before), s[0]))
            ),
        )
        for position in sorted(found, reverse=True)
    )


def is_eventful(cell: CellView, trends: Sequence[Trend]) -> bool:
    """Whether ``cell`` is red, in quarantine, or has a step in its history."""
    return (
        cell.is_red or cell.record.outcome == "quarantined" or any(trend.steps for trend in trends)
    )
