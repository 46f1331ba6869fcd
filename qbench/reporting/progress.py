"""The newest runs of a history, and the time that a run still takes."""

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

from qbench.judging import Cell
from qbench.reporting.columns import READ
from qbench.storage import MOST_RUNS
from qbench.tracking import (
    CellRecord,
    GateRecord,
    History,
    HistoryStore,
    MetricRecord,
    RepeatedLines,
    Run,
)

# The newest runs of a history, without the rest: two years of nightly runs are a gigabyte, a report
# needs few of them.

WINDOW = 120
"""How many of the newest runs of a suite a report shows; older ones stay in the history."""


_MOST_PARTS = 100_000
"""Parts of cells that are remembered while a history is read; about 20 MB."""


@dataclass(frozen=True, slots=True)
class Recent:
    """``runs``, the earliest first; ``problems``: a sentence for each unreadable file and each
    run of the future.
    """

    runs: tuple[Run, ...]
    problems: tuple[str, ...]


def recent_runs(
    place: HistoryStore | Path,
    window: int = WINDOW,
    *,
    now: datetime.datetime | None = None,
    known: Iterable[Run] = (),
) -> Recent:
    """The newest ``window`` runs of each suite in a store or a folder; a folder that does not
    exist holds none.

    The shards of one nightly run are one run.

    Args:
        now: the time by the reader's clock.
        known: runs that this process has just written; both as for ``History``.
    """
    history = History(place, now=now, known=known)
    chosen = {
        night.id
        for suite in {night.suite for night in history.nights()}
        for night in history.nights(suite)[-window:]
    }
    nights = [night for night in history.nights() if night.id in chosen]
    told = {
        night.id
        for suite in {night.suite for night in nights}
        for night in [each for each in nights if each.suite == suite][-MOST_RUNS:]
    }
    # a reader of one run holds no lines: they are as large as its file
    repeated = RepeatedLines(in_order=True) if len(nights) > 1 else None
    runs = tuple(history.each(nights, _Shared(), samples=told, repeated=repeated))
    return Recent(runs, (*history.noticed, *history.clock_notices))


class _Shared:
    """The fields of each cell that a report reads; a value equal to that of the run before is
    in memory once.

    Within a run, cells share texts, digests and counts: the parts of a cell that was not in the run
    before are in memory once, too.
    """

    def __init__(self) -> None:
        self._last: dict[Cell, dict[str, Any]] = {}
        self._parts: dict[object, Any] = {}

    def __call__(self, record: CellRecord) -> CellRecord:
        before = self._last.get(record.cell)
        kept = {name: getattr(record, name) for name in READ}
        if before is None:
            self._share(kept)
        else:
            kept |= {name: before[name] for name, value in kept.items() if before[name] == value}
        self._last[record.cell] = kept
        return CellRecord(**kept)

    def _share(self, fields: dict[str, Any]) -> None:
        """Exchange the parts of ``fields`` for equal ones of other cells."""
        if len(self._parts) > _MOST_PARTS:
            # nearly all were seen once: forgetting them costs less than holding them
            self._parts.clear()
        for name in (
            "suite",
            "model",
            "backend",
            "schema",
            "variant",
            "outcome",
            "environment_class",
            "rule",
        ):
            fields[name] = self._one(fields[name])
        fields["headline"] = self._one(fields["headline"])
        fields["notices"] = self._one(tuple(map(self._one, fields["notices"])))
        fields["gates"] = tuple(map(self._gate, fields["gates"]))
        fields["digests"] = self._table(
            {name: self._one(value) for name, value in fields["digests"].items()}
        )
        fields["changed"] = {
            name: self._one(tuple(map(self._one, ids))) for name, ids in fields["changed"].items()
        }
        fields["changed_count"] = self._table(fields["changed_count"])
        fields["metrics"] = {
            name: self._metric(metric) for name, metric in fields["metrics"].items()
        }

    def _one(self, value: Any) -> Any:  # noqa: ANN401 - a text, or a tuple of texts
        return self._parts.setdefault(value, value)

    def _table(self, table: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._parts.setdefault(("table", *table.items()), table)  # type: ignore[no-any-return]

    def _gate(self, gate: GateRecord) -> GateRecord:
        words = {
            name: self._one(getattr(gate, name))
            for name in ("kind", "metric", "state", "detail", "rule")
        }
        return structs.replace(gate, **words)

    def _metric(self, metric: MetricRecord) -> MetricRecord:
        # numbers with a sign of their own: -0.0 equals 0.0 and is written in another way
        if (
            metric.interval
            or metric.clusters
            or metric.noise
            or metric.mean is not None
            or not metric.hits
        ):
            return metric
        return self._parts.setdefault(metric, metric)  # type: ignore[no-any-return]


# How long a run will still take, from the time that each cell took before and the speed of this
# run.
#
#     left = elapsed · Σ weights of the cells to come / Σ weights of the cells done
#     weight = seconds of the cell's last run
#
# The elapsed time contains the effect of workers, caches and a faster machine. A cell without an
# earlier run has the mean weight of the others. Before the first cell is done, the weights are the
# estimate.

_NEWEST = 3
"""Runs of each suite that are read: the newest may have selected only a part."""


def last_seconds(history: HistoryStore | Path) -> dict[str, float]:
    """``suite::model::backend+schema[+variant]`` → the seconds that the cell took last."""
    found: dict[str, float] = {}
    for run in recent_runs(history, _NEWEST).runs:
        found |= _seconds_of(run)
    return found


def _seconds_of(run: Run) -> dict[str, float]:
    return {
        f"{record.suite}::{record.cell}": sum(record.seconds.values())
        for record in run.cells
        if record.seconds
    }


class Pace:
    """A run of ``cells`` (as ``last_seconds`` names them) that began at ``started`` (seconds of
    a monotonic clock).
    """

    def __init__(
        self, cells: Iterable[str], before: Mapping[str, float], *, started: float
    ) -> None:
        names = list(cells)
        known = [before[name] for name in names if before.get(name)]
        mean = sum(known) / len(known) if known else 0.0
        self._is_known = bool(known)
        self._weights = {name: before.get(name) or mean or 1.0 for name in names}
        self._started = started
        self._rest = sum(self._weights.values())
        self._done = 0.0
        self.total = len(self._weights)
        self.count = 0

    def finish(self, cell: str) -> None:
        """``cell`` is done; a cell that is not in the run, or was done before, changes nothing."""
        weight = self._weights.pop(cell, 0.0)
        if weight:
            self.count += 1
            self._done += weight
            self._rest -= weight

    def left(self, now: float) -> float | None:
        """Seconds still to go at ``now``; None: no estimate yet."""
        if self._done:
            return max(0.0, (now - self._started) * self._rest / self._done)
        return self._rest if self._is_known else None
