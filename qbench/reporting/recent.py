"""The newest runs of a history, read without the rest: two years of nights are a gigabyte, a report needs a few."""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench.judging import Cell
from qbench.reporting.past import READ
from qbench.tracking import History, Run, cell_of_line

WINDOW = 120
"""How many of the newest runs of a suite a report looks back on; older ones stay in the history."""


@dataclass(frozen=True, slots=True)
class Recent:
    """``runs``, the earliest first, and in ``problems`` a sentence for each file that could not be read whole.

    A run that is stamped in the future is among the problems, too.
    """

    runs: tuple[Run, ...]
    problems: tuple[str, ...]


def recent_runs(folder: Path, window: int = WINDOW, *, now: datetime.datetime | None = None) -> Recent:
    """The newest ``window`` runs of each suite under ``folder``; a folder that does not exist holds none.

    The shards of one night are one run.

    Args:
        now: the time by the reader's clock, as of ``History``.
    """
    history = History(folder, now=now)
    chosen = {
        night.id for suite in {night.suite for night in history.nights()} for night in history.nights(suite)[-window:]
    }
    nights = [night for night in history.nights() if night.id in chosen]
    runs = tuple(history.each(nights, _Shared()))
    return Recent(runs, (*history.noticed, *history.clock_notices))


class _Shared:
    """What a report reads of each cell line; what repeats the line of the run before is in memory once."""

    def __init__(self) -> None:
        self._last: dict[Cell, Mapping[str, Any]] = {}

    def __call__(self, line: Mapping[str, Any]) -> Mapping[str, Any]:
        cell = cell_of_line(line)
        before = self._last.get(cell, {})
        kept = {key: line[key] for key in READ if key in line}
        kept |= {key: before[key] for key, value in kept.items() if key in before and before[key] == value}
        self._last[cell] = kept
        return kept
