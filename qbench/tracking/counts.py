"""What a ``cell`` line counts: its metrics in whole numbers, and the samples they were counted on.

    value = hits / out_of

A line may come from another machine or a newer qbench: what makes no sense here is passed over, never an error.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

_LIMIT = 2**63
"""What a database's integer can hold."""

_COUNTS = operator.itemgetter("hits", "out_of", "reference_hits", "losses", "gains", "n")


class Nature(NamedTuple):
    """What a metric's numbers are, in the words of the line, which a newer qbench may choose otherwise."""

    direction: str = ""
    unit: str = "%"
    against: str = ""
    proportion: bool = True

    @property
    def lower_is_better(self) -> bool:
        """Whether it counts errors, or how far something is away."""
        return self.direction == "lower"

    @property
    def is_distance(self) -> bool:
        """Whether it says how far from fp32 the answers are: no score that could be lost."""
        return self.against == "reference" and (self.lower_is_better or not self.proportion)


class Counts(NamedTuple):
    """One metric of one measured cell; a tuple, because a history holds millions."""

    metric: str
    hits: int
    out_of: int
    reference_hits: int
    losses: int
    gains: int
    n: int
    nature: Nature

    @property
    def value(self) -> float:
        """The score, a fraction."""
        return self.hits / self.out_of

    @property
    def reference_value(self) -> float:
        """The score of fp32, a fraction."""
        return self.reference_hits / self.out_of


def metrics_of_line(line: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Metric → what a ``cell`` line says of it, in its order; nothing when it was not measured."""
    metrics = line.get("metrics")
    if not isinstance(metrics, dict):
        return {}
    return {metric: table for metric, table in metrics.items() if isinstance(table, dict)}


def counts_of_line(line: Mapping[str, Any]) -> Iterator[Counts]:
    """The metrics of a ``cell`` line that are counted, in its order; none when it was not measured."""
    for metric, table in metrics_of_line(line).items():
        try:
            counts = hits, out_of, reference, losses, gains, n = _COUNTS(table)
        except KeyError:
            continue
        whole = type(hits) is type(out_of) is type(reference) is type(losses) is type(gains) is type(n) is int
        if not whole or min(out_of, losses, gains, n) < 0 or not out_of or max(map(abs, counts)) >= _LIMIT:
            continue
        nature = _nature_of(table.get)
        if min(hits, reference) >= 0 or not nature.proportion:  # noise louder than the signal: below 0 dB
            yield Counts(metric, hits, out_of, reference, losses, gains, n, nature)


def nature_of(table: Mapping[str, Any]) -> Nature:
    """What the numbers of a metric's ``table`` are; it may lack any word."""
    return _nature_of(table.get)


def _nature_of(get: Callable[[str, object], object]) -> Nature:
    words = str(get("direction", "")), str(get("unit", "%")), str(get("against", ""))
    return Nature(*words, get("proportion", None) is not False)


def data_digests(line: Mapping[str, Any]) -> dict[str, str]:
    """Data set → digest of the samples and labels that the cell was measured on, sorted by name."""
    digests = line.get("digests")
    if not isinstance(digests, dict):
        return {}
    return {key[5:]: str(digests[key]) for key in sorted(digests) if key.startswith("data:")}


def integer_share(line: Mapping[str, Any]) -> float:
    """The planned share of multiply-accumulates on integers; 0 when the line tells none."""
    share = line.get("integer_macs")
    return float(share) if isinstance(share, float | int) and not isinstance(share, bool) and 0 <= share <= 1 else 0.0
