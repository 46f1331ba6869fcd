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
from dataclasses import dataclass

import msgspec
from msgspec import structs

from qbench.tracking.record import CellRecord

_AFTER_AXES = b'","outcome":"'
_SECONDS = b'"seconds":'
_copied: Callable[[CellRecord], CellRecord] = operator.methodcaller("__copy__")
"""``copy.copy`` without looking for the method of each."""
_seconds = msgspec.json.Decoder(dict[str, float])


@dataclass(slots=True, eq=False)
class _Known:
    """A line that was decoded; ``tail`` is empty where it has no seconds. ``after``: the line that
    followed it, of cells, which it most likely does again.
    """

    head: bytes
    tail: bytes
    record: CellRecord
    after: "_Known | None" = None


class RepeatedLines:
    """The newest line of each cell that was read, with what its reader kept of it.

    All lines are of readers that keep the same of a record, whichever run it is of.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, _Known] = {}
        self._before: _Known | None = None

    def find(self, text: bytes) -> CellRecord | None:
        """What was kept of an earlier line that ``text`` repeats, with the seconds of ``text``;
        None: it repeats none.
        """
        before = self._before
        # the beginning of a line with its axes is in no other line: no need to look for them
        known = None if before is None else before.after
        if known is None or not text.startswith(known.head):
            known = self._known.get(text[: text.find(_AFTER_AXES)])
            if known is None or not text.startswith(known.head):
                return None
        if not text.endswith(known.tail):
            return None
        if known.tail:
            seconds = _read_seconds(text[len(known.head) : -len(known.tail)])
            if seconds is None:
                return None
            record = _copied(known.record)
            structs.force_setattr(record, "seconds", seconds)
        elif len(text) == len(known.head):
            record = known.record
        else:
            return None
        self._follow(known)
        return record

    def _follow(self, known: _Known) -> None:
        """Note that ``known`` came after the line before it."""
        if self._before is not None:
            self._before.after = known
        self._before = known

    def remember(self, text: bytes, record: CellRecord, kept: CellRecord) -> None:
        """Note the line ``text``, its ``record``, and what is kept of that."""
        axes = text[: text.find(_AFTER_AXES)]
        if _SECONDS not in text:
            self._replace(axes, _Known(text, b"", kept))
            return
        start = text.index(_SECONDS) + len(_SECONDS)
        stop = text.find(b"}", start) + 1
        # a line with the key twice, or not where its record has it, is never taken for another one
        is_known = text.count(_SECONDS) == 1 and record.seconds
        if is_known and _read_seconds(text[start:stop]) == record.seconds:
            self._replace(axes, _Known(text[:start], text[stop:], kept))

    def _replace(self, axes: bytes, known: _Known) -> None:
        """Note ``known`` as the newest line of its cell, before the line that followed the former
        one.
        """
        former = self._known.get(axes)
        known.after = None if former is None else former.after
        self._known[axes] = known
        self._follow(known)


def _read_seconds(text: bytes) -> dict[str, float] | None:
    """The table in ``text``; None: it is not one."""
    try:
        return _seconds.decode(text)
    except (msgspec.MsgspecError, ValueError):
        return None
