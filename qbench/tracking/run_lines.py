"""The lines of one run file as they are read: what they hold, and how many are damaged."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from qbench.tracking.record import (
    FORMAT,
    CellRecord,
    cell_of_line,
    class_of_releases,
    is_started_line,
    known_record,
    lacking_lines,
    record_of_line,
    release_of,
)
from qbench.tracking.repeated_lines import Followed, RepeatedLines
from qbench.tracking.sample_lines import SAMPLES_START

_FAMILY = FORMAT.partition("/")[0] + "/"

Keep = Callable[[CellRecord], CellRecord | None]
"""What a reader keeps of a cell; None: nothing."""


@dataclass(slots=True)
class RunReading:
    """What the lines read so far hold; ``count``: how many cells, whatever is kept of them."""

    keep: Keep | None = None
    repeated: RepeatedLines | None = None
    with_samples: bool = False
    header: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    cells: list[CellRecord] = field(default_factory=list)
    findings: list[Mapping[str, Any]] = field(default_factory=list)
    samples: list[bytes] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ended: bool = False
    damaged: int = 0
    count: int = 0
    package: str = ""
    measured: set[tuple[str, str, str, str]] = field(default_factory=set)

    @property
    def complete(self) -> bool:
        """Whether the run is whole, by the lines read so far."""
        return self.ended and not lacking_lines(self.header, len(self.measured))

    def take_lines(self, block: bytes) -> None:
        """Add several lines: those that repeat the lines of an earlier run without cutting them
        out.
        """
        start, stop = 0, len(block)
        while start < stop:
            start = self._took_repeats(block, start)
            end = block.find(b"\n", start) + 1 or stop
            if start < end:
                self.take(block[start:end])
            start = end

    def _took_repeats(self, block: bytes, start: int) -> int:
        """Take the lines from ``start`` on that repeat those of an earlier run; where the next one
        begins.
        """
        if self.repeated is None or self.package:  # the class of a release is merged
            return start
        found = self.repeated.follow(block, start)
        if found is None:
            return start
        self._take_followed(found)
        return found.stop

    def _take_followed(self, found: Followed) -> None:
        """Take what repeats lines of an earlier run."""
        self.count += len(found.cells)
        self.cells += found.cells
        self.measured.update(found.measured)
        self.samples += found.samples if self.with_samples else []

    def take(self, text: bytes) -> None:
        """Add one line; of a type that this qbench does not know, nothing."""
        try:
            if self._took_other(text) or self._took_known(text) or text.isspace():
                return
            line = decoded_line(text)
            kind = line["type"]
            if kind in ("cell", "finding"):
                cell_of_line(line)
            if kind == "cell":
                _check_tables(line)
            if kind == "run" and not self.header and not is_header(line):
                raise ValueError("a run line without id, suite and start")
        except LINE_ERRORS:
            self.damaged += 1
            return
        self._take_line(kind, line)

    def _take_line(self, kind: str, line: dict[str, Any]) -> None:
        """Add what the table of one line says."""
        if kind == "run" and not self.header:
            self.header = line
            self.package = release_of(line)[0]
        elif kind == "environment":
            self.environment = line
        elif kind == "cell":
            self._take_cell(record_of_line(line))
        elif kind == "finding":
            self.findings.append(line)
        elif kind == "note":
            self.notes.append(str(line.get("text", "")))
        elif kind == "end":
            self.ended = True

    def _took_other(self, text: bytes) -> bool:
        """Take a line between those of cells, which no reader needs, or as it is; whether it is
        one.
        """
        if text.startswith(SAMPLES_START):  # few readers want them, and they are long
            self.samples += [text] if self.with_samples else []
        elif not is_started_line(text):
            return False
        if self.repeated is not None:
            self.repeated.remember_other(text)
        return True

    def _took_known(self, text: bytes) -> bool:
        """Take a line of a cell that has exactly the known form; whether it is one."""
        repeated = None if self.package else self.repeated  # the class of a release is merged
        found = None if repeated is None else repeated.find(text)
        if found is not None:
            self._take_followed(found)
            return True
        record = known_record(text)
        if record is None:
            return False
        _ = record.cell  # its axes are names
        kept = self._take_cell(record)
        if repeated is not None and kept is not None:
            repeated.remember(text, record, kept)
        return True

    def _count(self, record: CellRecord) -> None:
        self.count += 1
        self.measured.add((record.model, record.backend, record.schema, record.variant))

    def _take_cell(self, record: CellRecord) -> CellRecord | None:
        """Count the cell; what is kept of it."""
        self._count(record)
        if self.package:
            merged = class_of_releases(record.environment_class, self.package)
            record = structs.replace(record, environment_class=merged)
        kept = record if self.keep is None else self.keep(record)
        if kept is not None:
            self.cells.append(kept)
        return kept


LINE_ERRORS = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""The exceptions that reading a line raises when it is not a record."""


