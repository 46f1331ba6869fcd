"""What got worse, since which commit, and what people decided about it."""

import bisect
import enum
import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from qbench.judging import Cell
from qbench.tracking.annotations import Annotation, Ruling
from qbench.tracking.change_points import Change
from qbench.tracking.trend import (
    CONFIRM,
    AcceptedLevel,
    AcceptedLevels,
    Series,
    least_steps,
    noise_after,
)

# Series → alerts: what got worse, since which commit, and what people decided about it.
#
# A *step* is a confirmed new level that is worse than the one before. A *slide* is a loss against
# the accepted result that no step explains: each of its small steps may be too small to be seen,
# their sum is not. Where one commit makes most of such a loss it is a step at that commit. Other
# samples, another class or another version of an engine raise neither.
#
# Alerts are found by a replay of the runs in the order in which they began; one run that is
# replayed is an *arrival*. An alert that one run confirmed stays, on the same commits, whatever
# later runs measure. It ends once: as fixed, or as accepted.

_SMALL_STEP = 1 / 3
"""A step that makes less than this share of a loss against the accepted result is a part of a
slide.
"""

_ONE_COMMIT = 2 / 3
"""A commit that makes this share of a loss against the accepted result is what it came from: it
is a step.
"""


class Kind(enum.Enum):
    """How something got worse."""

    STEP = "step"
    SLIDE = "slide"


class State(enum.Enum):
    """The state of an alert: what a ``Ruling`` can say, and what follows from the series alone."""

    DETECTED = "detected"
    PROVISIONAL = "provisional"  # too few points yet
    ACKNOWLEDGED = "acknowledged"
    EXPECTED = "expected"
    INVALID = "invalid"
    ACCEPTED = "accepted"  # what was measured since is what was accepted
    FIXED = "fixed"  # the old level came back


_ENDED = (State.FIXED, State.ACCEPTED)
_RULED = (State.ACKNOWLEDGED, State.EXPECTED, State.INVALID)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One series that got worse.

    Args:
        before, after: levels, as fractions: medians of the runs; of a slide the accepted share, and
            the median of the last points without the loss of steps that are alerts of their own.
        run, commit: the first at which it is seen; the commit is empty where it is not known.
        unit: of the levels; ``"%"`` ones are shares.
        own_past: whether ``before`` of a slide is an earlier level of the series, not what was
            accepted.
        suspects: the commits of which one caused a step, the earliest first; empty for a slide,
            which no single commit caused.
        stretch: the commits after the last good point, up to ``commit``. They are the suspects of
            a step.
        why: who decided the state and why, or what it follows from.
        annotation: the commit, as it is written in the annotation that is about this alert; empty
            where none is.
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
    own_past: bool = False
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
        """How much was lost: of a share, and of a value in another unit the share of what it
        was before.
        """
        return change_size(self.before, self.after, self.unit)


