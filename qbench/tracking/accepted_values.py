"""What was accepted for a point of a series: the fixed level that a slow slide is measured against.

A trend compares with the past, and a past that slides takes its yardstick along; what people accepted stays.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from qbench.judging import Cell
from qbench.tracking.baseline import Baseline
from qbench.tracking.trend import Point, Series


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedLevel:
    """Accepted hits of one metric, and the samples (their digests) that these were counted on."""

    hits: int
    data: frozenset[str]

    def value_for(self, point: Point) -> float | None:
        """The accepted share where ``point`` was measured on the same samples; None elsewhere."""
        same = set(point.data.split("+")) <= self.data
        return self.hits / point.out_of if same else None


AcceptedLevels = Mapping[tuple[Cell, str, str], AcceptedLevel]
"""(cell, metric, environment class) → what was accepted there."""


def accepted_levels(suite: str, baselines: Iterable[Baseline]) -> dict[tuple[Cell, str, str], AcceptedLevel]:
    """What ``baselines`` of ``suite`` hold, by cell, metric and class."""
    found = {}
    for baseline in baselines:
        data = frozenset(stored.digest for stored in baseline.data.values())
        for slug, known in baseline.cells.items():
            backend, schema, *variant = slug.split("+")
            cell = Cell(suite, baseline.model, backend, schema, *variant)
            for environment_class, accepted in known.current.items():
                for metric, hits in accepted.metrics.items():
                    found[cell, metric, environment_class] = AcceptedLevel(hits=hits, data=data)
    return found


def accepted_value(series: Series, levels: AcceptedLevels) -> float | None:
    """The accepted share of the last point of ``series``; None where nothing was accepted for it."""
    known = levels.get((series.cell, series.metric, series.environment_class))
    return None if known is None or not series.points else known.value_for(series.points[-1])
