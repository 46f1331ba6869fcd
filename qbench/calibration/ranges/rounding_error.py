"""The error of representing values on a grid, Σ c·|x − x̂|ᵖ, for many grids at once.

    x̂ = s · (clip(rint(x/s) + z, qmin, qmax) − z)

Values and errors are counted in steps of a reference scale, so that neither huge nor tiny tensors leave the numbers'
range. How a tie is rounded makes no difference to an error.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from qbench.calibration.distribution import Distribution, Floats
from qbench.numerics import GridKind

_LEVELS_BY_SUMS = 1024
_FLOAT32_BITS = 10
_NARROW = 256


class RoundingError(Protocol):
    """What a search asks of tensors: one a column."""

    def __call__(self, scales: Floats, points: Floats) -> Floats:
        """Errors, (k, n), of the n tensors on k grids each: scales in reference steps, and zero points."""
        ...


@dataclass(frozen=True, slots=True)
class ErrorOfPoints:
    """The error of one distribution; its ``points`` are in reference steps.

    Squares go by prefix sums over the points, which are cut where a grid rounds from one level to the next,

        Σ c·(x − v)² over a cell = Σ c·x² − 2·v·Σ c·x + v²·Σ c        v the cell's level

    so that a grid costs its levels and not the points. Other exponents, and grids of many levels, take every point.
    """

    points: Floats
    counts: Floats
    kind: GridKind
    exponent: float

    @classmethod
    def of(cls, distribution: Distribution, reference: float, kind: GridKind, exponent: float) -> "ErrorOfPoints":
        """That of ``distribution`` in steps of ``reference``."""
        return cls(distribution.points / reference, distribution.counts.astype(np.float64), kind, exponent)

    def __call__(self, scales: Floats, points: Floats) -> Floats:
        """Errors, (k, 1), of the one tensor."""
        by_sums = self.exponent == 2 and self.kind.levels <= _LEVELS_BY_SUMS
        found = self._by_sums(scales, points) if by_sums else self._by_points(scales, points)
        return np.asarray(found)[:, np.newaxis]

    def _by_sums(self, scales: Floats, points: Floats) -> Floats:
        levels = np.arange(self.kind.qmin, self.kind.qmax + 1, dtype=np.float64)
        values = (levels - points) * scales
        weighted = self.counts * self.points
        sums = [np.concatenate([[0.0], np.cumsum(each)]) for each in (self.counts, weighted)]
        inner = np.searchsorted(self.points, (values[:, 1:] + values[:, :-1]) / 2)
        ends = np.full((len(values), 1), len(self.points))
        cells = np.concatenate([np.zeros_like(ends), inner, ends], axis=1)
        counts, firsts = (np.diff(each[cells], axis=1) for each in sums)
        total = float((weighted * self.points).sum())
        return np.asarray(np.maximum(total + (values * (values * counts - 2 * firsts)).sum(axis=1), 0.0))

    def _by_points(self, scales: Floats, points: Floats) -> Floats:
        bounds = (self.kind.qmin, self.kind.qmax)
        # No dot product: of 10⁴ and more numbers BLAS makes threads, which cost more and sum in an order of their own.
        found = [
            (self.counts * powers(distances(self.points, scale, point, bounds), self.exponent)).sum()
            for scale, point in zip(scales[:, 0], points[:, 0], strict=True)
        ]
        return np.array(found, np.float64)


@dataclass(frozen=True, slots=True)
class ErrorOfRows:
    """The errors of rows, (n, elements) in reference steps; few elements a row are laid out along their rows."""

    values: npt.NDArray[Any]
    across: bool
    kind: GridKind
    exponent: float

    @classmethod
    def of(cls, rows: npt.NDArray[Any], reference: Floats, kind: GridKind, exponent: float) -> "ErrorOfRows":
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
        for i, (scale, point) in enumerate(zip(scales.astype(precision), points.astype(precision), strict=True)):
            spread = (scale, point) if self.across else (scale[:, np.newaxis], point[:, np.newaxis])
            error = powers(distances(self.values, *spread, bounds), self.exponent)
            found[i] = error.sum(axis=0 if self.across else 1, dtype=np.float64)
        return found


def distances(
    values: npt.NDArray[Any], scale: npt.NDArray[Any], point: npt.NDArray[Any], bounds: tuple[int, int]
) -> npt.NDArray[Any]:
    """|x − x̂| of ``values``, of their shape and precision, on the grid (scale, point) with levels within ``bounds``."""
    levels = values / scale
    np.rint(levels, out=levels)
    low, high = (np.asarray(bound - point, values.dtype) for bound in bounds)
    np.maximum(levels, low, out=levels)
    np.minimum(levels, high, out=levels)
    levels *= scale
    levels -= values
    return np.asarray(np.abs(levels, out=levels))


def powers(values: npt.NDArray[Any], exponent: float) -> npt.NDArray[Any]:
    """``values`` (≥ 0, overwritten) to the power of ``exponent``; an overflow is an infinite error."""
    with np.errstate(over="ignore", under="ignore"):
        if exponent == 2:
            return np.asarray(np.multiply(values, values, out=values))
        return values if exponent == 1 else np.asarray(np.power(values, values.dtype.type(exponent), out=values))
