"""One line for a terminal with its tone, and text over as many lines as it needs."""

import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

BOUND = "\N{NO-BREAK SPACE}"
"""A blank at which no line is broken; lines that are given out have plain ones."""
COMMAND = "command"
"""The tone of a line that is there to be copied, and so never broken."""

_UNITS = re.compile(r"(?<=\d) (?=(?:%|pp|dB)(?:\W|$))")
_LABEL = re.compile(r"(?:rule|next|note): ")


@dataclass(frozen=True, slots=True)
class Line:
    """One line, at most as wide as was asked for unless its tone is ``command``; tones: see ``RICH_STYLES``."""

    text: str
    tone: str = "plain"


def wrapped(text: str, width: int, tone: str, indent: int = 2) -> Iterable[Line]:
    """``text`` over as many lines as it needs, further ones below the first word behind a label such as ``note: ``.

    Words longer than a line are left whole, and a number keeps its unit.
    """
    label = _LABEL.match(text)
    first, rest = " " * indent, " " * (indent + (label.end() if label else 0))
    for line in textwrap.wrap(
        _UNITS.sub(BOUND, text),
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    ):
        yield Line(line.replace(BOUND, " "), tone)
