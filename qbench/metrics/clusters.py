"""Samples that share sources: what they prove about a change, from the sums of each source."""

import functools
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
#     V = G/(G−1) Σ (s_g − n_g d)² / n²                the variance of d between sources (CR1; Cochran 1977, chapter 6)
#     S = V n² / (b + c − n d²)                        the design effect that the sources show, at least 1
#     W = Σ n_g² / n                                   that of sources whose samples all change alike
#     D = (b + c + λ W) / ((b + c)/S + λ)              what is taken: S where many sources changed, W where none did
#     E = D (t/z)²                                     t: Student's, of ν degrees of freedom
#
# The paired intervals are those of b/E, c/E and n/E (Rao and Scott, Biometrics 48:577, 1992; with t: Korn and Graubard,
# Survey Methodology 24:193, 1998). λ = 8 S / (b + c): sources that change as a whole, which a sample with few changes
# may not have met. ν = (Σ v_g)² / Σ v_g² − 1 (Satterthwaite), v_g the variance of s_g by D: G − 1 for equal sizes.
# ``benchmarks/cluster_coverage.py`` compares this with others (``docs/evidence/clusters.md``).

_UNMET = 8.0
"""λ of one effective change: so many that wrong PASS stays near 5 % (``docs/evidence/clusters.md``)."""
_EXACT = 20_000_000
"""Steps for which the distribution of sign flips is counted exactly: about 20 ms."""
_LEAST_FREEDOM = 0.5
_NEARLY_NORMAL = 1000.0
"""Degrees of freedom from which the expansion of t has an error below 1e-8."""
_NODES = 60
_ROUNDING = 1e-9
_BISECTIONS = 50
_SHOWN = 0.95
_ANYTHING = (-1.0, 1.0)


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


def student_above(point: float, freedom: float) -> float:
    """The chance of Student's t of ``freedom`` > 0 degrees of freedom to exceed ``point`` ≥ 0.

    With t = √ν tan θ the density is ∝ cos θ to the power of ν − 1, which Gauss's 60 points integrate to 1e-9.
    """
    nodes, weights = _gauss()
    constant = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
    half = math.atan(point / math.sqrt(freedom)) / 2
    return max(0.0, 0.5 - constant * half * float(weights @ np.cos(half * (1 + nodes)) ** (freedom - 1)))


@functools.cache
def _gauss() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return nodes, weights


def student_quantile(chance: float, freedom: float) -> float:
    """The point that Student's t of ``freedom`` > 0 degrees of freedom is under with ``chance`` in [½, 1).

    Of many degrees of freedom by the first terms of its expansion (Abramowitz and Stegun 26.7.5).
    """
    if freedom > _NEARLY_NORMAL:
        z = NormalDist().inv_cdf(chance)
        return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    low, high = 0.0, 1.0
    while student_above(high, freedom) > 1 - chance:
        low, high = high, 2 * high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if student_above(middle, freedom) > 1 - chance else (low, middle)
    return high


def change_interval(
    changes: npt.ArrayLike, clusters: Sequence[str] | None = None, *, confidence: float = 0.95
) -> tuple[float, float]:
    """Two-sided interval of the mean of ``changes``; negative is loss.

    Where all are −1, 0 or 1, it is ``paired_interval``, with clusters that of the counts divided by the design effect.
    Else it is the mean ± t √V, with Satterthwaite's degrees of freedom of clusters of these sizes.

    Args:
        changes: (n,) of each sample, now minus before. clusters: n labels; samples with one label belong together.
            None: every sample is its own. confidence: in (0, 1).

    Returns:
        (low, high), in the unit of ``changes``. One cluster proves nothing: −1 to 1 of shares, else −∞ to ∞.

    Raises:
        ValueError: no changes, one that is not finite, another number of clusters, or an impossible confidence.
    """
    values = np.asarray(changes, np.float64)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise ValueError("changes are one finite number for each of one sample or more")
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence of {confidence} is impossible: it lies between 0 and 1")
    n, numbers = len(values), source_numbers(clusters, len(values))
    is_share = bool(np.isin(values, (-1, 0, 1)).all())
    fewer, more = int((values < 0).sum()), int((values > 0).sum())
    if is_share and numbers is None:
        return paired_interval(fewer, more, n, confidence=confidence)
    numbers = np.arange(n) if numbers is None else numbers
    sizes = np.bincount(numbers).astype(np.float64)
    sums = np.bincount(numbers, weights=values).astype(np.float64)
    if len(sizes) == 1:
        return _ANYTHING if is_share else (-math.inf, math.inf)
    if is_share:
        effect, freedom = design_effect(sizes, sums, fewer + more)
        return paired_interval(fewer, more, n, confidence=confidence, effect=effect * _wider(confidence, freedom))
    mean = float(values.mean())
    far = student_quantile((1 + confidence) / 2, _freedom(sizes**2)) * math.sqrt(variance_between(sizes, sums))
    return mean - far, mean + far


