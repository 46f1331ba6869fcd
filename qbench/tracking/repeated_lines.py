"""Lines that repeat those of an earlier run: records of cells, and samples, without decoding them.

    line = head, {seconds}, tail        head and tail as in an earlier line of the cell:
                                        its record, with the seconds of this line

Most int8 results never change, so that the nights of a month differ in the seconds of their cells
alone. Comparing the bytes of a line takes a tenth of the time of decoding it, and records that
share their values take a part of the memory.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from msgspec import structs

from qbench.tracking.record import CellRecord
from qbench.tracking.sample_lines import SAMPLES_START

_AFTER_AXES = b'","outcome":"'
_SECONDS = b'"seconds":'
_copied: Callable[[CellRecord], CellRecord] = operator.methodcaller("__copy__")
"""``copy.copy`` without looking for the method of each."""
_seconds = msgspec.json.Decoder(dict[str, float])


@dataclass(slots=True, eq=False)
class _Known:
    """A line that was read; ``tail`` is empty where it has no seconds, and ``record`` is None where
    it is no line of a cell. ``axes``: model, backend, schema and variant of the record.
    ``after``: the line that followed it, which it most likely does again.
    """

    head: bytes
    tail: bytes = b""
    record: CellRecord | None = None
    axes: tuple[str, str, str, str] = ("", "", "", "")
    after: "_Known | None" = None


@dataclass(slots=True, eq=False)
class Followed:
    """Lines that repeat those of an earlier run: what was kept of the cells, with the seconds of
    these lines, and the axes of each; the lines of samples; the ``last`` of them in that run; and
    where the next line begins.
    """

    last: _Known
    stop: int
    cells: list[CellRecord] = field(default_factory=list)
    measured: list[tuple[str, str, str, str]] = field(default_factory=list)
    samples: list[bytes] = field(default_factory=list)


class RepeatedLines:
    """The newest line of each cell that was read, with what its reader kept of it, and the lines
    between them.

    All lines are of readers that keep the same of a record, whichever run it is of.

    Args:
        in_order: the lines between those of cells are held too, and lines are first compared with
            those that came next in an earlier run, without cutting them out; of two runs it takes
            longer than it saves.
    """

    def __init__(self, *, in_order: bool = False) -> None:
        self.in_order = in_order
        self._known: dict[bytes, _Known] = {}
        self._before: _Known | None = None

    def follow(self, block: bytes, start: int) -> Followed | None:
        """The lines of ``block`` from ``start`` on that repeat those which followed the line before
        them in an earlier run; None: the first of them repeats no such line.
        """
        before = self._before
        if before is None or before.after is None:
            return None
        found = _repeats(before.after, block, start)
        self._before = before if found is None else found.last
        return found

    def find(self, text: bytes) -> Followed | None:
        """As ``follow``, for a line ``text`` of a cell, whichever line came before it."""
        known = self._known.get(text[: text.find(_AFTER_AXES)])
        found = None if known is None else _repeats(known, text, 0)
        if found is not None:
            self._follow(found.last)
        return found

    def _follow(self, known: _Known) -> None:
        """Note that ``known`` came after the line before it."""
        if self._before is not None:
            self._before.after = known
        self._before = known

    def remember_other(self, text: bytes) -> None:
        """Note a line ``text`` that has no cell, and most likely comes again."""
        if not self.in_order or not text.endswith(b"\n"):
            return
        former = None if self._before is None else self._before.after
        self._follow(_Known(text, after=None if former is None else former.after))

    def remember(self, text: bytes, record: CellRecord, kept: CellRecord) -> None:
        """Note the line ``text``, its ``record``, and what is kept of that."""
        if not text.endswith(b"\n"):
            return
        axes = text[: text.find(_AFTER_AXES)]
        named = (record.model, record.backend, record.schema, record.variant)
        start = text.find(_SECONDS)
        if start < 0:
            self._replace(axes, _Known(text, b"", kept, named))
            return
        if text.rfind(_SECONDS) != start or not record.seconds:
            return  # a line with the key twice, or not where its record has it
        start += len(_SECONDS)
        stop = text.find(b"}", start) + 1
        if _read_seconds(text[start:stop]) == record.seconds:
            self._replace(axes, _Known(text[:start], text[stop:], kept, named))

    def _replace(self, axes: bytes, known: _Known) -> None:
        """Note ``known`` as the newest line of its cell, before the line that followed the former
        one.
        """
        former = self._known.get(axes)
        known.after = None if former is None else former.after
        self._known[axes] = known
        self._follow(known)


def _repeats(first: _Known, block: bytes, start: int) -> Followed | None:
    """The lines of ``block`` from ``start`` on that repeat ``first`` and the lines after it."""
    found = Followed(first, start)
    known: _Known | None = first
    # in place: cutting each line out of the block takes as long as comparing it
    while known is not None and block.startswith(known.head, found.stop):
        stop, record = found.stop + len(known.head), known.record
        if known.tail and record is not None:
            end = block.find(b"}", stop) + 1
            seconds = _read_seconds(block[stop:end])
            if seconds is None or not block.startswith(known.tail, end):
                break
            stop, record = end + len(known.tail), _copied(record)
            structs.force_setattr(record, "seconds", seconds)
        if record is not None:
            found.cells.append(record)
            found.measured.append(known.axes)
        elif known.head.startswith(SAMPLES_START):
            found.samples.append(known.head)
        found.last, found.stop, known = known, stop, known.after
    return None if found.stop == start else found


def _read_seconds(text: bytes) -> dict[str, float] | None:
    """The table in ``text``; None: it is not one."""
    try:
        return _seconds.decode(text)
    except (msgspec.MsgspecError, ValueError):
        return None
