"""The key of a cell: all that its result depends on, part by part, and the rule by which a result
with an equal key is carried over.

A key is known before the cell is quantized. Each part has a name, so that a cell that is measured
can say why: ``package onnxruntime changed: 1.22.0 → 1.23.0``. The value of a part is a short text,
or a digest, which begins with ``#``. Two keys of another version, or without parts, are never
equal.
"""

import datetime
import re
from dataclasses import dataclass

from msgspec import Struct

from qbench.errors import InputError
from qbench.number_text import short_percent
from qbench.storage import digest_plain

KEY_VERSION = 1
"""Of the parts: raised when a part gets another meaning, so that no older key is equal."""

_DIGITS = 16
"""Digits of a digest in a key: of one cell only a few are ever compared."""

_NAMED = 3
"""Parts that a sentence names; of more, it counts the others."""


def digest_part(value: object) -> str:
    """The part that is the digest of a plain ``value``.

    Raises:
        TypeError, ValueError: it has no plain form.
    """
    return f"#{digest_plain(value)[:_DIGITS]}"


class CellKey(Struct, frozen=True, kw_only=True, gc=False):
    """What the result of a cell depends on.

    Args:
        version: of the parts.
        parts: name → value; empty: no key follows all that the result depends on.
        why: why the cell was measured; empty of a carried one.
    """

    version: int = KEY_VERSION
    parts: dict[str, str] = {}
    why: str = ""

    def equals(self, other: "CellKey") -> bool:
        """Whether a result of the one is a result of the other."""
        return bool(self.parts) and self.version == other.version and self.parts == other.parts

    def changed_from(self, before: "CellKey") -> str:
        """What is other than in ``before``, in words: ``package onnxruntime changed: 1.22.0 →
        1.23.0``.
        """
        if not before.parts:
            return "its last result has no key"
        if self.version != before.version:
            return f"the key has another form: version {before.version} → {self.version}"
        names = [
            name
            for name in dict.fromkeys((*self.parts, *before.parts))
            if self.parts.get(name) != before.parts.get(name)
        ]
        texts = [
            _change(name, before.parts.get(name), self.parts.get(name)) for name in names[:_NAMED]
        ]
        more = len(names) - len(texts)
        return "; ".join(texts) + (f"; and {more} more" if more else "")


def _change(name: str, before: str | None, now: str | None) -> str:
    if before is None or now is None:
        return f"{name} is {'gone' if now is None else 'new'}"
    if before.startswith("#") or now.startswith("#"):
        return f"{name} changed"
    return f"{name} changed: {before} → {now}"


class Carried(Struct, frozen=True, kw_only=True, gc=False):
    """Where the numbers of a carried cell were measured.

    Args:
        run: its id.
        measured: when that run began, UTC.
        commit: that it measured; empty: unknown.
    """

    run: str
    measured: str
    commit: str = ""

    @property
    def text(self) -> str:
        """``carried from run R of 2026-11-20``."""
        return f"carried from run {self.run} of {self.measured[:10]}"


_RULE = re.compile(r"(\d{1,4})([dh])(?::(\d{1,3}(?:\.\d{1,4})?)%)?")
_SHARE = 0.05
OFF = "off"
"""The text of no rule: nothing is carried and no key is noted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CarryRule:
    """Results at most ``age`` old are carried; a ``share`` of them is measured all the same.

    With an age of 0 every cell is measured, and its key noted.
    """

    age: datetime.timedelta
    share: float = _SHARE

    @classmethod
    def parse(cls, text: str) -> "CarryRule | None":
        """The rule in ``7d``, ``12h`` or ``7d:10%``; None: ``off``, or no text.

        Raises:
            InputError: it is none.
        """
        if text in ("", OFF):
            return None
        found = _RULE.fullmatch(text)
        share = _SHARE if found is None or found[3] is None else float(found[3]) / 100
        if found is None or share > 1:
            raise InputError(
                "Reading --qbench-carry",
                found=f"'{text}'",
                expected="an age such as 7d or 12h, one with the share to measure such as "
                f"7d:10%, or {OFF}",
                remedy="Correct the option.",
            )
        unit = "days" if found[2] == "d" else "hours"
        return cls(age=datetime.timedelta(**{unit: int(found[1])}), share=share)

    @property
    def age_text(self) -> str:
        """``7 d``, ``12 h``."""
        hours = int(self.age.total_seconds()) // 3600
        return f"{hours // 24} d" if hours % 24 == 0 else f"{hours} h"

    @property
    def share_text(self) -> str:
        """``5 %``."""
        return short_percent(self.share)
