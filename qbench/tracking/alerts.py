"""What got worse, since which commit, and what people decided about it."""

import enum
import fnmatch
import itertools
import re
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qbench.errors import InputError
from qbench.judging import Cell
from qbench.storage import read_toml, value_from_table
from qbench.tracking.change_points import Level
from qbench.tracking.trend import CONFIRM, AcceptedLevels, Series, accepted_value, least_step, steps_between

# What people decided about alerts, in a committed file: only this silences an alert, and it is reviewed by diff.
#
# [[annotation]]
# commit = "3f2a91c"              # the commit an alert is about, its first seven digits at least
# cell = "mobilenet_v2::ort-*"    # which cells, with * and ?; left out: all
# metric = "top1"                 # left out: all
# suite = "nightly"               # left out: all
# state = "expected"              # acknowledged, expected, invalid or fixed
# author = "ann"
# reason = "rounds half away from zero since the new kernel"

ANNOTATIONS_FILE = "annotations.toml"
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


class Ruling(enum.Enum):
    """What a person decided about an alert."""

    ACKNOWLEDGED = "acknowledged"  # known, being worked on
    EXPECTED = "expected"  # intended: the new level is right
    INVALID = "invalid"  # not of the code: a broken disk, a wrong file
    FIXED = "fixed"  # repaired since; an alarm again while the level does not return


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """One ruling on the alerts of ``commit`` in the cells that the globs name.

    Raises:
        ValueError: no commit, author or reason.
    """

    commit: str
    state: Ruling
    author: str
    reason: str
    cell: str = "*"
    metric: str = "*"
    suite: str = "*"

    def __post_init__(self) -> None:
        if not _COMMIT.fullmatch(self.commit):
            raise ValueError(f"the commit '{self.commit}' is not written in 7 to 64 hexadecimal digits")
        for name in ("author", "reason"):
            if not getattr(self, name).strip():
                raise ValueError(f"the {name} is empty")

    def covers(self, cell: Cell, metric: str) -> bool:
        """Whether its globs name this metric of this cell; a metric's data set need not be given."""
        named = fnmatch.fnmatchcase(metric, self.metric) or fnmatch.fnmatchcase(metric.partition("@")[0], self.metric)
        return named and fnmatch.fnmatchcase(str(cell), self.cell) and fnmatch.fnmatchcase(cell.suite, self.suite)


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    annotation: tuple[Annotation, ...] = ()


def load_annotations(path: Path) -> tuple[Annotation, ...]:
    """The annotations in the file at ``path``; none where there is no such file.

    Raises:
        InputError: it is not a plain file or not TOML, or holds an unknown key, a missing one or a value without sense.
    """
    if not path.exists():
        return ()
    if not path.is_file():  # reading a pipe would wait
        raise InputError(
            f"Reading the annotations in '{path}'",
            found="not a plain file",
            expected="a TOML file",
            remedy="Remove it, or name another file with --annotations.",
        )
    return value_from_table(_File, read_toml(path), f"'{path}'").annotation


# Series → alerts: what got worse, since which commit, and what people decided about it.
#
# A *step* is a confirmed new level that is worse than the one before. A *slide* is a loss against the accepted result
# that no step explains: each of its small steps may be too small to be seen, their sum is not. Other samples, another
# class or another version of an engine raise neither.

_SMALL_STEP = 1 / 3
"""A step that makes less than this share of a loss against the accepted result is a part of a slide."""


class Kind(enum.Enum):
    """How something got worse."""

    STEP = "step"
    SLIDE = "slide"


class State(enum.Enum):
    """The state of an alert: what a ``Ruling`` can say, and what follows from the series alone."""

    DETECTED = "detected"
    PROVISIONAL = "provisional"  # too few points yet
    ACKNOWLEDGED = "acknowledged"
    EXPECTED = "expected"  # by an annotation, or the new level was accepted
    INVALID = "invalid"
    FIXED = "fixed"  # the old level came back


