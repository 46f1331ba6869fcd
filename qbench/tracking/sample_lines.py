"""The ``samples`` line of a run file: which samples a cell lost and gained, and both answers.

    {"type": "samples", "suite": …, "model": …, "backend": …, "schema": …, "variant": …,
     "data": {"photos": {"metric": "top1", "digest": "1f0c…", "lost": 3, "gained": 1, "changed": 7,
                         "is_probability": true, "samples": [{"id": …, "effect": "lost",
                         "label": …, "change": -0.41, "fp32": [["tench", 0.9], …],
                         "quantized": […]}, …]}}}

It is a line of its own, so that the many readers of cells need not read it: a history keeps such
lines as they are, and ``read_samples`` reads those of the run that is shown.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import msgspec
from msgspec import Struct

from qbench.judging import Cell, ChangedSample, SampleChanges, SamplesByData
from qbench.metrics import AnswerPart
from qbench.storage import MOST_LINE_BYTES, MOST_LISTED, MOST_TEXT, value_of_plain
from qbench.tracking.record import AXES, cell_of_line

SAMPLES_START = b'{"type":"samples",'
"""The beginning of such a line, by which it is known without reading it."""
MOST_PARTS = 10
"""Parts of an answer that are read of a line, which may come from elsewhere."""
_DIGITS = 4
"""Digits of a probability behind the point."""


def samples_line(cell: Cell, samples: SamplesByData) -> dict[str, Any] | None:
    """The line of ``cell``; None where no sample was lost, gained or answered otherwise."""
    found = {name: one for name, one in samples.items() if one.changed or one.samples}
    if not found:
        return None
    most = max(len(one.samples) for one in found.values())
    while True:
        line = {
            "type": "samples",
            **{axis: getattr(cell, axis) for axis in AXES},
            "data": {name: _table(one, most) for name, one in found.items()},
        }
        if not most or len(msgspec.json.encode(line)) <= MOST_LINE_BYTES:
            return line
        most //= 2


def _table(one: SampleChanges, most: int) -> dict[str, Any]:
    table = {each.name: getattr(one, each.name) for each in fields(one)}
    return _written(table) | {"samples": [_row(each) for each in one.samples[:most]]}


def _row(sample: ChangedSample) -> dict[str, Any]:
    row = {each.name: getattr(sample, each.name) for each in fields(sample)}
    row |= {name: [_part(part) for part in row[name]] for name in ("fp32", "quantized")}
    row["change"] = None if sample.change is None else _rounded(sample.change)
    row["values"] = None if sample.values is None else [*map(_rounded, sample.values)]
    return _written(row)


def _rounded(number: float) -> float:
    """``number`` with the digits that a person reads."""
    return round(number, _DIGITS) if abs(number) < 1 else float(f"{number:.6g}")


def _part(part: AnswerPart) -> list[str | float]:
    shown = [] if part.probability is None else [_rounded(part.probability)]
    return [part.text, *shown]


def _written(table: Mapping[str, Any]) -> dict[str, Any]:
    """What of ``table`` is not empty."""
    return {name: value for name, value in table.items() if value not in (None, "", (), [], False)}


def read_samples(lines: Iterable[bytes]) -> tuple[dict[Cell, dict[str, SampleChanges]], int]:
    """Cell → data set → its samples, of several ``lines`` of a cell the last; and how many lines
    could not be read.
    """
    found: dict[Cell, dict[str, SampleChanges]] = {}
    unread = 0
    for text in lines:
        try:
            cell, samples = samples_of_line(text)
        except ValueError:
            unread += 1
            continue
        found[cell] = samples
    return found, unread


# A report shows the samples of a few hundred pages, of tens of thousands of lines that it checks: a
# line is decoded into values when they are read.


class _Part(Struct, array_like=True, gc=False):
    text: str
    probability: float | None = None


class _Row(Struct, kw_only=True, gc=False):
    id: str
    effect: str
    label: str = ""
    change: float | None = None
    fp32: tuple[_Part, ...] = ()
    quantized: tuple[_Part, ...] = ()
    values: tuple[float, float] | None = None


class _DataTable(Struct, kw_only=True, gc=False):
    metric: str
    digest: str
    lost: int = 0
    gained: int = 0
    changed: int = 0
    is_probability: bool = False
    private: bool = False
    samples: tuple[_Row, ...] = ()


class _Line(Struct, kw_only=True):
    suite: str
    model: str
    backend: str
    schema: str
    variant: str = ""
    data: dict[str, _DataTable]


_line_decoder = msgspec.json.Decoder(_Line)


class LaterSamples(Mapping[str, SampleChanges]):
    """The samples of one cell by data set, which are read from their line when they are needed.

    ``has_samples``: whether any is listed, which is known without reading them.
    """

    def __init__(
        self,
        text: bytes,
        names: Iterable[str],
        *,
        has_samples: bool,
        read: Callable[[bytes], Mapping[str, SampleChanges]],
    ) -> None:
        self.has_samples = has_samples
        self._text = text
        self._values = read
        self._names = tuple(names)
        self._read: Mapping[str, SampleChanges] | None = None

    def __getitem__(self, name: str) -> SampleChanges:
        if name not in self._names:
            raise KeyError(name)
        if self._read is None:
            self._read = self._values(self._text)
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _values_of_any(text: bytes) -> Mapping[str, SampleChanges]:
    return samples_of_line(text)[1]


def _values_of_typed(text: bytes) -> Mapping[str, SampleChanges]:
    """The samples in a line that ``_line_decoder`` takes, faster than ``samples_of_line``."""
    tables = _line_decoder.decode(text).data
    return {name: _changes_of(table) for name, table in tables.items()}


def _changes_of(table: _DataTable) -> SampleChanges:
    values = {name: getattr(table, name) for name in table.__struct_fields__}
    values["samples"] = tuple(map(_sample_of, table.samples[:MOST_LISTED]))
    return SampleChanges(**values)


def _sample_of(row: _Row) -> ChangedSample:
    return ChangedSample(
        id=row.id,
        effect=row.effect,
        label=row.label[:MOST_TEXT],
        change=row.change,
        fp32=_answer_of(row.fp32),
        quantized=_answer_of(row.quantized),
        values=row.values,
    )


def _answer_of(parts: tuple[_Part, ...]) -> tuple[AnswerPart, ...]:
    return tuple([AnswerPart(one.text[:MOST_TEXT], one.probability) for one in parts[:MOST_PARTS]])


NO_SAMPLES = LaterSamples(b"", (), has_samples=False, read=_values_of_any)


class SampleLines:
    """Reads the lines of several runs; a line that an earlier run has, too, is checked once."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[Cell, LaterSamples] | None] = {}

    def read(self, lines: Iterable[bytes]) -> tuple[dict[Cell, LaterSamples], int]:
        """What ``read_samples`` gives of ``lines``, read when it is needed."""
        found: dict[Cell, LaterSamples] = {}
        unread = 0
        for text in lines:
            if text not in self._known:
                self._known[text] = _checked_line(text)
            known = self._known[text]
            if known is None:
                unread += 1
            else:
                found[known[0]] = known[1]
        return found, unread


