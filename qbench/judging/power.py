"""What the data of a model can tell from chance before anything runs, and how many more samples
would settle a margin.

    tells   m = (z₀.₉₅ + z₀.₈) √(π / n)    non-inferiority of paired proportions, true difference 0
    needed  n ≥ (z₀.₉₅ + z₀.₈)² π / m²

There are n samples, and a share π of them changes sides. The test is one-sided at 5 %, with a power
of 80 %. Where samples share sources, n is searched with the rule that judges them
(``statistics.settles``). Where a metric is not a share of samples, its standard error replaces
√(π / n).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist

from qbench.judging.statistics import (
    ALPHA,
    samples_by_spread,
    samples_needed,
    settles,
    sources_needed,
)
from qbench.metrics import Gathering
from qbench.number_text import counted

FLIPS = 0.02
"""The share of samples that changes sides between fp32 and a good int8 network: measured ones
lie near it.
"""

_Z = NormalDist().inv_cdf(1 - ALPHA) + NormalDist().inv_cdf(0.8)
_NAMED = 2
_BISECTIONS = 40
_NAMED_MARGIN = 0.01
"""The loss for which ``excluded_text`` says how many sources it takes."""


def decidable_drop(n: int, flips: float = FLIPS, found: Gathering | None = None) -> float:
    """The smallest loss (a fraction) that ``n`` samples can tell from chance; ``found`` says how
    they gather in sources.
    """
    if found is None:
        return min(1.0, _Z * math.sqrt(flips / n))
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if settles(flips, 0.0, middle, n, found) else (middle, high)
    return high


def excluded_text(sources: int) -> str:
    """``20 sources exclude no loss under 13.91 pp, and 1 pp takes 299``: the words where no sample
    of any source changed.

    If a share q of all sources changes as a whole, none of G sources is among them with a chance of
    (1 − q)^G.
    """
    least = 1 - ALPHA ** (1 / sources)
    wanted = math.ceil(math.log(ALPHA) / math.log1p(-_NAMED_MARGIN))
    text = (
        f"{counted(sources, 'source')} {'excludes' if sources == 1 else 'exclude'} no loss under "
        f"{100 * least:.2f} pp"
    )
    return text if sources >= wanted else f"{text}, and 1 pp takes {wanted}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPower:
    """One metric of one model on its data.

    Args:
        model, metric: names.
        n: samples.
        sources: of them; None: each its own.
        found: how they gather in sources, as cells showed; None: nothing ran, and each source is
            taken to change as a whole.
        margin: what the metric may lose, a fraction; 0: the first flip counts.
        unit: of the metric.
        error: the standard error of the change of a metric that is no share, a fraction; None: a
            share.
    """

    model: str
    metric: str
    n: int
    margin: float
    sources: int | None = None
    found: Gathering | None = None
    unit: str = "%"
    error: float | None = None

    @property
    def tells(self) -> float:
        """The smallest loss that it tells from chance four times in five, a fraction."""
        if self.error is not None:
            drop = _Z * self.error
        elif self.sources == 1:
            drop = 1.0
        else:
            drop = decidable_drop(self.n, found=self._gathering)
        return min(drop, 1.0) if self.unit == "%" else drop

    @property
    def needed(self) -> int | None:
        """How many samples of such sources would settle the margin; None: no number, or the
        margin is 0.
        """
        if self.error is not None:
            return samples_by_spread(self.error, self.n, self.margin)
        found = self._gathering
        if self.sources is None or found is None:
            return samples_needed(FLIPS, self.margin)
        sources = sources_needed(FLIPS, self.margin, self.n, sources=self.sources, found=found)
        return None if sources is None else sources * self.n // self.sources

    @property
    def _gathering(self) -> Gathering | None:
        """None: each sample has its own source."""
        if self.sources is None or self.sources >= self.n:
            return None
        return self.found or Gathering.whole(self.n, self.sources)

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
        return (
            f"{100 * value:.2f} pp"
            if self.unit == "%"
            else f"{value:.3g}{self.unit and ' '}{self.unit}"
        )


def open_sentence(powers: Iterable[DataPower]) -> str:
    """Which models have too little data for their own margins; empty: none.

    Each is named with the metric that lacks most, those that lack most first.
    """
    every = list(powers)
    models = {one.model for one in every}
    worst: dict[str, DataPower] = {}
    for one in sorted(
        (one for one in every if one.is_open), key=lambda one: one.n / (one.needed or one.n)
    ):
        worst.setdefault(one.model, one)
    if not worst:
        return ""
    named = "; ".join(
        f"{one.model} {one.metric} may lose {one.margin_text}, {one.data_text} tell "
        f"{one.tells_text}, {one.more_text}"
        for one in list(worst.values())[:_NAMED]
    )
    more = f"; and {len(worst) - _NAMED} more" if len(worst) > _NAMED else ""
    which = (
        f"{len(worst)} of {counted(len(models), 'model')} {'has' if len(worst) == 1 else 'have'}"
    )
    return f"{which} too few samples to tell a loss of the tolerance from chance: {named}{more}"
