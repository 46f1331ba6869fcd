"""How long each cell of a suite is expected to take.

known        the median of its last runs, on the wanted class of processor
by its model macs of the model · samples · median seconds for each of them on its backend
otherwise    the median of all known ones, or one second where nothing is known
"""

import enum
import math
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median

from qbench.judging import Cell, Outcome
from qbench.suite.suite_file import ModelTable
from qbench.tracking import CellRecord, History

_RUNS = 3
"""The runs of a cell whose median counts."""
_NIGHTS = 6
"""At most so many nights of a suite are read: the last may have measured only a part of it."""
_UNKNOWN_S = 1.0
_MOST_S = 366 * 24 * 3600.0
"""Of a cell; a file that says more, or less than 0, is damaged there."""


class Source(enum.StrEnum):
    """What the expected time of a cell comes from."""

    HISTORY = "history"
    MACS = "macs"
    MEDIAN = "median"


@dataclass(slots=True)
class Durations:
    """Seconds of cells, from the runs that were added.

    Args:
        processor: only runs on this class of processor say how long a cell takes; None: all do.
    """

    processor: str | None = None
    _runs: dict[tuple[str, str], dict[str, list[float]]] = field(default_factory=dict)
    _carried: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    """As ``_runs``, of cells that no run of these nights has measured."""
    _work: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """(suite, model) → multiply-accumulates of one sample, and samples."""
    _rates: dict[str, float] = field(default_factory=dict)
    """Backend → median seconds of a multiply-accumulate; of ``""`` on any backend."""
    _usual: float = _UNKNOWN_S

    def add(self, record: CellRecord) -> None:
        """Take a cell of a run; the newest runs come first."""
        key = record.suite, record.model
        if record.macs and record.n:
            self._work.setdefault(key, (record.macs, record.n))
        processor = record.environment_class.partition("+")[0]
        if self.processor and processor not in ("", self.processor):
            return
        is_idle = record.outcome == Outcome.UNSUPPORTED.value and not record.unfetched
        seconds = _seconds_of(record)
        if seconds is None or not (record.is_carried or record.seconds or is_idle):
            return
        slug = sys.intern(record.cell.slug)  # one for all models
        if record.is_carried:  # a copy of one that may be older than the nights that are read
            self._carried.setdefault(key, {}).setdefault(slug, seconds)
            return
        times = self._runs.setdefault(key, {}).setdefault(slug, [])
        if len(times) < _RUNS:
            times.append(seconds)

    def is_filled(self, cells: object) -> bool:
        """Whether as many as ``cells`` have as many runs as are counted."""
        full = (
            sum(len(times) == _RUNS for times in by_slug.values())
            for by_slug in self._runs.values()
        )
        return isinstance(cells, int) and sum(full) >= cells

    def settle(self) -> None:
        """Compute from the known cells what unknown ones are estimated by."""
        rates: defaultdict[str, list[float]] = defaultdict(list)
        every = []
        for key, by_slug in self._runs.items():
            macs, samples = self._work.get(key, (0, 0))
            for slug, times in by_slug.items():
                every.append(median(times))
                if macs and every[-1]:
                    rates[slug.partition("+")[0]].append(every[-1] / (macs * samples))
        self._rates = {backend: median(found) for backend, found in rates.items()}
        if self._rates:
            self._rates[""] = median(rate for found in rates.values() for rate in found)
        self._usual = median(every) if any(every) else _UNKNOWN_S

    def of(self, cell: Cell, model: ModelTable) -> tuple[float, Source]:
        """The seconds that ``cell`` is expected to take, and where they come from."""
        key = cell.suite, cell.model
        if times := self._runs.get(key, {}).get(cell.slug):
            return median(times), Source.HISTORY
        if seconds := self._carried.get(key, {}).get(cell.slug):
            return seconds, Source.HISTORY
        macs, samples = self._work.get(key, (0, 0))
        rate = self._rates.get(cell.backend, self._rates.get("", 0.0))
        if macs and rate:
            return rate * macs * (model.samples or samples), Source.MACS
        return self._usual, Source.MEDIAN


def _seconds_of(record: CellRecord) -> float | None:
    """How long a cell took; None: no cell takes what its record says."""
    parts = record.seconds.values()
    if not all(0 <= part <= _MOST_S for part in parts):
        return None
    seconds = math.fsum(parts)
    return seconds if seconds <= _MOST_S else None


def read_durations(history: History | None, suite: str, processor: str | None) -> Durations:
    """The durations of the cells of ``suite`` in ``history``; None: it does not exist."""
    found = Durations(processor)

    def take(record: CellRecord) -> None:
        """Keep nothing of the record: a night of a large suite has half a million."""
        found.add(record)

    nights = () if history is None else tuple(reversed(history.nights(suite)[-_NIGHTS:]))
    for night in nights if history is None else history.each(nights, take):
        if found.is_filled(night.header.get("planned")):
            break
    found.settle()
    return found
