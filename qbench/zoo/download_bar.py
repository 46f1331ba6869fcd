"""The progress bar of a download, on a terminal's standard error only; elsewhere nothing is written."""

import contextlib
import sys
from collections.abc import Iterator

from qbench.zoo.pinned import Pinned, Progress


def silent(package: Pinned, done: int) -> None:
    """No drawing."""


@contextlib.contextmanager
def terminal_bar(package: Pinned) -> Iterator[Progress]:
    """A listener that draws a bar naming the package and its size while the context is open."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"Downloading {package.title}", total=package.size)
        yield lambda _, done: bar.update(task, completed=done)
