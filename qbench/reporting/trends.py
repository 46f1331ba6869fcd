"""The history of a cell as series: one for each metric and environment class, with its steps and their causes."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from qbench.judging import FP32, paired_interval
from qbench.reporting.view import CellKey, CellView, MetricView, RunView
from qbench.tracking import cut_levels, steps_between

#     band of a value = reference + Bonett–Price interval of (gains − losses) / n, 95 %, for shares of samples
#
# A step is a new level of ``tracking.cut_levels``, provisional until enough runs confirm it. Another environment class
# or other samples are a labelled line and never a step. Positions count the runs of a report, the oldest is 0; values,
# means, references and limits are fractions.

OTHER_SAMPLES = "other samples"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A new level of a series, first seen in run ``position``; means before and after, fractions.

    ``since`` is the last run of the level before; where machines take turns, not the run before ``position``.
    ``provisional``: too few runs confirm it. ``causes``: what else is new since the last run of the level before.
    """

    position: int
    before: float
    after: float
    since: int = -1
    provisional: bool = False
    causes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The values of one metric of one cell in one environment class: run positions, ascending, and fractions.

    ``band``: the ends of the 95 % interval of each value; empty where the metric is not a share of samples.
    ``flips``: losses and gains of each run against fp32.
    """

    environment_class: str
    positions: tuple[int, ...]
    values: tuple[float, ...]
    steps: tuple[Step, ...] = ()
    band: tuple[tuple[float, float], ...] = ()
    flips: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """From run ``position`` on, another environment class or other samples: ``label`` names what is new."""

    position: int
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The reference and the limit (None: no gate) as they were in runs ``first`` … ``last``, fractions."""

    first: int
    last: int
    reference: float
    limit: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """The history of one metric of one cell: one series per class, with the reference and limit of each time.

    ``accepted``: the accepted value for the newest class, a fraction; None: not known.
    """

    key: CellKey
    metric: MetricView
    series: tuple[Series, ...]
    switches: tuple[Switch, ...] = ()
    marks: tuple[Mark, ...] = ()
    accepted: float | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every step of every series, oldest first."""
        return tuple(sorted((s for line in self.series for s in line.steps), key=lambda s: s.position))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGroup:
    """Every step that was first seen in one run, or in another machine's first run after it: most likely one cause."""

    position: int
    run: RunView
    steps: tuple[tuple[CellKey, MetricView, Step], ...]


@dataclass(frozen=True, slots=True)
class _Point:
    position: int
    cell: CellView
    metric: MetricView

    @property
    def environment_class(self) -> str:
        return self.cell.record.environment_class


def trend_of(
    history: Sequence[CellView | None],
    cell: CellView,
    metric: MetricView,
    runs: Sequence[RunView] = (),
    *,
    accepted: float | None = None,
) -> Trend:
    """The trend of ``metric`` of ``cell``; ``history`` has the cell of each run, oldest first, or None.

    ``runs``, where given, are the same runs: they name the commits and package versions that changed at a step.
    ``accepted`` is the accepted value for the class of the newest run, a fraction. Only the lead of a
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
    for (reference, limit), group in itertools.groupby(
        points, key=lambda p: (p.metric.reference_value, p.metric.limit)
    ):
        places = [point.position for point in group]
        yield Mark(first=places[0], last=places[-1], reference=reference, limit=limit)


def _series(points: Sequence[_Point], environment_class: str, runs: Sequence[RunView], *, banded: bool) -> Series:
    values = tuple(point.metric.value for point in points)
    breaks, levels = cut_levels(
        values, data=[p.cell.record.data for p in points], out_of=[p.metric.out_of for p in points]
    )
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
            for before, after in steps_between(breaks, levels)
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
    return max(metric.reference_value + low, 0.0), min(metric.reference_value + high, 1.0)


_CAUSES = (
    ("model", "model changed"),
    ("preprocessing", "preprocessing changed"),
    ("data", "data changed"),
    ("quantized", "quantized graph changed"),
    ("arithmetic", "arithmetic changed"),
)
"""The kind of a digest (its key up to a colon), and the words for a change of it."""


def _causes(before: _Point, after: _Point, runs: Sequence[RunView]) -> tuple[str, ...]:
    """What is known to be new in ``after``, the likeliest cause first; only facts that both have are compared."""
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
        elif before.cell.record.data != after.cell.record.data:
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

    Machines that take turns show one change in different runs. A step of the same cell in the same direction belongs
    to the earliest such run after the last run of its own level before.
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
    """Whether ``cell`` is red, in quarantine, or has a step in its history."""
    return cell.is_red or cell.record.outcome == "quarantined" or any(trend.steps for trend in trends)
