"""What was accepted for a point of a series: the fixed level that a slow slide is measured against.

A trend compares with the past, and a past that slides takes its yardstick along; what people accepted stays.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from qbench.judging import Cell, EnvironmentClass, inherited
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


def accepted_levels(
    suite: str,
    baselines: Iterable[Baseline],
    *,
    classes: Iterable[str] = (),
    equivalents: Iterable[tuple[str, ...]] = (),
) -> dict[tuple[Cell, str, str], AcceptedLevel]:
    """What ``baselines`` of ``suite`` hold, by cell, metric and class.

    Args:
        classes: further ones to look for: drift compares a result with one of a class that the suite declares
            equivalent, or accepted for ``any``, and so do trends. equivalents: as in ``Rules``.
    """
    groups, asked = tuple(equivalents), frozenset(classes)
    found = {}
    for baseline in baselines:
        data = frozenset(stored.digest for stored in baseline.data.values())
        for slug, known in baseline.cells.items():
            backend, schema, *variant = slug.split("+")
            cell = Cell(suite, baseline.model, backend, schema, *variant)
            for name in asked.union(known.accepted):
                of = inherited(known.accepted, EnvironmentClass.parse(name), groups)
                for metric, hits in known.accepted[of].metrics.items() if of else ():
                    found[cell, metric, name] = AcceptedLevel(hits=hits, data=data)
    return found


def accepted_value(series: Series, levels: AcceptedLevels) -> float | None:
    """The accepted share of the last point of ``series``; None where nothing was accepted for it."""
    known = levels.get((series.cell, series.metric, series.environment_class))
    return None if known is None or not series.points else known.value_for(series.points[-1])
