"""The losses of a series against what was accepted that no step explains, replayed run by run."""

import statistics
from collections.abc import Iterable, Sequence

from qbench.tracking.alert import RULED, Kind, State
from qbench.tracking.alert_course import (
    EPSILON,
    LONG,
    NEVER,
    NOW,
    AcceptedSeries,
    Arrived,
    ReplayedAlert,
    recent_level,
)

_ONE_COMMIT = 2 / 3
"""A commit that makes this share of a loss against the accepted result is what it came from: it
is a step.
"""

_BY_CHANCE = 0.05
"""The largest probability that points beyond what was accepted are noise. It is estimated from
the share of such points among earlier ones.
"""

_EARLIER = 120
"""How many points before the newest ones are counted for ``_BY_CHANCE``."""


class _Beyond(Arrived):
    """The points that arrived, and how many of the newest are worse than what was accepted."""

    def __init__(self, course: AcceptedSeries) -> None:
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
        """Whether any point can have been beyond when one of its runs arrived: later runs of the
        same commit may have moved its median since.
        """
        series, course = self.course.series, self.course
        worst = (max if series.lower_is_better else min)(series.points.of_runs)
        return any(
            accepted is not None and series.worsening(accepted, worst) > 0
            for accepted in course.accepted_by
        )

    def take(self, number: int) -> None:
        """Note whether the point of arrival ``number`` is worse than what it was judged by."""
        place, course = self.newest_place, self.course
        accepted = course.accepted_by[number]
        self.accepted[place] = accepted
        least = course.least_against(place, number) - EPSILON
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


def losses_beyond_accepted(
    course: AcceptedSeries, steps: Sequence[ReplayedAlert]
) -> list[ReplayedAlert]:
    """The losses against the accepted result that ``steps`` do not explain: slides, and steps
    at one commit.
    """
    if not course.is_accepted:
        return []
    arrived = _Beyond(course)
    if not arrived.is_ever:
        return []
    found: list[ReplayedAlert] = []
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
    kept = [one for one in found if not _is_a_step(course, one, steps)]
    for one in kept:
        if one.ended is None:
            one.show(after=_level_now(course, one, steps))
    return kept


def _end_beyond(one: ReplayedAlert, arrived: _Beyond, number: int) -> None:
    """End a loss against the accepted result where that is reached: it is back, or something
    else was accepted.
    """
    course, tail = arrived.course, arrived.newest(arrived.course.confirm)
    run, worse = course.series.points[tail[0]].run, course.series.worsening
    level = arrived.between(one.bad, tail[0], arrived.kinds[one.bad])
    accepted = arrived.accepted[tail[-1]]
    if level:
        one.show(after=statistics.median_low(level[-LONG:]))
    if (
        accepted is not None
        and worse(one.before, accepted) >= course.least_against(tail[-1], number) - EPSILON
    ):
        why = f"what was measured since run {run} is what was accepted"
        one.end(State.ACCEPTED, why, number)
    else:
        one.end(State.FIXED, f"what was accepted is reached again since run {run}", number)


def _unexplained(
    course: AcceptedSeries, arrived: _Beyond, steps: Sequence[ReplayedAlert], number: int
) -> ReplayedAlert | None:
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
    accepted, least = arrived.accepted[bad], course.least_against(bad, number) - EPSILON
    assert accepted is not None
    explained = sum(
        share for _, share in explaining_steps(course, steps, (accepted, kind), number, arrived)
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
            return ReplayedAlert(alert, good, bad, before, after, seen=number, is_quiet=True)
    after = accepted + lost if series.lower_is_better else accepted - lost
    alert = course.alert(Kind.SLIDE, good, bad, accepted, after)
    return ReplayedAlert(alert, good, bad, accepted, after, seen=number, is_quiet=True)


def _is_a_step(course: AcceptedSeries, one: ReplayedAlert, steps: Sequence[ReplayedAlert]) -> bool:
    """Whether a slide turned out to be one of ``steps``, which was confirmed while it was open."""
    if one.alert.kind is Kind.STEP:
        return False
    worse = course.series.worsening
    loss, least = worse(one.before, one.after), course.least_at(one.bad, course.last) - EPSILON
    confirmed = (
        step
        for step in steps
        if one.is_open(step.seen) and step.alert.kind is Kind.STEP and step.seen <= NOW
    )
    return any(
        step.seen >= one.seen
        and one.good < step.good + 1 <= one.bad + course.confirm
        and worse(step.before, step.after) >= _ONE_COMMIT * loss
        and worse(one.before, step.before) < least
        for step in confirmed
    )


def _level_now(course: AcceptedSeries, one: ReplayedAlert, steps: Sequence[ReplayedAlert]) -> float:
    """The level of an open loss as it is now: of a step up to the next change, of a slide
    without what steps explain.
    """
    series = course.series
    if one.alert.kind is Kind.STEP:
        near = {change.start: 0 if change.is_quiet else course.confirm for change in series.changes}
        stop = min(
            (start for start in near if start > one.bad + near[start]),
            default=len(series.points),
        )
        return statistics.median_low(series.points.runs_between(one.bad, stop))
    accepted, kind = one.before, series.points.kinds[one.bad][1]
    explaining = explaining_steps(course, steps, (accepted, kind), slide=one)
    lost = series.worsening(accepted, recent_level(course)) - sum(share for _, share in explaining)
    if lost < course.least_at(one.bad, course.last) - EPSILON:
        return one.alert.after
    return accepted + lost if series.lower_is_better else accepted - lost


def explaining_steps(
    course: AcceptedSeries,
    steps: Iterable[ReplayedAlert],
    against: tuple[float, str],
    number: int = NOW,
    arrived: Arrived | None = None,
    *,
    slide: ReplayedAlert | None = None,
) -> list[tuple[ReplayedAlert, float]]:
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
        is_later = step.seen > number and not (number == NOW and step.seen == NEVER)
        if step.alert.kind is Kind.SLIDE or is_later or is_fixed:
            continue
        if series.points.kinds[step.bad][1] != kind:
            continue
        begin = step.before if series.worsening(accepted, step.before) > 0 else accepted
        if arrived is None:
            level = list(series.points.values[step.bad : step.bad + LONG])
        else:
            level = arrived.between(step.bad, len(arrived.kinds), kind)[:LONG]
        share = max(series.worsening(begin, statistics.median_low(level or [step.after])), 0.0)
        if step.alert.state in RULED or slide is None or slide.is_apart(step):
            found.append((step, share))
    return found
