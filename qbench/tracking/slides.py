"""Slow slides: a series that gets worse over many nights, none of which made it alone."""

import math
import statistics
from collections.abc import Sequence

# A slide of n values, all turned so that more is worse:
#
#     loss        median of the last third − median of the first; at least the least step that
#                 counts
#     trend       Mann–Kendall: z of S = Σ sign(later − earlier) over all pairs, its variance
#                 corrected for ties
#     not a step  the values less the two medians around the best single step still rise
#
# Sources: Mann, Econometrica 13:245 (1945); Kendall, Rank Correlation Methods (1975), chapter 4.

FEWEST = 9
"""Values under which nothing is called a slide: three in each third."""

_TREND_Z, _REST_Z = 3.09, 1.64
"""One in a thousand courses of noise passes the first, one in twenty single steps the second."""


def slide_of(values: Sequence[float], *, least: float, lower_is_better: bool = False) -> float:
    """How much worse the last third of ``values`` is than the first, where they slid there; else 0.

    Args:
        values: on the same samples, in one environment class, in order.
        least: the least loss that counts.
    """
    if len(values) < FEWEST:
        return 0.0
    worse = list(values) if lower_is_better else [-value for value in values]
    third = len(worse) // 3
    loss = statistics.median(worse[-third:]) - statistics.median(worse[:third])
    if loss < least or mann_kendall(worse) < _TREND_Z:
        return 0.0
    return loss if mann_kendall(_without_step(worse)) >= _REST_Z else 0.0


def mann_kendall(values: Sequence[float]) -> float:
    """The z of Mann and Kendall's test of a trend, with the correction for continuity; 0 where
    all are equal.
    """
    count = len(values)
    score = sum(
        (later > earlier) - (later < earlier)
        for place, later in enumerate(values)
        for earlier in values[:place]
    )
    ties = (values.count(one) for one in set(values))
    spread = count * (count - 1) * (2 * count + 5)
    spread -= sum(tied * (tied - 1) * (2 * tied + 5) for tied in ties)
    return (
        0.0
        if spread == 0
        else (score - math.copysign(min(abs(score), 1), score)) / math.sqrt(spread / 18)
    )


def _without_step(values: Sequence[float]) -> list[float]:
    """``values`` less the medians before and after the one step that fits them best."""

    def rest(cut: int) -> list[float]:
        parts = values[:cut], values[cut:]
        return [value - statistics.median(part) for part in parts for value in part]

    return min(map(rest, range(1, len(values))), key=lambda left: sum(map(abs, left)))
