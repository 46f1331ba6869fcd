"""Locks that end with their process, however that ends, and the sweeping of what a killed process left.

In the cache a folder is made aside and held, and a name is held by one process at a time. What no process holds any
more was left by one that was killed; the next one that makes something there sweeps it. Only the holder of a lock
removes its file, and a process that waits for it then waits for the next file of that name.

Where files of users are written (``baselines/``, ``reports/``, ``-o``) the lock and all temporary files are in one
folder next to them, ``.qbench``, which holds a ``.gitignore`` for itself: ``git add`` takes nothing of it. It appears
by a rename, already ignored, and goes by a rename, still ignored, so that a kill leaves nothing that git shows (but for
an empty ``.gitignore``, between making and writing that file). Without a process at work there is no such folder.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock

from qbench.errors import StoreError

_MAKING, _LOCK = ".making-", ".lock"
_WORK, _IGNORED, _HELD = ".qbench", ".gitignore", "lock"
_TRIES = 1000
"""How often the folder may be taken away under a waiting process before that gives up: a guard against a loop."""


@contextlib.contextmanager
def made_aside(folder: Path) -> Iterator[Path]:
    """A new folder in ``folder``, held as long as somebody is inside and gone afterwards.

    Raises:
        OSError: ``folder`` cannot be written.
    """
    work = folder / f"{_MAKING}{secrets.token_hex(8)}"
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # a disk without locks: nobody sweeps there either
            stack.enter_context(alone(folder, work.name))
        work.mkdir()
        stack.callback(shutil.rmtree, work, ignore_errors=True)
        yield work


@contextlib.contextmanager
def alone(folder: Path, name: str) -> Iterator[None]:
    """``name`` in ``folder``, held by one process (and thread) at a time; the others wait.

    Raises:
        OSError: ``folder`` cannot be written, or its disk knows no locks.
    """
    path = folder / f"{name}{_LOCK}"
    lock = FileLock(path)
    try:
        lock.acquire()
    except OSError:
        _take_away(path)
        raise
    try:
        yield
    finally:
        _take_away(path)
        lock.release()


@contextlib.contextmanager
def work_folder(folder: Path) -> Iterator[Path]:
    """``folder`` held by one process (and thread) at a time; gives a folder in it for temporary files.

    What processes that were killed left there is removed first. Not reentrant.

    Raises:
        StoreError: ``folder`` cannot be written, or its disk has no locks.
    """
    with contextlib.ExitStack() as stack:
        try:
            work = stack.enter_context(_held(folder, waits=True))
        except OSError as error:
            raise StoreError(
                f"Locking '{folder}' to write in it",
                found=error.strerror or str(error),
                expected="a writable folder with free space, on a disk with file locks",
                remedy=f"Make it and '{folder / _WORK}' writable, or name another folder.",
            ) from error
        yield work


@contextlib.contextmanager
def spare_folder(folder: Path) -> Iterator[Path]:
    """A folder for temporary files of ``folder``: as ``work_folder`` without waiting, or else ``folder`` itself."""
    with contextlib.ExitStack() as stack:
        try:
            work = stack.enter_context(_held(folder, waits=False))
        except OSError:  # held by another process, of another user, on a disk without locks; or nothing can be written
            work = folder
        yield work


@contextlib.contextmanager
def _held(folder: Path, *, waits: bool) -> Iterator[Path]:
    work = folder / _WORK
    lock = FileLock(work / _HELD, blocking=waits)
    for tries_left in reversed(range(_TRIES)):
        try:
            _make_ignored(work)
            lock.acquire()
            break
        except FileNotFoundError:  # the process that held the folder has just taken it away, or swept ours
            if not tries_left:
                raise
    try:
        for path in (*folder.glob(f"{_WORK}-*"), *work.iterdir()):
            if path.name not in (_IGNORED, _HELD):
                _remove(path)
        yield work
    finally:
        gone = _aside(work)
        with contextlib.suppress(OSError):  # some systems rename and remove nothing that is open: then it stays
            os.rename(work, gone)
            _clear(gone)
        lock.release()


def _make_ignored(work: Path) -> None:
    """Make ``work``, with its ``.gitignore`` in it from the first moment."""
    if work.is_dir():
        return
    new = _aside(work)
    new.mkdir(parents=True)
    (new / _IGNORED).write_text("*\n", encoding="utf-8")
    try:
        os.rename(new, work)
    except FileNotFoundError:
        raise
    except OSError:  # another process was faster
        _remove(new)
        if not work.is_dir():
            raise


def _aside(work: Path) -> Path:
    return work.with_name(f"{work.name}-{secrets.token_hex(8)}")


def _clear(folder: Path) -> None:
    """Remove ``folder``; its ``.gitignore`` goes last, so that git never shows what a kill leaves."""
    for path in folder.iterdir():
        if path.name != _IGNORED:
            _remove(path)
    (folder / _IGNORED).unlink(missing_ok=True)
    folder.rmdir()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        with contextlib.suppress(OSError):
            _clear(path)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def sweep(folder: Path) -> None:
    """Remove what was made aside in ``folder``, and the files of locks, that nobody holds any more."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries]
    for name in dict.fromkeys(
        one.removesuffix(_LOCK) for one in names if one.startswith(_MAKING) or one.endswith(_LOCK)
    ):
        path = folder / f"{name}{_LOCK}"
        with contextlib.suppress(OSError), FileLock(path, blocking=False):  # held by others, of another user, or gone
            if name.startswith(_MAKING):
                shutil.rmtree(folder / name, ignore_errors=True)
            _take_away(path)


def _take_away(path: Path) -> None:
    """Remove the file of a lock that is held; some systems keep what is open."""
    with contextlib.suppress(OSError):
        path.unlink()
