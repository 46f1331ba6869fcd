"""Whether a requantize and a border become one where they meet, told before anything brings them together.

    levels(g₁) ─DQ₁─Q₂─[l₂,h₂]─DQ₂ … Q₃─[l₃,h₃]─     →     levels(g₁) ─DQ₁ … Q₃─[l,h]─

It asks what ``merge-requantize`` will ask, of every level of g₁: limits before the requantize are not known by then.
"""

from dataclasses import dataclass
from functools import lru_cache

from qbench.passes.effect import within
from qbench.passes.levels.border import Border, can_limit
from qbench.passes.levels.difference import Difference, admits, chain_against, merged_limits
from qbench.passes.levels.moved import moved_before
from qbench.passes.levels.requantize import Requantize
from qbench.passes.levels.tables import Stop


def can_merge(site: Requantize, waiting: Border | None, steps: int, machines: tuple[str, ...]) -> bool:
    """Whether ``site`` and the border ``waiting`` become one, without a Clip where neither had any."""
    if waiting is None:
        return False
    if waiting.grid == site.border.grid:
        return can_limit(waiting, *both_limits(site.border, waiting))
    grid, last = site.source.grid, waiting.grid
    chain = (site.stop, Stop(last, waiting.low, waiting.high))
    found = _merged(Stop(grid, grid.qmin, grid.qmax), chain, machines)
    if found is None or not admits(within(steps), found.difference) or not can_limit(waiting, found.low, found.high):
        return False
    clips = (site.border.clip, waiting.clip) != (None, None)
    return (clips or found.is_free) and not moved_before(found.difference, waiting, site.border)


@dataclass(frozen=True, slots=True)
class _Merged:
    """Two requantizes as one: its limits, whether levels keep within these by themselves, and what it moves."""

    low: int
    high: int
    is_free: bool
    difference: Difference


@lru_cache
def _merged(start: Stop, chain: tuple[Stop, Stop], machines: tuple[str, ...]) -> _Merged | None:
    """``chain`` as one stop, as ``merge-requantize`` would try it; None where machines saturate elsewhere."""
    (low, high), *others = {merged_limits(start, chain, one) for one in machines}
    if others:
        return None
    last = chain[-1].grid
    whole = (Stop(last, last.qmin, last.qmax),)
    is_free = all(merged_limits(start, whole, one) == (low, high) for one in machines)
    return _Merged(low, high, is_free, chain_against(start, chain, (Stop(last, low, high),), machines))


def both_limits(one: Border, other: Border) -> tuple[int, int]:
    """Where what crosses ``one`` and then ``other``, on the same grid, saturates."""
    low, high = (min(max(end, other.low), other.high) for end in (one.low, one.high))
    return low, high
