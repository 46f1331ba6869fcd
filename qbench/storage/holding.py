"""Who is at work in a folder: locks of the kernel, which end with their process, however that ends.

A folder is made aside and held, a name is held by one process at a time. What nobody holds any more was left by a
process that was killed; the next one that makes something there sweeps it.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_MAKING, _HELD, _LOCK = ".making-", ".held", ".lock"


@contextlib.contextmanager
def made_aside(folder: Path) -> Iterator[Path]:
    """A new folder in ``folder``, held as long as somebody is inside and gone afterwards.

    Raises:
        OSError: ``folder`` cannot be written.
    """
    descriptor = None
    while descriptor is None:  # else it was swept in the moment before it was held
        work = Path(tempfile.mkdtemp(prefix=_MAKING, dir=folder))
        try:
            descriptor = _hold(work / _HELD)
        except FileNotFoundError:
            continue
        except OSError:
            descriptor = os.open(work, os.O_RDONLY)  # a disk without locks: nobody sweeps there either
    try:
        yield work
    finally:
        _remove(work, descriptor)


@contextlib.contextmanager
def alone(folder: Path, name: str) -> Iterator[None]:
    """``name`` in ``folder``, held by one process (and thread) at a time; the others wait.

    Raises:
        OSError: ``folder`` cannot be written, or its disk knows no locks.
    """
    path = folder / f"{name}{_LOCK}"
    descriptor = None
    while descriptor is None:  # else the one before us took the file away with the name
        descriptor = _hold(path, wait=True)
    try:
        yield
    finally:
        _remove(path, descriptor)


def sweep(folder: Path) -> None:
    """Remove what was made aside in ``folder``, and the files of names, that nobody holds any more."""
    with os.scandir(folder) as entries:
        left = [entry for entry in entries if entry.name.startswith(_MAKING) or entry.name.endswith(_LOCK)]
    for entry in left:
        path = Path(entry.path)
        with contextlib.suppress(OSError):  # it is of another user, or gone by now
            descriptor = _hold(path / _HELD if entry.is_dir(follow_symlinks=False) else path)
            if descriptor is not None:
                _remove(path, descriptor)


def _hold(path: Path, *, wait: bool = False) -> int | None:
    """A descriptor of the file at ``path``, made if there is none, which holds it until it is closed.

    None where somebody else holds it, or took it away meanwhile.

    Raises:
        OSError: its folder is gone or cannot be written, or its disk knows no locks.
    """
    with contextlib.ExitStack() as stack:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        stack.callback(os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(path.lstat(), os.fstat(descriptor)):
                return None
        except (BlockingIOError, FileNotFoundError):
            return None
        stack.pop_all()
    return descriptor


def _remove(path: Path, descriptor: int) -> None:
    """Take ``path`` away and only then let it go, so that nobody finds it between the two and holds what is doomed."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
    os.close(descriptor)
    with contextlib.suppress(OSError):
        path.rmdir()  # a network's disk keeps a folder while a file of it is open
