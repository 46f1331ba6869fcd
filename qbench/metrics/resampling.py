"""The paired bootstrap."""

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from qbench.metrics.scores import CONFIDENCE

Wide = npt.NDArray[np.float64]

RESAMPLES = 2000
_SEED = 20260
_BLOCK = 2_000_000
"""Draws held at once: 16 MB."""
_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)

# What a bootstrap does not show. It draws only changes that the sample has, so that few of them
# make an interval that is too narrow, and one sample an interval without a width.
#
#     fewest     ``scores.LEAST_OF_MEAN``: with fewer there is no interval
#     trusted    (Σ eᵢ²)² / Σ eᵢ⁴ ≥ 10 with eᵢ = changeᵢ − mean: the number of samples that the
#                estimate of the variance rests on (Kish, Survey Sampling, 1965, with the weights
#                eᵢ²). It is n / kurtosis; of n samples of which few changed, all by as much, it is
#                the number that changed. The relative error of that estimate is about 1/√10 then.
#     else       the ends are at least as far away as Wilson's limits of a share put them, for
#                changes as large as two values of the metric can be apart, the reach:
#                Σ changeᵢ² / reach² of n such changes were seen.
#
# The reach is given by the bounds of the metric. Without an assumption nothing bounds the mean of
# values that have no bound (Bahadur and Savage, Ann Math Stat 27:1115, 1956); where a bound is
# lacking, no change is taken to be larger than the spread of all values of both runs. All of it
# is in the unit of the values: another unit gives the same verdict.

_TRUSTED = 10.0
_ROUNDED = 1e-12
"""What is left of a change that all samples share, by rounding, as a share of the largest value."""


