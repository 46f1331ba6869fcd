"""Where a series changes its level."""

import bisect
import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Values ``start`` … ``stop`` − 1 lie around ``value``, short excursions apart; one may lie
    between two levels.

    ``value``: their mean; of a trend, the median of the runs. ``provisional``: the last, and not
        yet confirmed.
    """

    start: int
    stop: int
    value: float
    provisional: bool = False


def find_change_points(values: Sequence[float], *, min_effect: float, confirm: int) -> list[int]:
    """The first index of each new level that is confirmed, in order.

    Args:
        values: a series; NaN where nothing was measured.
        min_effect: the least step that matters, in the unit of the values.
        confirm: how many values make a level.

    Raises:
        ValueError: ``confirm`` under 1, ``min_effect`` negative or not finite, or an infinite
            value.
    """
    levels = find_levels(values, min_effect=min_effect, confirm=confirm)
    return [level.start for level in levels[1:] if not level.provisional]


def find_levels(values: Sequence[float], *, min_effect: float, confirm: int) -> tuple[Level, ...]:
    """The levels of a series; the last may not be confirmed yet (``find_change_points``)."""
    if confirm < 1 or not 0 <= min_effect < math.inf:
        raise ValueError(
            f"confirm = {confirm}, min_effect = {min_effect}: at least 1, and a finite step from 0 "
            "on"
        )
    series = np.asarray(values, dtype=np.float64)
    if np.isinf(series).any():
        raise ValueError("an infinite value in a series")
    (present,) = np.nonzero(~np.isnan(series))
    known = series[present]
    if len(known) == 0:
        return ()
    starts, usual = _without_spikes(known, _partition(known, min_effect), min_effect, confirm)
    starts = _without_small_steps(usual, starts, min_effect)
    stops = [*starts[1:], len(known)]
    return tuple(
        Level(
            start=int(present[start]),
            stop=int(present[start + int(np.nonzero(~np.isnan(usual[start:stop]))[0][-1])]) + 1,
            value=_mean_between(usual, start, stop),
            provisional=start > 0 and stop == len(known) and stop - start < confirm,
        )
        for start, stop in zip(starts, stops, strict=True)
    )


def _partition(known: Floats, min_effect: float) -> list[int]:
    """Starts of the segments of least total cost, under the scale the values themselves suggest.

    The deviation of differences measures the steps as well as the noise, and one large step would
    hide a small one: it is taken again inside the segments found so far, for as long as that finds
    more. The median alone would be blind to outliers, which then pass for levels.
    """
    if len(known) < 2:
        return [0]
    steps = np.diff(known)
    noise = float(np.median(np.abs(steps - np.median(steps)))) / (0.6745 * _SQRT_2)
    least = max(min_effect / 8, 1e-12 * float(np.abs(known).max()), noise)
    sides = _SQRT_2 if noise else 1
    starts, scale = [0], math.inf
    smaller = max(_first_deviation(steps) / sides, least)
    while smaller < scale:
        scale = smaller
        if scale == 0 or (finer := _cheapest(known, scale)) == starts:
            break
        starts = finer
        smaller = max(_deviation_inside(steps, starts) / sides, least)
    return starts


_SQRT_2 = math.sqrt(2)


def _first_deviation(steps: Floats) -> float:
    """Standard deviation of differences; without the two largest where these make nearly all of it.

    In many steady series one excursion and its return are the only changes; the scale must not come
    from these.
    """
    rest = np.delete(steps, np.argsort(np.abs(steps))[-2:])
    whole, small = float(steps.std()), float(rest.std()) if len(rest) else 0.0
    return small if small < whole / 4 else whole


def _deviation_inside(steps: Floats, starts: list[int]) -> float:
    """Standard deviation of the differences of neighbours that lie in one segment."""
    inside = np.delete(steps, np.array(starts[1:], dtype=np.int64) - 1)
    return float(inside.std()) if len(inside) else 0.0


_PENALTY = 4
"""Times ln N, for each new level. At 3, a sixth more of steps that last three values are seen,
and twice the alarms.
"""

_ROWS = 64


def _cheapest(known: Floats, scale: float) -> list[int]:
    """Starts of the segments of the partition that costs least."""
    count = len(known)
    scaled = (known - known[0]) / scale  # the first value off: sums of squares stay small and exact
    sums = np.concatenate([[0.0], np.cumsum(scaled)])
    squares = np.concatenate([[0.0], np.cumsum(scaled * scaled)])
    places = np.arange(count + 1, dtype=np.float64)
    penalty = _PENALTY * math.log(count)
    best, last = np.zeros(count + 1), [0] * (count + 1)
    best[0] = -penalty
    for first in range(1, count + 1, _ROWS):
        # costs of many stops at once, in memory that does not grow with N²
        stops = slice(first, min(first + _ROWS, count + 1))
        before = slice(0, stops.stop - 1)
        total = sums[stops, None] - sums[None, before]
        # segments that begin after their stop are not read
        lengths = np.maximum(places[stops, None] - places[None, before], 1)
        cost = squares[stops, None] - squares[None, before] - total * total / lengths
        for stop in range(first, stops.stop):
            candidates = best[:stop] + cost[stop - first, :stop]
            last[stop] = cheapest = int(candidates.argmin())
            best[stop] = candidates[cheapest] + penalty
    starts, stop = [], count
    while stop > 0:
        stop = last[stop]
        starts.append(stop)
    return starts[::-1]


def _without_spikes(
    known: Floats, starts: list[int], min_effect: float, confirm: int
) -> tuple[list[int], Floats]:
    """(starts, values): short excursions dropped, their values NaN where they would bend the
    mean of a level.

    An excursion is one or more segments shorter than ``confirm`` between two equal levels, or
    between two different levels where one of the segments does not lie between these: a fault that
    hides a step is not a level of its own. Short segments before the first level are excursions,
    too.
    """
    kept, usual = list(starts), known.copy()
    first = next((i for i in range(len(kept)) if _length(known, kept, i) >= confirm), 0)
    usual[: kept[first]] = np.nan
    del kept[1 : first + 1]
    index = 1
    while index < len(kept):
        after = index  # the first segment from here on that is long enough to be a level
        while after < len(kept) and _length(known, kept, after) < confirm:
            after += 1
        if index < after < len(kept):
            old, new = _mean(usual, kept, index - 1), _mean(usual, kept, after)
            equal = abs(new - old) < max(min_effect - _TINY, _TINY)
            low, high = sorted((old, new))
            if equal or not all(
                low <= _mean(usual, kept, short) <= high for short in range(index, after)
            ):
                usual[kept[index] : kept[after]] = np.nan
                del kept[index : after + equal]
                index += not equal
                continue
        index += 1
    return kept, usual


_TINY = 1e-12
"""Two means of equal values may differ in the last bits."""


def _without_small_steps(known: Floats, starts: list[int], min_effect: float) -> list[int]:
    """Join neighbours whose levels differ by less than ``min_effect``, the closest two first."""
    kept = list(starts)
    while len(kept) > 1:
        means = np.array([_mean(known, kept, index) for index in range(len(kept))])
        steps = np.abs(np.diff(means))
        smallest = int(steps.argmin())
        if steps[smallest] >= min_effect - _TINY:
            break
        del kept[smallest + 1]
    return kept


def _length(known: Floats, starts: list[int], index: int) -> int:
    stop = starts[index + 1] if index + 1 < len(starts) else len(known)
    return stop - starts[index]


def _mean(known: Floats, starts: list[int], index: int) -> float:
    return _mean_between(known, starts[index], starts[index] + _length(known, starts, index))


def _mean_between(values: Floats, start: int, stop: int) -> float:
    """The mean of ``values[start:stop]`` without excursions, which are NaN."""
    part = values[start:stop]
    return float(part[~np.isnan(part)].mean())


# What was confirmed stays confirmed: a series is replayed as it grew.
#
# The levels of a whole series are cut anew with every value, so that a step of yesterday can be
# gone today. A trend is therefore replayed in the order in which its runs began. After each arrival
# only the level that it belongs to is looked at; what that look confirms is kept, and the next
# level begins there. Later values never take a change back.
#
#     looked at  where the last ``confirm`` values lie on one side of the level, half the least step
#                and its spread away
#     confirmed  without noise: each of k ≥ confirm values is a least step away from the median of
#                the level, and p ** k · n ≤ 0.02, where p = (outliers + 1) / (n + 2) of the n
#                values of the level
#                else: where ``find_levels`` of the last 120 values confirms it
#     gradual    neighbours differ by less than half of it, or a straight line through both levels
#                leaves less than the two levels do: it has no place of its own, and is a slide

_WINDOW = 120
"""How many of the newest values of a level are looked at."""

_SHORT = 16
"""Values of a level under which its middle says little of it."""

_BY_CHANCE = 0.02
"""How probable it may be that values of a quiet level are all outliers."""

_OF_MEDIAN = math.sqrt(math.pi / 2)
"""Standard error of a median of Gaussian values over that of their mean."""

_BEYOND_NOISE = 4.0
"""Standard errors by which a step exceeds the known noise: it is looked for at every place of a
series, every night.
"""

_MAD = 1.4826
"""Standard deviation of Gaussian noise over its median absolute deviation."""

_CLEAR = 5
"""How many standard deviations of noise a quiet step is at least."""

_SHARP = 2 / 3
"""The share of a step that the values just before it do not explain."""

_STAIR = 3 / 4
"""The share of the least step under which what lies between neighbours is one of many small
steps.
"""

_RECENT = 3
"""How many values are just before a step."""


@dataclass(slots=True, kw_only=True)
class Change:
    """A new level that was confirmed.

    Args:
        before, start: the places of the last value of the old level and of the first one of the new
            level.
        rises: whether the new level is the higher one.
        seen: the number of the arrival with which it was confirmed, from 0.
        is_quiet: whether it is far larger than the noise.
        is_gradual: whether it came about by no one step.
    """

    before: int
    start: int
    rises: bool
    seen: int
    is_quiet: bool = False
    is_gradual: bool = False


class Growth:
    """A series as it grew: what had arrived, and what was confirmed, after each arrival.

    Args:
        kinds: of each place of the whole series, what it was measured on; no level reaches over
            another kind.
        least: of each place, the least step that matters.
        confirm: how many values make a level.
    """

    def __init__(self, kinds: Sequence[object], least: Sequence[float], confirm: int) -> None:
        self.places: list[int] = []
        self.values: dict[int, float] = {}
        self.changes: list[Change] = []
        self.count = 0
        self._kinds, self._least, self._confirm = kinds, least, confirm
        self._segment = 0
        self._noise = 0.0
        self._looked, self._center, self._apart = 0, 0.0, 0.0

    def arrive(self, place: int, value: float, *, noise: float = 0.0) -> None:
        """Take the next value: of a new place, or another one of a known place.

        ``noise``: the standard deviation of a value by noise alone, as it is known by now.
        """
        self.count += 1
        self._noise = noise
        if self.values.get(place) == value:
            return
        is_new = place not in self.values
        self.values[place] = value
        if not self.places or place > self.places[-1]:
            if self.places and self._kinds[place] != self._kinds[self.places[-1]]:
                self._segment, self._looked = len(self.places), 0
            self.places.append(place)
            if self._is_moving():
                self._look(self._segment, len(self.places))
            return
        if is_new:
            bisect.insort(self.places, place)
            self._narrow(place, value)
        self._look(*self._level_of(place))
        self._segment, self._looked = self._level_of(self.places[-1])[0], 0

    def provisional(self) -> tuple[int, int, bool] | None:
        """(last place before, first place, rises) of a new level at the end that is not
        confirmed yet.
        """
        start, stop = self._level_of(self.places[-1])
        places = self.places[max(start, stop - _WINDOW) : stop]
        values = [self.values[place] for place in places]
        least = self._least[places[-1]]
        found = _quiet_step(values, least, 1, 1.0)
        if found is not None:
            before, first, rises = found
            is_short = len(values) - first < self._confirm
            return (
                (places[before], places[first], rises)
                if is_short and self._exceeds(values, first)
                else None
            )
        levels = find_levels(values, min_effect=least, confirm=self._confirm)
        if (
            len(levels) < 2
            or not levels[-1].provisional
            or not self._exceeds(values, levels[-1].start)
        ):
            return None
        return (
            places[levels[-2].stop - 1],
            places[levels[-1].start],
            levels[-1].value > levels[-2].value,
        )

    def _exceeds(self, values: Sequence[float], first: int) -> bool:
        """Whether the step at ``first`` is more than the known noise of the values on both
        sides explains.
        """
        if not self._noise:
            return True
        old, new = values[:first], values[first:]
        gap = abs(statistics.median(new) - statistics.median(old))
        error = _OF_MEDIAN * self._noise * math.sqrt(1 / len(old) + 1 / len(new))
        return gap >= _BEYOND_NOISE * error

    def _is_moving(self) -> bool:
        """Whether the last values are all on one side of the level, so that a look at them is
        worth its time.
        """
        size = len(self.places) - self._segment
        if size <= self._confirm:
            return False
        tail = [self.values[place] for place in self.places[-self._confirm :]]
        if size < _SHORT:
            known = [self.values[place] for place in self.places[self._segment : -self._confirm]]
            least = self._least[self.places[-1]] - _TINY
            return max(known) - max(tail) >= least or min(tail) - min(known) >= least
        if size > 1.5 * self._looked:  # the middle of a long level hardly moves
            self._looked = size
            known = [
                self.values[place]
                for place in self.places[self._segment : -self._confirm][-_WINDOW:]
            ]
            self._center = statistics.median(known)
            spread = _MAD * statistics.median(abs(value - self._center) for value in known)
            self._apart = max(self._least[self.places[-1]] / 2 - _TINY, spread)
        return min(tail) - self._center >= self._apart or max(tail) - self._center <= -self._apart

    def _look(self, start: int, stop: int) -> None:
        """Confirm what is to be confirmed in the level at positions ``start`` … ``stop`` − 1."""
        places = self.places[max(start, stop - _WINDOW) : stop]
        values = [self.values[place] for place in places]
        least, seen = self._least[places[-1]], self.count - 1
        quiet = _quiet_step(values, least, self._confirm, _BY_CHANCE)
        found = [(*quiet, False)] if quiet else list(_confirmed_steps(values, least, self._confirm))
        for before, first, rises, is_gradual in found:
            if not self._exceeds(values, first):
                continue
            change = Change(
                before=places[before],
                start=places[first],
                rises=rises,
                seen=seen,
                is_quiet=quiet is not None,
                is_gradual=is_gradual,
            )
            bisect.insort(self.changes, change, key=lambda one: one.start)
            if stop == len(self.places):
                self._segment, self._looked = bisect.bisect_left(self.places, change.start), 0

    def _level_of(self, place: int) -> tuple[int, int]:
        """The positions (start, stop) of the level that ``place`` is in."""
        position, kind = bisect.bisect_left(self.places, place), self._kinds[place]
        starts = {change.start for change in self.changes}
        start = stop = position
        while (
            start > 0
            and self.places[start] not in starts
            and self._kinds[self.places[start - 1]] == kind
        ):
            start -= 1
        stop += 1
        while (
            stop < len(self.places)
            and self.places[stop] not in starts
            and self._kinds[self.places[stop]] == kind
        ):
            stop += 1
        return start, stop

    def _narrow(self, place: int, value: float) -> None:
        """Put a late value between the two places of a change on the side that it is nearer to."""
        for change in self.changes:
            if (
                change.before < place < change.start
                and self._kinds[place] == self._kinds[change.start]
            ):
                old, new = self.values[change.before], self.values[change.start]
                if abs(value - new) < abs(value - old):
                    change.start = place
                else:
                    change.before = place


def grown(arrivals: Iterable[tuple[int, float]], growth: Growth) -> Iterator[Growth]:
    """``growth`` after each of ``arrivals`` (place, value)."""
    for place, value in arrivals:
        growth.arrive(place, value)
        yield growth


def _quiet_step(
    values: Sequence[float], least: float, confirm: int, by_chance: float
) -> tuple[int, int, bool] | None:
    """(last before, first, rises) of a step at the end that noise does not hide; None: there is
    none.
    """
    for size in range(confirm, min(len(values), 6 * confirm + 6)):
        level, tail = values[:-size], values[-size:]
        center = statistics.median(level)
        sign = 1 if tail[-1] > center else -1
        if any(sign * (value - center) < least - _TINY for value in tail):
            continue
        if sign * (level[-1] - center) >= least - _TINY:  # it began earlier
            continue
        new = statistics.median(tail)
        first = next((place for place, value in enumerate(tail) if abs(value - new) < least), size)
        gap, recent = abs(new - center), statistics.median(level[-_RECENT:])
        noise = [
            *itertools.starmap(_apart, itertools.pairwise(level)),
            *(abs(value - new) for value in tail[first:]),
        ]
        outliers = sum(abs(value - center) >= max(least - _TINY, gap / 2) for value in level)
        chance = ((outliers + 1) / (len(level) + 2)) ** size * len(level)
        apart = [abs(value - new) > gap / 2 for value in tail[first:]]
        if len(apart) < confirm or any(apart[-confirm:]) or sum(apart) > len(apart) / 4:
            continue
        before = next(
            (at for at in reversed(range(len(level))) if abs(level[at] - center) < least),
            len(level) - 1,
        )
        if sign * (new - recent) < max(least - _TINY, _SHARP * gap - _TINY):  # stairs lead there
            return None
        if sign * (tail[first] - level[before]) < max(least - _TINY, _SHARP * gap - _TINY):
            return None
        if gap < _CLEAR * _MAD * statistics.median(noise) or chance > by_chance:
            return None
        return before, len(level) + first, sign > 0
    return None


def _apart(one: float, other: float) -> float:
    return abs(one - other)


def _confirmed_steps(
    values: Sequence[float], least: float, confirm: int
) -> Iterator[tuple[int, int, bool, bool]]:
    """(last before, first, rises, is gradual) of each confirmed level but the first.

    What is shorter is on the way to the next.
    """
    levels = find_levels(values, min_effect=least, confirm=confirm)
    starts = [*(level.start for level in levels), len(values)]
    held = [
        one
        for place, one in enumerate(levels)
        if place == 0 or starts[place + 1] - one.start >= confirm
    ]
    for before, after in itertools.pairwise(held):
        if abs(after.value - before.value) >= least - _TINY:
            stop = starts[levels.index(after) + 1]
            around = np.asarray(values[before.start : stop])
            jump = statistics.median(values[after.start : stop][:_RECENT])
            jump -= statistics.median(values[before.start : before.stop][-_RECENT:])
            is_small = abs(jump) < max(_STAIR * least, abs(after.value - before.value) / 2) - _TINY
            is_gradual = is_small or _is_gradual(around, after.start - before.start)
            yield before.stop - 1, after.start, after.value > before.value, is_gradual


def _is_gradual(values: Floats, step: int) -> bool:
    """Whether a straight line through ``values`` leaves less than the two levels before and
    after ``step``.
    """
    levels = sum(
        float(((part - part.mean()) ** 2).sum()) for part in (values[:step], values[step:])
    )
    places = np.arange(len(values)) - (len(values) - 1) / 2
    around = values - values.mean()
    line = float((around**2).sum()) - float((places * around).sum()) ** 2 / float((places**2).sum())
    return line < levels - _TINY
