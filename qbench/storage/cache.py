"""A content-addressed cache on disk: a key is the digest of everything an entry was made from.

An entry is made under a temporary name, written to the disk and renamed, so a killed process leaves no half entry, and
two processes that make the same one at the same time both end with a whole one. What a killed process left under such a
name is swept by the next that makes an entry there.

A sealed entry has a file ``<key>.sha256`` next to it, with the digest of each of its files. A process compares an entry
with its seal when it first opens it and whenever a file has changed since; what differs is made anew, with a notice. So
does an entry without a seal, without one: it is of an older qbench.
"""

import contextlib
import errno
import functools
import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from qbench.errors import StoreError
from qbench.storage.holding import alone, made_aside, sweep

_SEAL = ".sha256"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def default_folder() -> Path:
    """``$QBENCH_CACHE``, else ``qbench`` under the user's cache folder (``$XDG_CACHE_HOME``, ``~/.cache``).

    Raises:
        StoreError: neither variable is set, and the user has no home folder.
    """
    if own := os.environ.get("QBENCH_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "qbench"
    except RuntimeError as error:
        raise StoreError(
            "Looking for the folder of the cache",
            found="a user without a home folder",
            expected="$HOME, or a folder that is named",
            remedy="Set QBENCH_CACHE to a writable folder.",
        ) from error


@dataclass(frozen=True, slots=True)
class Cache:
    """A folder of entries ``<kind>/<key>``; each entry is one file or one folder and never changes."""

    folder: Path

    @classmethod
    def default(cls) -> "Cache":
        """The user's cache."""
        return cls(default_folder())

    def entry(self, kind: str, key: str, make: Callable[[Path], None], *, sealed: bool = True) -> Path:
        """The path of entry (kind, key); when absent or damaged, ``make(path)`` writes it to a temporary path first.

        Args:
            kind: what it is, one word; a subfolder of the cache.
            key: file name: the digest of the entry's inputs, with a suffix if a reader wants one.
            make: creates a file or a folder at the path it is given.
            sealed: False for what its reader verifies by itself, or what changes while it is used.

        Raises:
            StoreError: the cache folder cannot be written or read, or its disk is full. What else ``make`` raises
                passes through.
        """
        path = self.folder / kind / key
        if self._is_usable(path, sealed=sealed):
            return path
        with contextlib.ExitStack() as stack:
            with self._making_room(kind, key):
                work = stack.enter_context(made_aside(path.parent))
            made = work / key
            with self._having_room(kind, key):
                make(made)
                if sealed:
                    seal = work / _SEAL
                    seal.write_text("".join(f"{digest}  {name}\n" for name, digest in _digests(made).items()))
                    _write_through(seal)
                    _write_through(made)
                    self._publish(made, seal, path)
                else:
                    _replace(made, path)
        return path

    def _is_usable(self, path: Path, *, sealed: bool) -> bool:
        """Whether ``path`` is there and as it was written.

        Raises:
            StoreError: it cannot be read.
        """
        try:
            if not sealed:
                return path.exists()
            return _broken(path) is None
        except OSError as error:
            raise StoreError(
                f"Reading '{path.parent.name}/{path.name}' in the cache",
                found=error.strerror or str(error),
                expected=f"readable files below '{self.folder}'",
                remedy="Make them readable, or set QBENCH_CACHE to another folder.",
            ) from error

    def _publish(self, made: Path, seal: Path, path: Path) -> None:
        """Move ``made`` and its ``seal`` to ``path``, unless another process was faster; one at a time does."""
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):  # a disk without locks
                stack.enter_context(alone(path.parent, path.name + _SEAL))
            damage = _broken(path)
            if damage is None:
                return
            if damage:
                text = f"'{path.parent.name}/{path.name}' in the cache was damaged ({damage}) and was made anew"
                _notices(self.folder).append(text)
                sys.stderr.write(f"qbench: {text}\n")
            with contextlib.suppress(FileNotFoundError):
                os.replace(path, made.with_name("former"))
            os.replace(seal, path.with_name(path.name + _SEAL))
            os.replace(made, path)
            _sync(path.parent)

    def take_notices(self) -> tuple[str, ...]:
        """What was damaged here and made anew, since this process asked last."""
        waiting = _notices(self.folder)
        taken = tuple(waiting)
        del waiting[: len(taken)]
        return taken

    @contextlib.contextmanager
    def alone(self, kind: str, key: str) -> Iterator[None]:
        """Entry (kind, key) held by one process at a time, for what is better made once; the others wait.

        Raises:
            StoreError: the cache folder cannot be written.
        """
        with contextlib.ExitStack() as stack:
            with self._making_room(kind, key):
                stack.enter_context(alone(self.folder / kind, key))
            yield

    @contextlib.contextmanager
    def _making_room(self, kind: str, key: str) -> Iterator[None]:
        """The folder of ``kind`` exists, without what killed processes left; an OSError is one sentence."""
        folder = self.folder / kind
        try:
            folder.mkdir(parents=True, exist_ok=True)
            sweep(folder)
            yield
        except OSError as error:
            raise StoreError(
                f"Making room in the cache for '{kind}/{key}'",
                found=error.strerror or str(error),
                expected=f"a writable folder '{self.folder}'",
                remedy="Make it writable, or set QBENCH_CACHE to another folder.",
            ) from error

    @contextlib.contextmanager
    def _having_room(self, kind: str, key: str) -> Iterator[None]:
        """A full disk is one sentence."""
        try:
            yield
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            raise StoreError(
                f"Writing '{kind}/{key}' into the cache",
                found=error.strerror or str(error),
                expected=f"room below '{self.folder}'",
                remedy="Make room there, or set QBENCH_CACHE to a folder on another disk.",
            ) from error


