"""How much of a histogram is lost when a window of it is merged into few groups: KL(P‖Q), for many windows at once.

    P    the window's counts; all that lies outside is added to its first and its last bin
    Q    the window's own counts; every group's sum spread evenly over those of its bins where P > 0
    KL   Σ P̂·ln(P̂/Q̂),  P̂ = P/ΣP,  Q̂ = Q/ΣQ;  infinite of a window without counts

Values may be saturated into a group that holds nothing itself. Its sum is ε = 1e-4, as in MXNet's smoothing: with 0 a
single outlier would make every narrower window infinite. All windows go by prefix sums of h and h·ln h.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.distribution import Floats

Places = npt.NDArray[np.int64]

SMOOTHING = 1e-4
_EDGES_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class WindowSums:
    """Prefix sums (bins + 1,) over the counts of a histogram (bins,)."""

    counts: Floats
    whole: Floats
    entropy: Floats
    filled: Floats

    @classmethod
    def of(cls, histogram: npt.NDArray[Any]) -> "WindowSums":
        """Those of ``histogram``, counts ≥ 0."""
        counts = histogram.astype(np.float64)
        filled = (counts > 0).astype(np.float64)
        sums = [counts, _times_log(counts), filled]
        return cls(counts, *(np.concatenate([[0.0], np.cumsum(each)]) for each in sums))


def even_edges(firsts: Places, lasts: Places, groups: int) -> Places:
    """Edges (k, groups + 1) that cut each window of bins first … last into groups of one width, to within a bin."""
    widths = (lasts - firsts + 1)[:, np.newaxis]
    return np.asarray(firsts[:, np.newaxis] + (widths * np.arange(groups + 1)) // groups)


def divergences(sums: WindowSums, firsts: Places, lasts: Places, groups: int) -> Floats:
    """KL (k,) of the windows of bins first … last, each of at least two bins, cut at ``even_edges``."""
    at_once = max(1, _EDGES_AT_ONCE // groups)
    parts = [
        _of_some(sums, even_edges(firsts[i : i + at_once], lasts[i : i + at_once], groups))
        for i in range(0, len(firsts), at_once)
    ]
    return np.concatenate(parts)


def _of_some(sums: WindowSums, edges: Places) -> Floats:
    first, last = edges[:, 0], edges[:, -1] - 1
    total = sums.whole[-1]
    ends = np.stack([sums.counts[first], sums.counts[last]])
    outside = np.stack([sums.whole[first], total - sums.whole[last + 1]])
    groups = np.diff(sums.whole[edges], axis=1)
    filled = np.diff(sums.filled[edges], axis=1)
    masses = groups.copy()
    for side, group in enumerate((0, -1)):
        masses[:, group] += outside[side]
        filled[:, group] += (ends[side] == 0) & (outside[side] > 0)
    kept = groups.sum(axis=1)
    groups = np.where((masses > 0) & (groups == 0), SMOOTHING, groups)
    inner = sums.entropy[last] - sums.entropy[first + 1]
    own = inner + _times_log(ends + outside).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(masses > 0, np.log(groups / filled), 0.0)
        cross = (masses * logs).sum(axis=1)
        found = (own - cross) / total + np.log(groups.sum(axis=1) / total)
    return np.where(kept > 0, found, np.inf)


def _times_log(values: Floats) -> Floats:
    """x·ln x, 0 where x is 0."""
    return values * np.log(np.where(values > 0, values, 1.0))
