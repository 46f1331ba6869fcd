"""Samples that share sources: what they prove about a change, from the sums of each source."""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from qbench.metrics.paired import paired_interval
from qbench.metrics.resampling import CONFIDENCE
from qbench.metrics.scores import Clusters

# n samples of G sources; b of them count no more, c only now. Source g has n_g samples, and the sum s_g of its changes;
# the change of the share, d = Σ s_g / n, is a ratio of sums.
#
#     V = G/(G−1) Σ (s_g − n_g d)² / n²        its variance between sources        (Cochran 1977, section 9A)
#     D = V / ((b + c − n d²) / n²)            the design effect
#
# Shares: paired intervals of b/E, c/E and n/E, E = D (t/z)² with t of Student's distribution with G − 1 degrees of
# freedom: Rao and Scott, Biometrics 48:577 (1992), and Korn and Graubard, Survey Methodology 24:193 (1998).

_EXACT = 20_000_000
"""Steps for which the distribution of sign flips is counted exactly: about 20 ms."""
_NODES = 60
_BISECTIONS = 50
_UNSEEN = 2
"""Sources that change as a whole, added to the changed ones: few of them estimate the design effect badly."""
_SHOWN = 0.95
_ANY = (-1.0, 1.0)
_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
_Z_SHOWN = NormalDist().inv_cdf((1 + _SHOWN) / 2)


def source_numbers(sources: Sequence[str] | None, n: int) -> npt.NDArray[np.intp] | None:
    """(n,) the number of each sample's source, counted as they first come; None where each sample has its own.

    Raises:
        ValueError: there are more or fewer sources than samples.
    """
    if sources is None:
        return None
    if len(sources) != n:
        raise ValueError(f"{len(sources)} sources of {n} samples")
    numbers: dict[str, int] = {}
    found = np.fromiter((numbers.setdefault(source, len(numbers)) for source in sources), dtype=np.intp, count=n)
    return None if len(numbers) == n else found


def flip_midp(sums: npt.NDArray[np.int64]) -> float:
    """Two-sided mid-p of "no change": P(|S| > |Σ s|) + P(|S| = |Σ s|)/2, S = Σ ± s_g with fair, independent signs.

    ``sums`` (G,): of the changes of each source. Where each is of one sample it is McNemar's mid-p; for many
    sources by the normal distribution of the same variance Σ s_g² (Durkalski et al., Stat Med 22:2417, 2003).
    """
    sizes = np.abs(sums[sums != 0])
    seen, reach = abs(int(sums.sum())), int(sizes.sum())
    if not seen:
        return 1.0
    if len(sizes) * reach > _EXACT:
        return 2 * NormalDist().cdf(-seen / math.sqrt(float((sizes.astype(np.float64) ** 2).sum())))
    chances = np.ones(1)  # of the sum of the sources that have lost, from 0 on
    for size in map(int, np.sort(sizes)):
        grown = np.zeros(len(chances) + size)
        grown[: len(chances)] += chances / 2
        grown[size:] += chances / 2
        chances = grown
    fewer = (reach - seen) // 2
    return float(min(1.0, 2 * chances[:fewer].sum() + chances[fewer]))


def student_quantile(chance: float, freedom: float) -> float:
    """The point under which Student's t of ``freedom`` ≥ 1 degrees of freedom lies with ``chance`` in [½, 1).

    With t = √ν tan θ the density is ∝ cos θ to the power of ν − 1, which Gauss's 60 points integrate to 1e-9.
    """
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    constant = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)

    def above(point: float) -> float:
        half = math.atan(point / math.sqrt(freedom)) / 2
        return 0.5 - constant * half * float(weights @ np.cos(half * (1 + nodes)) ** (freedom - 1))

    low, high = 0.0, 1.0
    while above(high) > 1 - chance:
        low, high = high, 2 * high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if above(middle) > 1 - chance else (low, middle)
    return high


def clustered(changes: npt.NDArray[np.int64], numbers: npt.NDArray[np.intp]) -> Clusters:
    """What the samples of a share prove about its change.

    Args:
        changes: (n,) 1 of a sample that counts now and did not before, −1 the other way, else 0.
        numbers: (n,) of its source, from 0 on.
    """
    n = len(changes)
    sizes = np.bincount(numbers)
    sums = np.bincount(numbers, weights=changes).astype(np.int64)
    count, fewer, more = len(sizes), int((changes < 0).sum()), int((changes > 0).sum())
    change = (more - fewer) / n
    if count < 2:
        return Clusters(sources=count, effect=float(n), interval=_ANY, shown=_ANY, p=1.0, error=1.0)
    between = count / (count - 1) * float(((sums - sizes * change) ** 2).sum())
    whole = float((sizes.astype(np.float64) ** 2).sum()) / n
    within = fewer + more - n * change * change
    changed = np.count_nonzero(np.bincount(numbers, weights=np.abs(changes)))
    seen = between / within if within else whole
    effect = max(1.0, (changed * seen + _UNSEEN * whole) / (changed + _UNSEEN))
    decides, shows = (effect * _wider(count, confidence) for confidence in (CONFIDENCE, _SHOWN))
    return Clusters(
        sources=count,
        effect=decides,
        interval=paired_interval(fewer, more, n, confidence=CONFIDENCE, effect=decides),
        shown=paired_interval(fewer, more, n, method="bonett-price", effect=shows),
        p=flip_midp(sums),
        error=math.sqrt((fewer + more - n * change * change) * effect) / n,
    )


def resampled(change: float, numbers: npt.NDArray[np.intp], interval: tuple[float, float]) -> Clusters:
    """What the samples of any other metric prove, whose ``change`` has the 90 % ``interval`` by resampled sources.

    ``numbers``: as of ``clustered``.
    """
    error = (interval[1] - interval[0]) / (2 * _Z)
    low, high = (change + (end - change) * _Z_SHOWN / _Z for end in interval)
    return Clusters(
        sources=int(numbers.max()) + 1,
        effect=1.0,
        interval=interval,
        shown=(low, high),
        p=2 * NormalDist().cdf(-abs(change) / error) if error else 1.0,
        error=error,
    )


def _wider(count: int, confidence: float) -> float:
    """(t/z)² of ``count`` sources: by how much the variance counts more because it is estimated from so few."""
    chance = (1 + confidence) / 2
    return (student_quantile(chance, count - 1) / NormalDist().inv_cdf(chance)) ** 2