def _checked_line(text: bytes) -> tuple[Cell, LaterSamples] | None:
    """The cell of a line and its samples; None: ``samples_of_line`` refuses it."""
    try:
        line = _line_decoder.decode(text)
        axes = {axis: getattr(line, axis) for axis in AXES}
        has_samples = any(table.samples for table in line.data.values())
        typed = LaterSamples(text, line.data, has_samples=has_samples, read=_values_of_typed)
        return cell_of_line(axes), typed
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    try:
        cell, samples = samples_of_line(text)
    except ValueError:
        return None
    has_samples = any(one.samples for one in samples.values())
    return cell, LaterSamples(text, samples, has_samples=has_samples, read=_values_of_any)


def lines_of_others(lines: Iterable[bytes], cells: Collection[Cell]) -> tuple[bytes, ...]:
    """The ``lines`` that are not about ``cells``, which a later run has measured."""
    return tuple(text for text in lines if read_samples([text])[0].keys().isdisjoint(cells))


def samples_of_line(text: bytes) -> tuple[Cell, dict[str, SampleChanges]]:
    """The cell that a ``samples`` line is about, and its samples by data set.

    Raises:
        ValueError: the line does not hold what ``samples_line`` writes.
    """
    try:
        line = msgspec.json.decode(text)
        data = {str(name): _read_table(table) for name, table in line["data"].items()}
        return cell_of_line(line), data
    except (KeyError, TypeError, AttributeError, RecursionError, msgspec.MsgspecError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _read_table(table: Mapping[str, Any]) -> SampleChanges:
    rows = [
        {**row, **{name: _read_parts(row.get(name, ())) for name in ("fp32", "quantized")}}
        for row in table.get("samples", ())[:MOST_LISTED]
    ]
    for row in rows:
        row["label"] = str(row.get("label", ""))[:MOST_TEXT]
    return value_of_plain(SampleChanges, {**table, "samples": rows})


def _read_parts(parts: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    named = ("text", "probability")
    found = [dict(zip(named, part, strict=False)) for part in parts[:MOST_PARTS]]
    for part in found:
        part["text"] = part["text"][:MOST_TEXT]
    return found
