"""The range that represents values with the least error."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from qbench.calibration.histogram import Distribution, Floats
from qbench.calibration.ranges.method import demand, spelled
from qbench.numerics import Interval, QParamsKind

# The error of quantizing values, Σ c·|x − x̂|ᵖ, for many qparams at once.
#
#     x̂ = s · (clip(rint(x/s) + z, qmin, qmax) − z)
#
# Values and errors are counted in steps of a reference scale, so that neither huge nor tiny tensors
# leave the numbers' range. How a tie is rounded makes no difference to an error.

_CODES_BY_SUMS = 1024
_FLOAT32_BITS = 10
_NARROW = 256


class RoundingError(Protocol):
    """What a search asks of tensors: one per column."""

    def __call__(self, scales: Floats, points: Floats) -> Floats:
        """Errors, (k, n), of the n tensors by k qparams each: scales in reference steps, and
        zero points.
        """
        ...


@dataclass(frozen=True, slots=True)
class ErrorOfPoints:
    """The error of one distribution; its ``points`` are in reference steps.

    Squares go by prefix sums over the points, which are cut where rounding goes from one code to
    the next,

        Σ c·(x − v)² over a cell = Σ c·x² − 2·v·Σ c·x + v²·Σ c        v the value of the cell's code

    so that qparams cost their codes and not the points. Other exponents, and types of many codes,
    take every point.
    """

    points: Floats
    counts: Floats
    kind: QParamsKind
    exponent: float

    @classmethod
    def of(
        cls, distribution: Distribution, reference: float, kind: QParamsKind, exponent: float
    ) -> "ErrorOfPoints":
        """That of ``distribution`` in steps of ``reference``."""
        return cls(
            distribution.points / reference, distribution.counts.astype(np.float64), kind, exponent
        )

    def __call__(self, scales: Floats, points: Floats) -> Floats:
        """Errors, (k, 1), of the one tensor."""
        by_sums = self.exponent == 2 and self.kind.code_count <= _CODES_BY_SUMS
        found = self._by_sums(scales, points) if by_sums else self._by_points(scales, points)
        return np.asarray(found)[:, np.newaxis]

    def _by_sums(self, scales: Floats, points: Floats) -> Floats:
        codes = np.arange(self.kind.qmin, self.kind.qmax + 1, dtype=np.float64)
        values = (codes - points) * scales
        weighted = self.counts * self.points
        sums = [np.concatenate([[0.0], np.cumsum(each)]) for each in (self.counts, weighted)]
        inner = np.searchsorted(self.points, (values[:, 1:] + values[:, :-1]) / 2)
        ends = np.full((len(values), 1), len(self.points))
        cells = np.concatenate([np.zeros_like(ends), inner, ends], axis=1)
        counts, firsts = (np.diff(each[cells], axis=1) for each in sums)
        total = float((weighted * self.points).sum())
        return np.asarray(
            np.maximum(total + (values * (values * counts - 2 * firsts)).sum(axis=1), 0.0)
        )

    def _by_points(self, scales: Floats, points: Floats) -> Floats:
        bounds = (self.kind.qmin, self.kind.qmax)
        # No dot product: of 10⁴ and more numbers BLAS makes threads, which cost more and sum in an
        # order of their own.
        found = [
            (
                self.counts * powers(distances(self.points, scale, point, bounds), self.exponent)
            ).sum()
            for scale, point in zip(scales[:, 0], points[:, 0], strict=True)
        ]
        return np.array(found, np.float64)


@dataclass(frozen=True, slots=True)
class ErrorOfRows:
    """The errors of rows, (n, elements) in reference steps; few elements a row are laid out
    along their rows.
    """

    values: npt.NDArray[Any]
    across: bool
    kind: QParamsKind
    exponent: float

    @classmethod
    def of(
        cls, rows: npt.NDArray[Any], reference: Floats, kind: QParamsKind, exponent: float
    ) -> "ErrorOfRows":
        """That of ``rows``, each in steps of its own ``reference``."""
        precision = np.float32 if kind.qtype.bits <= _FLOAT32_BITS else np.float64
        steps = (rows.astype(np.float64) / reference[:, np.newaxis]).astype(precision)
        across = rows.shape[1] < _NARROW
        return cls(np.ascontiguousarray(steps.T) if across else steps, across, kind, exponent)

    def __call__(self, scales: Floats, points: Floats) -> Floats:
        """Errors, (k, n), of the n rows."""
        bounds = (self.kind.qmin, self.kind.qmax)
        precision = self.values.dtype
        found = np.empty(scales.shape)
        for i, (scale, point) in enumerate(
            zip(scales.astype(precision), points.astype(precision), strict=True)
        ):
            spread = (scale, point) if self.across else (scale[:, np.newaxis], point[:, np.newaxis])
            error = powers(distances(self.values, *spread, bounds), self.exponent)
            found[i] = error.sum(axis=0 if self.across else 1, dtype=np.float64)
        return found


def distances(
    values: npt.NDArray[Any],
    scale: npt.NDArray[Any],
    point: npt.NDArray[Any],
    bounds: tuple[int, int],
) -> npt.NDArray[Any]:
    """|x − x̂| of ``values``, of their shape and precision, quantized by (scale, point) to
    codes within ``bounds``.
    """
    steps = values / scale
    np.rint(steps, out=steps)
    low, high = (np.asarray(bound - point, values.dtype) for bound in bounds)
    np.maximum(steps, low, out=steps)
    np.minimum(steps, high, out=steps)
    steps *= scale
    steps -= values
    return np.asarray(np.abs(steps, out=steps))


def powers(values: npt.NDArray[Any], exponent: float) -> npt.NDArray[Any]:
    """``values`` (≥ 0, overwritten) to the power of ``exponent``; an overflow is an infinite
    error.
    """
    with np.errstate(over="ignore", under="ignore"):
        if exponent == 2:
            return np.asarray(np.multiply(values, values, out=values))
        return (
            values
            if exponent == 1
            else np.asarray(np.power(values, values.dtype.type(exponent), out=values))
        )


# The search for the range whose qparams represent values with the least error: coarse to fine, many
# tensors at once.
#
#     minimise Σ c·|x − x̂|ᵖ over [low′, high′], x̂ by the very qparams that the kind chooses for it
#
# Which ranges are worth a try is bounded: an end clipped by d costs at least dᵖ, so that d never
# exceeds the p-th root of the error of the whole range. Within the bounds a ladder of ratios is
# tried, then its best rung's surroundings, finer and finer. Two ends that are free (asymmetric
# qparams, values of both signs) are shrunk to one threshold first, then one after the other, then
# about the best in every combination. Where scales are powers of two only those scales are tried,
# each with several zero points where it has them. The whole range wins ties.

_RUNGS = 24  # ratios of a ladder
_END_RUNGS = 12  # ratios of one end's own ladder
# how far a threshold is followed below the largest magnitude, and how many powers of two are tried
_OCTAVES = 12
_PLACES = 5  # zero points tried with each power of two
# places about either end, in parts of how far it is known
_AROUND = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
_NARROWING = (3.0, 0.7)
_SLACK = 0.998  # a cell of a histogram is up to a thousandth away from what was seen
_MARGIN = 1e-9  # less is the noise of sums, not a smaller error
_ELEMENTS_AT_ONCE = 1 << 17
_LARGEST = float(np.finfo(np.float32).max)

Path = Callable[[Floats], tuple[Floats, Floats]]


def least_error_of_distribution(
    distribution: Distribution, kind: QParamsKind, exponent: float
) -> Interval:
    """The range of least error of one tensor (0-d); it holds zero."""
    low, high = np.array([min(distribution.low, 0.0)]), np.array([max(distribution.high, 0.0)])
    reference = _scales(kind, low, high)[0]
    errors = ErrorOfPoints.of(distribution, float(reference[0]), kind, exponent)
    found = _Search(low, high, reference, kind, exponent, errors).run()
    return Interval(found.low[0], found.high[0])


def least_error_of_rows(rows: npt.NDArray[Any], kind: QParamsKind, exponent: float) -> Interval:
    """The range of least error of every row of ``rows`` (n, elements); each holds zero."""
    at_once = max(1, _ELEMENTS_AT_ONCE // max(1, rows.shape[1]))
    lows = np.minimum(rows.min(axis=1), 0.0).astype(np.float64)
    highs = np.maximum(rows.max(axis=1), 0.0).astype(np.float64)
    for start in range(0, len(rows), at_once):
        some = slice(start, start + at_once)
        reference = _scales(kind, lows[some], highs[some])[0]
        errors = ErrorOfRows.of(rows[some], reference, kind, exponent)
        found = _Search(lows[some], highs[some], reference, kind, exponent, errors).run()
        lows[some], highs[some] = found.low, found.high
    return Interval(lows, highs)


def _scales(kind: QParamsKind, lows: Floats, highs: Floats) -> tuple[Floats, Floats]:
    """Scales and zero points, of the shape of the ends, that the kind gives these ranges."""
    chosen = kind.choose(lows.ravel(), highs.ravel(), axis=0)
    return chosen.scale.astype(np.float64).reshape(lows.shape), chosen.zero_point.astype(
        np.float64
    ).reshape(lows.shape)


@dataclass(slots=True)
class _Search:
    """The search over n tensors; ``low`` and ``high`` (n,) hold the best ranges so far."""

    low: Floats
    high: Floats
    reference: Floats
    kind: QParamsKind
    exponent: float
    errors: RoundingError
    best: Floats = None  # type: ignore[assignment]

    def run(self) -> Interval:
        """The best ranges found."""
        seen = Interval(self.low, self.high)
        self.best = self._errors(self.low[np.newaxis], self.high[np.newaxis])[0]
        with np.errstate(over="ignore"):
            clipped = self.best ** (1 / self.exponent) * self.reference
        if self.kind.scale_kind != "real":
            self._powers_of_two(seen)
        elif self.kind.symmetry == "asymmetric":
            self._two_ends(seen, clipped)
        else:
            self._one_scale(seen, clipped)
        return Interval(self.low, self.high)

    def _errors(self, lows: Floats, highs: Floats) -> Floats:
        scales, points = _scales(self.kind, lows, highs)
        return self.errors(scales / self.reference, points)

    def _offer(self, lows: Floats, highs: Floats) -> npt.NDArray[np.int64]:
        """Keeps the best of k ranges (k, n) where it beats what is kept; which of them is best,
        (n,).
        """
        found = self._errors(lows, highs)
        which, columns = found.argmin(axis=0), np.arange(found.shape[1])
        least = found[which, columns]
        better = least < self.best * (1 - _MARGIN)
        self.best = np.where(better, least, self.best)
        self.low = np.where(better, lows[which, columns], self.low)
        self.high = np.where(better, highs[which, columns], self.high)
        return np.asarray(which)

    def _line(self, ladder: Floats, path: Path, zooms: tuple[int, ...]) -> tuple[Floats, Floats]:
        """Ranges ``path(r)`` for the rungs r of ``ladder`` (k, n), then between the neighbours
        of the best, repeatedly.

        Returns:
            The ends between which the last zoom's best lies.
        """
        rungs, columns = ladder, np.arange(ladder.shape[1])
        for zoom in (*zooms, 0):
            which = self._offer(*path(rungs))
            before, after = np.maximum(which - 1, 0), np.minimum(which + 1, len(rungs) - 1)
            first, last = rungs[before, columns], rungs[after, columns]
            rungs = first + (last - first) * _between(zoom)
        return first, last

    def _one_scale(self, seen: Interval, clipped: Floats) -> None:
        """Both ends follow one scale: ratio r is r times the scale that covers what was seen."""
        largest = np.maximum(-seen.low, seen.high)
        below, above = self._ends_in_steps(seen)
        whole = self.reference

        def path(ratios: Floats) -> tuple[Floats, Floats]:
            return np.maximum(seen.low, ratios * whole * below), np.minimum(
                seen.high, ratios * whole * above
            )

        self._line(_ladder(largest, clipped, _RUNGS), path, (8, 6, 4))

    def _two_ends(self, seen: Interval, clipped: Floats) -> None:
        """The ends are free: one threshold for both, then each on its own, twice."""
        largest = np.maximum(-seen.low, seen.high)

        def both(ratios: Floats) -> tuple[Floats, Floats]:
            return np.maximum(seen.low, -ratios * largest), np.minimum(seen.high, ratios * largest)

        self._line(_ladder(largest, clipped, _RUNGS), both, (6,))

        def lower(ends: Floats) -> tuple[Floats, Floats]:
            return ends, np.broadcast_to(self.high, ends.shape)

        def upper(ends: Floats) -> tuple[Floats, Floats]:
            return np.broadcast_to(self.low, ends.shape), ends

        # The zero point is rounded to a code, which moves either end of what is represented by up
        # to half a step.
        reach = clipped + self.reference
        reaches = []
        for end, path in ((seen.high, upper), (seen.low, lower)):
            first, last = self._line(_ladder(np.abs(end), reach, _END_RUNGS) * end, path, (6,))
            reaches.append(np.abs(last - first))
        # The zero point jumps from code to code as either end moves: last the two are tried in
        # every combination.
        square = np.stack(np.meshgrid(_AROUND, _AROUND)).reshape(2, -1, 1)
        for narrowing in _NARROWING:
            highs = np.clip(self.high + square[0] * reaches[0] * narrowing, 0.0, seen.high)
            lows = np.clip(self.low + square[1] * reaches[1] * narrowing, seen.low, 0.0)
            self._offer(lows, highs)

    def _ends_in_steps(self, seen: Interval) -> tuple[Floats, Floats]:
        """The lowest and the highest code in steps from zero, (n,) each, of a kind whose zero point
        does not follow the range.
        """
        point = _scales(self.kind, seen.low, seen.high)[1]
        return self.kind.qmin - point, self.kind.qmax - point

    def _powers_of_two(self, seen: Interval) -> None:
        """Every power of two below the one that covers, and the next above where the kind
        rounds to the nearest.
        """
        above = int(self.kind.scale_kind == "pow2_nearest")
        scales = self.reference * 2.0 ** np.arange(above, -_OCTAVES - 1, -1.0)[:, np.newaxis]
        scales = np.minimum(scales, 2.0**127)
        if self.kind.symmetry == "asymmetric":
            self._windows(seen, scales)
            return
        below, beyond = self._ends_in_steps(seen)
        lows, highs = scales * below, scales * beyond
        inside = (lows > seen.low) | (highs < seen.high) | (above == 0)
        # What is wider than what was seen is offered as what the codes can represent: no smaller
        # range has that scale.
        lows = np.where(inside, np.maximum(lows, seen.low), lows)
        highs = np.where(inside, np.minimum(highs, seen.high), highs)
        self._offer(np.maximum(lows, -_LARGEST), np.minimum(highs, _LARGEST))

    def _windows(self, seen: Interval, scales: Floats) -> None:
        """Windows of all codes, whole steps from zero: aligned with one end, with the other,
        and in between.
        """
        steps = self.kind.code_count - 1
        first = np.clip(np.rint(-seen.low / scales), 0, steps)
        last = np.clip(steps - np.rint(seen.high / scales), 0, steps)
        share = np.linspace(0.0, 1.0, _PLACES)[:, np.newaxis, np.newaxis]
        places = np.rint(first + (last - first) * share)

        def offer(places: Floats, scales: Floats) -> npt.NDArray[np.int64]:
            lows, highs = -places * scales, (steps - places) * scales
            return self._offer(np.maximum(lows, -_LARGEST), np.minimum(highs, _LARGEST))

        columns = np.arange(places.shape[2])
        shape = places.shape
        which = offer(
            places.reshape(-1, shape[2]), np.broadcast_to(scales, shape).reshape(-1, shape[2])
        )
        place, scale = np.unravel_index(which, shape[:2])
        chosen, around = scales[scale, columns], places[place, scale, columns]
        step = np.abs(last - first)[scale, columns] / (_PLACES - 1)
        for _ in range(3):
            nearby = np.clip(
                np.rint(around + step * np.linspace(-1, 1, 7)[:, np.newaxis]), 0, steps
            )
            around = nearby[offer(nearby, np.broadcast_to(chosen, nearby.shape)), columns]
            step = step / 3


def _ladder(largest: Floats, clipped: Floats, rungs: int) -> Floats:
    """Ratios (rungs + 1, n) from 1 down to what clipping by ``clipped`` leaves of ``largest``,
    geometrically.
    """
    room = np.divide(clipped, largest, out=np.ones_like(clipped), where=largest > 0)
    floor = np.clip(_SLACK - room, 2.0**-_OCTAVES, _SLACK)
    return np.asarray(floor ** (np.arange(rungs + 1)[:, np.newaxis] / rungs))


def _between(count: int) -> Floats:
    """``count`` even steps strictly between 0 and 1, as a column."""
    return np.linspace(0.0, 1.0, count + 2)[1:-1, np.newaxis]


# The range whose qparams represent the values with the least Σ c·|x − x̂|ᵖ.
#
# x̂ is x quantized by the very qparams that the kind chooses for the range: rounding and saturation
# both count. p = 2 is the squared error (``mse``), p = 1 the absolute one; a larger p spares the
# tails, which makes it the min/max range in the end.


@dataclass(frozen=True, slots=True)
class Lp:
    """``p`` is the exponent; 2.4 by default, as BRECQ and its kin search weights (Li et al.
    2021, their code).

    Raises:
        ValueError: p outside [0.1, 100].
    """

    p: float = 2.4

    def __post_init__(self) -> None:
        demand(0.1 <= self.p <= 100, "p", self.p, "in [0.1, 100]")

    def of_distribution(self, distribution: Distribution, kind: QParamsKind) -> Interval:
        """Of one tensor; it holds zero."""
        return least_error_of_distribution(distribution, kind, self.p)

    def of_rows(self, rows: npt.NDArray[Any], kind: QParamsKind) -> Interval:
        """Of every row, all rows at once."""
        return least_error_of_rows(rows, kind, self.p)

    def __str__(self) -> str:
        return spelled("lp", self)


# The range whose qparams represent the values with the least squared error, Σ c·(x − x̂)²:
# ``lp(2)``.


@dataclass(frozen=True, slots=True)
class Mse(Lp):
    """The L₂ search."""

    p: float = field(default=2, init=False)

    def __str__(self) -> str:
        return "mse"