_RULED = (State.ACKNOWLEDGED, State.EXPECTED, State.INVALID)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One series that got worse.

    Args:
        before, after: levels, as fractions; of a slide the accepted share and the median of the last points.
        run, commit: the first at which it is seen; the commit is empty where it is not known.
        unit: of the levels; ``"%"`` ones are shares.
        suspects: the commits of which one caused a step, the earliest first; a slide has no single commit and none.
        stretch: the commits behind the last good point, up to ``commit``: of a step its suspects.
        why: who decided the state and why, or what it follows from. annotation: the commit, as it is written in the
            annotation that is about this alert; empty where none is.
    """

    kind: Kind
    state: State
    cell: Cell
    metric: str
    environment_class: str
    before: float
    after: float
    run: str
    commit: str
    unit: str = "%"
    suspects: tuple[str, ...] = ()
    stretch: tuple[str, ...] = ()
    why: str = ""
    annotation: str = ""

    @property
    def is_new(self) -> bool:
        """Whether it is confirmed and no annotation is about it."""
        return self.state is State.DETECTED

    @property
    def loss(self) -> float:
        """How much was lost: of a share, and of a value in another unit the share of what it was before."""
        change = abs(self.after - self.before)
        return change if self.unit == "%" else change / max(abs(self.before), 1e-9)


def find_alerts(
    series: Iterable[Series],
    *,
    commits: Sequence[str] = (),
    accepted: AcceptedLevels | None = None,
    annotations: Sequence[Annotation] = (),
    confirm: int = CONFIRM,
) -> tuple[Alert, ...]:
    """Every alert in ``series``, in their order.

    Args:
        commits: the main line of the project under test, the earliest first; suspects are named from it.
        accepted: what baselines hold; None: slides cannot be seen.
        confirm: points that make a slide.
    """
    places = {commit: place for place, commit in enumerate(commits)}
    courses = [
        _AcceptedSeries(one, accepted_value(one, accepted or {}), places, commits)
        for one in series
        if one.points and not one.is_distance
    ]
    notes = [[n for n in annotations if n.covers(one.series.cell, one.series.metric)] for one in courses]
    steps = [list(_steps(course)) for course in courses]
    every = _stretches(itertools.chain.from_iterable(steps))
    steps = [
        [_ruled(step, about, _related_commits(step, every)) for step in own]
        for own, about in zip(steps, notes, strict=True)
    ]
    slides = [_slide(course, own, confirm) for course, own in zip(courses, steps, strict=True)]
    every = _stretches(filter(None, slides))
    found: list[Alert] = []
    for course, own, slide, about in zip(courses, steps, slides, notes, strict=True):
        found += (
            own if slide is None else [*own, _ruled_slide(slide, course, own, about, _related_commits(slide, every))]
        )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _AcceptedSeries:
    """A series with what was accepted for it, and the places of commits on the main line."""

    series: Series
    accepted: float | None
    places: Mapping[str, int]
    commits: Sequence[str]

    @property
    def recent(self) -> float:
        """The median of the last points."""
        return statistics.median(point.value for point in self.series.points[-CONFIRM:])

    def alert(self, kind: Kind, last_good: int, first_bad: int, before: float, after: float) -> Alert:
        """A detected alert that is first seen at the point ``first_bad``; ``last_good``: −1 where there is none."""
        point, stretch = self.series.points[first_bad], self._stretch(last_good, first_bad)
        return Alert(
            kind=kind,
            state=State.DETECTED,
            cell=self.series.cell,
            metric=self.series.metric,
            environment_class=self.series.environment_class,
            before=before,
            after=after,
            run=point.run,
            commit=point.commit,
            unit=self.series.unit,
            suspects=stretch if kind is Kind.STEP else (),
            stretch=stretch,
        )

    def point_of(self, commit: str, alert: Alert, related: Collection[str]) -> int | None:
        """The point that ``commit`` (its first digits) is about in ``alert``; None where it is not about the alert.

        Of a commit among the ``related`` it is the first bad point or a later one, of a later commit the last point
        that was measured up to it: other computers measure other commits.
        """
        points = self.series.points
        exact = next((i for i in reversed(range(len(points))) if points[i].commit.startswith(commit)), None)
        first_bad = next(i for i, point in enumerate(points) if point.run == alert.run)
        if any(one.startswith(commit) for one in related):
            return max(first_bad, exact or 0)
        if exact is not None:
            return exact
        named = next((place for place, one in enumerate(self.commits) if one.startswith(commit)), -1)
        until = [
            i for i, p in enumerate(points[first_bad:], first_bad) if self.places.get(p.commit, named + 1) <= named
        ]
        return max(until, default=None)

    def _stretch(self, last_good: int, first_bad: int) -> tuple[str, ...]:
        """The commits behind that of one point, up to that of another; without a main line, only the latter."""
        points = self.series.points
        before = points[last_good::-1] if last_good >= 0 else ()
        good = next((self.places[p.commit] for p in before if p.commit in self.places), None)
        bad = next((self.places[p.commit] for p in points[first_bad:] if p.commit in self.places), None)
        if good is not None and bad is not None and good < bad:
            return tuple(self.commits[good + 1 : bad + 1])
        commit = points[first_bad].commit
        return (commit,) if commit else ()


_Stretches = Mapping[Cell, Sequence[tuple[str, ...]]]


def _stretches(alerts: Iterable[Alert]) -> _Stretches:
    found: dict[Cell, list[tuple[str, ...]]] = {}
    for alert in alerts:
        found.setdefault(alert.cell, []).append(alert.stretch)
    return found


def _related_commits(alert: Alert, stretches: _Stretches) -> Collection[str]:
    """Every commit that may have caused this: its stretch, and the stretches of the cell that share a commit with it.

    Other computers measure other commits of the same change. An annotation of any of these commits is about the change.
    """
    own = set(alert.stretch)
    return own.union(*(stretch for stretch in stretches[alert.cell] if not own.isdisjoint(stretch)))


def _steps(course: _AcceptedSeries) -> Iterator[Alert]:
    """The steps for the worse, without annotations."""
    series = course.series
    for before, after in steps_between(series.breaks, series.levels):
        if series.worsening(before.mean, after.mean) > 0:
            yield _step(course, before, after)


def _step(course: _AcceptedSeries, before: Level, after: Level) -> Alert:
    """The alert of one new level, without annotations."""
    point = course.series.points[after.start]
    state, why = State.PROVISIONAL if after.provisional else State.DETECTED, ""
    least = least_step(point.out_of)
    later = _levels_behind(course.series, after)
    back = next((level for level in later if course.series.worsening(before.mean, level.mean) < least), None)
    if back is not None:
        state, why = State.FIXED, f"the old level came back with run {course.series.points[back.start].run}"
    elif course.accepted is not None and abs(after.mean - course.accepted) < least and not after.provisional:
        state, why = State.EXPECTED, "the new level is what was accepted"
    alert = course.alert(Kind.STEP, before.stop - 1, after.start, before.mean, after.mean)
    return replace(alert, state=state, why=why)


def _levels_behind(series: Series, level: Level) -> list[Level]:
    """The confirmed levels behind ``level`` on the same samples."""
    end = next((place for place in series.breaks if place > level.start), len(series.points))
    return [one for one in series.levels if level.start < one.start < end and not one.provisional]


def _slide(course: _AcceptedSeries, steps: Sequence[Alert], confirm: int) -> Alert | None:
    """The loss against the accepted result that ``steps`` do not explain, where ``confirm`` points lie beyond it."""
    series, accepted = course.series, course.accepted
    if accepted is None:
        return None
    least = least_step(series.points[-1].out_of) - 1e-9
    beyond = len(series.points)
    while beyond > 0 and series.worsening(accepted, series.points[beyond - 1].value) >= least:
        beyond -= 1
    if len(series.points) - beyond < confirm:
        return None
    loss = series.worsening(accepted, course.recent)
    explained = sum(series.worsening(step.before, step.after) for step in _explaining(series, steps, loss))
    if loss - explained < least:
        return None
    return course.alert(Kind.SLIDE, beyond - 1, beyond, accepted, course.recent)


def _explaining(series: Series, steps: Sequence[Alert], loss: float) -> list[Alert]:
    """The steps that are not part of a slide of this ``loss``: large ones, and those with an annotation."""
    return [
        step
        for step in steps
        if step.state is not State.FIXED
        and (step.state in _RULED or series.worsening(step.before, step.after) >= _SMALL_STEP * loss)
    ]


def _ruled(alert: Alert, annotations: Sequence[Annotation], related: Collection[str]) -> Alert:
    """``alert`` in the state of the last annotation of a commit of ``related``."""
    for note in reversed(annotations):
        if any(commit.startswith(note.commit) for commit in related):
            return _with_ruling(alert, note)
    return alert


def _ruled_slide(
    alert: Alert,
    course: _AcceptedSeries,
    steps: Sequence[Alert],
    annotations: Sequence[Annotation],
    related: Collection[str],
) -> Alert:
    """``alert`` in the state of the annotation of a commit on the slide, unless it got worse since then.

    A later step with an alert of its own is not a part of the slide.
    """
    series, points = course.series, course.series.points
    least = least_step(points[-1].out_of) - 1e-9
    places = {point.run: place for place, point in enumerate(points)}
    explaining = _explaining(series, steps, series.worsening(alert.before, alert.after))
    for note in reversed(annotations):
        place = course.point_of(note.commit, alert, related)
        if place is not None:
            later = [step for step in explaining if places[step.run] > place]
            explained = sum(series.worsening(step.before, step.after) for step in later)
            if series.worsening(points[place].value, alert.after) - explained < least:
                return _with_ruling(alert, note)
            since = f"{note.state.value} at {note.commit} by {note.author}, and worse since then"
            return replace(alert, why=since, annotation=note.commit)
    return alert


def _with_ruling(alert: Alert, note: Annotation) -> Alert:
    """``alert`` as ``note`` decides; an alert that is said to be fixed and is not, stays new."""
    if note.state is Ruling.FIXED and alert.state is not State.FIXED:
        why = f"said to be fixed by {note.author}, but the level has not returned"
        return replace(alert, why=why, annotation=note.commit)
    why = f"{note.reason} ({note.author})"
    return replace(alert, state=State(note.state.value), why=why, annotation=note.commit)


# Alerts → regressions: what one commit changed in many cells is one regression.
#
# An alert has a stretch of commits, from the last good measurement to the first bad one. Computers that take turns have
# different stretches of the same change; the commits that all of them contain are where it happened. Steps are grouped
# greedily by the end of their stretch, which gives the fewest groups that each share a commit.


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """Alerts with one cause.

    Args:
        suspects: the commits that all of ``alerts`` suspect, the earliest first; one: it is named. Empty where no
            commit is known, and of slides.
        alerts: largest loss first.
    """

    kind: Kind
    suspects: tuple[str, ...]
    alerts: tuple[Alert, ...]

    @property
    def is_new(self) -> bool:
        """Whether one of its alerts is new."""
        return any(alert.is_new for alert in self.alerts)


def group_alerts(alerts: Iterable[Alert], commits: Sequence[str]) -> tuple[Regression, ...]:
    """One regression for each commit and state, in the order of ``commits``; then slides, which are of one cell each.

    Alerts with an annotation and new ones are never in one group. All alerts of a regression share a commit of their
    stretches, so that an annotation of the commit of one is about all of them.

    Args:
        commits: the main line that the suspects were named from, the earliest first.
    """
    places = {commit: place for place, commit in enumerate(commits)}
    groups: list[tuple[tuple[str, ...], list[Alert]]] = []
    apart: dict[tuple[State, object], list[Alert]] = {}  # without a commit to share: slides, and runs outside git
    everything = list(alerts)
    for alert in sorted(everything, key=lambda a: max((places.get(c, -1) for c in a.stretch), default=-1)):
        if not alert.stretch:
            key = (alert.state, alert.cell if alert.kind is Kind.SLIDE else alert.run)
            apart.setdefault(key, []).append(alert)
            continue
        for place, (shared, members) in enumerate(groups):
            both = tuple(commit for commit in shared if commit in alert.stretch)
            if both and _is_same_kind(members[0], alert):
                groups[place] = both, [*members, alert]
                break
        else:
            groups.append((alert.stretch, [alert]))
    found = [_regression((), members) for members in apart.values()]
    found += [_regression(shared, members) for shared, members in groups]
    return tuple(sorted(found, key=lambda one: one.kind is Kind.SLIDE))


def _regression(suspects: tuple[str, ...], alerts: list[Alert]) -> Regression:
    ordered = sorted(alerts, key=lambda a: (-a.loss, str(a.cell), a.metric, a.environment_class))
    kind = alerts[0].kind
    return Regression(kind=kind, suspects=suspects if kind is Kind.STEP else (), alerts=tuple(ordered))


def _is_same_kind(one: Alert, other: Alert) -> bool:
    """Whether both are of one kind and state; slides of one cell, too."""
    same = one.state is other.state and one.kind is other.kind
    return same and (one.kind is Kind.STEP or one.cell == other.cell)