def change_size(before: float, after: float, unit: str) -> float:
    """The size of a change: a share's difference, or of another unit its share of ``before``."""
    change = abs(after - before)
    return change if unit == "%" else change / max(abs(before), 1e-9)


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
        commits: the main line of the project under test, the earliest first; suspects are named
            from it.
        accepted: what baselines hold; None: slides cannot be seen.
        confirm: points that make a slide.
    """
    places = {commit: place for place, commit in enumerate(commits)}
    courses = [
        _Course(
            one,
            (accepted or {}).get((one.cell, one.metric, one.environment_class)),
            places,
            commits,
            confirm,
        )
        for one in series
        if one.points
    ]
    notes = [
        [note for note in annotations if note.covers(course.series.cell, course.series.metric)]
        for course in courses
    ]
    changes = [_changes(course) for course in courses]
    _rule_steps(changes, notes)
    losses = [_beyond_accepted(course, own) for course, own in zip(courses, changes, strict=True)]
    stretches = _stretches(one.alert for own in (*losses, *changes) for one in own)
    alerts: list[Alert] = []
    for course, own, lost, about in zip(courses, changes, losses, notes, strict=True):
        kept = _without_covered(own, lost)
        _rule_losses(kept, lost, course, about, stretches)
        alerts += [_listed(one, course) for one in kept]
    return tuple(alerts)


def _rule_steps(
    changes: Sequence[Sequence["_Found"]], notes: Sequence[Sequence[Annotation]]
) -> None:
    """Give each step the state of the annotation about it: ``notes`` has those of each series."""
    stretches = _stretches(one.alert for own in changes for one in own)
    for own, about in zip(changes, notes, strict=True):
        for one in own:
            if one.alert.kind is Kind.STEP:
                one.alert = _ruled(one.alert, about, _related_commits(one.alert, stretches))


def _without_covered(changes: Sequence["_Found"], losses: Sequence["_Found"]) -> list["_Found"]:
    """``losses`` and the ``changes`` that are a part of none: steps before slides, each kind in
    the order of its commits.
    """
    kept = [change for change in changes if not any(loss.covers(change) for loss in losses)]
    return sorted([*kept, *losses], key=lambda one: (one.alert.kind is Kind.SLIDE, one.bad))


def _rule_losses(
    kept: Sequence["_Found"],
    losses: Sequence["_Found"],
    course: "_Course",
    about: Sequence[Annotation],
    stretches: "_Stretches",
) -> None:
    """Give each slide and each step of ``losses`` the state of the annotation ``about`` it."""
    for one in kept:
        related = _related_commits(one.alert, stretches)
        if one.alert.kind is Kind.SLIDE:
            one.alert = _ruled_slide(one, course, kept, about, related)
        elif one in losses:
            one.alert = _ruled(one.alert, about, related)


@dataclass(slots=True, eq=False)
class _Found:
    """An alert with what the replay knows of it.

    Args:
        good, bad: places of the last good point (−1: there is none) and of the first bad one.
        before, after: the levels when it was confirmed.
        seen, ended: the arrivals that confirmed and ended it.
        is_quiet: whether the noise is so small against it that a few points show that it ended.
    """

    alert: Alert
    good: int
    bad: int
    before: float
    after: float
    seen: int
    is_quiet: bool
    ended: int | None = None

    def is_open(self, arrival: int) -> bool:
        """Whether it was confirmed and had not ended at ``arrival``."""
        return self.seen <= arrival and (self.ended is None or self.ended > arrival)

    def is_apart(self, step: "_Found") -> bool:
        """Whether ``step`` is an alert of its own next to this slide: the step was confirmed before
        the slide, or is large.
        """
        if step.seen <= self.seen:
            return True
        whole_loss = abs(step.after - self.before)
        return abs(step.after - step.before) >= _SMALL_STEP * whole_loss - _EPSILON

    def covers(self, change: "_Found") -> bool:
        """Whether ``change`` is a part of this loss against the accepted result, or the same
        step, confirmed later.
        """
        if change.seen < self.seen or not self.is_open(change.seen):
            return False
        if self.alert.kind is Kind.SLIDE:
            return change.alert.kind is Kind.SLIDE or (
                change.seen > self.seen and not self.is_apart(change)
            )
        if change.alert.kind is Kind.SLIDE:
            return False
        # noise can move the place of a change by as many points as confirm it
        near = 0 if change.is_quiet else CONFIRM
        return self.good < change.bad + near and change.good < self.bad + near


class _Course:
    """A series with what was accepted for it, and the places of commits on the main line.

    What was accepted changes with time. A run's record holds what was accepted when it was judged.
    Between two runs that is what the later one was judged by, and after the last run what the
    baseline holds today. Where a record holds nothing (of an older qbench, or nothing was accepted)
    it is what the next record holds, or else the baseline of today.
    """

    def __init__(
        self,
        series: Series,
        known: AcceptedLevel | None,
        places: Mapping[str, int],
        commits: Sequence[str],
        confirm: int,
    ) -> None:
        self.series = series
        self.places = places
        self.commits = commits
        self.confirm = confirm
        facts = series.points.facts()
        at = [place for place, _ in series.points.arrivals()]
        kinds = [data for _, data in series.points.kinds]
        today = [
            None if known is None else known.value_for(series.points[place])
            for place in range(len(kinds))
        ]
        self.accepted_by: list[float | None] = []
        """For each arrival, what it was judged by."""
        self.accepted_after: list[float | None] = []
        """For each arrival, what is accepted for its samples before the next one."""
        following: float | None = None
        kind: str | None = None
        # backwards, because a record without an accepted value takes that of the next one
        for number in reversed(range(len(at))):
            if kinds[at[number]] != kind:
                kind, following = kinds[at[number]], today[at[number]]
            own = facts[number].accepted
            self.accepted_after.append(following if following is not None else own)
            following = own if own is not None else following
            self.accepted_by.append(following)
        self.accepted_after.reverse()
        self.accepted_by.reverse()
        self.is_accepted = any(one is not None for one in self.accepted_by)
        self._least = least_steps(series.points, series.unit)
        self._noise = noise_after(series.points)
        self._listed = {place: one.listed for place, one in zip(at, facts, strict=True)}

    def least_at(self, place: int, number: int) -> float:
        """The least step that matters at a point, by the noise that is known at arrival
        ``number``.
        """
        return max(self._least[place], _BEYOND_NOISE * self._noise[number][0])

    def least_against(self, place: int, number: int) -> float:
        """The least difference from what was accepted that matters: what was accepted is one run,
        so its noise adds to that of the point.
        """
        return max(self._least[place], _BEYOND_NOISE * math.hypot(*self._noise[number]))

    @property
    def last(self) -> int:
        """The number of the last arrival."""
        return len(self.accepted_by) - 1

    def is_listed(self, first_bad: int) -> bool:
        """Whether the cell is quarantined at every point from ``first_bad`` on."""
        return all(listed for place, listed in self._listed.items() if place >= first_bad)

    def alert(
        self, kind: Kind, last_good: int, first_bad: int, before: float, after: float
    ) -> Alert:
        """A detected alert that is first seen at the point ``first_bad``; ``last_good``: −1
        where there is none.
        """
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
        """The point that ``commit`` (its first digits) is about in ``alert``; None where it is
        not about the alert.

        For a commit among the ``related`` that is the first bad point or a later one. For a later
        commit it is the last point that was measured up to that commit, because other computers
        measure other commits.
        """
        points = self.series.points
        exact = next(
            (i for i in reversed(range(len(points))) if points[i].commit.startswith(commit)), None
        )
        first_bad = next(i for i, point in enumerate(points) if point.run == alert.run)
        if any(one.startswith(commit) for one in related):
            return max(first_bad, exact or 0)
        if exact is not None:
            return exact
        named = next(
            (place for place, one in enumerate(self.commits) if one.startswith(commit)), -1
        )
        until = [
            i
            for i, p in enumerate(points[first_bad:], first_bad)
            if self.places.get(p.commit, named + 1) <= named
        ]
        return max(until, default=None)

    def _stretch(self, last_good: int, first_bad: int) -> tuple[str, ...]:
        """The commits after that of the point ``last_good``, up to that of ``first_bad``; without
        a main line, only that of ``first_bad``.
        """
        points = self.series.points
        before = points[last_good::-1] if last_good >= 0 else ()  # the latest first
        good = next((self.places[p.commit] for p in before if p.commit in self.places), None)
        bad = next(
            (self.places[p.commit] for p in points[first_bad:] if p.commit in self.places), None
        )
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
    """Every commit that may have caused ``alert``: its stretch, and the stretches of the same cell
    that share a commit with it.

    Other computers measure other commits of the same change. An annotation of any of these commits
    is about the change.
    """
    own = set(alert.stretch)
    return own.union(*(stretch for stretch in stretches[alert.cell] if not own.isdisjoint(stretch)))


# The replay: which alerts there were after each run, and what ended them.

_EPSILON = 1e-9
"""A difference of two shares may differ from a whole number of samples in the last bits."""

_BY_CHANCE = 0.05
"""The largest probability that points beyond what was accepted are noise. It is estimated from
the share of such points among earlier ones.
"""

_BEYOND_NOISE = 3.0
"""How many standard deviations of the noise make a difference from a level that matters."""

_EARLIER = 120
"""How many points before the newest ones are counted for ``_BY_CHANCE``."""

_LONG = 12
"""How many points at the end show that the old level came back slowly, without a change that was
confirmed.
"""


class _Arrived:
    """The points of a series that had arrived after each run, in order."""

    def __init__(self, course: _Course) -> None:
        self.course = course
        self.places: list[int] = []
        self.values: dict[int, float] = {}
        self.kinds = [data for _, data in course.series.points.kinds]
        self.newest_place = -1

    def each(self) -> Iterator[int]:
        """The number of each arrival, after its point was added to ``places`` and ``values``."""
        for number, (place, value) in enumerate(self.course.series.points.arrivals()):
            if place not in self.values:
                bisect.insort(self.places, place)
            self.values[place] = value
            self.newest_place = place
            yield number

    def between(self, start: int, stop: int, kind: str) -> list[float]:
        """The values of the places ``start`` … ``stop`` − 1 that were measured on the samples
        ``kind``.
        """
        low, high = bisect.bisect_left(self.places, start), bisect.bisect_left(self.places, stop)
        return [self.values[place] for place in self.places[low:high] if self.kinds[place] == kind]

    def newest(self, count: int) -> list[int]:
        """The last ``count`` places."""
        return self.places[-count:]


def _changes(course: _Course) -> list[_Found]:
    """The changes for the worse in the order of their commits, the last maybe provisional,
    without annotations.

    Gradual ones that follow each other are one slide.
    """
    series = course.series
    found = [
        _change(course, change)
        for change in series.changes
        if change.rises is series.lower_is_better
    ]
    if found:
        arrived = _Arrived(course)
        for number in arrived.each():
            for one in tuple(found):
                if one.seen == number:
                    _measure(one, arrived)
                    if one.alert.kind is Kind.SLIDE and any(
                        other.alert.kind is Kind.SLIDE
                        and other.seen < number
                        and other.is_open(number)
                        for other in found
                    ):
                        found.remove(one)
                elif one.is_open(number):
                    _end(one, arrived, number)
    last = series.levels[-1]
    if last.provisional and series.worsening(series.levels[-2].value, last.value) > 0:
        before = series.levels[-2]
        alert = course.alert(Kind.STEP, before.stop - 1, last.start, before.value, last.value)
        alert = replace(alert, state=State.PROVISIONAL)
        found.append(
            _Found(
                alert,
                before.stop - 1,
                last.start,
                before.value,
                last.value,
                seen=_NEVER,
                is_quiet=True,
            )
        )
    return found


def _change(course: _Course, change: Change) -> _Found:
    """The alert of one change, with levels that are medians of all runs until today;
    ``_measure`` replaces those by the levels when it was confirmed.
    """
    levels = course.series.levels
    starts = [level.start for level in levels]
    before, after = (
        levels[bisect.bisect_right(starts, place) - 1].value
        for place in (change.before, change.start)
    )
    if change.is_gradual:
        after = _recent(course)
    alert = course.alert(
        Kind.SLIDE if change.is_gradual else Kind.STEP, change.before, change.start, before, after
    )
    alert = replace(alert, own_past=change.is_gradual)
    return _Found(
        alert,
        change.before,
        change.start,
        before,
        after,
        seen=change.seen,
        is_quiet=change.is_quiet,
    )


def _measure(step: _Found, arrived: _Arrived) -> None:
    """Note the levels of ``step`` as they are when it is confirmed."""
    kind = arrived.kinds[step.bad]
    others = [one for one in arrived.course.series.changes if one.seen <= step.seen]
    since = max((one.start for one in others if one.start < step.bad), default=0)
    until = min((one.start for one in others if one.start > step.bad), default=len(arrived.kinds))
    old, new = arrived.between(since, step.good + 1, kind), arrived.between(step.bad, until, kind)
    if old and new:
        step.before, step.after = statistics.median_low(old), statistics.median_low(new)
        if step.alert.kind is Kind.SLIDE:
            step.alert = replace(step.alert, before=step.before)


def _end(step: _Found, arrived: _Arrived, number: int) -> None:
    """End ``step`` where its old level is back, or what is measured is what was accepted."""
    course, tail = arrived.course, arrived.newest(arrived.course.confirm)
    if len(tail) < course.confirm or tail[0] < step.bad:
        return
    run, kind = course.series.points[tail[0]].run, arrived.kinds[step.bad]
    if _is_back(step, arrived, number, tail):
        _close(step, State.FIXED, f"the old level came back with run {run}", number)
        _freeze(step, arrived.between(step.bad, tail[0], kind))
    elif _is_accepted(step, arrived, number, tail):
        later = (
            one.start
            for one in course.series.changes
            if step.bad < one.start and one.seen <= number
        )
        until = min(later, default=len(arrived.kinds))
        _freeze(step, arrived.between(step.bad, until, kind))
        accepted = course.accepted_after[number]
        own = accepted is not None and abs(accepted - step.alert.after) < course.least_against(
            tail[-1], number
        )
        level = "the new level" if own else f"what was measured since run {run}"
        why = f"{level} is what was accepted"
        if (
            accepted is not None
            and not own
            and course.series.worsening(arrived.values[tail[-1]], accepted) > 0
        ):
            why = f"{level} is no worse than what was accepted"
        _close(step, State.ACCEPTED, why, number)


def _close(one: _Found, state: State, why: str, number: int) -> None:
    one.ended, one.alert = number, replace(one.alert, state=state, why=why)


def _freeze(step: _Found, level: Sequence[float]) -> None:
    """Give the alert of ``step`` its levels as they are when it ends: what is measured later is
    another matter.
    """
    after = statistics.median_low(level) if level else step.after
    step.alert = replace(step.alert, before=step.before, after=after)


def _is_back(step: _Found, arrived: _Arrived, number: int, tail: Sequence[int]) -> bool:
    course, kind = arrived.course, arrived.kinds[step.bad]
    if any(arrived.kinds[place] != kind for place in tail):
        return False
    least = course.least_at(tail[-1], number) - _EPSILON
    worse = course.series.worsening
    if step.is_quiet:
        return all(worse(step.before, arrived.values[place]) < least for place in tail)
    since = _latest_change(step, arrived, number)
    newest = arrived.between(since, len(arrived.kinds), kind)
    if since == step.bad:
        # no later change: half of the points at least belong to the new level itself
        newest = newest[-_LONG:] if len(newest) >= 2 * _LONG else []
    return len(newest) >= course.confirm and worse(step.before, statistics.median(newest)) < least


def _is_accepted(step: _Found, arrived: _Arrived, number: int, tail: Sequence[int]) -> bool:
    course, kinds = arrived.course, {arrived.kinds[place] for place in tail}
    accepted = course.accepted_after[number]
    if accepted is None or len(kinds) > 1:
        return False
    values = [arrived.values[place] for place in tail]
    (kind,) = kinds
    if not step.is_quiet and kind == arrived.kinds[step.bad]:
        newest = arrived.between(_latest_change(step, arrived, number), len(arrived.kinds), kind)
        values = [statistics.median(newest)] if len(newest) >= course.confirm else []
    least = course.least_against(tail[-1], number) - _EPSILON
    worse = course.series.worsening
    return bool(values) and all(
        worse(accepted, value) < least
        and (worse(value, accepted) < least or worse(value, step.after) >= least)
        for value in values
    )


def _latest_change(step: _Found, arrived: _Arrived, number: int) -> int:
    """The first place of the newest level at arrival ``number``."""
    return max(
        (one.start for one in arrived.course.series.changes if one.seen <= number), default=step.bad
    )


class _Beyond(_Arrived):
    """The points that arrived, and how many of the newest are worse than what was accepted."""

    def __init__(self, course: _Course) -> None:
        super().__init__(course)
        self.kinds_of = course.series.points.kinds
        self.accepted: dict[int, float | None] = {}
        """Place → what its newest run was judged by."""
        self.beyond: dict[int, bool] = {}
        """Place → whether it is worse than that by a step that matters, as it was known when it
        arrived.
        """
        self.first = 0
        """The position in ``places`` of the first of the points at the end, all of them beyond what
        was accepted.
        """
        self._last = -1

    @property
    def is_ever(self) -> bool:
        """Whether any point can be beyond."""
        series, course = self.course.series, self.course
        worst = (max if series.lower_is_better else min)(series.points.values)
        return any(
            accepted is not None and series.worsening(accepted, worst) > 0
            for accepted in course.accepted_by
        )

    def take(self, number: int) -> None:
        """Note whether the point of arrival ``number`` is worse than what it was judged by."""
        place, course = self.newest_place, self.course
        accepted = course.accepted_by[number]
        self.accepted[place] = accepted
        least = course.least_against(place, number) - _EPSILON
        lost = (
            accepted is not None and course.series.worsening(accepted, self.values[place]) >= least
        )
        self.beyond[place] = lost

    def is_beyond(self, place: int) -> bool:
        """Whether a point is worse than what was accepted by a step that matters."""
        return self.beyond[place]

    def is_reached(self, count: int, bad: int) -> bool:
        """Whether the last ``count`` points are behind ``bad`` and not beyond what was accepted
        for them.
        """
        tail = self.newest(count)
        known = all(self.accepted[place] is not None for place in tail)
        return len(tail) == count and tail[0] > bad and known and not any(map(self.is_beyond, tail))

    def extend(self) -> None:
        """Find ``first`` after an arrival."""
        places, kinds = self.places, self.kinds_of
        newest = places[-1]
        is_next = (
            len(places) > 1 and places[-2] == self._last and kinds[newest] == kinds[self._last]
        )
        self._last = newest
        if is_next and self.is_beyond(newest):
            return
        self.first = len(places)
        while (
            self.first > 0
            and kinds[places[self.first - 1]] == kinds[newest]
            and self.is_beyond(places[self.first - 1])
        ):
            self.first -= 1


def _beyond_accepted(course: _Course, steps: Sequence[_Found]) -> list[_Found]:
    """The losses against the accepted result that ``steps`` do not explain: slides, and steps
    at one commit.
    """
    if not course.is_accepted:
        return []
    arrived = _Beyond(course)
    if not arrived.is_ever:
        return []
    found: list[_Found] = []
    for number in arrived.each():
        arrived.take(number)
        arrived.extend()
        one = found[-1] if found and found[-1].ended is None else None
        if one is not None and arrived.is_reached(course.confirm, one.bad):
            _end_beyond(one, arrived, number)
        elif one is None and len(arrived.places) - arrived.first >= course.confirm:
            one = _unexplained(course, arrived, steps, number)
            if one is not None:
                found.append(one)
    return _without_explained(course, found, steps)


def _end_beyond(one: _Found, arrived: _Beyond, number: int) -> None:
    """End a loss against the accepted result where that is reached: it is back, or something
    else was accepted.
    """
    course, tail = arrived.course, arrived.newest(arrived.course.confirm)
    run, worse = course.series.points[tail[0]].run, course.series.worsening
    level = arrived.between(one.bad, tail[0], arrived.kinds[one.bad])
    accepted = arrived.accepted[tail[-1]]
    if level:
        one.alert = replace(one.alert, after=statistics.median_low(level[-_LONG:]))
    if (
        accepted is not None
        and worse(one.before, accepted) >= course.least_against(tail[-1], number) - _EPSILON
    ):
        _close(
            one, State.ACCEPTED, f"what was measured since run {run} is what was accepted", number
        )
    else:
        _close(one, State.FIXED, f"what was accepted is reached again since run {run}", number)


def _unexplained(
    course: _Course, arrived: _Beyond, steps: Sequence[_Found], number: int
) -> _Found | None:
    """The alert on the points at the end, which are all beyond what was accepted; None: they
    have one.
    """
    if any(one.alert.kind is Kind.SLIDE and one.is_open(number) for one in steps):
        return None
    series, places, first = course.series, arrived.places, arrived.first
    bad, kind = places[first], arrived.kinds[places[first]]
    earlier = [arrived.is_beyond(place) for place in places[max(first - _EARLIER, 0) : first]]
    chance = ((sum(earlier) + 1) / (len(earlier) + 2)) ** (len(places) - first) * len(earlier)
    if chance > _BY_CHANCE:
        return None
    accepted, least = arrived.accepted[bad], course.least_against(bad, number) - _EPSILON
    assert accepted is not None
    explained = sum(
        share for _, share in _explaining(course, steps, (accepted, kind), number, arrived)
    )
    if explained:  # the loss that steps do not explain began at a later point
        accepted += explained if series.lower_is_better else -explained
        far = [
            series.worsening(accepted, arrived.values[place]) >= least for place in places[first:]
        ]
        first += next((at + 1 for at in reversed(range(len(far))) if not far[at]), 0)
        if len(places) - first < course.confirm:
            return None
        bad = places[first]
    recent = statistics.median(arrived.values[place] for place in places[-course.confirm :])
    lost = series.worsening(accepted, recent)
    if lost < least:
        return None
    just_before = [
        place
        for place in places[max(first - course.confirm, 0) : first]
        if arrived.kinds[place] == kind
    ]
    good = just_before[-1] if just_before else -1
    after = statistics.median_low(arrived.values[place] for place in places[first:])
    # where an alert is open on these commits, a further loss is a slide, no second step
    is_known = any(one.is_open(number) and one.good < bad and good < one.bad for one in steps)
    if just_before and not is_known:
        before = statistics.median_low(arrived.values[place] for place in just_before)
        jump = min(
            series.worsening(arrived.values[good], arrived.values[bad]),
            series.worsening(before, after),
        )
        if jump >= max(least, _ONE_COMMIT * lost):
            alert = course.alert(Kind.STEP, good, bad, before, after)
            return _Found(alert, good, bad, before, after, seen=number, is_quiet=True)
    after = accepted + lost if series.lower_is_better else accepted - lost
    alert = course.alert(Kind.SLIDE, good, bad, accepted, after)
    return _Found(alert, good, bad, accepted, after, seen=number, is_quiet=True)


def _without_explained(
    course: _Course, found: Sequence[_Found], steps: Sequence[_Found]
) -> list[_Found]:
    """``found`` without the slides that turned out to be one of ``steps``; the others have their
    loss as it is now.
    """
    series, kept = course.series, []
    for one in found:
        loss = series.worsening(one.before, one.after)
        if one.ended is not None and one.alert.kind is Kind.STEP:
            kept.append(one)
            continue
        if one.alert.kind is Kind.STEP:
            near = {
                change.start: 0 if change.is_quiet else course.confirm for change in series.changes
            }
            stop = min(
                (start for start in near if start > one.bad + near[start]),
                default=len(series.points),
            )
            one.alert = replace(
                one.alert, after=statistics.median_low(series.points.runs_between(one.bad, stop))
            )
            kept.append(one)
            continue
        if any(
            step.seen >= one.seen
            and one.good < step.good + 1 <= one.bad + course.confirm
            and series.worsening(step.before, step.after) >= _ONE_COMMIT * loss
            and series.worsening(one.before, step.before)
            < course.least_at(one.bad, course.last) - _EPSILON
            for step in steps
            if one.is_open(step.seen) and step.alert.kind is Kind.STEP and step.seen <= _NOW
        ):
            continue
        if one.ended is None:
            accepted, kind = one.before, series.points.kinds[one.bad][1]
            whole = series.worsening(accepted, _recent(course))
            lost = whole - sum(
                share for _, share in _explaining(course, steps, (accepted, kind), slide=one)
            )
            if lost >= course.least_at(one.bad, course.last) - _EPSILON:
                after = accepted + lost if series.lower_is_better else accepted - lost
                one.alert = replace(one.alert, after=after)
        kept.append(one)
    return kept


_NOW = (1 << 62) - 1
"""A number later than that of any arrival: all points are known."""
_NEVER = _NOW + 1
"""The arrival that confirms a provisional alert: none so far."""


def _recent(course: _Course) -> float:
    """The median of the last points."""
    return statistics.median(course.series.points.values[-course.confirm :])


def _explaining(
    course: _Course,
    steps: Iterable[_Found],
    against: tuple[float, str],
    number: int = _NOW,
    arrived: _Arrived | None = None,
    *,
    slide: _Found | None = None,
) -> list[tuple[_Found, float]]:
    """Each step that is not a part of ``slide``, with its share of the loss at arrival ``number``.

    Not a part of it are steps before it, large steps, and steps with an annotation. A share counts
    from the accepted result: what a step lost while it was better than that is not counted.

    Args:
        against: (accepted, the samples).
        arrived: the points then; None: all.
    """
    accepted, kind = against
    series, found = course.series, []
    for step in steps:
        is_fixed = (
            step.alert.state is State.FIXED and step.ended is not None and step.ended <= number
        )
        is_later = step.seen > number and not (number == _NOW and step.seen == _NEVER)
        if step.alert.kind is Kind.SLIDE or is_later or is_fixed:
            continue
        if series.points.kinds[step.bad][1] != kind:
            continue
        begin = step.before if series.worsening(accepted, step.before) > 0 else accepted
        if arrived is None:
            level = list(series.points.values[step.bad : step.bad + _LONG])
        else:
            level = arrived.between(step.bad, len(arrived.kinds), kind)[:_LONG]
        share = max(series.worsening(begin, statistics.median_low(level or [step.after])), 0.0)
        if step.alert.state in _RULED or slide is None or slide.is_apart(step):
            found.append((step, share))
    return found


def _listed(one: _Found, course: _Course) -> Alert:
    """The alert of ``one``; it is acknowledged where the cell is quarantined since its first bad
    point.
    """
    if (
        one.alert.state is not State.DETECTED
        or one.alert.annotation
        or not course.is_listed(one.bad)
    ):
        return one.alert
    return replace(one.alert, state=State.ACKNOWLEDGED, why="the cell is quarantined")


def _ruled(alert: Alert, annotations: Sequence[Annotation], related: Collection[str]) -> Alert:
    """``alert`` in the state of the last annotation of a commit of ``related``."""
    for note in reversed(annotations):
        if any(commit.startswith(note.commit) for commit in related):
            return _with_ruling(alert, note)
    return alert


def _ruled_slide(
    found: _Found,
    course: _Course,
    steps: Sequence[_Found],
    annotations: Sequence[Annotation],
    related: Collection[str],
) -> Alert:
    """The slide ``found`` in the state of the annotation of a commit on it, unless it got worse
    since then.

    A later step with an alert of its own is not a part of the slide.
    """
    alert, points, worse = found.alert, course.series.points, course.series.worsening
    least = course.least_at(len(points) - 1, course.last) - _EPSILON
    recent, kind = _recent(course), points.kinds[found.bad][1]
    explaining = _explaining(course, steps, (alert.before, kind), slide=found)
    for note in reversed(annotations):
        place = course.point_of(note.commit, alert, related)
        if place is not None:
            explained = sum(share for step, share in explaining if step.bad > place)
            if alert.state in _ENDED or worse(points.values[place], recent) - explained < least:
                return _with_ruling(alert, note)
            since = f"{note.state.value} at {note.commit} by {note.author}, and worse since then"
            return replace(alert, why=since, annotation=note.commit)
    return alert


def _with_ruling(alert: Alert, note: Annotation) -> Alert:
    """``alert`` in the state that ``note`` gives it. An alert that ended stays so; an alert that a
    note calls fixed stays new until the level has returned.
    """
    if note.state is Ruling.FIXED and alert.state is not State.FIXED:
        why = f"said to be fixed by {note.author}, but the level has not returned"
        return replace(alert, why=why, annotation=note.commit)
    why = f"{note.reason} ({note.author})"
    if alert.state in _ENDED:
        return replace(alert, why=f"{alert.why}; {why}", annotation=note.commit)
    return replace(alert, state=State(note.state.value), why=why, annotation=note.commit)
