"""The paired bootstrap."""

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Wide = npt.NDArray[np.float64]

RESAMPLES = 2000
CONFIDENCE = 0.9
_SEED = 20260
_BLOCK = 2_000_000
"""Draws held at once: 16 MB."""
_FEW = 10
"""Changed samples from which on the bootstrap is trusted alone."""
_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


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


def with_unmet(interval: tuple[float, float], rows: npt.NDArray[np.int64]) -> tuple[float, float]:
    """``interval`` of the change, as wide as changes can make it that a sample of few has not
    met (see above).

    ``rows`` (n, 4) as ``change_interval`` takes them, of one sample or more.
    """
    moved = np.abs(rows[:, 0] - rows[:, 2]).astype(np.float64)
    if np.count_nonzero(moved) >= _FEW:
        return interval
    largest = float(moved.max() or max(rows[:, 1].max(), 1))
    n, seen = len(rows), float((moved**2).sum()) / largest**2
    tail = _farthest(seen, n) * largest * n / float(rows[:, 1].sum())
    change = float(_change(rows.sum(axis=0, keepdims=True).astype(np.float64))[0])
    return min(interval[0], change - tail), max(interval[1], change + tail)


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
