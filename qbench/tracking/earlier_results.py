"""The earlier results of single cells that have a key, read once from a history.

Of each run only the lines of the wanted models are decoded, and of these only what decides whether
they are carried: the newest result with each key is kept, as the line that it is.
"""

import datetime
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from qbench.errors import StoreError
from qbench.judging import Cell, Outcome
from qbench.tracking.cell_key import Carried, CellKey
from qbench.tracking.record import (
    CellRecord,
    known_record,
    lacking_lines,
    record_of_line,
    release_of,
)
from qbench.tracking.run_lines import LINE_ERRORS, decoded_line, is_header
from qbench.tracking.store import HistoryStore, store_of


class _Line(Struct, frozen=True):
    """What of a ``cell`` line decides whether it is carried."""

    model: str
    backend: str
    schema: str
    variant: str = ""
    outcome: str = ""
    excused: str = ""
    digests: dict[str, str] = {}
    key: CellKey | None = None
    resumed_from: str = ""


_GREEN = frozenset(outcome.value for outcome in Outcome if not outcome.is_red)

_decoder = msgspec.json.Decoder(_Line)

_CELL = b'{"type":"cell",'
_CARRIED = b'"carried":{'
_MODEL = b'"model":"'
_END = b'{"type":"end"'

ANSWERS = ("predictions", "part")
"""The kinds of digests that a measurement has of its answers, whole or stopped early."""


def answer_digests(digests: Mapping[str, str]) -> dict[str, str]:
    """Of the ``digests`` of a result those of its answers: what must be equal bit for bit."""
    return {key: one for key, one in digests.items() if key.partition(":")[0] in ANSWERS}


@dataclass(slots=True)
class EarlierResult:
    """The newest result of a cell with one key.

    Args:
        key: what it depends on.
        outcome: of its record.
        answers: the digests of its answers.
        line: of its run file.
        source: the run that measured it.
        why_not: why it is not carried, whatever the key; empty: it can be.
    """

    key: CellKey
    outcome: str
    answers: dict[str, str]
    line: bytes
    source: Carried
    why_not: str = ""

    def record(self) -> CellRecord:
        """Its record, as it was measured."""
        return known_record(self.line) or record_of_line(decoded_line(self.line))


class _RunLines(NamedTuple):
    """The wanted lines of one run."""

    source: Carried
    why_not: str
    lines: list[bytes]


@dataclass
class EarlierResults:
    """The results of some models of one suite in a history, newest first.

    Args:
        problems: a sentence for each run that could not be read.
    """

    problems: tuple[str, ...] = ()
    _runs: dict[str, Carried] = field(default_factory=dict)
    """Id of a run of that time → what points to it."""
    _found: dict[tuple[str, str, str, str], list[EarlierResult]] = field(default_factory=dict)

    def of(self, cell: Cell) -> list[EarlierResult]:
        """Those of ``cell``, the newest first, one for each key."""
        return self._found.get((cell.model, cell.backend, cell.schema, cell.variant), [])

    def __len__(self) -> int:
        return len(self._found)

    @classmethod
    def read(
        cls,
        place: HistoryStore | Path,
        suite: str,
        models: Collection[str],
        *,
        now: datetime.datetime,
        age: datetime.timedelta,
    ) -> "EarlierResults":
        """What runs that began at most ``age`` before ``now`` measured of ``models``.

        Raises:
            StoreError: the store cannot be read at all.
        """
        store, wanted = store_of(place), {one.encode() for one in models}
        runs, problems = [], []
        try:
            names = list(store.runs())
        except OSError as error:
            raise StoreError(
                "Reading a history for results to carry",
                found=f"{type(error).__name__}: {error}",
                expected="a folder or a store of run files that can be read",
                remedy="Make it readable, or name another one with --qbench-history.",
            ) from error
        for name in names:
            try:
                run = _wanted_lines(store.read(name), suite, wanted, now - age, now)
            except StoreError as error:
                problems.append(str(error))
                continue
            if run is not None:
                runs.append(run)
        found = cls(tuple(problems), {run.source.run: run.source for run in runs})
        for run in sorted(runs, key=lambda one: one.source.measured, reverse=True):
            for line in reversed(run.lines):  # of a cell that was run twice the later line counts
                found._add(run, line)
        return found

    def _add(self, run: _RunLines, text: bytes) -> None:
        try:
            line = _decoder.decode(text)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return
        if line.key is None or not line.key.parts:
            self._add_unkeyed(line, text, run)
            return
        # what a resumed run took over was measured when the unfinished one began
        source = self._runs.get(line.resumed_from or run.source.run)
        if source is None:
            return
        results = self._found.setdefault((line.model, line.backend, line.schema, line.variant), [])
        answers = answer_digests(line.digests)
        newer = next((one for one in results if one.key.equals(line.key)), None)
        if newer is not None:
            if newer.answers and answers and newer.answers != answers:
                newer.why_not = (
                    "measured twice with one key, it gave two answers: the key lacks something, or "
                    "the engine does not repeat itself"
                )
            return
        why_not = run.why_not
        if line.outcome != Outcome.PASSED.value or line.excused:
            why_not = f"its last result with this key is '{line.outcome}', not 'passed'"
        elif why_not:  # an older result may be of a whole run
            return
        results.append(EarlierResult(line.key, line.outcome, answers, text, source, why_not))

    def _add_unkeyed(self, line: _Line, text: bytes, run: _RunLines) -> None:
        """A red result without a key may be one with any key, such as that of a process that died:
        no older one is carried.
        """
        if line.outcome in _GREEN:
            return
        why = f"its result in run {run.source.run} is '{line.outcome}', and has no key"
        axes = (line.model, line.backend, line.schema, line.variant)
        self._found.setdefault(axes, []).append(
            EarlierResult(CellKey(), line.outcome, {}, text, run.source, why)
        )


def _wanted_lines(
    lines: Iterator[bytes],
    suite: str,
    models: Collection[bytes],
    oldest: datetime.datetime,
    newest: datetime.datetime,
) -> _RunLines | None:
    """The measured cells of ``models`` in a run of ``suite`` that began between ``oldest`` and
    ``newest``; None: it is another run.
    """
    header = _header(next(lines, b""))
    if header is None or header["suite"] != suite:
        return None
    started = _moment(header["started"])
    if started is None or not oldest <= started <= newest:
        return None
    kept, cells, ended = [], set[bytes](), False
    for line in lines:
        if line.startswith(_CELL):
            cells.add(line.partition(b'"outcome"')[0])
            if _CARRIED not in line and _model_of(line) in models:
                kept.append(line)
        elif line.startswith(_END):
            ended = True
    whole = ended and not lacking_lines(header, len(cells))
    commit = header.get("commit")
    commit = commit if isinstance(commit, Mapping) else {}
    why = "" if whole else "its run is not whole"
    if commit.get("dirty"):
        why = "its run had changes that were not committed"
    if release_of(header)[0]:
        why = "its run measured another release"
    source = Carried(
        run=str(header["id"]),
        measured=started.isoformat(timespec="milliseconds"),
        commit=str(commit.get("sha") or ""),
    )
    return _RunLines(source, why, kept)


def _header(text: bytes) -> Mapping[str, Any] | None:
    try:
        line = decoded_line(text)
        return line if is_header(line) else None
    except LINE_ERRORS:
        return None


def _moment(text: str) -> datetime.datetime | None:
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.astimezone(datetime.UTC) if found.tzinfo is not None else None


def _model_of(line: bytes) -> bytes:
    return line.partition(_MODEL)[2].partition(b'"')[0]
