"""Two results of one tensor, element for element: how many differ, and by how much.

differing = #{a ≠ b}      steps = max|a − b| / scale      relative = max|a − b| / max|b|

Levels times a scale are rounded to floats, each by at most ε/2 of itself: where |a − b| is within ε/2 · (|a| + |b|) of
n ≥ 1 steps, it is n. A smaller difference, which no two levels have, is never taken for none.

Values are compared, not bits: NaN equals NaN, and −0.0 equals 0.0. Where one of the two is NaN or infinite and the
other is not the same, no number bounds the difference, and it is counted apart.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_SMALLEST = float(np.finfo(np.float32).tiny)
"""Stands for max|b| of a tensor of zeros."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """What was counted over one or more tensors.

    Args:
        elements: all. differing: those that are not equal. unbounded: those of them that no number bounds.
        steps: largest difference of the others in steps; None: no tensor has a scale.
        relative: their largest difference as a share of the largest value of their tensor.
    """

    elements: int = 0
    differing: int = 0
    unbounded: int = 0
    steps: float | None = None
    relative: float = 0.0

    def joined(self, more: "Differences") -> "Differences":
        """Both together."""
        steps = [found for found in (self.steps, more.steps) if found is not None]
        return Differences(
            elements=self.elements + more.elements,
            differing=self.differing + more.differing,
            unbounded=self.unbounded + more.unbounded,
            steps=max(steps, default=None),
            relative=max(self.relative, more.relative),
        )


def unequal(ours: Array, theirs: Array) -> npt.NDArray[np.bool_]:
    """Where two arrays of one shape differ in value: bool, of their shape."""
    different = np.asarray(ours != theirs)
    if ours.dtype.kind in "fc" and theirs.dtype.kind in "fc":
        different &= ~(np.isnan(ours) & np.isnan(theirs))
    return different


def count_differences(ours: Array, theirs: Array, scale: Array | None = None) -> Differences:
    """The differences of one tensor.

    Args:
        ours, theirs: of one shape, floats or integers.
        scale: size of a step, broadcast against them, > 0; None: the tensor has no steps.

    Raises:
        ValueError: their shapes differ.
    """
    if ours.shape != theirs.shape:
        raise ValueError(f"the shapes {ours.shape} and {theirs.shape}")
    different = unequal(ours, theirs)
    count = int(different.sum())
    nothing = None if scale is None else 0.0
    if not count:
        return Differences(elements=ours.size, differing=0, steps=nothing)
    a, b = ours[different].astype(np.float64), theirs[different].astype(np.float64)
    bounded = np.isfinite(a) & np.isfinite(b)
    gaps = np.abs(a[bounded] - b[bounded])
    if not gaps.size:
        return Differences(elements=ours.size, differing=count, unbounded=count, steps=nothing)
    wide = np.abs(theirs[np.isfinite(theirs)].astype(np.float64))
    steps = nothing
    if scale is not None:
        sizes = np.broadcast_to(scale, ours.shape)[different][bounded].astype(np.float64)
        steps = float(_whole(gaps / sizes, _rounding(ours, theirs) * (np.abs(a) + np.abs(b))[bounded] / sizes).max())
    return Differences(
        elements=ours.size,
        differing=count,
        unbounded=count - int(bounded.sum()),
        steps=steps,
        relative=float(gaps.max() / max(float(wide.max(initial=0.0)), _SMALLEST)),
    )


def _rounding(ours: Array, theirs: Array) -> float:
    """ε/2 of the coarser type; 0 of integers."""
    return max((float(np.finfo(one.dtype).eps) / 2 for one in (ours, theirs) if one.dtype.kind == "f"), default=0.0)


def _whole(steps: npt.NDArray[np.float64], slack: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """``steps``, those within ``slack`` of a whole number of them, 1 or more, as that number."""
    nearest = np.maximum(np.rint(steps), 1.0)
    return np.where(np.abs(steps - nearest) <= slack, nearest, steps)
