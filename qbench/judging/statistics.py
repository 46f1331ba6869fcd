"""Paired statistics of one cell against its reference on the same n samples, and how they
decide.
"""

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from qbench.judging.format import apart
from qbench.metrics import (
    LEAST_OF_MEAN,
    Clusters,
    Direction,
    Gathering,
    Score,
    paired_interval,
    tango_statistic,
)
from qbench.number_text import counted

# McNemar's mid-p tests whether there is any change; the intervals (``metrics.paired``) bound its
# size. Formula: Fagerland, Lydersen and Laake, BMC Med Res Methodol 13:91 (2013), mid-p.


_COUNTED = 10_000
"""Changes that are counted in whole numbers: 30 ms."""
_LOG_2 = math.log(2)
_LEAST_TERM = 1e-17


def mcnemar_midp(losses: int, gains: int) -> float:
    """Two-sided mid-p of "no change": 2 P(X < m) + P(X = m) with X ~ Binomial(b + c, ½), m =
    min(b, c).

    In whole numbers up to the last division; of more than 10,000 changes in floating point, to nine
    digits. With b = c it is 1.

    Raises:
        ValueError: a count is negative.
    """
    if min(losses, gains) < 0:
        raise ValueError(f"{losses} losses and {gains} gains: counts are not negative")
    flips, fewer = losses + gains, min(losses, gains)
    if flips > _COUNTED:
        return _midp_of_many(flips, fewer)
    term, below = 1, 0  # C(flips, k) and Σ C(flips, i < k)
    for k in range(fewer):
        below += term
        term = term * (flips - k) // (k + 1)
    return float(min(1.0, (2 * below + term) / (1 << flips)))


def _midp_of_many(flips: int, fewer: int) -> float:
    """The same sum from its largest term down, until the rest is less than a float can hold."""
    if 2 * fewer == flips:
        return 1.0
    point = math.exp(
        math.lgamma(flips + 1)
        - math.lgamma(fewer + 1)
        - math.lgamma(flips - fewer + 1)
        - flips * _LOG_2
    )
    term, below, k = point, 0.0, fewer
    while k and term > below * _LEAST_TERM:
        term *= k / (flips - k + 1)
        below += term
        k -= 1
    return min(1.0, 2 * below + point)


def loss_midp(losses: int, gains: int) -> float:
    """One-sided mid-p of "no loss": P(X > b) + P(X = b)/2 with X ~ Binomial(b + c, ½); small
    where much was lost.

    Raises:
        ValueError: a count is negative.
    """
    half = mcnemar_midp(losses, gains) / 2
    return half if losses >= gains else 1 - half


# Evidence: whether a sample shows that a loss is within its margin m, or beyond it; one half of an
# equivalence test.
#
#     PASS          T(−m) > z       the true change is above −m: no worse than the margin admits
#     FAIL          T½(−m) < −z     it is below −m: worse than that
#     INCONCLUSIVE  neither         too few samples to decide
#
# T is Tango's score statistic (``paired``), z the one-sided 5 % point of the normal distribution:
# PASS means that the 90 % interval lies above −m. Losses are few whole numbers of a skewed
# distribution: without a correction, up to 7 % of the samples whose loss equals the margin would be
# called FAIL, so T½ subtracts half a sample from the distance. Then at most one such sample in
# eighteen is called PASS, and one in eighteen FAIL (``benchmarks/verdicts.py`` counts them all; of
# fewer than 200 samples one in thirteen, where every sample changes sides). FAIL fails a cell by
# every ``decision``. For a metric that is not a share of samples, the interval of a paired
# bootstrap is used.

ALPHA = 0.05
"""The share of wrong PASS, and of wrong FAIL, where the true loss equals the margin."""
_HALF_A_SAMPLE = 0.5