def decoded_line(text: bytes) -> dict[str, Any]:
    """The record in one line.

    Raises:
        ValueError, TypeError, RecursionError: it is none.
    """
    line: dict[str, Any] = _DECODER.decode(text.decode("utf-8-sig"))
    if type(line) is not dict:
        raise TypeError("a line that is not a table")
    if b"\\ud" in text or b"\\uD" in text:
        # JSON can spell half a character, which no file or page can hold
        return {_whole_characters(key): _whole_characters(one) for key, one in line.items()}
    return line


def _whole_characters(value: Any) -> Any:  # noqa: ANN401 - a plain value, of whatever kind
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_whole_characters(key): _whole_characters(one) for key, one in value.items()}
    return [_whole_characters(one) for one in value] if isinstance(value, list) else value


def is_header(line: Mapping[str, Any]) -> bool:
    """Whether ``line`` is a ``run`` line that says what its run is."""
    return line["type"] == "run" and all(
        isinstance(line.get(key), str) for key in ("id", "suite", "started")
    )


def _check_tables(line: Mapping[str, Any]) -> None:
    """Refuse a cell line whose metrics or digests are not tables, as every reader expects.

    Raises:
        TypeError: metrics or digests are something else.
    """
    metrics, digests = line.get("metrics", _EMPTY), line.get("digests", _EMPTY)
    if type(metrics) is not dict or not all(type(counts) is dict for counts in metrics.values()):
        raise TypeError("metrics in another form than tables of counts")
    if type(digests) is not dict or not all(type(digest) is str for digest in digests.values()):
        raise TypeError("digests in another form than text")


_EMPTY: Mapping[str, Any] = {}


def reading_notices(name: str, reading: RunReading) -> Iterator[str]:
    """A sentence for each thing that is wrong with the run file ``name`` that was read."""
    written = str(reading.header.get("format", "no format"))
    if written != FORMAT:
        newer = "a newer qbench" if written.startswith(_FAMILY) else "something else"
        yield (
            f"'{name}' was written by {newer} ({written}, not {FORMAT}): what is known here was "
            "read."
        )
    if reading.damaged:
        cells = f"{reading.count} cell{' is' if reading.count == 1 else 's are'}"
        yield f"'{name}' has {damaged_text(reading)}; the other {cells} kept."


def damaged_text(reading: RunReading) -> str:
    """How many lines could not be read, in words."""
    return f"{reading.damaged} line{'' if reading.damaged == 1 else 's'} that cannot be read"


def _refuse_constant(name: str) -> float:
    """JSON has no NaN: a line that holds one was not written by us."""
    raise ValueError(f"{name} ({math.nan}-like) in a record")


def _finite(text: str) -> float:
    """A number as JSON spells it, unless it is beyond what a float can hold."""
    number = float(text)
    if number - number != 0:  # faster than math.isfinite, and asked of every number of a history
        raise ValueError(f"{text[:20]}… in a record")
    return number


def _integer(text: str) -> int:
    """An integer as JSON spells it, unless it is beyond what a float can hold: every reader
    divides such numbers.
    """
    if len(text) > _SAFE_DIGITS:
        _finite(text)
    return int(text)


_SAFE_DIGITS = 300
"""Digits of an integer that is surely below the largest float, 1.8e308."""

_DECODER = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_float=_finite, parse_int=_integer
)
