"""The changes of a series for the worse, replayed run by run: which were confirmed, and what ended
them.
"""

import bisect
import statistics
from collections.abc import Sequence
from dataclasses import replace

from qbench.tracking.alert import Kind, State
from qbench.tracking.alert_course import (
    EPSILON,
    LONG,
    NEVER,
    AcceptedSeries,
    Arrived,
    ReplayedAlert,
    recent_level,
)
from qbench.tracking.change_points import Change


def changes_for_the_worse(course: AcceptedSeries) -> list[ReplayedAlert]:
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
        arrived = Arrived(course)
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
            ReplayedAlert(
                alert,
                before.stop - 1,
                last.start,
                before.value,
                last.value,
                seen=NEVER,
                is_quiet=True,
            )
        )
    return found


def _change(course: AcceptedSeries, change: Change) -> ReplayedAlert:
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
        after = recent_level(course)
    alert = course.alert(
        Kind.SLIDE if change.is_gradual else Kind.STEP, change.before, change.start, before, after
    )
    alert = replace(alert, own_past=change.is_gradual)
    return ReplayedAlert(
        alert,
        change.before,
        change.start,
        before,
        after,
        seen=change.seen,
        is_quiet=change.is_quiet,
    )


def _measure(step: ReplayedAlert, arrived: Arrived) -> None:
    """Note the levels of ``step`` as they are when it is confirmed."""
    kind = arrived.kinds[step.bad]
    others = [one for one in arrived.course.series.changes if one.seen <= step.seen]
    since = max((one.start for one in others if one.start < step.bad), default=0)
    until = min((one.start for one in others if one.start > step.bad), default=len(arrived.kinds))
    old, new = arrived.between(since, step.good + 1, kind), arrived.between(step.bad, until, kind)
    if old and new:
        step.confirm(statistics.median_low(old), statistics.median_low(new))


def _end(step: ReplayedAlert, arrived: Arrived, number: int) -> None:
    """End ``step`` where its old level is back, or what is measured is what was accepted."""
    course, tail = arrived.course, arrived.newest(arrived.course.confirm)
    if len(tail) < course.confirm or tail[0] < step.bad:
        return
    run, kind = course.series.points[tail[0]].run, arrived.kinds[step.bad]
    if _is_back(step, arrived, number, tail):
        step.end(State.FIXED, f"the old level came back with run {run}", number)
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
        step.end(State.ACCEPTED, why, number)


def _freeze(step: ReplayedAlert, level: Sequence[float]) -> None:
    """Give the alert of ``step`` its levels as they are when it ends: what is measured later is
    another matter.
    """
    after = statistics.median_low(level) if level else step.after
    step.show(before=step.before, after=after)


def _is_back(step: ReplayedAlert, arrived: Arrived, number: int, tail: Sequence[int]) -> bool:
    course, kind = arrived.course, arrived.kinds[step.bad]
    if any(arrived.kinds[place] != kind for place in tail):
        return False
    least = course.least_at(tail[-1], number) - EPSILON
    worse = course.series.worsening
    if step.is_quiet:
        return all(worse(step.before, arrived.values[place]) < least for place in tail)
    since = _latest_change(step, arrived, number)
    newest = arrived.between(since, len(arrived.kinds), kind)
    if since == step.bad:
        # no later change: half of the points at least belong to the new level itself
        newest = newest[-LONG:] if len(newest) >= 2 * LONG else []
    return len(newest) >= course.confirm and worse(step.before, statistics.median(newest)) < least


def _is_accepted(step: ReplayedAlert, arrived: Arrived, number: int, tail: Sequence[int]) -> bool:
    course, kinds = arrived.course, {arrived.kinds[place] for place in tail}
    accepted = course.accepted_after[number]
    if accepted is None or len(kinds) > 1:
        return False
    values = [arrived.values[place] for place in tail]
    (kind,) = kinds
    if not step.is_quiet and kind == arrived.kinds[step.bad]:
        newest = arrived.between(_latest_change(step, arrived, number), len(arrived.kinds), kind)
        values = [statistics.median(newest)] if len(newest) >= course.confirm else []
    least = course.least_against(tail[-1], number) - EPSILON
    worse = course.series.worsening
    return bool(values) and all(
        worse(accepted, value) < least
        and (worse(value, accepted) < least or worse(value, step.after) >= least)
        for value in values
    )


def _latest_change(step: ReplayedAlert, arrived: Arrived, number: int) -> int:
    """The first place of the newest level at arrival ``number``."""
    return max(
        (one.start for one in arrived.course.series.changes if one.seen <= number), default=step.bad
    )
