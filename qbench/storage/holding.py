"""Who is at work in a folder: locks that end with their process, however that ends.

A folder is made aside and held, a name is held by one process at a time. What nobody holds any more was left by a
process that was killed; the next one that makes something there sweeps it. Whoever takes the file of a lock away holds
it, and whoever waits for it then waits for the next one.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock

_MAKING, _LOCK = ".making-", ".lock"


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
