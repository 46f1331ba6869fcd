"""What a report knows beside the runs: what people accepted, which series got worse, and what was said of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from qbench.reporting.view import CellKey, CellView, MetricView
from qbench.tracking import (
    AcceptedLevel,
    AcceptedLevels,
    Annotation,
    Regression,
    Run,
    find_alerts,
    group_alerts,
    main_line,
    trend_series,
)

AcceptedHits = Mapping[tuple[CellKey, str, str], AcceptedLevel]
"""(cell, metric, environment class) → what was accepted there, in one suite."""


@dataclass(frozen=True, slots=True)
class Memory:
    """``accepted`` is what the baselines hold, ``regressions`` what got worse in each suite."""

    accepted: AcceptedLevels = field(default_factory=dict)
    regressions: Mapping[str, tuple[Regression, ...]] = field(default_factory=dict)

    def accepted_in(self, suite: str) -> AcceptedHits:
        """What was accepted in ``suite``, by the keys of a report."""
        return {
            (CellKey(cell.model, cell.backend, cell.schema, cell.variant), metric, environment): level
            for (cell, metric, environment), level in self.accepted.items()
            if cell.suite == suite
        }


NOTHING = Memory()


def remember(
    runs: Sequence[Run],
    *,
    accepted: AcceptedLevels,
    annotations: Sequence[Annotation] = (),
    commits: Sequence[str] | None = None,
) -> Memory:
    """The memory beside ``runs``, oldest → newest.

    Args:
        commits: the main line of the project under test, the earliest first; None: as the runs have it.
    """
    line = main_line(runs, ()) if commits is None else tuple(commits)
    alerts = find_alerts(trend_series(runs, commits=line), commits=line, accepted=accepted, annotations=annotations)
    suites = dict.fromkeys(alert.cell.suite for alert in alerts)
    return Memory(
        accepted=accepted,
        regressions={suite: group_alerts([a for a in alerts if a.cell.suite == suite], line) for suite in suites},
    )


def accepted_share(cell: CellView, metric: MetricView, accepted: AcceptedHits) -> float | None:
    """What was accepted for ``metric`` of ``cell`` where it was last measured; None on other samples."""
    known = accepted.get((cell.key, metric.name, cell.environment_class))
    if known is None or not set(cell.data.split("+")) <= known.data:
        return None
    return known.hits / metric.out_of
