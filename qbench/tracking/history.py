"""Run files read back: what can be read is kept, what cannot is counted and named, nothing is ever rewritten.

A history is a folder of run files at any depth; merging two histories is copying files.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from qbench.errors import StoreError
from qbench.tracking.runs import FORMAT, Run, cell_of_line

_FAMILY = FORMAT.partition("/")[0] + "/"


def read_run(path: Path) -> Run:
    """The run in the file at ``path``; a file cut short or with damaged lines gives what is left of it.

    Raises:
        StoreError: the file cannot be read, or has no ``run`` line, so that nobody knows what it is.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error.strerror or str(error)) from error
    return parse_run(data, path)


def parse_run(data: bytes, path: Path) -> Run:
    """The run in the bytes of a file; ``path`` is for messages.

    Raises:
        StoreError: it has no ``run`` line.
    """
    reading = _Reading()
    for line in data.split(b"\n"):
        if line.strip():
            reading.take(line)
    if not {"id", "suite", "started"} <= reading.header.keys():
        raise unreadable(path, f"no 'run' line that tells its id, suite and start ({_damaged(reading)})")
    return Run(
        header=reading.header,
        environment=reading.environment,
        cells=tuple(reading.cells),
        findings=tuple(reading.findings),
        notes=tuple(reading.notes),
        complete=reading.complete,
        damaged=reading.damaged,
        notices=tuple(_notices(path, reading)),
        path=str(path),
    )


@dataclass(frozen=True)
class History:
    """The runs under ``folder``, read once, on first use. A folder that does not exist holds none."""

    folder: Path

    def runs(self, suite: str | None = None) -> tuple[Run, ...]:
        """Every readable run (of ``suite``), the earliest first."""
        return tuple(run for run in self._read[0] if suite is None or run.suite == suite)

    def latest(self, suite: str | None = None) -> Run | None:
        """The last run (of ``suite``) that was started, complete or not."""
        runs = self.runs(suite)
        return runs[-1] if runs else None

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence for each file that could not be read, or not whole."""
        return self._read[1]

    @cached_property
    def _read(self) -> tuple[tuple[Run, ...], tuple[str, ...]]:
        found: dict[str, Run] = {}
        problems: list[str] = []
        for path in sorted(self.folder.rglob("*.jsonl")):
            try:
                run = read_run(path)
            except StoreError as error:
                problems.append(str(error))
                continue
            problems += run.notices
            before = found.setdefault(run.id, run)
            if before is run:
                continue
            fuller, other = (run, before) if fullness(run) > fullness(before) else (before, run)
            found[run.id] = fuller  # the same run copied twice counts once, the fuller copy
            problems += disagreement(other, fuller)
        return tuple(sorted(found.values(), key=lambda run: (str(run.header["started"]), run.id))), tuple(problems)


def fullness(run: Run) -> tuple[bool, int]:
    """What decides between two copies of one run: the greater is the fuller."""
    return run.complete, len(run.cells)


def disagreement(other: Run, fuller: Run) -> list[str]:
    """A sentence where a copy of the run ``fuller`` is neither its beginning nor torn; else none."""
    rest = iter(fuller.cells)
    torn = other.damaged > 0 and all(cell in rest for cell in other.cells)  # each behind the one before it
    if other.header == fuller.header and (torn or other.cells == fuller.cells[: len(other.cells)]):
        return []
    return [f"'{other.path}' tells of run '{fuller.id}' otherwise than '{fuller.path}', which counts."]


@dataclass(slots=True)
class _Reading:
    """What the lines read so far amount to."""

    header: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    cells: list[Mapping[str, Any]] = field(default_factory=list)
    findings: list[Mapping[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    complete: bool = False
    damaged: int = 0

    def take(self, text: bytes) -> None:
        """Add one line; of a type nobody here knows, nothing."""
        try:
            line = _DECODER.decode(text.decode("utf-8-sig"))
            kind = line["type"]
            if kind in ("cell", "finding"):
                cell_of_line(line)
        except (ValueError, KeyError, TypeError, RecursionError):
            self.damaged += 1
            return
        if kind == "run" and not self.header:
            self.header = line
        elif kind == "environment":
            self.environment = line
        elif kind == "cell":
            self.cells.append(line)
        elif kind == "finding":
            self.findings.append(line)
        elif kind == "note":
            self.notes.append(str(line.get("text", "")))
        elif kind == "end":
            self.complete = True


def _notices(path: Path, reading: _Reading) -> Iterator[str]:
    written = str(reading.header.get("format", "no format"))
    if written != FORMAT:
        newer = "a newer qbench" if written.startswith(_FAMILY) else "something else"
        yield f"'{path}' was written by {newer} ({written}, not {FORMAT}): what is known here was read."
    if reading.damaged:
        cells = f"{len(reading.cells)} cell{' is' if len(reading.cells) == 1 else 's are'}"
        yield f"'{path}' has {_damaged(reading)}; the other {cells} kept."


def _damaged(reading: _Reading) -> str:
    return f"{reading.damaged} line{'' if reading.damaged == 1 else 's'} that cannot be read"


def _refuse_constant(name: str) -> float:
    """JSON has no NaN: a line that holds one was not written by us."""
    raise ValueError(f"{name} ({math.nan}-like) in a record")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def unreadable(path: Path, found: str) -> StoreError:
    """The error of a file that cannot be read as a run."""
    return StoreError(
        f"Reading the run file '{path}'",
        found=found,
        expected=f"lines of JSON that begin with a 'run' line ({FORMAT})",
        remedy="Move the file out of the history, or copy it again from where it came.",
    )
