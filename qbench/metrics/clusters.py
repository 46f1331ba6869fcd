"""Samples that share sources: what they prove about a change, from the sums of each source."""

import functools
import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from qbench.metrics.paired import Interval, paired_interval, tango_statistic
from qbench.metrics.resampling import influences
from qbench.metrics.scores import CONFIDENCE, LEAST_FREEDOM, Clusters, Gathering

# n samples of G sources; b of them count no more, c only now. Source g has n_g samples, and the sum
# s_g of its changes; the change of the share, d = Σ s_g / n, is a ratio of sums.
#
#     V = G/(G−1) Σ r_g² / n²,  r_g = s_g − n_g d      the variance of d between sources
#                                                      (CR1; Cochran 1977, ch. 6)
#     S = (V n² + 8 r²) / (b + c − n d² + 8 a)         the design effect; at least 1, and at least
#                                                      the same without the eights
#     G* = n² / Σ n_g²                                 the number of sources of one size (Kish 1965)
#
# r and a belong to the changed source with the largest r_g²: a is the number of its samples that
# changed. Eight more such sources are added, because the variance between a few changed sources of
# unequal size is too small (found by simulation, see below). Where no sample changed, or all
# changed alike, S = Σ n_g² / n: the value for sources that change as a whole.
#
# The changes that were seen give the paired limits of b/E, c/E and n/E at a one-sided error of a,
# where E = S (t/z)² with Student's t at a (Rao and Scott, Biometrics 48:577, 1992; with t: Korn and
# Graubard, Survey Methodology 24:193, 1998). If a share q of all sources changes as a whole, the
# chance that none of them is in the sample is (1 − q)^G*. The two errors together are at most α:
#
#     low = min over α ≤ a ≤ 1 of  (limit of the seen changes at a)  −  (1 − (α/a)^(1/G*))
#
# where the limit is d itself at a > ½. t has ν = (Σ v_g)² / Σ v_g² − 1 degrees of freedom
# (Satterthwaite), v_g the variance of s_g by S: G − 1 for equal sizes.
# ``benchmarks/cluster_coverage.py`` compares this with others (``docs/evidence/clusters.md``).

_MORE = 8
"""How often the source that changed most is counted again: wrong PASS stays under 6 %
(``docs/evidence/clusters.md``).
"""
_POINTS = 65
"""How many changes between a limit and the mean are tried as the one at which the error is shared;
a second round tries as many around the best.
"""
_EXACT = 20_000_000
"""Steps for which the distribution of sign flips is counted exactly: about 20 ms."""
_NEARLY_NORMAL = 1000.0
"""Degrees of freedom from which the expansion of t has an error below 1e-8."""
_NORMAL = 1e6
"""Degrees of freedom from which t is the normal distribution, to 1e-6."""
_NODES = 60
_SAME = 1e-12
"""Shares that differ by no more are equal."""
_BISECTIONS = 50
_SHOWN = 0.95
_ANYTHING = (-1.0, 1.0)


def source_numbers(sources: Sequence[str] | None, n: int) -> npt.NDArray[np.intp] | None:
    """(n,) the number of each sample's source, counted as they first come; None where each
    sample has its own.

    Raises:
        ValueError: there are more or fewer sources than samples.
    """
    if sources is None:
        return None
    if len(sources) != n:
        raise ValueError(f"{len(sources)} sources of {n} samples")
    numbers: dict[str, int] = {}
    found = np.fromiter(
        (numbers.setdefault(source, len(numbers)) for source in sources), dtype=np.intp, count=n
    )
    return None if len(numbers) == n else found


def flip_midp(sums: npt.NDArray[np.int64]) -> float:
    """Two-sided mid-p of "no change": P(|S| > |Σ s|) + P(|S| = |Σ s|)/2, S = Σ ± s_g with fair,
    independent signs.

    ``sums`` (G,): of the changes of each source. Where each is of one sample it is McNemar's mid-p;
    for many sources by the normal distribution of the same variance Σ s_g² (Durkalski et al., Stat
    Med 22:2417, 2003).
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
    """The chance of Student's t of ``freedom`` > 0 degrees of freedom to exceed ``point`` ≥ 0."""
    return float(_tails(np.array([point]), freedom)[0])


def _tails(points: npt.NDArray[np.float64], freedom: float) -> npt.NDArray[np.float64]:
    """``student_above`` of ``points`` (m,) ≥ 0.

    With t = √ν tan θ the density is ∝ cos θ to the power of ν − 1, which Gauss's 60 points
    integrate to 1e-9.
    """
    if freedom > _NORMAL:
        return np.array([NormalDist().cdf(-point) for point in points])
    nodes, weights = _gauss()
    constant = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(
        math.pi
    )
    halves = np.arctan(points / math.sqrt(freedom)) / 2
    inside = constant * halves * (np.cos(np.outer(halves, 1 + nodes)) ** (freedom - 1) @ weights)
    tails: npt.NDArray[np.float64] = np.maximum(0.0, 0.5 - inside)
    return tails


