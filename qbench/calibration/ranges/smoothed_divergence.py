"""The divergence of one window as MXNet's search and its descendants (TVM, Glow) count it, and where it is least.

    P, Q as in ``divergence``, in ⌊width/groups⌋-wide groups, smoothed by 1e-4, normalised, Σ P·ln(P/Q), all in float32

Their curves are flat enough for float32's noise to move the minimum by a percent. So all windows are weighed in
float64 at once, and those that come near the least are counted again as they count. The smoothing never fails here:
it would take more than 10⁴ empty bins for each filled one. On a window without counts they disagree: nothing is lost
(0, Glow), or it is no choice (infinite, MXNet and TVM); the caller says.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.calibration.distribution import Floats
from qbench.calibration.ranges.divergence import Places, WindowSums, divergences, floored_edges

SMOOTHING = 1e-4
MOST_BINS = 10_000
_EDGES_AT_ONCE = 1 << 16
_NEAR = 1e-3
_NOISE = 2e-6


def first_of_least(
    histogram: npt.NDArray[np.int64], firsts: Places, lasts: Places, groups: int, *, of_empty: float
) -> int:
    """Which of the windows firsts … lasts (k,) over ``histogram`` (bins,) has the least; the first of equals."""
    weighed = weigh(histogram, firsts, lasts, groups, of_empty)
    filled = np.concatenate([[0], np.cumsum(histogram > 0)])
    # What the series leaves out is of the third order of the part that smoothing takes from each filled bin.
    part = SMOOTHING * len(histogram) / np.maximum(filled[lasts + 1] - filled[firsts], 1)
    doubt = _NOISE + _NEAR * np.where(np.isfinite(weighed), np.abs(weighed), 0.0) + part**3
    near = np.flatnonzero(weighed - doubt <= (weighed + doubt).min())
    counted = [divergence_of(histogram, int(firsts[i]), int(lasts[i]), groups, of_empty) for i in near]
    return int(near[np.argmin(counted)])


def weigh(histogram: npt.NDArray[np.int64], firsts: Places, lasts: Places, groups: int, of_empty: float) -> Floats:
    """The divergences (k,) in float64, all windows by prefix sums."""
    sums = WindowSums.of(histogram)
    at_once = max(1, _EDGES_AT_ONCE // groups)
    parts = [
        divergences(sums, floored_edges(firsts[i : i + at_once], lasts[i : i + at_once], groups), SMOOTHING)
        for i in range(0, len(firsts), at_once)
    ]
    empty = sums.whole[lasts + 1] == sums.whole[firsts]
    return np.where(empty, of_empty, np.concatenate(parts))


def divergence_of(histogram: npt.NDArray[np.int64], first: int, last: int, groups: int, of_empty: float) -> float:
    """The divergence of the one window of bins first … last, in float32."""
    window = histogram[first : last + 1].astype(np.float32)
    p = window.copy()
    p[0] += np.float32(histogram[:first].sum())
    p[-1] += np.float32(histogram[last + 1 :].sum())
    filled = p > 0
    starts = np.arange(groups) * (len(p) // groups)
    widths = np.diff(starts, append=len(p))
    levels = np.add.reduceat(window, starts) / np.maximum(np.add.reduceat(filled.astype(np.float32), starts), 1)
    q = np.where(filled, np.repeat(levels.astype(np.float32), widths), np.float32(0))
    smooth_p, smooth_q = _smoothed(p), _smoothed(q)
    mass_p, mass_q = smooth_p.sum(), smooth_q.sum()
    if mass_p <= 0 or mass_q <= 0:
        return of_empty
    p_share, q_share = smooth_p / mass_p, smooth_q / mass_q
    both = (p_share > 0) & (q_share > 0)
    return float((p_share[both] * np.log(p_share[both] / q_share[both])).sum())


def _smoothed(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """``values`` with ``SMOOTHING`` in the empty places, taken in equal parts from the others; nothing from nothing."""
    filled = values > 0
    some = int(filled.sum())
    if not some:
        return values
    part = SMOOTHING * (len(values) - some) / some
    return np.where(filled, values - np.float32(part), np.float32(SMOOTHING))
