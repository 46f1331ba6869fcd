"""What a report knows beside the runs: what people accepted, which series got worse, and what was said of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from qbench.judging import Cell
from qbench.reporting.view import CellKey, CellView, MetricView
from qbench.tracking import (
    AcceptedLevel,
    AcceptedLevels,
    Annotation,
    Regression,
    Run,
    accepted_levels,
    baseline_path,
    cell_of_line,
    find_alerts,
    find_baseline,
    group_alerts,
    load_annotations,
    main_line,
    metrics_of_line,
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
    series = trend_series(_moving(runs, accepted), commits=line)
    alerts = find_alerts(series, commits=line, accepted=accepted, annotations=annotations)
    suites = dict.fromkeys(alert.cell.suite for alert in alerts)
    return Memory(
        accepted=accepted,
        regressions={suite: group_alerts([a for a in alerts if a.cell.suite == suite], line) for suite in suites},
    )


def read_memory(
    runs: Sequence[Run],
    baselines: Path,
    annotations: Path,
    *,
    parents: Sequence[str] = (),
    equivalents: Mapping[str, Sequence[tuple[str, ...]]] = MappingProxyType({}),
) -> Memory:
    """The memory beside ``runs`` that the folder of ``baselines`` and the file of ``annotations`` hold.

    Args:
        parents: the commits of the project's own line, as its repository has them; none: as the runs have it.
        equivalents: suite → its groups of classes whose results are comparable, as in ``Rules``.

    Raises:
        StoreError: a baseline or the annotations cannot be read.
    """
    accepted: dict[tuple[Cell, str, str], AcceptedLevel] = {}
    classes = {str(line.get("environment_class", "")) for run in runs for line in run.cells} - {""}
    for suite, model in sorted({(run.suite, str(line["model"])) for run in runs for line in run.cells}):
        path = baseline_path(baselines, suite, model)
        stored, groups = find_baseline(path), equivalents.get(suite, ())
        if stored is not None:
            accepted.update(accepted_levels(suite, [stored], classes=classes, equivalents=groups))
    notes = load_annotations(annotations)
    return remember(runs, accepted=accepted, annotations=notes, commits=main_line(runs, parents))


def accepted_share(cell: CellView, metric: MetricView, accepted: AcceptedHits) -> float | None:
    """What was accepted for ``metric`` of ``cell`` where it was last measured; None on other samples."""
    known = accepted.get((cell.key, metric.name, cell.environment_class))
    if known is None or not set(cell.data.split("+")) <= known.data:
        return None
    return known.hits / metric.out_of


def _moving(runs: Sequence[Run], accepted: AcceptedLevels) -> list[Run]:
    """``runs`` with only those metrics that can raise an alert: they moved, or something else was accepted for them.

    Nine series in ten never move; a series that stands still has one level, hence no step, and where that is the
    accepted one, no slide.
    """
    before: dict[Cell, Mapping[str, Any]] = {}
    moving: dict[Cell, set[str]] = {}
    compared: set[tuple[Cell, str]] = set()
    lines = [[(cell_of_line(line), line) for line in run.cells] for run in runs]
    for of_run in lines:
        for cell, line in of_run:
            metrics, environment = metrics_of_line(line), str(line.get("environment_class", ""))
            if (cell, environment) not in compared:
                compared.add((cell, environment))
                moving.setdefault(cell, set()).update(_off(cell, environment, metrics, accepted))
            known = before.setdefault(cell, metrics)
            if metrics != known:
                moved = {name for name, counts in metrics.items() if counts != known.get(name, counts)}
                moving.setdefault(cell, set()).update(moved)
                before[cell] = {**known, **metrics}
    return [
        replace(run, cells=tuple(_thinned(line, moving[cell]) for cell, line in of_run if moving[cell]))
        for run, of_run in zip(runs, lines, strict=True)
    ]


def _off(cell: Cell, environment: str, metrics: Mapping[str, Any], accepted: AcceptedLevels) -> Iterator[str]:
    """The metrics of ``cell`` that are not what was accepted for them."""
    for metric, counts in metrics.items():
        level = accepted.get((cell, metric, environment))
        if level is not None and counts.get("hits") != level.hits:
            yield metric


def _thinned(line: Mapping[str, Any], metrics: set[str]) -> Mapping[str, Any]:
    """What ``trend_series`` reads of ``line``, with these ``metrics`` alone."""
    kept = {name: counts for name, counts in metrics_of_line(line).items() if name in metrics}
    return {**{key: line[key] for key in _READ if key in line}, "metrics": kept}


_READ = ("suite", "model", "backend", "schema", "variant", "environment_class", "digests")
