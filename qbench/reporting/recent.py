"""The newest runs of a history, read without the rest: two years of nights are a gigabyte, a report needs a few.

Every file is opened for its first line, which tells suite and start; only the chosen ones are read whole.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench.errors import StoreError
from qbench.tracking import Run, joined_shards, read_run, shard_groups

WINDOW = 120
"""How many of the newest runs of a suite a report looks back on; older ones stay in the history."""


@dataclass(frozen=True, slots=True)
class Recent:
    """``runs``, the earliest first, and in ``problems`` a sentence for each file that could not be read whole."""

    runs: tuple[Run, ...]
    problems: tuple[str, ...]


def recent_runs(folder: Path, window: int = WINDOW) -> Recent:
    """The newest ``window`` runs of each suite under ``folder``; a folder that does not exist holds none.

    The shards of one night are one run.
    """
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
    return Recent(joined_shards(runs), tuple(problems))


def _newest(folder: Path, window: int) -> list[Path]:
    """The files of the newest ``window`` runs of each suite, and those whose first line says nothing."""
    suites: dict[str, dict[tuple[str, str], list[tuple[Path, Mapping[str, Any]]]]] = {}
    chosen = []
    for path in sorted(folder.rglob("*.jsonl")):
        head = _head(path)
        if head is None:
            chosen.append(path)  # reading it whole finds the sentence that says what is wrong
        else:
            copies = suites.setdefault(str(head["suite"]), {})
            copies.setdefault((str(head["started"]), str(head["id"])), []).append((path, head))
    for runs in suites.values():
        copies_of = [runs[key] for key in sorted(runs)]
        for group in shard_groups([copies[0][1] for copies in copies_of])[-window:]:
            chosen += [path for place in group for path, _ in copies_of[place]]
    return sorted(chosen)


def _head(path: Path) -> Mapping[str, Any] | None:
    """The ``run`` line that the file at ``path`` begins with; None when its first line is another one."""
    try:
        with path.open("rb") as file:
            line = json.loads(file.readline())
        is_named = line["type"] == "run" and all(key in line for key in ("suite", "started", "id"))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return line if is_named else None