class Evidence(enum.Enum):
    """What a sample proves about a loss and its margin."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


def margin_evidence(
    losses: float, gains: float, n: float, margin: float, *, alpha: float = ALPHA
) -> Evidence:
    """What ``losses`` and ``gains`` among ``n`` samples show about a drop of ``margin``.

    A margin of the whole score or more admits everything.

    Raises:
        ValueError: impossible counts, margin or error.
    """
    if n < 1 or min(losses, gains) < 0 or losses + gains > n:
        raise ValueError(f"{losses} losses and {gains} gains among {n} samples are impossible")
    if not 0 <= margin < math.inf or not 0 < alpha < 0.5:
        raise ValueError(f"a margin of {margin} at an error of {alpha} is impossible")
    if margin >= 1:
        return Evidence.PASS
    z = NormalDist().inv_cdf(1 - alpha)
    if tango_statistic(losses, gains, n, -margin) > z:
        return Evidence.PASS
    worse = tango_statistic(losses, gains, n, -margin, less=_HALF_A_SAMPLE) < -z
    return Evidence.FAIL if worse else Evidence.INCONCLUSIVE


def source_evidence(
    losses: float, gains: float, n: float, margin: float, clusters: Clusters
) -> Evidence:
    """``margin_evidence`` of samples that share sources, by the interval of ``clusters``, of
    two sources or more.

    FAIL takes half a sample off the distance, too: of those that count as one.
    """
    if margin >= 1 or clusters.interval[0] > -margin:
        return Evidence.PASS
    if clusters.interval[1] >= -margin:
        return Evidence.INCONCLUSIVE
    worse = beyond_sources_p(losses, gains, n, margin, clusters.gathering) < ALPHA
    return Evidence.FAIL if worse else Evidence.INCONCLUSIVE


def beyond_sources_p(
    losses: float, gains: float, n: float, margin: float, found: Gathering
) -> float:
    """One-sided p of "the loss is ``margin`` or less", of samples that share sources: small
    where more was lost.
    """
    from qbench.metrics import source_p  # needs numpy, which collecting cells does not load

    if losses - gains <= margin * n:
        return 1.0
    return source_p(losses, gains, n, -margin, found, less=_HALF_A_SAMPLE)


def interval_evidence(low: float, high: float, margin: float) -> Evidence:
    """The evidence of an interval of the change (negative is loss) each of whose ends errs with
    ``ALPHA``.
    """
    if low > -margin:
        return Evidence.PASS
    return Evidence.FAIL if high < -margin else Evidence.INCONCLUSIVE


# Power: the smallest drop that a sample would detect, and the number of samples that a margin
# needs.
#
#     detected  √n d ≥ z₀.₉₇₅ √π + z₀.₈ √(π − d²)
#               McNemar's test, two-sided 5 %, power 80 % (Miettinen 1968)
#     needed    n ≥ (z₀.₉₅ + z₀.₈)² π / m²
#               the margin test, one-sided 5 %, power 80 %, if nothing is lost
#     deciding  n ≥ (z₀.₉₅ + z₀.₈)² π / (m − d)²
#               the same, if drops of d go on: PASS where d < m, else FAIL
#
# π is the share of samples that changed between right and wrong. A sample with few changes
# estimates π badly, so it is estimated as by Bonett and Price: one loss, one gain and two samples
# are added. Where samples share sources, a search finds the fewest sources that decide even where d
# lies z₀.₈ standard errors toward the margin. Five samples detect d where d⁵ = 80 %: all of them
# have to be lost.

_TWO_SIDED = NormalDist().inv_cdf(0.975)
_ONE_SIDED = NormalDist().inv_cdf(1 - ALPHA)
_POWER = NormalDist().inv_cdf(0.8)
_POWER_BISECTIONS = 50
_LEAST_LOST = 5
"""The fewest losses, without gains, whose two-sided mid-p is below 5 %: of 5 it is 2⁻⁵, of 4 2⁻⁴.
By the signs of sources it is the same."""
_SAME = 1e-12
_MOST_SOURCES = 1 << 62


def changed_share(losses: int, gains: int, n: int) -> float:
    """The estimate of π, never zero."""
    return (losses + gains + 2) / (n + 2)


def detectable_drop(
    share: float, n: int, *, effect: float = 1.0, sources: int | None = None
) -> float | None:
    """The smallest drop, a fraction, that ``n`` samples detect four times in five when
    ``share`` of them change.

    No more than ``share`` can be lost; a larger drop needs a larger share.

    Args:
        effect: the design effect of samples that share sources.
        sources: how many sources they are from; None: each sample is its own.

    None: the loss of all is not significant.
    """
    independent = n if sources is None else sources
    if independent < _LEAST_LOST:
        return None
    if n / effect <= _LEAST_LOST:
        return math.exp(math.log(0.8) / independent)
    low, high = 0.0, 1.0
    for _ in range(_POWER_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if _finds(middle, share, n / effect) else (middle, high)
    return high


def _finds(drop: float, share: float, n: float) -> bool:
    changed = max(share, drop)
    return math.sqrt(n) * drop >= _TWO_SIDED * math.sqrt(changed) + _POWER * math.sqrt(
        changed - drop * drop
    )


def samples_needed(share: float, margin: float) -> int | None:
    """How many samples prove four times in five that a lossless cell is within ``margin``;
    None: no number does.

    Never fewer than the test needs when no sample changed at all: n > z² (1 − m) / m.
    """
    if margin <= 0:
        return None
    if margin >= 1:
        return 1
    least = math.floor(_ONE_SIDED**2 * (1 - margin) / margin) + 1
    return max(least, math.ceil((_ONE_SIDED + _POWER) ** 2 * share / margin**2))


def samples_deciding(share: float, drop: float, margin: float, n: int) -> int | None:
    """How many samples like these ``n`` undecided ones decide four times in five: always more
    than ``n``.

    Args:
        share: of samples that change.
        drop: losses minus gains, a fraction.

    None: the drop equals the margin, and no number decides.
    """
    apart = margin - drop
    if abs(apart) < _SAME:
        return None
    return max(n + 1, math.ceil((_ONE_SIDED + _POWER) ** 2 * share / apart**2))


def settles(share: float, drop: float, margin: float, n: float, found: Gathering) -> bool:
    """Whether ``n`` samples that gather in sources as ``found`` decide a drop about ``margin``
    four times in five.

    Args:
        share: of samples that change.
        drop: the true one, a fraction.
    """
    from qbench.metrics import source_p  # needs numpy, which collecting cells does not load

    passes = drop < margin
    unlucky = _POWER * math.sqrt(share * found.effect / n) * (1 if passes else -1)
    lost = n * (drop + unlucky)
    if (lost < margin * n) != passes:
        return False
    changed = min(max(share * n, abs(lost)), n)
    lost = max(-changed, min(changed, lost))
    counts = (changed + lost) / 2, (changed - lost) / 2, n
    if passes:
        return source_p(*counts, -margin, found) < ALPHA
    return beyond_sources_p(*counts, margin, found) < ALPHA


def sources_needed(
    share: float, margin: float, n: int, *, sources: int, found: Gathering
) -> int | None:
    """``samples_needed`` in sources, like ``sources`` with ``n`` samples that gather as
    ``found``; 2 at least.
    """
    return (
        None
        if margin <= 0
        else sources_settling(share, 0.0, margin, n, sources=sources, found=found, above=1)
    )


def sources_settling(
    share: float, drop: float, margin: float, n: int, *, sources: int, found: Gathering, above: int
) -> int | None:
    """How many sources, more than ``above``, decide a margin four times in five; None: no
    number does.

    They are like ``sources`` with ``n`` samples, which gather as ``found``. Else as of ``settles``.
    """
    if margin >= 1:
        return above + 1
    if abs(margin - drop) < _SAME:
        return None
    return _fewest(
        lambda g: settles(share, drop, margin, g * n / sources, found.of_more(g / sources)),
        above=above,
    )


def sources_deciding(score: Score, margin: float) -> int | None:
    """``samples_deciding`` in sources: more than those of ``score``, by the rule that judges
    them.
    """
    clusters = score.clusters
    assert clusters is not None
    return sources_settling(
        changed_share(score.losses, score.gains, score.n),
        score.drop / score.out_of,
        margin,
        score.n,
        sources=clusters.sources,
        found=clusters.gathering,
        above=clusters.sources,
    )


def _fewest(decides: Callable[[int], bool], above: int) -> int | None:
    """A number more than ``above`` that decides while one less does not; None: not even 2⁶² do."""
    low, high = above, 2 * above
    while not decides(high):
        if high > _MOST_SOURCES:
            return None
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high


def detectable_by_spread(spread: float) -> float:
    """The smallest change that is detected four times in five where the estimate has the
    standard error ``spread``.
    """
    return (_TWO_SIDED + _POWER) * spread


def samples_by_spread(spread: float, n: int, margin: float) -> int | None:
    """``samples_needed`` of a metric whose estimate from ``n`` samples has a standard error of
    ``spread``.
    """
    return (
        None
        if margin <= 0
        else max(LEAST_OF_MEAN, math.ceil(n * ((_ONE_SIDED + _POWER) * spread / margin) ** 2))
    )


def spread_of(low: float, high: float) -> float:
    """The standard error of an estimate whose 90 % interval is ``low`` to ``high``."""
    return (high - low) / (2 * _ONE_SIDED)


# Many cells at once: which losses of a matrix are larger than chance alone explains (information,
# no gate).
#
# q₍ᵢ₎ = min over j ≥ i of p₍ⱼ₎ m / j, for the m values in rising order: Benjamini and Hochberg, J R
# Stat Soc B 57:289 (1995). Of the tests with q ≤ 5 %, on average at most 5 % are false alarms; the
# tests of one run share samples, and the procedure allows such positive dependence. A rerun on the
# same samples is no new evidence: never collect values over runs.


def benjamini_hochberg(values: Sequence[float]) -> tuple[float, ...]:
    """The adjusted p of each of ``values``, in their order.

    Raises:
        ValueError: one of them is no probability.
    """
    if not all(0 <= value <= 1 for value in values):
        raise ValueError("a p-value lies between 0 and 1")
    adjusted = [1.0] * len(values)
    least = 1.0
    for rank, place in sorted(
        enumerate(sorted(range(len(values)), key=values.__getitem__), start=1), reverse=True
    ):
        least = min(least, values[place] * len(values) / rank)
        adjusted[place] = least
    return tuple(adjusted)


def holm(values: Sequence[float]) -> tuple[float, ...]:
    """The p of each of ``values``, in their order, adjusted so that 5 % is the chance of any
    false alarm among all.

    p₍ᵢ₎ = max over j ≤ i of (m − j + 1) p₍ⱼ₎, for the m values in rising order: Holm, Scand J Stat
    6:65 (1979). That holds whatever the tests share.

    Raises:
        ValueError: one of them is no probability.
    """
    if not all(0 <= value <= 1 for value in values):
        raise ValueError("a p-value lies between 0 and 1")
    adjusted, most = [1.0] * len(values), 0.0
    for before, place in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        most = max(most, min(1.0, (len(values) - before) * values[place]))
        adjusted[place] = most
    return tuple(adjusted)


def beyond_margin_p(score: Score, margin: float) -> float:
    """One-sided p of "the loss is ``margin``, a fraction, or less": small where more was lost;
    below 5 % it is FAIL.

    1 where the sample of ``score`` shows nothing: ``too_few_text``, or its metric has no interval.
    """
    clusters = score.clusters
    if too_few_text(score):
        return 1.0
    if score.is_share_of_samples:
        if margin >= 1:
            return 1.0
        if clusters is not None:
            return beyond_sources_p(score.losses, score.gains, score.n, margin, clusters.gathering)
        return NormalDist().cdf(
            tango_statistic(score.losses, score.gains, score.n, -margin, less=_HALF_A_SAMPLE)
        )
    if score.interval is None:
        return 1.0
    spread = spread_of(*score.interval)
    beyond = score.drop / score.out_of - margin
    return NormalDist().cdf(-beyond / spread) if spread else float(beyond <= 0)


TOO_FEW = "too few samples"

# The evidence and the power of the sample of one score.
#
# A share of right samples is judged by its losses and gains (``margin_evidence``), any other metric
# by the paired bootstrap interval of its score.


@dataclass(frozen=True, slots=True, kw_only=True)
class LossEvidence:
    """Facts of one sample, in a metric's better-is-more sense: fractions, negative is loss.

    Args:
        evidence: about the margin.
        low, high: the interval for display.
        interval: which it is, e.g. ``Bonett-Price 95 %``; ``TOO_FEW``: there is none, and its ends
            say nothing.
        midp: McNemar's two-sided mid-p of "no change at all", or by the signs of sources; None
            where the metric is not a share of samples.
        detectable: the smallest drop that the sample would detect four times in five; None: it
            detects none.
        needed: how many samples without a loss would prove the margin; None: no number would. Where
            samples share sources: how many from sources as large as these.
        deciding: how many samples that lose and gain as these do would decide; None: these decide,
            or no number does.
    """

    evidence: Evidence
    low: float
    high: float
    interval: str
    midp: float | None
    detectable: float | None
    needed: int | None
    deciding: int | None = None

    def text(self, score: Score) -> str:
        """The evidence in one line, for the sample of ``score``."""
        test = "McNemar mid-p" if score.clusters is None else "sign flips by source"
        midp = "" if self.midp is None else f", any change p {self.midp:.2g} ({test})"
        if nothing := too_few_text(score):
            return f"{self.evidence.value.upper()}: {nothing}"
        needs = "no number of samples proves a margin of 0"
        if self.needed is not None:
            needs = f"the margin needs {amount_text(score, self.needed)} without a loss"
        if self.deciding is not None:
            needs += f", {amount_text(score, self.deciding)} like these decide"
        return (
            f"{self.evidence.value.upper()} ({self.interval} {self._ends(score)}{midp}); "
            f"{self._detects(score)}, {needs}"
        )

    def _detects(self, score: Score) -> str:
        if self.detectable is None:
            return no_drop_text(score)
        return f"{sample_text(score)} detect a drop of {apart(score, self.detectable)}"

    def _ends(self, score: Score) -> str:
        """Of a change; of a distance from the reference, which is a loss alone, as it is."""
        ends = self.low, self.high
        if not score.against_labels and score.direction is Direction.LOWER:
            ends = -self.high, -self.low
        low, high = (_signed(score, one) for one in ends)
        return f"{low} to {high} {_unit(score)}".rstrip()


def sample_text(score: Score) -> str:
    """``500 samples``, or ``500 samples from 20 sources``."""
    text = counted(score.n, "sample")
    if score.clusters is None:
        return text
    return f"{text} from {counted(score.clusters.sources, 'source')}"


def no_drop_text(score: Score) -> str:
    """``3 samples are too few to detect any drop``."""
    be = "is" if score.n == 1 else "are"
    return f"{sample_text(score)} {be} too few to detect any drop"


def too_few_text(score: Score) -> str:
    """Why the sample of ``score`` proves nothing, whatever was counted: ``1 sample proves nothing
    about others: a mean takes 5 samples or more``; empty where it may prove something.
    """
    clusters, is_share = score.clusters, score.is_share_of_samples
    is_enough = score.proportion or score.never_resampled or score.independent >= LEAST_OF_MEAN
    if is_share:
        is_enough = clusters is None or clusters.sources > 1
    if is_enough:
        return ""
    proves = "proves" if score.n == 1 else "prove"
    text = f"{sample_text(score)} {proves} nothing about others"
    if is_share:
        return text
    units = "samples" if clusters is None else "sources"
    return f"{text}: a mean takes {LEAST_OF_MEAN} {units} or more"


def amount_text(score: Score, samples: int) -> str:
    """The words for ``samples`` samples: ``9874 samples``, or where samples share sources ``120
    more sources`` or ``12 sources``.
    """
    if score.clusters is None:
        return counted(samples, "sample")
    more = sources_for(score, samples) - score.clusters.sources
    return (
        f"{counted(more, 'more source')}"
        if more > 0
        else counted(more + score.clusters.sources, "source")
    )


def sources_for(score: Score, samples: int) -> int:
    """The number of sources of the mean size in ``score`` that hold ``samples`` samples.

    Where each sample is its own source, that is ``samples``.
    """
    return samples if score.clusters is None else -(-samples * score.clusters.sources // score.n)


def shown_by(score: Score, margin: float) -> LossEvidence | None:
    """The evidence of the sample of ``score`` about a loss of ``margin``, a fraction.

    None for a metric that is not a share of samples and has no bootstrap interval.
    """
    if too_few_text(score):
        return _PROVES_NOTHING
    if score.is_share_of_samples:
        return _by_counts(score, margin)
    return None if score.interval is None else _by_resamples(score, score.interval, margin)


_PROVES_NOTHING = LossEvidence(
    evidence=Evidence.INCONCLUSIVE,
    low=-1.0,
    high=1.0,
    interval=TOO_FEW,
    midp=None,
    detectable=None,
    needed=None,
)


def _by_counts(score: Score, margin: float) -> LossEvidence:
    clusters = score.clusters
    share, drop = changed_share(score.losses, score.gains, score.n), score.drop / score.out_of
    if clusters is None:
        evidence = margin_evidence(score.losses, score.gains, score.n, margin)
        is_open = evidence is Evidence.INCONCLUSIVE
        midp, interval = mcnemar_midp(score.losses, score.gains), "Bonett-Price 95 %"
        low, high = paired_interval(score.losses, score.gains, score.n, method="bonett-price")
        detectable = detectable_drop(share, score.n)
        needed = samples_needed(share, margin)
        deciding = samples_deciding(share, drop, margin, score.n) if is_open else None
    else:
        evidence = source_evidence(score.losses, score.gains, score.n, margin, clusters)
        is_open = evidence is Evidence.INCONCLUSIVE
        midp, interval = clusters.p, "95 % by source"
        low, high = _better_is_more(score, clusters.shown)
        detectable = detectable_drop(
            share, score.n, effect=clusters.effect, sources=clusters.sources
        )
        fewest = sources_needed(
            share, margin, score.n, sources=clusters.sources, found=clusters.gathering
        )
        needed = _samples_of(score, fewest)
        deciding = _samples_of(score, sources_deciding(score, margin)) if is_open else None
    return LossEvidence(
        evidence=evidence,
        low=low,
        high=high,
        interval=interval,
        midp=midp,
        detectable=detectable,
        needed=needed,
        deciding=deciding,
    )


def _samples_of(score: Score, sources: int | None) -> int | None:
    """The number of samples in ``sources`` sources; ``sources_for`` is its inverse."""
    return (
        None
        if sources is None or score.clusters is None
        else sources * score.n // score.clusters.sources
    )


def _by_resamples(score: Score, interval: tuple[float, float], margin: float) -> LossEvidence:
    low, high = _better_is_more(score, interval)
    spread = spread_of(low, high)
    evidence = interval_evidence(low, high, margin)
    is_open = evidence is Evidence.INCONCLUSIVE
    return LossEvidence(
        evidence=evidence,
        low=possible_change(score, low),
        high=possible_change(score, high),
        interval="paired bootstrap 90 %, with unmet changes"
        if score.clusters is None
        else "paired bootstrap 90 % by source, with unmet changes",
        midp=None,
        detectable=possible_drop(score, detectable_by_spread(spread)),
        needed=samples_by_spread(spread, score.n, margin),
        deciding=samples_deciding(
            score.n * spread * spread, score.drop / score.out_of, margin, score.n
        )
        if is_open
        else None,
    )


def negative_is_worse(interval: tuple[float, float], score: Score) -> tuple[float, float]:
    """An interval of value − reference_value, turned where a lower value is better; turned again
    it is as before.
    """
    return _better_is_more(score, interval)


def share_interval(score: Score) -> tuple[float, float] | None:
    """The 95 % interval of the change of a share against labels: Tango's, or that of the sources;
    negative is worse.

    None of agreement, which has no change, and of an error rate, which has no pairs.
    """
    if not score.proportion or not score.against_labels:
        return None
    if score.clusters is not None:
        return negative_is_worse(score.clusters.shown, score)
    return paired_interval(score.losses, score.gains, score.n)


def possible_change(score: Score, change: float) -> float:
    """``change``, a fraction, or the nearest that two values of the metric can have: 1 or −1 of
    what is at most 100 %.

    An error rate is no share: more words can be wrong than there are.
    """
    is_share = score.proportion or (score.unit == "%" and score.direction is Direction.HIGHER)
    return min(1.0, max(-1.0, change)) if is_share else change


def possible_drop(score: Score, drop: float) -> float | None:
    """``drop``, a fraction; None: no two values of the metric are so far apart."""
    return drop if possible_change(score, drop) == drop else None


def _better_is_more(score: Score, interval: tuple[float, float]) -> tuple[float, float]:
    return interval if score.direction is Direction.HIGHER else (-interval[1], -interval[0])


def _signed(score: Score, change: float) -> str:
    return (f"{100 * change:+.2f}" if score.unit == "%" else f"{change:+.5g}").replace("-", "−")


def _unit(score: Score) -> str:
    return "pp" if score.unit == "%" else score.unit


# What makes a loss red: the plain counts, or what they prove.
#
# | decision | red where                                       | INCONCLUSIVE is              |
# |----------|-------------------------------------------------|------------------------------|
# | point    | the drop counted exceeds the margin, or the     | decided by the counts        |
# |          | sample proves a greater loss; a margin of less  | (green, an outcome of its    |
# |          | than one sample is decided as by ci             | own, under such a margin)    |
# | ci       | the sample proves a greater loss                | green, an outcome of its own |
# | strict   | the sample does not prove a lesser              | red                          |


class DecisionRule(enum.Enum):
    """How a loss is decided."""

    POINT = "point"
    CI = "ci"
    STRICT = "strict"


@dataclass(frozen=True, slots=True)
class Decision:
    """``by``: how a loss is decided; ``rule``: the place that set it, e.g. ``suite smoke``."""

    by: DecisionRule = DecisionRule.POINT
    rule: str = "default"

    @property
    def text(self) -> str:
        """``decision ci (suite smoke)``."""
        return f"decision {self.by.value} ({self.rule})"


POINT = Decision()
"""The default rule."""
