"""The layout of a plan for people: letters for what was asked, and rows in columns that fold."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# The layout of a plan for people: sections of names and words in columns, which fold under their
# names when narrow.
#
# asked for
#   A  input …; weight …; output …           every different request once
# unit: A → as asked                         or what of it stays float
#   input[0]  value  uint8 scale … zero point …

_ROOM = 40
"""Columns that words need next to names; with fewer they go below them."""
_WIDEST = 48
"""A name longer than this does not push the column of all others."""
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

Row = tuple[str, ...]
"""Names, then words."""


@dataclass(frozen=True, slots=True)
class Block:
    """A line and the rows below it."""

    head: str
    rows: tuple[Row, ...] = ()


def letters(requests: Mapping[str, str]) -> dict[str, str]:
    """Every different request, in order, and the letters that stand for it: A … Z, AA, AB and
    so on.
    """
    found: dict[str, str] = {}
    for words in requests.values():
        if words not in found and words != "float":
            found[words] = _letters(len(found))
    return found


def layout(blocks: Sequence[Block], width: int | None) -> list[str]:
    """The lines of ``blocks``, columns aligned over all; none longer than ``width`` where words
    can be folded.
    """
    names = [row[:-1] for block in blocks for row in block.rows]
    depth = max(map(len, names), default=0)
    widths = [
        max((len(n[i]) for n in names if i < len(n) and len(n[i]) <= _WIDEST), default=0)
        for i in range(depth)
    ]
    lines: list[str] = []
    for block in blocks:
        lines += _folded(block.head, "", "    ", width)
        for row in block.rows:
            lines += _row(row, widths, width)
    return lines


def _row(row: Row, widths: Sequence[int], width: int | None) -> list[str]:
    *names, words = row
    cells = [name.ljust(size) for name, size in zip(names, widths, strict=False)]
    start = "  " + "  ".join([*cells, ""])
    if width is None or len(start) + _ROOM <= width:
        return _folded(words, start, " " * len(start), width)
    return _folded("  ".join(names), "  ", "    ", width) + _folded(
        words, "      ", "      ", width
    )


def _folded(words: str, first: str, later: str, width: int | None) -> list[str]:
    if width is None:
        return [f"{first}{words}"]
    return textwrap.wrap(
        words,
        max(width, len(later) + 8),
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [first.rstrip()]


def _letters(index: int) -> str:
    text = ""
    index += 1
    while index:
        index, digit = divmod(index - 1, len(_ALPHABET))
        text = _ALPHABET[digit] + text
    return text
