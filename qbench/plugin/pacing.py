"""Now and then, between pytest's own marks, a line that says how long a long run will still take; on terminals only."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from qbench.reporting import Pace, last_seconds, left_text

EVERY = 60.0
"""Seconds between two lines; a run that is over sooner has none."""

_SUFFIX = ".qbench.toml"


class PaceTeller:
    """Told of every cell that ends; writes to ``terminal``."""

    def __init__(
        self,
        terminal: pytest.TerminalReporter,
        node_ids: Iterable[str],
        history: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._terminal = terminal
        self._clock = clock
        self._told = clock()
        self._pace = Pace(filter(None, map(_cell, node_ids)), last_seconds(history), started=self._told)
        left = self._pace.left(self._told)
        if left is not None and left > EVERY:
            self._tell(left)

    def finish(self, node_id: str) -> None:
        """The item ``node_id`` is done."""
        self._pace.finish(_cell(node_id))
        now = self._clock()
        left = self._pace.left(now)
        if now - self._told >= EVERY and left:
            self._told = now
            self._tell(left)

    def _tell(self, left: float) -> None:
        if self._pace.count and getattr(self._terminal.config.option, "dist", "no") != "no":
            self._terminal.write_line("")  # xdist's marks leave no trace that ensure_newline could see
        self._terminal.ensure_newline()
        text = f"qbench: {self._pace.count} of {self._pace.total} cells, {left_text(left)}"
        self._terminal.write_line(text, light=True)
        self._terminal.currentfspath = None  # the next mark begins a line, with its file


def _cell(node_id: str) -> str:
    """``suite::model::cell`` of the item of a cell; empty for any other item."""
    path, _, rest = node_id.partition("::")
    return f"{Path(path).name.removesuffix(_SUFFIX)}::{rest}" if path.endswith(_SUFFIX) else ""
