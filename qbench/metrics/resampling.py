"""The paired bootstrap: between which ends the change of a metric lies that is no share of right samples.

value = Σ hits / Σ out_of;  change = value now − value before, on the same samples, resampled together

Percentile method over 2000 resamples (Efron and Tibshirani 1993, chapter 13), each n samples drawn with replacement.
Samples that count alike are drawn as one: how often each kind occurs in a resample is multinomial, which is the same
distribution for a fraction of the work. One seed for all, so that equal counts give equal ends.

A value that is no sum over samples is computed anew from every resample, drawn group by group.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

RESAMPLES = 2000
CONFIDENCE = 0.9
_SEED = 20260
_BLOCK = 2_000_000
"""Draws held at once: 16 MB."""


def change_interval(rows: npt.NDArray[np.int64]) -> tuple[float, float] | None:
    """The 5 % and the 95 % point of the change, as fractions in the metric's own sense.

    ``rows`` (n, 4) int64: hits and out_of now, hits and out_of before, of every sample. None of a single sample, which
    cannot be resampled, and where a resample has nothing to count out of.
    """
    if len(rows) < 2:
        return None
    kinds, times = np.unique(rows, axis=0, return_counts=True)
    if len(kinds) == 1:
        change = _change(kinds.astype(np.float64))
        return float(change[0]), float(change[0])
    rng = np.random.Generator(np.random.PCG64(_SEED))
    block = max(1, _BLOCK // len(kinds))
    totals = np.concatenate(
        [
            rng.multinomial(len(rows), times / len(rows), size=min(block, RESAMPLES - start)) @ kinds
            for start in range(0, RESAMPLES, block)
        ]
    ).astype(np.float64)
    if (totals[:, 1] <= 0).any() or (totals[:, 3] <= 0).any():
        return None
    return _ends(_change(totals))


def recomputed_interval(
    change: Callable[[npt.NDArray[np.intp]], float], groups: Sequence[npt.NDArray[np.intp]]
) -> tuple[float, float]:
    """The 5 % and the 95 % point of ``change(places)``, of places drawn with replacement from each of ``groups``.

    ``groups`` are the places (m,) of samples whose number is not by chance, such as the like and the unlike pairs.
    """
    rng = np.random.Generator(np.random.PCG64(_SEED))
    draws = (np.concatenate([rng.choice(group, len(group)) for group in groups]) for _ in range(RESAMPLES))
    return _ends(np.fromiter((change(places) for places in draws), dtype=np.float64, count=RESAMPLES))


def _ends(changes: npt.NDArray[np.float64]) -> tuple[float, float]:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(changes, [tail, 1 - tail])
    return float(low), float(high)


def _change(totals: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """(m,) changes of (m, 4) sums: hits and out_of now, hits and out_of before."""
    changes: npt.NDArray[np.float64] = totals[:, 0] / totals[:, 1] - totals[:, 2] / totals[:, 3]
    return changes
