"""The divergence of one window as MXNet's search and its descendants in C++ (TVM, Glow) compute it, in float32.

    P    the window's counts; what lies outside is added to its first and its last bin
    Q    sums of ⌊width/groups⌋ bins of the window (the last group takes the rest), divided by how many of these bins
         hold counts, and given to every bin where P > 0
    both smoothed by 1e-4, normalised;  Σ P·ln(P/Q)

Their curves are flat enough for the rounding of float32 to move the minimum by tens of percent, so every number is
rounded here where theirs is: sums run from left to right in float32, logarithms are the float32 nearest to the exact
ones. Equal to their code compiled with g++ as long as a group holds fewer than 2²⁴ counts. They disagree about the
first bin of a window, which TVM leaves out of Q, and about a window without counts: nothing is lost (0, Glow), or it is
not a choice (infinite, TVM). Sources: TVM v0.8 src/relay/quantize/calibrate.cc; pytorch/glow
lib/Quantization/Base/Calibration.cpp.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qbench.calibration.ranges.divergence import SMOOTHING, Places

MOST_BINS = 10_000
"""With more the part that smoothing takes from a bin can exceed its count, and theirs stop."""

Float32s = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Curve:
    """The divergences of windows of one histogram.

    Args:
        histogram: (bins,) counts.
        groups: that a window is merged into; no window is narrower.
        skips_first: the first bin of a window has no part in Q.
        of_empty: the divergence of a window without counts.
    """

    histogram: npt.NDArray[np.int64]
    groups: int
    skips_first: bool
    of_empty: float

    def first_of_least(self, firsts: Places, lasts: Places) -> int:
        """Which of the windows of bins firsts … lasts (k,) has the least; the first of equals."""
        windows = zip(firsts.tolist(), lasts.tolist(), strict=True)
        return int(np.argmin([self.at(first, last) for first, last in windows]))

    def at(self, first: int, last: int) -> float:
        """The divergence of the window of bins first … last."""
        counts = self.histogram[first : last + 1]
        p = counts.astype(np.float32)
        p[0], p[-1] = self.histogram[: first + 1].sum(), self.histogram[last:].sum()
        inside = counts.copy()
        if self.skips_first:
            inside[0] = 0
        starts = np.arange(self.groups) * (len(p) // self.groups)
        filled = np.add.reduceat((inside != 0).astype(np.float32), starts)
        sums = np.add.reduceat(inside, starts).astype(np.float32)
        each = np.asarray(sums / np.maximum(filled, np.float32(1)), np.float32)
        levels = np.repeat(each, np.diff(starts, append=len(p)))
        levels[p == 0] = 0
        if not levels.any():
            return self.of_empty
        p, q = _smoothed(p), _smoothed(levels)
        p /= _sum(p)
        q /= _sum(q)
        logs = np.log(np.divide(p, q, dtype=np.float32), dtype=np.float64).astype(np.float32)
        return float(_sum(p * logs))


def _smoothed(values: Float32s) -> Float32s:
    """``values`` with ``SMOOTHING`` in the empty places, taken in equal parts from the others."""
    empty = values == 0
    some = np.float32(np.count_nonzero(empty))
    values -= np.float32(SMOOTHING) * some / np.float32(len(values) - some)
    values[empty] = SMOOTHING
    return values


def _sum(values: Float32s) -> np.float32:
    """The sum from left to right, rounded to float32 after every step."""
    return np.float32(np.cumsum(values, dtype=np.float32)[-1])
