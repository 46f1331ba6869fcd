"""Where the lines of runs are kept: the protocol of a store, and the folder of run files, which
is the default.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from qbench.errors import InputError, StoreError
from qbench.storage import paths_below
from qbench.tracking.record import FORMAT

_ENDING = ".jsonl"
"""Of the name of a run file."""


class HistoryStore(Protocol):
    """Runs, each with a name of the store's own and its lines, which are only ever added to.

    ``History`` reads a store and ``RunWriter`` writes into one; both know what the lines mean, a
    store need not. Several processes may read while one writes. What cannot be read or written
    raises a ``StoreError``.
    """

    def runs(self) -> Iterable[str]:
        """The name of every run in the store; ``History`` puts them in order by their first
        lines.
        """
        ...

    def read(self, name: str) -> Iterator[bytes]:
        """The lines of one run in the order they were added, one at a time."""
        ...

    def create(self, run_id: str) -> str:
        """Begin a run without lines, and return its name.

        Raises:
            FileExistsError: there is a run of this id.
        """
        ...

    def append(self, name: str, line: bytes) -> None:
        """Add one line, which ends with a line break; on return other processes can read it."""
        ...

    def close(self, name: str, *, complete: bool) -> None:
        """The process adds no more lines to this run. ``complete``: from now on its lines
        survive a power cut.
        """
        ...


@dataclass(frozen=True, slots=True)
class RunFile:
    """One run of a store as a file, for what looks again whether it has changed.

    Args:
        name: relative to the store.
        shown: as messages name it.
        state: its size, and a number that is another one where the content may be another. Raises
            an OSError or a StoreError where it cannot be known.
        read: the content. Raises the same.
    """

    name: str
    shown: str
    state: Callable[[], tuple[int, int]]
    read: Callable[[], bytes]


_READ_BYTES = 1 << 16
"""Bytes that are read at once: lines have some thousands, and of most files only the first is."""
_BLOCK_BYTES = 1 << 22
"""Bytes of lines that are compared with those of an earlier run: most files are smaller."""


class FolderStore:
    """The run files ``*.jsonl`` at any depth under ``folder``, named by their paths there.

    A folder that does not exist holds no run, and is made for the first one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._handles: dict[str, int] = {}
        self._torn: set[str] = set()
        """Names of files whose last line is not whole: the next one must not continue it."""

    def runs(self) -> Iterable[str]:
        """The paths of the run files, sorted; of what is not a plain file, too, which ``read``
        refuses.
        """
        return map(str, paths_below(self.folder, _ENDING))

    def read(self, name: str) -> Iterator[bytes]:
        """The lines of the file at the path ``name``."""
        path = Path(name)
        try:
            if not _is_plain(path):
                raise not_plain(path)
            with path.open("rb", buffering=_READ_BYTES) as file:
                yield from file
        except OSError as error:
            raise unreadable(name, error.strerror or str(error)) from error

    def blocks(self, name: str) -> Iterator[bytes]:
        """The lines of the file at the path ``name``, several whole ones at once."""
        path = Path(name)
        try:
            if not _is_plain(path):
                raise not_plain(path)
            with path.open("rb") as file:
                while block := file.read(_BLOCK_BYTES):
                    yield block + file.readline()
        except OSError as error:
            raise unreadable(name, error.strerror or str(error)) from error

    def files(self) -> tuple[tuple[RunFile, ...], tuple[str, ...]]:
        """The run files, and a sentence for each that is not a plain file."""
        paths, others = run_files(self.folder)
        return tuple(run_file(path, self.folder) for path in paths), others

    def create(self, run_id: str) -> str:
        """A new file ``<run_id>.jsonl`` in the folder itself."""
        path = self.folder / f"{run_id}.jsonl"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._handles[str(path)] = handle = os.open(
                path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o644
            )
            _lock(handle, exclusive=True)
        except FileExistsError as error:
            if path.exists():
                raise
            # the folder's name is that of a file
            raise unwritable(str(path), error.strerror or str(error)) from error
        except OSError as error:
            raise unwritable(str(path), error.strerror or str(error)) from error
        return str(path)

    def is_growing(self, name: str) -> bool:
        """Whether a living process writes the file at the path ``name``; False where that is not
        known, as on disks without locks.
        """
        try:
            handle = os.open(name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        except OSError:
            return False
        try:
            return not _lock(handle, exclusive=False)
        finally:
            os.close(handle)

    def append(self, name: str, line: bytes) -> None:
        """Add one line, whole on return."""
        data = (b"\n" if name in self._torn else b"") + line
        self._torn.add(name)
        try:
            while data:
                data = data[os.write(self._handles[name], data) :]
        except OSError as error:
            raise unwritable(name, error.strerror or str(error)) from error
        self._torn.remove(name)

    def close(self, name: str, *, complete: bool) -> None:
        """Close the file, of a complete run once its content is on the disk."""
        handle = self._handles.pop(name)
        try:
            if complete:
                os.fsync(handle)
        except OSError as error:
            raise unwritable(name, error.strerror or str(error)) from error
        finally:
            os.close(handle)


def _lock(handle: int, *, exclusive: bool) -> bool:
    """Lock an open file until it is closed or the process dies, whichever way; False where another
    handle has it. On disks without locks it is as if none had.

    ``flock`` and not ``lockf``: a process reads the history while it writes a run, and the lock of
    ``lockf`` is gone as soon as the process closes any handle of the file. A child that is forked
    and outlives its parent keeps the lock until it ends.
    """
    try:
        import fcntl
    except ImportError:  # a system without such locks
        return True
    kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


class UnkeptStore:
    """The runs of ``kept``, and those of this process alone, which end with it: they are read
    and never stored.
    """

    def __init__(self, kept: HistoryStore) -> None:
        self.kept = kept
        self._lines: dict[str, list[bytes]] = {}

    def runs(self) -> Iterable[str]:
        """The names of both kinds."""
        return (*self.kept.runs(), *self._lines)

    def read(self, name: str) -> Iterator[bytes]:
        """The lines of one run."""
        return iter(self._lines[name]) if name in self._lines else self.kept.read(name)

    def create(self, run_id: str) -> str:
        """Begin a run in memory."""
        name = f"{run_id} (not kept)"
        if name in self._lines:
            raise FileExistsError(run_id)
        self._lines[name] = []
        return name

    def append(self, name: str, line: bytes) -> None:
        """Add one line in memory."""
        self._lines[name].append(line)

    def close(self, name: str, *, complete: bool) -> None:
        """Nothing: reports still read the lines."""


def store_of(place: HistoryStore | Path) -> HistoryStore:
    """The store at ``place``: a path is the folder of run files there.

    Raises:
        InputError: neither a path nor a store; a text is the common mistake.
    """
    if isinstance(place, Path):
        return FolderStore(place)
    if not callable(getattr(place, "runs", None)):
        raise InputError(
            "Opening a history",
            found=f"{place!r:.40}",
            expected="a pathlib.Path, or a store with the methods of HistoryStore",
            remedy="Write History(Path(…)), with the folder of run files.",
        )
    return place


def run_file(path: Path, folder: Path) -> RunFile:
    """The file at ``path``, of the history in ``folder``."""

    def state() -> tuple[int, int]:
        facts = path.stat()
        return facts.st_size, facts.st_mtime_ns

    return RunFile(shown_path(path.relative_to(folder)), str(path), state, path.read_bytes)


def run_files(folder: Path) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """The ``*.jsonl`` under ``folder``, sorted, and a sentence for each that is not a plain
    file.
    """
    paths = paths_below(folder, _ENDING)
    others = [path for path in paths if not _is_plain(path)]
    return tuple(path for path in paths if path not in others), tuple(
        str(not_plain(path)) for path in others
    )


def _is_plain(path: Path) -> bool:
    """Whether ``path`` can be read as a file: reading a pipe or a device would wait, or never
    end.
    """
    with contextlib.suppress(OSError):  # opening it raises the error with the cause
        return path.is_file() or not path.exists()
    return True


def shown_path(path: Path | str) -> str:
    """``path`` as text that can be written anywhere; what is not UTF-8 in a name is written as
    its numbers.
    """
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def not_plain(path: Path) -> StoreError:
    """The error of a pipe, a socket, a device or a folder where a run file should be."""
    return unreadable(path, "something that is not a plain file")


_COPY_AGAIN = "Move the file out of the history, or copy it again from where it came."


def unreadable(name: Path | str, found: str, *, remedy: str = _COPY_AGAIN) -> StoreError:
    """The error for a file that cannot be read as a run."""
    return StoreError(
        f"Reading the run file '{shown_path(name)}'",
        found=found,
        expected=f"lines of JSON that begin with a 'run' line ({FORMAT})",
        remedy=remedy,
    )


def unwritable(name: str, found: str) -> StoreError:
    """The error of a run file that cannot be written."""
    return StoreError(
        f"Writing the run file '{name}'",
        found=found,
        expected="a writable folder with free space",
        remedy="Make the folder writable, or name another one.",
    )
