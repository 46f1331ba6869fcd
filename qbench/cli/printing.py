"""Tables for users and JSON for programs on standard output, messages on standard error."""

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from qbench.storage import neutral_json, neutral_line, visible

if TYPE_CHECKING:
    from qbench.reporting import Line

_LEAST_ROOM = 20


def print_json(value: object) -> None:
    """``value``, plain or a dataclass of plain values, as JSON with sorted keys."""
    sys.stdout.write(neutral_json(value))


def print_commands(commands: Iterable[str]) -> None:
    """Lines that continuous integration reads as commands; text from files in them is escaped
    already.
    """
    sys.stdout.writelines(f"{command}\n" for command in commands)


def put(line: str = "") -> None:
    """One line of facts: all output except JSON is printed here or by ``say``."""
    print(neutral_line(line))


def complain(line: str) -> None:
    """One line to the user, on standard error."""
    print(neutral_line(line), file=sys.stderr)


def print_columns(rows: Iterable[Sequence[str]], header: Sequence[str] = ()) -> None:
    """``rows`` in aligned columns, two blanks apart; the last column is never padded, so that
    it can be long.

    Plain text on purpose: it is the same in a file and a pipe into ``grep``; a terminal folds the
        last column.
    """
    lines = [tuple(map(visible, row)) for row in rows]
    if header:
        lines = [tuple(header), *lines]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [text.ljust(width) for text, width in zip(line[:-1], widths, strict=False)]
        lead = "".join(f"{cell}  " for cell in cells)
        for folded in _folded(line[-1], lead, terminal_width()):
            put(folded.rstrip())


def _folded(text: str, lead: str, width: int | None) -> list[str]:
    """``text`` after ``lead``, in lines of ``width`` where a terminal has one with room for it."""
    if width is None or width - len(lead) < _LEAST_ROOM:
        return [lead + text]
    first, *more = textwrap.wrap(text, width - len(lead), break_on_hyphens=False) or [""]
    return [lead + first, *(" " * len(lead) + line for line in more)]


def terminal_width() -> int | None:
    """The columns of the terminal that standard output is; None of a file or a pipe, where no
    line is folded.
    """
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def say(text: str) -> None:
    """One line to the user, on standard error, so that piped output has only facts."""
    complain(f"qbench: {text}")


def print_tones(lines_for: "Callable[[int, bool], Sequence[Line]]") -> None:
    """The lines that ``lines_for(width, unicode)`` gives, coloured by tone in a terminal and
    plain elsewhere.
    """
    unicode = (sys.stdout.encoding or "ascii").lower().replace("-", "").startswith("utf")
    if not sys.stdout.isatty():
        for line in lines_for(100, unicode):
            put(line.text)
        return
    from rich.console import Console

    from qbench.reporting import RICH_STYLES

    console = Console(highlight=False, markup=False, emoji=False)
    for line in lines_for(shutil.get_terminal_size().columns, unicode):
        console.print(neutral_line(line.text), style=RICH_STYLES[line.tone], soft_wrap=True)
