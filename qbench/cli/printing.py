"""Facts on standard output, as aligned columns for people or as JSON for programs; words on standard error."""

import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from qbench.storage import json_text

if TYPE_CHECKING:
    from qbench.reporting import Line


def print_json(value: object) -> None:
    """``value``, plain or a dataclass of plain values, as JSON with sorted keys."""
    sys.stdout.write(json_text(value))


def print_columns(rows: Iterable[Sequence[str]], header: Sequence[str] = ()) -> None:
    """``rows`` in aligned columns, two blanks apart; the last column is never padded, so that it can be long.

    Plain text on purpose: it is the same in a terminal, a file and a pipe into ``grep``.
    """
    lines = [tuple(row) for row in rows]
    if header:
        lines = [tuple(header), *lines]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [text.ljust(width) for text, width in zip(line[:-1], widths, strict=False)]
        print("  ".join([*cells, line[-1]]).rstrip())


def terminal_width() -> int | None:
    """The columns of the terminal that standard output is; None of a file or a pipe, where no line is folded."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def say(text: str) -> None:
    """One line to people, on standard error, so that what is piped stays clean."""
    print(f"qbench: {text}", file=sys.stderr)


def print_tones(lines_for: "Callable[[int, bool], Sequence[Line]]") -> None:
    """The lines that ``lines_for(width, unicode)`` gives, coloured by tone in a terminal and plain elsewhere."""
    unicode = (sys.stdout.encoding or "ascii").lower().replace("-", "").startswith("utf")
    if not sys.stdout.isatty():
        for line in lines_for(100, unicode):
            print(line.text)
        return
    from rich.console import Console

    from qbench.reporting import RICH_STYLES

    console = Console(highlight=False, markup=False, emoji=False)
    for line in lines_for(shutil.get_terminal_size().columns, unicode):
        console.print(line.text, style=RICH_STYLES[line.tone], soft_wrap=True)
