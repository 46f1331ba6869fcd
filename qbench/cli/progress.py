"""Progress on standard error: a bar in a terminal, one line a cell in a log."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class CellProgress(Protocol):
    """Told when a cell begins and when it ends."""

    def begin(self, cell: str) -> None:
        """``cell`` is at work."""
        ...

    def end(self, line: Mapping[str, Any], *, is_red: bool) -> None:
        """The cell is done; ``line`` is its line of the run file."""
        ...


@contextmanager
def cell_progress(total: int) -> Iterator[CellProgress]:
    """What shows the progress over ``total`` cells here."""
    if not sys.stderr.isatty():
        yield _Log(total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Bar(bar, bar.add_task("", total=total))


class _Log:
    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0

    def begin(self, cell: str) -> None:
        """Nothing: a log wants results."""

    def end(self, line: Mapping[str, Any], *, is_red: bool) -> None:
        """One line."""
        del is_red
        self._done += 1
        print(f"[{self._done}/{self._total}] {described(line)}", file=sys.stderr)


class _Bar:
    def __init__(self, bar: "Progress", task: "TaskID") -> None:
        self._bar = bar
        self._task = task

    def begin(self, cell: str) -> None:
        """Name the cell at work."""
        self._bar.update(self._task, description=cell)

    def end(self, line: Mapping[str, Any], *, is_red: bool) -> None:
        """Advance; what is red is said at once, above the bar."""
        self._bar.advance(self._task)
        if is_red:
            self._bar.console.print(described(line), style="red", markup=False, highlight=False)


def described(line: Mapping[str, Any]) -> str:
    """A ``cell`` line of a run file as one line for people."""
    slug = "+".join(filter(None, (line["backend"], line["schema"], line["variant"])))
    return f"{line['outcome']:11} {line['model']}::{slug}  {line['headline']}"