def clustered(changes: npt.NDArray[np.int64], numbers: npt.NDArray[np.intp]) -> Clusters:
    """What the samples of a share prove about its change.

    Args:
        changes: (n,) 1 of a sample that counts now and did not before, −1 the other way, else 0.
        numbers: (n,) of its source, from 0 on.
    """
    n = len(changes)
    sizes = np.bincount(numbers)
    if len(sizes) == 1:
        return _of_one_source(n)
    sums = np.bincount(numbers, weights=changes).astype(np.float64)
    fewer, more = int((changes < 0).sum()), int((changes > 0).sum())
    weights = sizes.astype(np.float64)
    effect, freedom = design_effect(weights, sums, fewer + more)
    decides, shows = (effect * _wider(confidence, freedom) for confidence in (CONFIDENCE, _SHOWN))
    # without a change, or with nothing else, the variance is that of one change more
    spread = max(fewer + more - (more - fewer) ** 2 / n, 1 - 1 / n)
    return Clusters(
        sources=len(sizes),
        effect=decides,
        interval=paired_interval(fewer, more, n, confidence=CONFIDENCE, effect=decides),
        shown=paired_interval(fewer, more, n, method="bonett-price", effect=shows),
        p=flip_midp(sums.astype(np.int64)),
        error=math.sqrt(spread * effect) / n,
        seen=seen_effect(weights, sums, fewer + more),
    )


def variance_between(sizes: npt.NDArray[np.float64], sums: npt.NDArray[np.float64]) -> float:
    """V = G/(G−1) Σ (s_g − n_g d)² / n², the variance of d = Σ s_g / n between two or more sources (CR1)."""
    count, n = len(sizes), float(sizes.sum())
    return count / (count - 1) * float(((sums - sizes * sums.sum() / n) ** 2).sum()) / (n * n)


def seen_effect(sizes: npt.NDArray[np.float64], sums: npt.NDArray[np.float64], changed: int) -> float:
    """S, at least 1; where nothing changed, or all samples did alike, W. Arguments are as of ``design_effect``."""
    n = float(sizes.sum())
    within = changed - float(sums.sum()) ** 2 / n
    return max(1.0, variance_between(sizes, sums) * n * n / within if within > 0 else float((sizes**2).sum()) / n)


def design_effect(sizes: npt.NDArray[np.float64], sums: npt.NDArray[np.float64], changed: int) -> tuple[float, float]:
    """D and ν of two or more sources.

    Args:
        sizes: (G,) samples of each. sums: (G,) of their changes. changed: b + c, how many samples changed.
    """
    whole = float((sizes**2).sum() / sizes.sum())
    effect = seen = seen_effect(sizes, sums, changed)
    if changed:
        effective = changed / seen
        unmet = _UNMET / effective
        effect = (changed + unmet * whole) / (effective + unmet)
    alike = min(1.0, (effect - 1) / (whole - 1)) if whole > 1 else 0.0
    return effect, _freedom(sizes * (1 + (sizes - 1) * alike))


