"""The levels of one unit beside those that it should have, and how much of the difference a mistake would explain.

Everything is in steps above the zero point. An element differs where the patient has another level than the arithmetic
that the backend claims; where it claims none, another one than any rounding of real arithmetic, ties of 2⁻¹⁰ both ways.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.diagnosis.captured import Captured
from qbench.diagnosis.causes.explanation import Explanation
from qbench.diagnosis.causes.interior import PRODUCTS, Interior
from qbench.judging import Cause
from qbench.numerics import Arithmetic

Floats = npt.NDArray[np.floating[Any]]
Mask = npt.NDArray[np.bool_]

MOST = 60_000
"""Elements that are looked at, unless one sample has more."""
_ARRAYS = ("found", "healthy", "real", "differing", "hard")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scene:
    """A unit's levels, cropped to a few samples.

    Args:
        captured: where they come from.
        machine: how the backend counts. claimed: whether it says so; else this is the yardstick, ``ideal``.
        feeds: levels in front.
        found: the patient's. again: by the piece alone, None: it fails. healthy: what the machine makes of ``feeds``.
        real: the number in front of rounding.
        differing: where ``found`` is not as it should be. hard: of these, where no rounding of ``real`` gives it.
        low, high: between which ``real`` is clamped by a Relu, a Clip or the grid. lowest, highest: the levels there.
        slack: steps beyond a half that the machine itself is from ``real``.
        interior: the float operators in between; None: there are none. operands: what they read, real.
        original: the float graph; None: it is not at hand.
        region: slices outside which a mistake is not looked for; None: everywhere.
        result_axis: of the result, that channels run along. channel_axis: where arrays no longer have its shape.
        count, hard_count: how many levels are ``differing`` and ``hard``.
    """

    captured: Captured
    machine: Arithmetic
    claimed: bool
    feeds: Mapping[str, npt.NDArray[Any]]
    found: Floats
    again: Floats | None
    healthy: Floats
    real: Floats
    differing: Mask
    hard: Mask
    low: float
    high: float
    lowest: float
    highest: float
    slack: float
    interior: Interior | None
    operands: Mapping[str, Floats] = field(default_factory=dict)
    original: ir.Model | None = None
    region: Mask | None = None
    result_axis: int = 1
    channel_axis: int | None = None

    count: int = field(init=False)
    hard_count: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", int(self.differing.sum()))
        object.__setattr__(self, "hard_count", int(self.hard.sum()))

    @property
    def is_product(self) -> bool:
        """Whether the unit holds a convolution or a matrix product."""
        return self.interior is not None and self.interior.node.op_type in PRODUCTS

    @property
    def axis(self) -> int:
        """Of the arrays, that channels run along."""
        return self.result_axis if self.channel_axis is None else self.channel_axis

    def along(self, values: npt.ArrayLike) -> Floats:
        """One number a channel (or one for all), so that it broadcasts against the levels."""
        each = np.asarray(values, np.float64).reshape(-1)
        if each.size == 1:
            return each.reshape(())
        shape = [1] * self.found.ndim
        shape[self.axis] = each.size
        return each.reshape(shape)

    def clipped(self, real: Floats) -> Floats:
        """``real`` between the ends."""
        return np.clip(real, self.low, self.high)

    def thinned(self) -> "Scene":
        """At most ``MOST`` levels as (places, channels), half of them of places where one differs."""
        if self.found.size <= MOST or self.found.ndim < 2:
            return self
        channels = self.found.shape[self.axis]
        flat = {name: _by_channel(getattr(self, name), self.axis) for name in _ARRAYS}
        off = flat["differing"].sum(axis=1)
        wanted, count = max(1, MOST // channels), len(off)
        off_places, rest = np.flatnonzero(off), np.flatnonzero(off == 0)
        half = max(wanted // 2, wanted - len(rest))
        chosen = np.concatenate([_spread(off_places, half), _spread(rest, wanted - min(half, len(off_places)))])
        region = None if self.region is None else _by_channel(self.region, self.axis)
        if count <= wanted or not len(chosen):
            return self
        kept: dict[str, Any] = {name: array[chosen] for name, array in flat.items()}
        return replace(self, **kept, again=None, region=None if region is None else region[chosen], channel_axis=1)

    @property
    def looked_at(self) -> Mask:
        """Where a mistake is looked for."""
        return np.ones(self.found.shape, bool) if self.region is None else self.region

    def narrowed(self) -> "Scene | None":
        """The slices in which something differs, or the stretch of memory; None where that is more than half of it."""
        region = np.ones(self.found.shape, bool)
        for axis in range(self.found.ndim):
            rest = tuple(a for a in range(self.found.ndim) if a != axis)
            region &= self.differing.any(axis=rest, keepdims=True)
        flat = np.flatnonzero(self.differing)
        places = np.arange(region.size).reshape(region.shape)
        stretch = (places >= flat[0]) & (places <= flat[-1])
        region = stretch if stretch.sum() < region.sum() else region
        return replace(self, region=region) if 2 * int(region.sum()) <= region.size else None

    @property
    def inside(self) -> Mask:
        """Where neither what was found nor what is real is at an end: what fits are made on."""
        return (self.found > self.lowest) & (self.found < self.highest) & np.isfinite(self.real) & self.looked_at

    def rounded(self, real: Floats) -> Floats:
        """``real``, whole numbers already, clamped to the levels."""
        return np.clip(real, self.lowest, self.highest)

    def weigh_levels(self, cause: Cause, words: str, levels: Floats) -> Explanation | None:
        """A mistake that gives exactly ``levels`` (above the zero point, clamped)."""
        if levels.shape != self.found.shape:
            return None
        same = levels == self.found
        disturbed = self.looked_at & ~self.differing & ~same & (levels != self.healthy)
        return self._weighed(cause, words, int((self.differing & same).sum()), int(disturbed.sum()))

    def weigh_reals(self, cause: Cause, words: str, real: Floats, share: float = 1.0) -> Explanation | None:
        """A mistake that rounds ``real`` in place of what it should; ``share``: of its weight, for what was fitted."""
        shown = np.broadcast_to(real, self.found.shape) if np.ndim(real) <= self.found.ndim else real
        if shown.shape != self.found.shape or 2 * self.hard_count < self.count:
            return None  # ties tell rounding rules apart, nothing else
        step = max(1, self.found.size // (4 * MOST)) if self.channel_axis is None else 1
        found, t = self.found.reshape(-1)[::step], shown.reshape(-1)[::step]  # of very many, every so many-th
        hard = self.hard.reshape(-1)[::step]
        rest = (self.looked_at & ~self.differing).reshape(-1)[::step]
        fits = np.abs(found - self.clipped(t)) <= 0.5 + self.slack
        explained, disturbed = int((hard & fits).sum()) * step, int((rest & ~fits).sum()) * step
        return self._weighed(cause, words, min(explained, self.count), disturbed, share)

    def _weighed(
        self, cause: Cause, words: str, explained: int, disturbed: int, share: float = 1.0
    ) -> Explanation | None:
        if not explained:
            return None
        beside = f", and would change {disturbed} that agree" if disturbed else ""
        words = words if self.region is None else words.rstrip(",")
        where = "" if self.region is None else f", in {int(self.region.sum())} of {self.region.size} places alone,"
        return Explanation(
            cause=cause,
            evidence=f"{words}{where} explains {explained} of {self.count} levels that differ{beside}",
            weight=share * explained / (self.count + disturbed),
        )


def _by_channel(array: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
    return np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis])


def _spread(places: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """``count`` of ``places``, evenly."""
    if len(places) <= count:
        return places
    return places[np.linspace(0, len(places) - 1, max(count, 1)).astype(np.int64)]
