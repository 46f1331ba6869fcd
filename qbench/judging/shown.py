"""What one score's sample shows beside the plain counts, and what a sample like it could have found at all.

A share of right samples is judged by its losses and gains (``paired``, ``margin_test``), any other metric by the paired
bootstrap that was made when it was counted.
"""

from dataclasses import dataclass

from qbench.judging.amounts import apart
from qbench.judging.margin_test import Evidence, interval_evidence, margin_evidence
from qbench.judging.paired import mcnemar_midp, paired_interval
from qbench.judging.power import (
    changed_share,
    deciding_by_spread,
    detectable_by_spread,
    detectable_drop,
    samples_by_spread,
    samples_deciding,
    samples_needed,
    spread_of,
)
from qbench.metrics import Direction, Score


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Facts of one sample, in a metric's better-is-more sense: fractions, negative is loss.

    Args:
        evidence: about the margin.
        low, high: the interval for display. interval: which it is, e.g. ``Bonett-Price 95 %``.
        midp: McNemar's two-sided mid-p of "no change at all"; None of what is no share of samples.
        detectable: the smallest drop that the sample would find four times in five.
        needed: how many samples the margin would take to be shown, were nothing lost; None: no number would do.
        deciding: how many samples like these, which lose and gain as these do, would decide what these cannot; None:
            these decide, or no number does.
    """

    evidence: Evidence
    low: float
    high: float
    interval: str
    midp: float | None
    detectable: float
    needed: int | None
    deciding: int | None = None

    def text(self, score: Score) -> str:
        """All of it in one line, of the sample of ``score``."""
        midp = "" if self.midp is None else f", any change p {self.midp:.2g} (McNemar mid-p)"
        needs = "no number of samples shows none"
        if self.needed is not None:
            needs = f"the margin needs {self.needed} of which nothing is lost"
        if self.deciding is not None:
            needs += f", {self.deciding} like these decide"
        return (
            f"{self.evidence.value.upper()} ({self.interval} {_signed(score, self.low)} to {_signed(score, self.high)} "
            f"{_unit(score)}{midp}); "
            f"{score.n} samples find a drop of {apart(score, self.detectable)}, {needs}"
        )


def shown_by(score: Score, margin: float) -> Shown | None:
    """What the sample of ``score`` shows about a loss of ``margin``, a fraction.

    None where there is nothing to show it by: a metric that is no share of samples and was never resampled.
    """
    if score.proportion and score.out_of == score.n:
        return _by_counts(score, margin)
    return None if score.interval is None else _by_resamples(score, score.interval, margin)


def _by_counts(score: Score, margin: float) -> Shown:
    low, high = paired_interval(score.losses, score.gains, score.n, method="bonett-price")
    share = changed_share(score.losses, score.gains, score.n)
    evidence = margin_evidence(score.losses, score.gains, score.n, margin)
    is_open = evidence is Evidence.INCONCLUSIVE
    return Shown(
        evidence=evidence,
        low=low,
        high=high,
        interval="Bonett-Price 95 %",
        midp=mcnemar_midp(score.losses, score.gains),
        detectable=detectable_drop(share, score.n),
        needed=samples_needed(share, margin),
        deciding=samples_deciding(share, score.drop / score.out_of, margin, score.n) if is_open else None,
    )


def _by_resamples(score: Score, interval: tuple[float, float], margin: float) -> Shown:
    low, high = interval if score.direction is Direction.HIGHER else (-interval[1], -interval[0])
    spread = spread_of(low, high)
    evidence = interval_evidence(low, high, margin)
    is_open = evidence is Evidence.INCONCLUSIVE
    return Shown(
        evidence=evidence,
        low=low,
        high=high,
        interval="paired bootstrap 90 %",
        midp=None,
        detectable=detectable_by_spread(spread),
        needed=samples_by_spread(spread, score.n, margin),
        deciding=deciding_by_spread(spread, score.drop / score.out_of, margin, score.n) if is_open else None,
    )


def _signed(score: Score, change: float) -> str:
    return (f"{100 * change:+.2f}" if score.unit == "%" else f"{change:+.5g}").replace("-", "−")


def _unit(score: Score) -> str:
    return "pp" if score.unit == "%" else score.unit