def effect_of_sources(sources: int, *, like: int, effect: float, seen: float, changed: float) -> float:
    """E of ``sources`` ≥ 2 sources that are, on average, like so many (``like``) with the known ``effect``.

    W is taken from ``effect``, as of sources of one size: ``like`` sources have that effect again.

    Args:
        seen: S of the known sources. changed: b + c of them; 0: nothing is known but that samples may change alike.
    """
    whole = effect / (_wider(CONFIDENCE, like - 1) if like > 1 else 1.0)
    if changed:
        unmet = _UNMET * seen / changed
        whole = max(1.0, (whole * (changed / seen + unmet) - changed) / unmet)
        if like > 1:
            seen = max(1.0, seen * (like - 1) / like * sources / (sources - 1))
        # whole changes: the next one may come late
        changed = math.floor(changed * sources / like + _ROUNDING)
        if changed:
            unmet = _UNMET * seen / changed
            whole = (changed + unmet * whole) / (changed / seen + unmet)
    return whole * _wider(CONFIDENCE, sources - 1)


def resampled(
    change: float, rows: npt.NDArray[np.int64], numbers: npt.NDArray[np.intp], interval: tuple[float, float]
) -> Clusters:
    """What the samples of any other metric prove, whose ``change`` has the 90 % ``interval`` by resampled sources.

    ``rows`` (n, 4): hits and out_of now, hits and out_of before, of every sample. ``numbers``: as of ``clustered``.
    """
    sizes = np.bincount(numbers)
    count = len(sizes)
    if count == 1:
        return _of_one_source(len(rows))
    freedom = _freedom_of(sizes)
    low, high = (student_quantile((1 + confidence) / 2, freedom) for confidence in (CONFIDENCE, _SHOWN))
    error = (interval[1] - interval[0]) / (2 * low)
    now, out_of, before, out_of_before = rows.sum(axis=0).astype(np.float64)
    parts = (rows[:, 0] - rows[:, 1] * now / out_of) / out_of
    parts -= (rows[:, 2] - rows[:, 3] * before / out_of_before) / out_of_before
    alone = float((parts**2).sum())
    between = float((np.bincount(numbers, weights=parts) ** 2).sum()) * count / (count - 1)
    return Clusters(
        sources=count,
        effect=max(1.0, between / alone) if alone else 1.0,
        interval=interval,
        shown=(change + (interval[0] - change) * high / low, change + (interval[1] - change) * high / low),
        p=2 * student_above(abs(change) / error, freedom) if error else 1.0,
        error=error,
    )


def widened(interval: tuple[float, float], change: float, numbers: npt.NDArray[np.intp]) -> tuple[float, float]:
    """The 90 % ``interval`` of ``change`` by resampling two or more sources, widened to what so few can prove.

    Resampled sums vary too little by (G − 1)/G, and t counts instead of z (Hesterberg, Am Stat 69:371, 2015), with the
    degrees of freedom of sources of these sizes whose samples change alike.
    """
    sizes = np.bincount(numbers)
    factor = math.sqrt(_wider(CONFIDENCE, _freedom_of(sizes)) * len(sizes) / (len(sizes) - 1))
    return change + (interval[0] - change) * factor, change + (interval[1] - change) * factor


def _freedom_of(sizes: npt.NDArray[np.intp]) -> float:
    return _freedom(sizes.astype(np.float64) ** 2)


def _freedom(variances: npt.NDArray[np.float64]) -> float:
    """Satterthwaite's degrees of freedom of the sum of sources with these variances, for equal ones G − 1."""
    return max(float(variances.sum()) ** 2 / float((variances**2).sum()) - 1, _LEAST_FREEDOM)


def _of_one_source(n: int) -> Clusters:
    """One source proves nothing about others."""
    return Clusters(sources=1, effect=float(n), interval=_ANYTHING, shown=_ANYTHING, p=1.0, error=1.0)


def _wider(confidence: float, freedom: float) -> float:
    """(t/z)²: by how much the variance counts more because it is estimated."""
    chance = (1 + confidence) / 2
    return (student_quantile(chance, freedom) / NormalDist().inv_cdf(chance)) ** 2
