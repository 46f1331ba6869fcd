"""Where a series changes its level."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Values ``start`` … ``stop`` − 1 lie around ``mean``, short excursions apart; one may lie between two levels.

    ``provisional``: the last, and not yet ``confirm`` long.
    """

    start: int
    stop: int
    mean: float
    provisional: bool = False


def find_change_points(values: Sequence[float], *, min_effect: float, confirm: int) -> list[int]:
    """The first index of each new level, in order; a level at the end that is not confirmed yet is not one.

    Args:
        values: a series; NaN where nothing was measured.
        min_effect: the least step that matters, in the unit of the values.
        confirm: how many values make a level.

    Raises:
        ValueError: ``confirm`` under 1, ``min_effect`` negative or not finite, or an infinite value.
    """
    levels = find_levels(values, min_effect=min_effect, confirm=confirm)
    return [level.start for level in levels[1:] if not level.provisional]


def find_levels(values: Sequence[float], *, min_effect: float, confirm: int) -> tuple[Level, ...]:
    """The levels of a series, with a last one that may not be confirmed yet; see ``find_change_points``."""
    if confirm < 1 or not 0 <= min_effect < math.inf:
        raise ValueError(f"confirm = {confirm}, min_effect = {min_effect}: at least 1, and a finite step from 0 on")
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
            mean=_mean_between(usual, start, stop),
            provisional=start > 0 and stop == len(known) and stop - start < confirm,
        )
        for start, stop in zip(starts, stops, strict=True)
    )


def _partition(known: Floats, min_effect: float) -> list[int]:
    """Starts of the segments of least total cost, under the scale the values themselves suggest.

    The deviation of differences measures the steps as well as the noise, and one large step would hide a small one: it
    is taken again inside the segments found so far, for as long as that finds more. The median alone would be blind to
    outliers, which then pass for levels.
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

    In many steady series one excursion and its return are the only changes; the scale must not come from these.
    """
    rest = np.delete(steps, np.argsort(np.abs(steps))[-2:])
    whole, small = float(steps.std()), float(rest.std()) if len(rest) else 0.0
    return small if small < whole / 4 else whole


def _deviation_inside(steps: Floats, starts: list[int]) -> float:
    """Standard deviation of the differences of neighbours that lie in one segment."""
    inside = np.delete(steps, np.array(starts[1:], dtype=np.int64) - 1)
    return float(inside.std()) if len(inside) else 0.0


_PENALTY = 4
"""Times ln N, for each new level. At 3, a sixth more of steps that last three values are seen, and twice the alarms."""

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
    for first in range(1, count + 1, _ROWS):  # costs of many stops at once, in memory that does not grow with N²
        stops = slice(first, min(first + _ROWS, count + 1))
        before = slice(0, stops.stop - 1)
        total = sums[stops, None] - sums[None, before]
        lengths = np.maximum(
            places[stops, None] - places[None, before], 1
        )  # segments that begin after their stop are not read
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


def _without_spikes(known: Floats, starts: list[int], min_effect: float, confirm: int) -> tuple[list[int], Floats]:
    """(starts, values): short excursions dropped, their values NaN where they would bend the mean of a level.

    An excursion is one or more segments shorter than ``confirm`` between two equal levels, or between two different
    levels where one of the segments does not lie between these: a fault that hides a step is not a level of its own.
    Short segments before the first level are excursions, too.
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
            if equal or not all(low <= _mean(usual, kept, short) <= high for short in range(index, after)):
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