def change_interval(
    rows: npt.NDArray[np.int64], sources: npt.NDArray[np.intp] | None = None
) -> tuple[float, float] | None:
    """The 5 % and the 95 % point of the change, as fractions in the metric's own sense.

    ``rows`` (n, 4) int64: hits and out_of now, hits and out_of before, of every sample. ``sources``
    (n,): the number of each sample's source; all samples of a source are drawn together. None where
    a resample has nothing to count out of.
    """
    if sources is not None:
        totals = _sums_of_draws(by_source(rows, sources))
        return None if (totals[:, [1, 3]] <= 0).any() else _ends(_change(totals))
    kinds, times = np.unique(rows, axis=0, return_counts=True)
    if len(kinds) == 1:
        if (kinds[0, [1, 3]] <= 0).any():
            return None
        change = _change(kinds.astype(np.float64))
        return float(change[0]), float(change[0])
    rng = np.random.Generator(np.random.PCG64(_SEED))
    block = max(1, _BLOCK // len(kinds))
    totals = np.concatenate(
        [
            rng.multinomial(len(rows), times / len(rows), size=min(block, RESAMPLES - start))
            @ kinds
            for start in range(0, RESAMPLES, block)
        ]
    ).astype(np.float64)
    if (totals[:, 1] <= 0).any() or (totals[:, 3] <= 0).any():
        return None
    return _ends(_change(totals))


def by_source(rows: npt.NDArray[np.int64], sources: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
    """(G, columns) the sums of ``rows`` (n, columns) over the samples of each source, up to 2⁵³."""
    columns = [np.bincount(sources, weights=column) for column in rows.T]
    return np.stack(columns, axis=1).astype(np.int64)


def _sums_of_draws(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """(2000, columns) the sums of as many rows as ``rows`` (G, columns) has, drawn with
    replacement.
    """
    rng, count = np.random.Generator(np.random.PCG64(_SEED)), len(rows)
    block = max(1, _BLOCK // count)
    sums = []
    for start in range(0, RESAMPLES, block):
        draws = min(block, RESAMPLES - start)
        places = rng.integers(count, size=(draws, count)) + count * np.arange(draws)[:, np.newaxis]
        times = np.bincount(places.ravel(), minlength=draws * count).reshape(draws, count)
        sums.append(times.astype(np.float64) @ rows)
    return np.concatenate(sums)


def recomputed_interval(
    change: Callable[[npt.NDArray[np.intp]], float],
    groups: Sequence[npt.NDArray[np.intp]],
    sources: npt.NDArray[np.intp] | None = None,
) -> tuple[float, float]:
    """The 5 % and the 95 % point of ``change(places)``, of places drawn with replacement from
    each of ``groups``.

    ``groups`` are the places (m,) of samples whose number is not by chance, such as the like and
    the unlike pairs. With ``sources`` (n,), whole sources are drawn instead, again and again until
    each of ``groups`` has a sample.
    """
    rng = np.random.Generator(np.random.PCG64(_SEED))
    draws: Iterator[npt.NDArray[np.intp]]
    if sources is None:
        draws = (
            np.concatenate([rng.choice(group, len(group)) for group in groups])
            for _ in range(RESAMPLES)
        )
    else:
        draws = _drawn_sources(rng, groups, sources)
    return _ends(
        np.fromiter((change(places) for places in draws), dtype=np.float64, count=RESAMPLES)
    )


def _drawn_sources(
    rng: np.random.Generator, groups: Sequence[npt.NDArray[np.intp]], sources: npt.NDArray[np.intp]
) -> Iterator[npt.NDArray[np.intp]]:
    members = np.split(np.argsort(sources, kind="stable"), np.cumsum(np.bincount(sources))[:-1])
    group_of = np.zeros(len(sources), dtype=np.intp)
    for number, group in enumerate(groups):
        group_of[group] = number
    for _ in range(RESAMPLES):
        places = np.zeros(0, dtype=np.intp)
        while len(np.unique(group_of[places])) < len(groups):
            places = np.concatenate(
                [members[source] for source in rng.integers(len(members), size=len(members))]
            )
        yield places


def weighted_interval(
    change: Callable[[Wide], Wide],
    count: int,
    sources: npt.NDArray[np.intp] | None = None,
    *,
    resamples: int = RESAMPLES,
) -> tuple[float, float] | None:
    """The 5 % and the 95 % point of ``change(weights)``, for values of all samples together
    that weights give.

    Args:
        change: (b, count) float64, how often each sample was drawn → (b,) changes; NaN where there
            is nothing to count.
        count: samples.
        sources: (count,) the number of each one's source, which are drawn whole; None: each has its
            own.
        resamples: fewer where a change takes long.

    Returns:
        None where a resample has nothing to count.
    """
    rng = np.random.Generator(np.random.PCG64(_SEED))
    drawn = count if sources is None else int(sources.max()) + 1
    block = max(1, _BLOCK // count)
    found = []
    for start in range(0, resamples, block):
        times = rng.multinomial(
            drawn, np.full(drawn, 1 / drawn), size=min(block, resamples - start)
        )
        found.append(change((times if sources is None else times[:, sources]).astype(np.float64)))
    changes = np.concatenate(found)
    return None if np.isnan(changes).any() else _ends(changes)


def with_unmet(
    interval: tuple[float, float],
    change: float,
    rows: npt.NDArray[np.int64],
    bounds: tuple[float, float],
) -> tuple[float, float] | None:
    """``interval`` of ``change``, as wide as changes can make it that a sample of few has not
    met (see above).

    Args:
        rows: (n, 4) as ``change_interval`` takes them, of one sample or more.
        bounds: the least and the greatest value that a sample usually has; −∞ and ∞: there is none.

    Returns:
        None where nothing says how large a change can be: all values are one and the same, and the
        metric has no bounds.
    """
    if _effective(rows) >= _TRUSTED:
        return interval
    reach = _reach(rows, bounds)
    if not reach:
        return None
    n = len(rows)
    moved = (rows[:, 0] - rows[:, 2]).astype(np.float64)
    seen = min(float(((moved / reach) ** 2).sum()), n)
    tail = _farthest(seen, n) * reach * n / float(rows[:, 1].sum())
    return min(interval[0], change - tail), max(interval[1], change + tail)


def influences(rows: npt.NDArray[np.int64]) -> Wide:
    """(n,) how far each sample pulls the change from where it is; their sum is 0.

    ``rows`` (n, 4) as of ``change_interval``. The value is a ratio of sums: the residuals of its
    linearization (Cochran, Sampling Techniques, 1977, ch. 6).
    """
    now, out_of, before, out_of_before = rows.sum(axis=0).astype(np.float64)
    parts = (rows[:, 0] - rows[:, 1] * now / out_of) / out_of
    parts -= (rows[:, 2] - rows[:, 3] * before / out_of_before) / out_of_before
    return np.asarray(parts)


def _effective(rows: npt.NDArray[np.int64]) -> float:
    """The number of samples that the variance of their changes rests on."""
    parts = influences(rows)
    largest = float(np.abs(parts).max())
    if largest * float(rows[:, 1].sum()) <= _ROUNDED * float(np.abs(rows[:, [0, 2]]).max()):
        return 0.0
    squares = (parts / largest) ** 2
    return float(squares.sum() ** 2 / (squares**2).sum())


def _reach(rows: npt.NDArray[np.int64], bounds: tuple[float, float]) -> float:
    """How far the hits of two runs of one sample can be apart, of the largest sample."""
    hits, out_of = np.concatenate([rows[:, :2], rows[:, 2:]]).T
    values = hits[out_of > 0] / out_of[out_of > 0]
    known = [one for one in bounds if math.isfinite(one)]
    least, most = min([*known, float(values.min())]), max([*known, float(values.max())])
    return (most - least) * float(out_of.max())


def _farthest(count: float, n: int) -> float:
    """How far Wilson's farther limit of a share lies from the ``count`` of ``n`` that was seen;
    never zero.
    """
    half = _Z / (n + _Z * _Z) * math.sqrt(count * (n - count) / n + _Z * _Z / 4)
    return half + abs((count + _Z * _Z / 2) / (n + _Z * _Z) - count / n)


def _ends(changes: npt.NDArray[np.float64]) -> tuple[float, float]:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(changes, [tail, 1 - tail])
    return float(low), float(high)


def _change(totals: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """(m,) changes of (m, 4) sums: hits and out_of now, hits and out_of before."""
    changes: npt.NDArray[np.float64] = totals[:, 0] / totals[:, 1] - totals[:, 2] / totals[:, 3]
    return changes
