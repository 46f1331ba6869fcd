"""What the data of a model can tell from chance before anything runs, and how many more samples would settle a margin.

    tells   m = (z₀.₉₅ + z₀.₈) √(π D / n)      non-inferiority of paired proportions, true difference 0
    needed  n ≥ (z₀.₉₅ + z₀.₈)² π D / m²             in sources of as many samples each, with the D of so many

n samples of G sources, of which a share π changes sides; D is their design effect, 1 where each is its own source. One-
sided 5 %, power 80 %. Of a metric that is no share the standard error is in the place of √(π D / n).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist

from qbench.judging.statistics import ALPHA, samples_by_spread, samples_needed, sources_needed
from qbench.number_text import counted

FLIPS = 0.02
"""The share of samples that changes sides between fp32 and a good int8 network: measured ones lie near it."""

_Z = NormalDist().inv_cdf(1 - ALPHA) + NormalDist().inv_cdf(0.8)
_NAMED = 2


def decidable_drop(n: int, flips: float = FLIPS, effect: float = 1.0) -> float:
    """The smallest loss (a fraction) that ``n`` samples with the design effect ``effect`` can tell from chance."""
    return min(1.0, _Z * math.sqrt(flips * effect / n))


def whole_effect(n: int, sources: int) -> float:
    """The design effect of ``n`` samples of ``sources`` where those of one source change together, as it is judged.

    The mean size of a source, times (t/z)² of Student's t, as its variance is estimated from so few; 1 where each
    sample has its own source, n where all have one.
    """
    if sources >= n:
        return 1.0
    if sources < 2:
        return float(n)
    from qbench.metrics import student_quantile

    wider = student_quantile(1 - ALPHA, sources - 1) / NormalDist().inv_cdf(1 - ALPHA)
    return n / sources * wider**2


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPower:
    """One metric of one model on its data.

    Args:
        model, metric: names. n: samples. sources: of them; None: each its own. effect: their design effect.
        seen: the part of it that changed sources show (``Clusters.seen``); None: nothing ran.
        margin: what the metric may lose, a fraction; 0: the first flip counts. unit: of the metric.
        error: the standard error of the change of a metric that is no share, a fraction; None: a share.
    """

    model: str
    metric: str
    n: int
    margin: float
    sources: int | None = None
    effect: float = 1.0
    seen: float | None = None
    unit: str = "%"
    error: float | None = None

    @property
    def tells(self) -> float:
        """The smallest loss that it tells from chance four times in five, a fraction."""
        drop = decidable_drop(self.n, effect=self.effect) if self.error is None else _Z * self.error
        return min(drop, 1.0) if self.unit == "%" else drop

    @property
    def needed(self) -> int | None:
        """How many samples of such sources would settle the margin; None: no number, or the margin is 0."""
        if self.error is not None:
            return samples_by_spread(self.error, self.n, self.margin)
        if self.sources is None or self.sources >= self.n:
            return samples_needed(FLIPS, self.margin)
        sources = sources_needed(
            FLIPS,
            self.margin,
            self.n,
            sources=self.sources,
            effect=self.effect,
            seen=self.seen or 1.0,
            changed=FLIPS * self.n if self.seen else 0,
        )
        return None if sources is None else sources * self.n // self.sources

    @property
    def is_open(self) -> bool:
        """Whether the margin is less than the data can tell from chance."""
        return self.needed is not None and self.needed > self.n

    @property
    def data_text(self) -> str:
        """``200 samples from 4 sources``."""
        text = counted(self.n, "sample")
        return text if self.sources is None else f"{text} from {counted(self.sources, 'source')}"

    @property
    def tells_text(self) -> str:
        """``a loss from 2.34 pp on``."""
        return f"a loss from {self._apart(self.tells)} on"

    @property
    def margin_text(self) -> str:
        """``0.99 pp``."""
        return self._apart(self.margin)

    @property
    def more_text(self) -> str:
        """``96 more sources settle it``; empty where the margin is settled, or no number would."""
        if not self.is_open or self.needed is None:
            return ""
        if self.sources is None:
            return f"{self.needed - self.n:,} more samples settle it"
        more = -(-self.needed * self.sources // self.n) - self.sources
        return f"{more:,} more {'source settles' if more == 1 else 'sources settle'} it"

    def _apart(self, value: float) -> str:
        return f"{100 * value:.2f} pp" if self.unit == "%" else f"{value:.3g}{self.unit and ' '}{self.unit}"


def open_sentence(powers: Iterable[DataPower]) -> str:
    """Which models have too little data for their own margins; empty: none.

    Each is named with the metric that lacks most, those that lack most first.
    """
    every = list(powers)
    models = {one.model for one in every}
    worst: dict[str, DataPower] = {}
    for one in sorted((one for one in every if one.is_open), key=lambda one: one.n / (one.needed or one.n)):
        worst.setdefault(one.model, one)
    if not worst:
        return ""
    named = "; ".join(
        f"{one.model} {one.metric} may lose {one.margin_text}, {one.data_text} tell {one.tells_text}, {one.more_text}"
        for one in list(worst.values())[:_NAMED]
    )
    more = f"; and {len(worst) - _NAMED} more" if len(worst) > _NAMED else ""
    which = f"{len(worst)} of {counted(len(models), 'model')} {'has' if len(worst) == 1 else 'have'}"
    return f"{which} too few samples to tell a loss of the tolerance from chance: {named}{more}"
