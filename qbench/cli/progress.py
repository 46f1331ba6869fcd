"""Progress on standard error: a bar in a terminal, one line a cell in a log."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from qbench.cli.printing import complain
from qbench.storage import neutral_line

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from qbench.reporting import Pace


class CellProgress(Protocol):
    """Told when a cell begins and when it ends."""

    def begin(self, cell: str) -> None:
        """``cell`` is at work."""
        ...

    def end(self, line: Mapping[str, Any], *, is_red: bool) -> None:
        """The cell is done; ``line`` is its line of the run file."""
        ...


@contextmanager
def cell_progress(cells: Sequence[str], history: Path) -> Iterator[CellProgress]:
    """What shows the progress over ``cells``, ``suite::model::backend+schema[+variant]``, here.

    Args:
        history: of run files that tell how long the cells took before.
    """
    total = len(cells)
    if not sys.stderr.isatty():
        yield _Log(total)
        return
    from qbench.reporting import Pace, last_seconds

    pace = Pace(cells, last_seconds(history), started=time.monotonic())
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    words = (TextColumn("{task.fields[left]}"), TextColumn("{task.description}", markup=False))
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), *words)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Bar(bar, bar.add_task("", total=total, left=""), pace)


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
        complain(f"[{self._done}/{self._total}] {described(line)}")


class _Bar:
    def __init__(self, bar: "Progress", task: "TaskID", pace: "Pace") -> None:
        self._bar = bar
        self._task = task
        self._pace = pace

    def begin(self, cell: str) -> None:
        """Name the cell at work, and say how long all of them will still take."""
        from qbench.reporting import left_text

        self._bar.update(self._task, description=neutral_line(cell), left=left_text(self._pace.left(time.monotonic())))

    def end(self, line: Mapping[str, Any], *, is_red: bool) -> None:
        """Advance; what is red is said at once, above the bar."""
        self._bar.advance(self._task)
        self._pace.finish("::".join((line["suite"], described_cell(line))))
        if is_red:
            self._bar.console.print(neutral_line(described(line)), style="red", markup=False, highlight=False)


def described(line: Mapping[str, Any]) -> str:
    """A ``cell`` line of a run file as one line for people."""
    return f"{line['outcome']:11} {described_cell(line)}  {line['headline']}"


def described_cell(line: Mapping[str, Any]) -> str:
    """``model::backend+schema[+variant]`` of a ``cell`` line."""
    slug = "+".join(filter(None, (line["backend"], line["schema"], line["variant"])))
    return f"{line['model']}::{slug}"