@functools.cache
def _notices(folder: Path) -> list[str]:  # noqa: ARG001 - of each cache its own
    """What was made anew in ``folder`` and was not reported yet."""
    return []


@functools.cache
def _verified(path: Path) -> dict[str, tuple[int, int, int]]:  # noqa: ARG001 - of each entry its own
    """The files of the entry at ``path`` as this process last compared them with their seal."""
    return {}


def _broken(path: Path) -> str | None:
    """What is wrong with the sealed entry at ``path``, in words; empty: it is absent or unsealed; None: nothing.

    Raises:
        OSError: it cannot be read; a disk that fails to read what it has is damage.
    """
    try:
        states = {name: _state(file) for name, file in _files(path).items()}
        sealed = path.with_name(path.name + _SEAL).read_bytes().decode("ascii", errors="replace")
    except FileNotFoundError:
        return ""
    if _verified(path) == states != {}:
        return None
    try:
        found = _digests(path)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return error.strerror or "unreadable"
    wanted = {name: digest for digest, _, name in (line.partition("  ") for line in sealed.splitlines())}
    wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if wrong:
        return f"{wrong[0] or 'its file'} is not as it was written"
    known = _verified(path)
    known.clear()
    known.update(states)
    return None


def _files(path: Path) -> dict[str, Path]:
    """The files of an entry by their names in it; one that is a file itself has an empty name."""
    if not path.is_dir():
        path.stat()  # raises where there is nothing
        return {"": path}
    return {file.relative_to(path).as_posix(): file for file in sorted(path.rglob("*")) if file.is_file()}


def _state(file: Path) -> tuple[int, int, int]:
    """What changes when a file is written again."""
    status = file.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _digests(path: Path) -> dict[str, str]:
    found = {}
    for name, file in _files(path).items():
        with file.open("rb") as stream:
            found[name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found


def _replace(made: Path, path: Path) -> None:
    """Move ``made`` to ``path``, unless another process was faster with the same content."""
    try:
        os.replace(made, path)
    except OSError:
        if not path.exists():
            raise


def _write_through(path: Path) -> None:
    """Have the disk keep a file or a folder before it gets its name."""
    for file in _files(path).values():
        _sync(file)
    if path.is_dir():
        _sync(path)


def _sync(path: Path) -> None:
    with contextlib.suppress(OSError):  # some systems open no folder, some disks cannot
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