@functools.cache
def _gauss() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return nodes, weights


def student_quantile(chance: float, freedom: float) -> float:
    """The point below which Student's t of ``freedom`` > 0 degrees of freedom lies with probability
    ``chance`` in [½, 1).

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

    Where all are −1, 0 or 1, it is ``paired_interval``, with clusters ``source_interval``.
    Else it is the mean ± t √V, with Satterthwaite's degrees of freedom of clusters of these sizes.

    Args:
        changes: (n,) of each sample, now minus before.
        clusters: n labels; samples with one label belong together. None: every sample is its own.
        confidence: in (0, 1).

    Returns:
        (low, high), in the unit of ``changes``. One cluster proves nothing: −1 to 1 of shares, else
        −∞ to ∞.

    Raises:
        ValueError: no changes, one that is not finite, another number of clusters, or an impossible
            confidence.
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
        found = gathering(
            sizes, sums, np.bincount(numbers, weights=np.abs(values)).astype(np.float64)
        )
        return source_interval(fewer, more, n, found, confidence=confidence)
    mean = float(values.mean())
    far = student_quantile((1 + confidence) / 2, _freedom(sizes**2)) * math.sqrt(
        variance_between(sizes, sums)
    )
    return mean - far, mean + far


def clustered(changes: npt.NDArray[np.int64], numbers: npt.NDArray[np.intp]) -> Clusters:
    """What the samples of a share prove about its change.

    Args:
        changes: (n,) 1 where a sample counts now and did not before, −1 the other way, else 0.
        numbers: (n,) the number of each sample's source, from 0.
    """
    n = len(changes)
    sizes = np.bincount(numbers)
    if len(sizes) == 1:
        return of_too_few(n, 1)
    sums = np.bincount(numbers, weights=changes).astype(np.float64)
    fewer, more = int((changes < 0).sum()), int((changes > 0).sum())
    found = gathering(
        sizes.astype(np.float64),
        sums,
        np.bincount(numbers, weights=np.abs(changes)).astype(np.float64),
    )
    decides, shows = (
        source_interval(fewer, more, n, found, confidence=confidence)
        for confidence in (CONFIDENCE, _SHOWN)
    )
    # where no sample or every sample changed, the variance is that of one more change
    spread = max(fewer + more - (more - fewer) ** 2 / n, 1 - 1 / n)
    return Clusters(
        sources=len(sizes),
        effect=found.effect * _wider(CONFIDENCE, found.freedom),
        interval=decides,
        shown=shows,
        p=flip_midp(sums.astype(np.int64)),
        error=math.sqrt(spread * found.effect) / n,
        seen=found.effect,
        freedom=found.freedom,
        equal=found.equal,
    )


def source_interval(
    losses: float, gains: float, n: float, found: Gathering, *, confidence: float
) -> Interval:
    """The two-sided interval of the change of a share, as fractions; negative is loss.

    Args:
        losses, gains, n: as in ``paired_interval``.
        found: how losses and gains are distributed over sources.
    """
    error, middle = (1 - confidence) / 2, (gains - losses) / n
    effect = found.effect * _wider(confidence, found.freedom)
    low, high = paired_interval(losses, gains, n, confidence=confidence, effect=effect)

    def far(end: float) -> float:
        """How far the limit is from the mean, where that of what was seen is at ``end``."""
        first, last, farthest = end, middle, 0.0
        for _ in range(2):
            points = np.linspace(first, last, _POINTS)
            chances = np.clip(_chances(losses, gains, n, points, found), error, 1.0)
            reached = np.abs(points - middle) + 1 - (error / chances) ** (1 / found.equal)
            best = int(reached.argmax())
            first, last = float(points[max(best - 1, 0)]), float(points[min(best + 1, _POINTS - 1)])
            farthest = max(farthest, float(reached[best]))
        return max(farthest, abs(end - middle))

    return max(-1.0, middle - far(low)), min(1.0, middle + far(high))


def source_p(
    losses: float, gains: float, n: float, change: float, found: Gathering, *, less: float = 0.0
) -> float:
    """The one-sided p of "the true change is ``change``, or farther from what was seen": 5 % at
    an end of 90 %.

    ``less``: a correction for continuity, as of ``tango_statistic``, in samples that count as one.
    """
    middle = (gains - losses) / n
    points = np.linspace(change, middle, _POINTS)
    chances = _chances(losses, gains, n, points, found, less=less * found.effect)
    return float(((1 - np.minimum(np.abs(points - change), 1.0)) ** found.equal * chances).max())


def _chances(
    losses: float,
    gains: float,
    n: float,
    points: npt.NDArray[np.float64],
    found: Gathering,
    *,
    less: float = 0.0,
) -> npt.NDArray[np.float64]:
    """Of each true change of ``points``: how probable it makes what was seen, or what is
    farther; 1 of the mean.
    """
    middle, scale = (gains - losses) / n, math.sqrt(found.effect)
    distances = [
        abs(tango_statistic(losses, gains, n, max(-1.0, min(1.0, one)), less=less)) / scale
        for one in points
    ]
    chances = _tails(np.array(distances), found.freedom)
    chances[np.abs(points - middle) < _SAME] = 1.0
    return chances


def variance_between(sizes: npt.NDArray[np.float64], sums: npt.NDArray[np.float64]) -> float:
    """V = G/(G−1) Σ (s_g − n_g d)² / n², the variance of d = Σ s_g / n between two or more
    sources (CR1).
    """
    count, n = len(sizes), float(sizes.sum())
    return count / (count - 1) * float(((sums - sizes * sums.sum() / n) ** 2).sum()) / (n * n)


def gathering(
    sizes: npt.NDArray[np.float64], sums: npt.NDArray[np.float64], changed: npt.NDArray[np.float64]
) -> Gathering:
    """How the changes of two or more sources gather.

    Args:
        sizes: (G,) samples of each.
        sums: (G,) of their changes.
        changed: (G,) how many of its samples changed.
    """
    count, n = len(sizes), float(sizes.sum())
    whole = float((sizes**2).sum()) / n
    mean = float(sums.sum()) / n
    squares = (sums - sizes * mean) ** 2
    within = float(changed.sum()) - n * mean * mean
    effect = whole
    if within > _SAME * n:
        seen = count / (count - 1) * float(squares.sum())
        of_changed = np.where(changed > 0, squares, -1.0)
        largest = float(of_changed.max())
        # of sources that are equally far the one with the fewest changes, so that the order of
        # sources has no effect
        fewest = float(changed[of_changed >= largest * (1 - _SAME)].min())
        effect = max(1.0, seen / within, (seen + _MORE * largest) / (within + _MORE * fewest))
    alike = min(1.0, (effect - 1) / (whole - 1)) if whole > 1 else 0.0
    return Gathering(effect, _freedom(sizes * (1 + (sizes - 1) * alike)), n / whole)


def resampled(
    change: float,
    rows: npt.NDArray[np.int64],
    numbers: npt.NDArray[np.intp],
    interval: tuple[float, float],
) -> Clusters:
    """What the samples of any other metric prove, whose ``change`` has the 90 % ``interval`` by
    resampled sources, of which there are two or more.

    ``rows`` (n, 4): hits and out_of now, hits and out_of before, of every sample. ``numbers``: as
    of ``clustered``.
    """
    sizes = np.bincount(numbers)
    count = len(sizes)
    freedom = _freedom_of(sizes)
    low, high = (
        student_quantile((1 + confidence) / 2, freedom) for confidence in (CONFIDENCE, _SHOWN)
    )
    error = (interval[1] - interval[0]) / (2 * low)
    parts = influences(rows)
    alone = float((parts**2).sum())
    between = float((np.bincount(numbers, weights=parts) ** 2).sum()) * count / (count - 1)
    return Clusters(
        sources=count,
        effect=max(1.0, between / alone) if alone else 1.0,
        interval=interval,
        shown=(
            change + (interval[0] - change) * high / low,
            change + (interval[1] - change) * high / low,
        ),
        p=2 * student_above(abs(change) / error, freedom) if error else 1.0,
        error=error,
    )


def widened(
    interval: tuple[float, float], change: float, numbers: npt.NDArray[np.intp]
) -> tuple[float, float]:
    """The 90 % ``interval`` of ``change`` by resampling two or more sources, widened to what so
    few can prove.

    Resampled sums vary too little by (G − 1)/G, and t counts instead of z (Hesterberg, Am Stat
    69:371, 2015), with the degrees of freedom of sources of these sizes whose samples change alike.
    """
    sizes = np.bincount(numbers)
    factor = math.sqrt(_wider(CONFIDENCE, _freedom_of(sizes)) * len(sizes) / (len(sizes) - 1))
    return change + (interval[0] - change) * factor, change + (interval[1] - change) * factor


def _freedom_of(sizes: npt.NDArray[np.intp]) -> float:
    return _freedom(sizes.astype(np.float64) ** 2)


def _freedom(variances: npt.NDArray[np.float64]) -> float:
    """Satterthwaite's degrees of freedom of the sum of sources with these variances, for equal
    ones G − 1.
    """
    return max(float(variances.sum()) ** 2 / float((variances**2).sum()) - 1, LEAST_FREEDOM)


def of_too_few(n: int, sources: int) -> Clusters:
    """``n`` samples of ``sources`` that prove nothing about others: one, or few of a mean."""
    return Clusters(
        sources=sources,
        effect=n / sources,
        interval=_ANYTHING,
        shown=_ANYTHING,
        p=1.0,
        error=1.0,
    )


def _wider(confidence: float, freedom: float) -> float:
    """(t/z)²: by how much the variance counts more because it is estimated."""
    chance = (1 + confidence) / 2
    return (student_quantile(chance, freedom) / NormalDist().inv_cdf(chance)) ** 2
