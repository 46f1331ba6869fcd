"""How much of a histogram is lost when a window of it is merged into few groups: KL(P‖Q), for many windows at once.

    P    the window's counts; all that lies outside is added to its first and its last bin
    Q    the window's own counts; every group's sum spread evenly over those of its bins where P > 0
    KL   Σ P̂·ln(P̂/Q̂),  P̂ = P/ΣP,  Q̂ = Q/ΣQ;  infinite where P̂ > 0 and Q̂ = 0

Smoothing by ε > 0 (1e-4 in MXNet and its descendants) gives ε to the empty bins of P and of Q and takes as much, in
equal parts e = ε·empty/filled, from the others. All windows go by prefix sums of h, h·ln h, ln h and 1/h: the part e
enters by its series to the second order, which is exact to 1e-7 wherever e is small against the counts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.distribution import Floats

Places = npt.NDArray[np.int64]
Spread = Callable[[Floats, Floats], Any]

_LEAST = 1e-30


@dataclass(frozen=True, slots=True)
class WindowSums:
    """Prefix sums (bins + 1,) over the counts of a histogram (bins,)."""

    counts: Floats
    whole: Floats
    entropy: Floats
    logs: Floats
    inverses: Floats
    filled: Floats

    @classmethod
    def of(cls, histogram: npt.NDArray[Any]) -> "WindowSums":
        """Those of ``histogram``, counts ≥ 0."""
        counts = histogram.astype(np.float64)
        safe = np.where(counts > 0, counts, 1.0)
        logs = np.log(safe)
        filled = (counts > 0).astype(np.float64)
        sums = [counts, counts * logs, logs, filled / safe, filled]
        return cls(counts, *(np.concatenate([[0.0], np.cumsum(each)]) for each in sums))


def even_edges(firsts: Places, lasts: Places, groups: int) -> Places:
    """Edges (k, groups + 1) that cut each window of bins first … last into groups of one width, to within a bin."""
    widths = (lasts - firsts + 1)[:, np.newaxis]
    return np.asarray(firsts[:, np.newaxis] + (widths * np.arange(groups + 1)) // groups)


def floored_edges(firsts: Places, lasts: Places, groups: int) -> Places:
    """Edges of groups of ⌊width / groups⌋ bins; the last one takes the rest too."""
    widths = (lasts - firsts + 1)[:, np.newaxis]
    edges = firsts[:, np.newaxis] + (widths // groups) * np.arange(groups + 1)
    edges[:, -1] = lasts + 1
    return np.asarray(edges)


def divergences(sums: WindowSums, edges: Places, smoothing: float = 0.0, spread: Spread = np.divide) -> Floats:
    """KL (k,) of the windows cut at ``edges`` (k, groups + 1), each of at least two bins; infinite where one is empty.

    ``spread`` makes a group's level of its sum and of its filled bins: a division, or one of whole numbers.
    """
    first, last = edges[:, 0], edges[:, -1] - 1
    total = sums.whole[-1]
    ends = np.stack([sums.counts[first], sums.counts[last]])
    outside = np.stack([sums.whole[first], total - sums.whole[last + 1]])
    folded = ends + outside
    woken = ((ends == 0) & (outside > 0)).astype(np.float64)
    groups = np.diff(sums.whole[edges], axis=1)
    filled = np.diff(sums.filled[edges], axis=1)
    masses = groups.copy()
    for side, group in enumerate((0, -1)):
        masses[:, group] += outside[side]
        filled[:, group] += woken[side]
    inside = last - first + 1
    in_p = filled.sum(axis=1)
    levels = np.where(groups > 0, spread(groups, np.maximum(filled, 1.0)), 0.0)
    in_q = np.where(levels > 0, filled, 0.0).sum(axis=1)
    part_p, part_q = (smoothing * (inside - some) / np.maximum(some, 1.0) for some in (in_p, in_q))
    own = _own_entropy(sums, (first, last), folded, part_p)
    shares = masses - filled * part_p[:, np.newaxis]
    kept = (shares > 0) & (filled > 0)
    floor = np.log(smoothing) if smoothing else -np.inf
    lowered = np.maximum(levels - part_q[:, np.newaxis], _LEAST)
    logs = np.where(levels > 0, np.log(lowered), floor)
    cross = np.where(kept, shares * np.where(kept, logs, 0.0), 0.0).sum(axis=1)
    mass = (levels * filled).sum(axis=1)
    found = (own - cross) / total + np.log(np.maximum(mass, _LEAST) / total)
    return np.where(mass > 0, found, np.inf)


def _own_entropy(sums: WindowSums, window: tuple[Places, Places], folded: Floats, part: Floats) -> Floats:
    """Σ (P − e)·ln(P − e) over the filled bins of P, e = ``part``; exact at both ends, by the series inside."""
    first, last = window

    def between(prefix: Floats) -> Floats:
        return np.asarray(prefix[last] - prefix[first + 1])

    inner = between(sums.entropy) - part * (between(sums.logs) + between(sums.filled))
    inner = inner + part**2 / 2 * between(sums.inverses)
    rest = np.where(folded > 0, np.maximum(folded - part, _LEAST), 1.0)
    return np.asarray(inner + (rest * np.log(rest)).sum(axis=0))
