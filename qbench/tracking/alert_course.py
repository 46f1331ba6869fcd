"""The course of one series on which alerts are found: what was accepted at each time, the points
that had arrived after each run, and an alert with what the replay knows of it.
"""

import bisect
import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from qbench.tracking.alert import Alert, Kind, State
from qbench.tracking.trend import CONFIRM, AcceptedLevel, Series, least_steps, noise_after

EPSILON = 1e-9
"""A difference of two shares may differ from a whole number of samples in the last bits."""

_BEYOND_NOISE = 3.0
"""How many standard deviations of the noise make a difference from a level that matters."""

LONG = 12
"""How many points at the end show that the old level came back slowly, without a change that was
confirmed.
"""

_SMALL_STEP = 1 / 3
"""A step that makes less than this share of a loss against the accepted result is a part of a
slide.
"""

NOW = (1 << 62) - 1
"""A number later than that of any arrival: all points are known."""
NEVER = NOW + 1
"""The arrival that confirms a provisional alert: none so far."""


@dataclass(slots=True, eq=False)
class ReplayedAlert:
    """An alert with what the replay knows of it; only its own methods change it.

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

    def confirm(self, before: float, after: float) -> None:
        """Note the levels as they are when it is confirmed."""
        self.before, self.after = before, after
        if self.alert.kind is Kind.SLIDE:
            self.alert = replace(self.alert, before=before)

    def show(self, *, after: float, before: float | None = None) -> None:
        """Give the alert its levels; ``before`` None: that stays."""
        begin = self.alert.before if before is None else before
        self.alert = replace(self.alert, before=begin, after=after)

    def end(self, state: State, why: str, arrival: int) -> None:
        """End it at ``arrival`` in ``state``."""
        self.ended, self.alert = arrival, replace(self.alert, state=state, why=why)

    def rule(self, alert: Alert) -> None:
        """Take ``alert``, which is its own in the state that an annotation gives it."""
        self.alert = alert

    def is_open(self, arrival: int) -> bool:
        """Whether it was confirmed and had not ended at ``arrival``."""
        return self.seen <= arrival and (self.ended is None or self.ended > arrival)

    def is_apart(self, step: "ReplayedAlert") -> bool:
        """Whether ``step`` is an alert of its own next to this slide: the step was confirmed before
        the slide, or is large.
        """
        if step.seen <= self.seen:
            return True
        whole_loss = abs(step.after - self.before)
        return abs(step.after - step.before) >= _SMALL_STEP * whole_loss - EPSILON

    def covers(self, change: "ReplayedAlert") -> bool:
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


class AcceptedSeries:
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
        """The point that ``commit`` (its first digits) is about in ``alert``, the first bad one or
        a later one; None where it is not about the alert.

        A commit that was measured before the first bad point is about it only among the
        ``related``. For a later commit that was not measured here it is the last point up to that
        commit, because other computers measure other commits.
        """
        points = self.series.points
        exact = next(
            (i for i in reversed(range(len(points))) if points[i].commit.startswith(commit)), None
        )
        first_bad = next(i for i, point in enumerate(points) if point.run == alert.run)
        if any(one.startswith(commit) for one in related):
            return max(first_bad, exact or 0)
        if exact is not None:
            return exact if exact >= first_bad else None
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


class Arrived:
    """The points of a series that had arrived after each run, in order."""

    def __init__(self, course: AcceptedSeries) -> None:
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


def recent_level(course: AcceptedSeries) -> float:
    """The median of the last points."""
    return statistics.median(course.series.points.values[-course.confirm :])
