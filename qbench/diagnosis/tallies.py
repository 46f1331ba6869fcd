"""Sums over batches, from which the numbers of a node are computed."""

import math
from dataclasses import dataclass, field

import numpy as np

from qbench.backends import Array
from qbench.diagnosis.units import TIE_WIDTH, QuantizedUnit
from qbench.judging import CountingErrors, Errors
from qbench.metrics import MOST_DB, unequal


@dataclass(slots=True)
class ErrorTally:
    """Σ x² and Σ (x − y)² of fp32 values x and compared values y."""

    elements: int = 0
    signal: float = 0.0
    noise: float = 0.0

    def add(self, x: Array, y: Array) -> None:
        """Add one batch of both, float32 of one shape."""
        whole, other = x.reshape(-1), y.reshape(-1)
        self.elements += x.size
        for start in range(0, whole.size, _AT_ONCE):
            part, its = (one[start : start + _AT_ONCE].astype(np.float64) for one in (whole, other))
            if not (math.isfinite(part.sum()) and math.isfinite(its.sum())):
                bounded = np.isfinite(part) & np.isfinite(its)
                part, its = part[bounded], its[bounded]
            apart = part - its
            # not by BLAS: there the order of sums depends on threads
            self.signal += float(np.square(part).sum())
            self.noise += float(np.square(apart).sum())

    def errors(self, scale: float | None) -> Errors:
        """The error in dB, relative, and in steps of ``scale``."""
        steps = None
        if scale is not None and self.elements:
            steps = math.sqrt(self.noise / self.elements) / scale
        return Errors(
            sqnr_db=sqnr_of(self.signal, self.noise), relative=self._relative, steps=steps
        )

    @property
    def _relative(self) -> float:
        """√(noise / signal); without a signal 1, or 0 where there is no noise either."""
        if self.signal:
            return math.sqrt(self.noise / self.signal)
        return 1.0 if self.noise else 0.0


_AT_ONCE = 1 << 16
"""Elements that are summed at once: they fit in a cache in float64."""


def sqnr_of(signal: float, noise: float) -> float:
    """10 · log₁₀(signal / noise), limited to ± 150 dB; −150 if one of them is not finite."""
    if not math.isfinite(noise) or not math.isfinite(signal):
        return -MOST_DB
    if noise == 0:
        return MOST_DB
    return max(-MOST_DB, min(MOST_DB, 10 * math.log10(signal / noise))) if signal else -MOST_DB


@dataclass(slots=True)
class CountingTally:
    """Quantized values compared with others of the same qparams: the number of differences,
    their sizes, and ties.
    """

    elements: int = 0
    differing: int = 0
    ties: int = 0
    beyond: int = 0
    squares: float = 0.0
    sums: float = 0.0
    largest: float = 0.0

    def add(self, found: Array, other: Array, real: Array | None) -> None:
        """Add one batch.

        Args:
            found, other: quantized values of one shape; or real values, whose step is 1/127 of the
                largest ``other``.
            real: the values before rounding, in steps; None: ties are not counted.
        """
        self.elements += found.size
        apart = unequal(found, other)
        if not apart.any():
            return
        ours, theirs = found[apart].astype(np.float64), other[apart].astype(np.float64)
        steps = np.subtract(
            ours,
            theirs,
            out=np.full(ours.shape, np.inf),
            where=np.isfinite(ours) & np.isfinite(theirs),
        )
        if found.dtype.kind == "f":
            steps = _of_range(steps, other)
        bounded = np.isfinite(steps)
        self.differing += steps.size
        self.beyond += int(np.count_nonzero(~bounded))
        steps = steps[bounded]
        size = np.abs(steps)
        self.beyond += int(np.count_nonzero(size > 1))
        self.squares += float(np.dot(steps, steps))
        self.sums += float(steps.sum())
        self.largest = max(self.largest, float(size.max(initial=0)))
        if real is not None and found.dtype.kind != "f":
            self.ties += int(np.count_nonzero(_are_ties(real[apart]) & (size == 1)))

    def errors(self) -> CountingErrors:
        """The counts, with root mean square and mean over all elements."""
        count = max(self.elements, 1)
        return CountingErrors(
            elements=self.elements,
            differing=self.differing,
            ties=self.ties,
            beyond=self.beyond,
            rms_steps=math.sqrt(self.squares / count),
            largest_steps=self.largest,
            mean_steps=self.sums / count,
        )


def _are_ties(steps: Array) -> Array:
    """Which of ``steps`` lie halfway between two whole numbers; no infinite one does."""
    with np.errstate(invalid="ignore"):  # an infinite value minus itself is no number
        halves = steps - np.floor(steps)
    halves -= halves.dtype.type(0.5)
    near: Array = np.abs(halves, out=halves) <= TIE_WIDTH
    return near


_CODES = 127
_FLOAT_STEPS = 2.0**-8
"""Steps by which another order of float32 sums may move a value."""


def _of_range(apart: Array, other: Array) -> Array:
    """Differences of real values in steps of their range, without those that the order of sums
    explains.
    """
    largest = float(np.abs(other[np.isfinite(other)]).max(initial=0))
    steps = apart * (_CODES / largest) if largest else apart
    kept: Array = steps[~(np.abs(steps) <= _FLOAT_STEPS)]
    return kept


@dataclass(slots=True)
class ClipTally:
    """The number of fp32 values below and above the range of the codes."""

    elements: int = 0
    low: int = 0
    high: int = 0

    def add(self, unit: QuantizedUnit, expected: Array) -> None:
        """Add one batch of the fp32 values that ``unit`` quantizes."""
        low, high = (
            (end - unit.zero_point) * unit.scale for end in (unit.lowest - 0.5, unit.highest + 0.5)
        )
        self.elements += expected.size
        self.low += int(np.count_nonzero(expected < low))
        self.high += int(np.count_nonzero(expected > high))

    def shares(self) -> tuple[float, float]:
        """The shares below and above."""
        count = max(self.elements, 1)
        return self.low / count, self.high / count


@dataclass(slots=True)
class TieTally:
    """The number of values before rounding that lie halfway between two quantized values."""

    elements: int = 0
    ties: int = 0

    def add(self, steps: Array) -> None:
        """Add one batch, float32, in steps."""
        steps = np.atleast_1d(steps)
        self.elements += steps.size
        self.ties += int(np.count_nonzero(_are_ties(steps)))

    @property
    def share(self) -> float:
        """The share of ties."""
        return self.ties / max(self.elements, 1)


@dataclass(slots=True)
class NodeTally:
    """All sums of one node."""

    cumulative: ErrorTally = field(default_factory=ErrorTally)
    isolated: ErrorTally = field(default_factory=ErrorTally)
    explained: ErrorTally = field(default_factory=ErrorTally)
    unexplained: ErrorTally = field(default_factory=ErrorTally)
    counting: CountingTally = field(default_factory=CountingTally)
    claimed: CountingTally = field(default_factory=CountingTally)
    clips: ClipTally = field(default_factory=ClipTally)
    ties: TieTally = field(default_factory=TieTally)
