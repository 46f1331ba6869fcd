"""Writing a run file, one whole line at a time."""

import datetime
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from qbench.errors import StoreError
from qbench.storage import json_line
from qbench.tracking.history import History
from qbench.tracking.record import FORMAT
from qbench.tracking.shards import next_start


class RunWriter:
    """The open file of one run; ``id`` is its name, ``path`` its file, ``header`` its first line."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self.id = path.stem
        self.header: dict[str, Any] = {}
        self.cells = 0
        self._handle: int | None = handle
        self._torn = False

    @classmethod
    def open(
        cls,
        folder: Path,
        header: Mapping[str, Any],
        *,
        started: datetime.datetime,
        commit: str | None,
        token: str,
    ) -> "RunWriter":
        """A new file ``<UTC time>-<commit>-<token>.jsonl`` in ``folder``, begun with its ``run`` line.

        Args:
            header: what the ``run`` line holds besides ``type``, ``format``, ``id``, ``started`` and its place among
                the runs in ``folder`` (``next_start``); ``suite`` at least.
            started: with a time zone. commit: full or short hash; None outside version control.
            token: a few random letters, so that two machines that start at once do not collide.

        Raises:
            StoreError: the folder cannot be written.
        """
        moment = started.astimezone(datetime.UTC)
        # Milliseconds, because where two runs saw nothing of each other they are put in order by this.
        stem = f"{moment:%Y%m%dT%H%M%S}{moment.microsecond // 1000:03}Z-{(commit or 'nogit')[:7]}-{token}"
        place = next_start([head.header for head in History(folder).heads])
        path, handle = _created(folder, stem)
        writer = cls(path, handle)
        first = {"type": "run", "format": FORMAT, "id": writer.id, "started": moment.isoformat(timespec="milliseconds")}
        writer.header = {**first, **place, **header}
        writer.write(writer.header)
        return writer

    def write(self, line: Mapping[str, Any]) -> None:
        """Append one line, whole on return.

        Raises:
            StoreError: the disk is full, or the file was closed.
        """
        if self._handle is None:
            raise _unwritable(self.path, "that it is closed")
        data = (b"\n" if self._torn else b"") + json_line(line).encode("utf-8")
        self._torn = True  # until the line is whole: the next one must not be glued to half of this
        try:
            while data:
                data = data[os.write(self._handle, data) :]
            self._torn = False
        except OSError as error:
            raise _unwritable(self.path, error.strerror or str(error)) from error
        self.cells += line.get("type") == "cell"

    def close(self, *, exit_code: int) -> None:
        """Write the ``end`` line, see everything onto the disk, and close; further calls do nothing.

        Raises:
            StoreError: the disk is full, or gone.
        """
        if self._handle is None:
            return
        self.write({"type": "end", "cells": self.cells, "exit_code": exit_code})
        try:
            os.fsync(self._handle)  # once a run: what is called complete survives a power cut
        except OSError as error:
            raise _unwritable(self.path, error.strerror or str(error)) from error
        self.abandon()

    def abandon(self) -> None:
        """Close without an ``end`` line: the run stays incomplete."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """A run that did not close its file was interrupted."""
        self.abandon()


def _created(folder: Path, stem: str) -> tuple[Path, int]:
    """A file that did not exist before; a name that is taken gets a number."""
    number = 1
    while True:
        path = folder / (f"{stem}.jsonl" if number == 1 else f"{stem}-{number}.jsonl")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return path, os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o644)
        except FileExistsError as error:
            if not path.exists():  # the folder's own name is taken by a file
                raise _unwritable(path, error.strerror or str(error)) from error
            number += 1
        except OSError as error:
            raise _unwritable(path, error.strerror or str(error)) from error


def _unwritable(path: Path, found: str) -> StoreError:
    return StoreError(
        f"Writing the run file '{path}'",
        found=found,
        expected="a writable folder with free space",
        remedy="Make the folder writable, or name another one.",
    )
