"""The newest runs of a history, read without the rest: two years of nights are a gigabyte, a report needs a few.

Every file is opened for its first line, which tells suite and start; only the chosen ones are read whole.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from qbench.errors import StoreError
from qbench.tracking import Run, read_run

WINDOW = 120
"""How many of the newest runs of a suite a report looks back on; older ones stay in the history."""


@dataclass(frozen=True, slots=True)
class Recent:
    """``runs``, the earliest first, and in ``problems`` a sentence for each file that could not be read whole."""

    runs: tuple[Run, ...]
    problems: tuple[str, ...]


def recent_runs(folder: Path, window: int = WINDOW) -> Recent:
    """The newest ``window`` runs of each suite under ``folder``; a folder that does not exist holds none."""
    found: dict[str, Run] = {}
    problems: list[str] = []
    for path in _newest(folder, window):
        try:
            run = read_run(path)
        except StoreError as error:
            problems.append(str(error))
            continue
        problems += run.notices
        before = found.get(run.id)
        if before is None or (run.complete, len(run.cells)) > (before.complete, len(before.cells)):
            found[run.id] = run  # the same run copied twice counts once, the fuller copy
    runs = sorted(found.values(), key=lambda run: (str(run.header["started"]), run.id))
    return Recent(tuple(runs), tuple(problems))


def _newest(folder: Path, window: int) -> list[Path]:
    """The files of the newest ``window`` runs of each suite, and those whose first line says nothing."""
    suites: dict[str, dict[tuple[str, str], list[Path]]] = {}
    chosen = []
    for path in sorted(folder.rglob("*.jsonl")):
        head = _head(path)
        if head is None:
            chosen.append(path)  # reading it whole finds the sentence that says what is wrong
        else:
            suite, started, name = head
            suites.setdefault(suite, {}).setdefault((started, name), []).append(path)
    for runs in suites.values():
        for key in sorted(runs)[-window:]:
            chosen += runs[key]
    return sorted(chosen)


def _head(path: Path) -> tuple[str, str, str] | None:
    """Suite, start and id of the run in the file at ``path``, from its first line; None when that is another line."""
    try:
        with path.open("rb") as file:
            line = json.loads(file.readline())
        return (str(line["suite"]), str(line["started"]), str(line["id"])) if line["type"] == "run" else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
