"""Lines of cells that repeat the line of their cell in an earlier run: their records without
decoding them.

    line = head, {seconds}, tail        head and tail as in an earlier line of the cell:
                                        its record, with the seconds of this line

Most int8 results never change, so that the nights of a month differ in the seconds of their cells
alone. Comparing the bytes of a line takes a tenth of the time of decoding it, and records that
share their values take a part of the memory.
"""

import operator
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from msgspec import structs

from qbench.tracking.record import CellRecord

_AFTER_AXES = b'","outcome":"'
_SECONDS = b'"seconds":'
_copied: Callable[[CellRecord], CellRecord] = operator.methodcaller("__copy__")
"""``copy.copy`` without looking for the method of each."""
_seconds = msgspec.json.Decoder(dict[str, float])


class _Known(NamedTuple):
    """A line that was decoded; ``tail`` is empty where it has no seconds."""

    head: bytes
    tail: bytes
    record: CellRecord


class RepeatedLines:
    """The newest line of each cell that was read, with what its reader kept of it.

    All lines are of readers that keep the same of a record, whichever run it is of.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, _Known] = {}

    def find(self, text: bytes) -> CellRecord | None:
        """What was kept of an earlier line that ``text`` repeats, with the seconds of ``text``;
        None: it repeats none.
        """
        known = self._known.get(text[: text.find(_AFTER_AXES)])
        if known is None or not text.startswith(known.head) or not text.endswith(known.tail):
            return None
        if not known.tail:
            return known.record if len(text) == len(known.head) else None
        seconds = _read_seconds(text[len(known.head) : -len(known.tail)])
        if seconds is None:
            return None
        record = _copied(known.record)
        structs.force_setattr(record, "seconds", seconds)
        return record

    def remember(self, text: bytes, record: CellRecord, kept: CellRecord) -> None:
        """Note the line ``text``, its ``record``, and what is kept of that."""
        axes = text[: text.find(_AFTER_AXES)]
        if _SECONDS not in text:
            self._known[axes] = _Known(text, b"", kept)
            return
        start = text.index(_SECONDS) + len(_SECONDS)
        stop = text.find(b"}", start) + 1
        # a line with the key twice, or not where its record has it, is never taken for another one
        is_known = text.count(_SECONDS) == 1 and record.seconds
        if is_known and _read_seconds(text[start:stop]) == record.seconds:
            self._known[axes] = _Known(text[:start], text[stop:], kept)


def _read_seconds(text: bytes) -> dict[str, float] | None:
    """The table in ``text``; None: it is not one."""
    try:
        return _seconds.decode(text)
    except (msgspec.MsgspecError, ValueError):
        return None
