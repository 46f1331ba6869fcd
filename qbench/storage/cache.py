"""A content-addressed cache on disk, and the locks that processes hold on it."""

import atexit
import contextlib
import errno
import functools
import hashlib
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.errors import StoreError
from qbench.storage.files_read import are_unchanged, files_watched
from qbench.storage.places import ObjectFolder, PlaceError, is_url, place_of
from qbench.storage.seals import ALL_READ, SEAL, WAS_DAMAGED, Seal
from qbench.storage.source_digest import digest_plain

if TYPE_CHECKING:
    from filelock import FileLock

# Locks that end with their process, however that ends, and the removal of files that a killed
# process left.
#
# In the cache a folder is made under a temporary name and locked, and one process at a time locks a
# name. A file without a lock was left by a killed process; the next process that makes an entry
# there removes it. Only the holder of a lock removes its file; a process that waits for it then
# waits for the next file of that name.
#
# Where files of users are written (``baselines/``, ``reports/``, ``-o``) the lock and all temporary
# files are in one folder next to them, ``.qbench``, whose ``.gitignore`` excludes all of it from
# git and is the marker of a folder that qbench made. It is filled under another name and then
# renamed, and renamed again, still ignored, before it is removed. So a kill leaves nothing that git
# shows: the ``.gitignore`` appears with its content (``O_TMPFILE``; where a disk or a system has
# none, an empty one may be left between making and writing it). While no process writes, the folder
# does not exist; what a kill left is removed by the next command that looks there
# (``sweep_work_folder``).
#
# Only what qbench made is used or removed: never a symbolic link, a folder of another user or one
# without the marker, and in a folder with the marker only the lock and folders named by ``_PART``.
# Everything else stays, and then the folder stays too.

_MAKING, _LOCK = ".making-", ".lock"
_MADE = re.compile(rf"{re.escape(_MAKING)}[0-9a-f]{{16}}")
_WORK, _IGNORED, _HELD = ".qbench", ".gitignore", "lock"
_MARKER = (
    b"# Made by qbench for its lock and temporary files. The next qbench that writes here removes "
    b"it.\n*\n"
)
_PART = re.compile(r"part-[0-9a-f]{16}")
_ASIDE = re.compile(rf"{re.escape(_WORK)}-[0-9a-f]{{16}}")
_LOOKS = 3
"""How often a folder is looked at before it counts as foreign: others may replace it between
two system calls.
"""

_TRIES = 1000
"""How often the folder may be taken away under a waiting process before that gives up: a guard
against a loop.
"""


@contextlib.contextmanager
def made_aside(folder: Path) -> Iterator[Path]:
    """A new folder in ``folder``, held as long as a process is inside and gone afterwards.

    Raises:
        OSError: ``folder`` cannot be written.
    """
    work = folder / f"{_MAKING}{secrets.token_hex(8)}"
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # a disk without locks: nothing is swept there either
            stack.enter_context(alone(folder, work.name))
        work.mkdir()
        stack.callback(shutil.rmtree, work, ignore_errors=True)
        yield work


def _file_lock(path: Path, **how: Any) -> "FileLock":  # noqa: ANN401 - as FileLock has them
    from filelock import FileLock  # most commands lock nothing

    return FileLock(path, **how)


@contextlib.contextmanager
def alone(folder: Path, name: str) -> Iterator[None]:
    """``name`` in ``folder``, held by one process (and thread) at a time; the others wait.

    Raises:
        OSError: ``folder`` cannot be written, or its disk knows no locks.
    """
    path = folder / f"{name}{_LOCK}"
    lock = _file_lock(path)
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
    """``folder`` held by one process (and thread) at a time; gives a temporary folder in it.

    What qbench processes that were killed left there is removed first. Not reentrant.

    Raises:
        StoreError: ``folder`` cannot be written, its disk has no locks, or its ``.qbench`` is not
            qbench's.
    """
    with contextlib.ExitStack() as stack:
        try:
            part = stack.enter_context(_held(folder, waits=True))
        except OSError as error:
            raise StoreError(
                f"Locking '{folder}' to write in it",
                found=error.strerror or str(error),
                expected="a writable folder with free space, on a disk with file locks",
                remedy=f"Make it and '{folder / _WORK}' writable, or name another folder.",
            ) from error
        yield part


@contextlib.contextmanager
def spare_folder(folder: Path) -> Iterator[Path]:
    """A folder for temporary files of ``folder``: as ``work_folder`` without waiting, or else
    ``folder`` itself.

    ``folder`` itself where another process or user holds it, where ``.qbench`` is not qbench's
    (which anyone can cause in a shared folder), on a disk without locks, and where nothing can be
    written.
    """
    with contextlib.ExitStack() as stack:
        try:
            part = stack.enter_context(_held(folder, waits=False))
        except (OSError, StoreError):
            part = folder
        yield part


@contextlib.contextmanager
def _held(folder: Path, *, waits: bool) -> Iterator[Path]:
    work = folder / _WORK

    def require_in_place(handle: int) -> None:
        if not os.path.samestat(os.fstat(handle), (work / _HELD).stat()):
            # of a folder that was taken away meanwhile
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    lock = _file_lock(work / _HELD, blocking=waits, on_acquired=require_in_place)
    for tries_left in reversed(range(_TRIES)):
        try:
            if not _is_there(work):
                _make_ignored(work)
            lock.acquire()
            break
        except OSError as error:
            # other processes have just made it, or taken it away, or swept ours
            if not tries_left or error.errno not in (errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY):
                raise
    try:
        if _ignore_text(work) != _MARKER:
            (work / _IGNORED).write_bytes(_MARKER)
        for path in folder.iterdir():
            if _ASIDE.fullmatch(path.name):
                with contextlib.suppress(FileNotFoundError):  # its process has removed it
                    if not _foreign(path):
                        _clear(path)
        _remove_parts(work)
        part = work / f"part-{secrets.token_hex(8)}"
        part.mkdir()
        yield part
    finally:
        with contextlib.suppress(OSError):
            # some systems rename and remove nothing that is open: then it stays
            _remove_parts(work)
            if {path.name for path in work.iterdir()} <= {_IGNORED, _HELD}:
                gone = _aside(work)
                os.rename(work, gone)
                _clear(gone)
        lock.release()


def sweep_work_folder(folder: Path) -> None:
    """Remove what a killed process left for its lock in ``folder``, unless a process holds it;
    nothing else happens.

    For commands that read what others write there: a command that writes does it anyway.
    """
    with contextlib.suppress(OSError, StoreError):
        names = [path.name for path in folder.iterdir() if path.name.startswith(_WORK)]
        if any(name == _WORK or _ASIDE.fullmatch(name) for name in names):
            with _held(folder, waits=False):
                pass


def _is_there(work: Path) -> bool:
    """Whether ``work`` is there.

    Raises:
        StoreError: it is there, but qbench, run by this user, did not make it.
    """
    found = ""
    for _ in range(_LOOKS):
        try:
            found = _foreign(work)
        except FileNotFoundError:
            return False
        if not found:
            return True
    raise StoreError(
        f"Locking '{work.parent}' to write in it",
        found=f"{found} at '{work}'",
        expected="none there, or the folder that qbench makes for its lock and temporary files",
        remedy=f"Move '{work}' away, or name another folder.",
    )


def _foreign(folder: Path) -> str:
    """What ``folder`` is, where it cannot be one that qbench, run by this user, made; else an
    empty text.

    It can where it carries the marker; and where it holds nothing, or only an empty lock and the
    beginning of a marker: a kill leaves such a folder, and so does filelock when another process
    has just removed the folder of a lock.

    Raises:
        FileNotFoundError: it is not there.
    """
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode):
        return "a symbolic link" if stat.S_ISLNK(facts.st_mode) else "a file"
    if os.name != "nt" and facts.st_uid != os.geteuid():
        return "a folder of another user"
    text = _ignore_text(folder)
    if text == _MARKER:
        return ""
    try:
        with os.scandir(folder) as entries:
            is_begun = text is not None and _MARKER.startswith(text)
            is_bare = all(
                is_begun
                if entry.name == _IGNORED
                else entry.name == _HELD and _is_empty_file(entry)
                for entry in entries
            )
    except PermissionError:
        is_bare = False
    return "" if is_bare else "a folder that qbench did not make"


def _ignore_text(folder: Path) -> bytes | None:
    """The ``.gitignore`` in ``folder``; None where that is not a regular file of the marker's
    size or less.
    """
    path = folder / _IGNORED
    try:
        facts = path.lstat()
        if stat.S_ISREG(facts.st_mode) and facts.st_size <= len(_MARKER):
            return path.read_bytes()
    except OSError:
        pass
    return None


def _make_ignored(work: Path) -> None:
    """Make ``work``, with its ``.gitignore`` in it from the first moment.

    Raises:
        OSError: another process was faster (``ENOTEMPTY``, ``EEXIST``), or swept it, or it cannot
            be made.
    """
    new = _aside(work)
    new.mkdir(parents=True)
    try:
        _write_whole(new / _IGNORED, _MARKER)
        os.rename(new, work)
    except OSError:
        _clear(new)
        raise


def _write_whole(path: Path, data: bytes) -> None:
    """Put ``data`` at the new ``path``, which appears with it where the system can link a file
    without a name.
    """
    flags = getattr(os, "O_TMPFILE", 0)
    try:
        handle = os.open(path.parent, os.O_WRONLY | flags, 0o644) if flags else -1
    except OSError:  # this disk has none
        handle = -1
    if handle < 0:
        path.write_bytes(data)
        return
    try:
        os.write(handle, data)
        # only linkat follows
        os.link(f"/proc/self/fd/{handle}", path, src_dir_fd=handle, follow_symlinks=True)
    except OSError:  # a system without /proc, a disk that links no file without a name
        path.write_bytes(data)
    finally:
        os.close(handle)


def _aside(work: Path) -> Path:
    return work.with_name(f"{work.name}-{secrets.token_hex(8)}")


def _clear(folder: Path) -> None:
    """Remove ``folder`` and what qbench made in it; with anything else in it, it stays, ignored
    as before.

    The ``.gitignore`` goes last, so that git never shows what a kill leaves.
    """
    with contextlib.suppress(OSError):
        _remove_parts(folder)
        (folder / _HELD).unlink(missing_ok=True)
        if {path.name for path in folder.iterdir()} <= {_IGNORED}:
            (folder / _IGNORED).unlink(missing_ok=True)
            folder.rmdir()


def _remove_parts(folder: Path) -> None:
    """Remove the folders of temporary files in ``folder``; ``rmtree`` follows no link, at its
    root or below.
    """
    for path in folder.iterdir():
        if _PART.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove what was made aside in ``folder``, and the files of locks (empty, as locks are)
    that no process holds.
    """
    names = dict[str, None]()
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name.removesuffix(_LOCK)
            if _MADE.fullmatch(name) or (name != entry.name and _is_empty_file(entry)):
                names[name] = None
    for name in names:
        path = folder / f"{name}{_LOCK}"
        with contextlib.suppress(OSError), _file_lock(path, blocking=False):
            # held by others, of another user, or gone
            if _MADE.fullmatch(name):
                shutil.rmtree(folder / name, ignore_errors=True)
            _take_away(path)


def _is_empty_file(entry: os.DirEntry[str]) -> bool:
    try:
        facts = entry.stat(follow_symlinks=False)
    except OSError:  # removed meanwhile
        return False
    return stat.S_ISREG(facts.st_mode) and not facts.st_size


def _take_away(path: Path) -> None:
    """Remove the file of a lock that is held; some systems keep what is open."""
    with contextlib.suppress(OSError):
        path.unlink()


# A content-addressed cache on disk: a key is the digest of everything an entry was made from.
#
# An entry is made under a temporary name, written to the disk and renamed, so a killed process
# leaves no half entry, and two processes that make the same entry at the same time both end with a
# whole one. The next process that makes an entry removes what a killed process left under a
# temporary name.
#
# A sealed entry has a file ``<key>.sha256`` next to it, with the digest of each of its files. A
# process compares an entry with its seal when it first opens it and whenever a file has changed
# since; an entry that differs is made again, with a notice. An entry without a seal is of an older
# qbench; it is made again without a notice.

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def default_folder() -> Path:
    """``$QBENCH_CACHE`` where that is a folder, else ``qbench`` under the user's cache folder
    (``$XDG_CACHE_HOME``, ``~/.cache``).

    Raises:
        StoreError: neither variable is set, and the user has no home folder.
    """
    own = os.environ.get("QBENCH_CACHE")
    if own and not is_url(own):
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


def user_folder(kind: str, store: ObjectFolder) -> Path:
    """The folder of this computer, in the user's cache, for one kind of what belongs to a
    store: ``spool`` and ``stores``.
    """
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", store.url)[-60:].strip("-.")
    digest = hashlib.sha256(store.url.encode()).hexdigest()[:12]
    return default_folder() / kind / f"{name}-{digest}"


@dataclass(frozen=True, slots=True)
class Cache:
    """A folder of entries ``<kind>/<key>``, each one file or one folder that never changes.

    Args:
        shared: where entries of other computers are taken from, and those made here are stored.
    """

    folder: Path
    shared: ObjectFolder | None = None

    @classmethod
    def default(cls) -> "Cache":
        """The user's cache; where ``$QBENCH_CACHE`` is a URL, entries are shared there.

        Raises:
            InputError: it is a URL that is none of ``place_of``.
        """
        own = os.environ.get("QBENCH_CACHE", "")
        return cls.at(place_of(own)) if is_url(own) else cls(default_folder())

    @classmethod
    def at(cls, place: Path | ObjectFolder) -> "Cache":
        """The cache in a folder, or the user's with the entries that are shared behind a URL."""
        return cls(place) if isinstance(place, Path) else cls(default_folder(), place)

    def entry(
        self, kind: str, key: str, make: Callable[[Path], None], *, sealed: bool = True
    ) -> Path:
        """The path of entry (kind, key); when absent or damaged, ``make(path)`` writes it to a
        temporary path first.

        Args:
            kind: what it is, one word; a subfolder of the cache.
            key: file name: the digest of the entry's inputs, with a suffix if a reader wants one.
            make: creates a file or a folder at the path it is given.
            sealed: False for what its reader verifies by itself, or what changes while it is used.

        Raises:
            StoreError: the cache folder cannot be written or read, or its disk is full. What else
                ``make`` raises passes through.
        """
        path = self.folder / kind / key
        if self._is_usable(path, sealed=sealed):
            return path
        with contextlib.ExitStack() as stack:
            with self._making_room(kind, key):
                work = stack.enter_context(made_aside(path.parent))
            made = work / key
            with self._having_room(kind, key):
                if sealed:
                    fetched = self._fetched(kind, key, made)
                    content = fetched or self._made(made, make)
                    seal = work / SEAL
                    seal.write_text(content.text())
                    _write_through(seal)
                    _write_through(made)
                    if fetched is None:
                        self._share(kind, key, made, content)
                    self._publish(made, seal, path)
                else:
                    make(made)
                    _replace(made, path)
        return path

    def _made(self, made: Path, make: Callable[[Path], None]) -> Seal:
        with files_watched(self.folder) as read:
            make(made)
        return Seal(_digests(made), read)

    def _fetched(self, kind: str, key: str, made: Path) -> Seal | None:
        """The seal of an entry that another computer made, once its files are at ``made``; None:
        there is none that can be used.
        """
        if self.shared is None or self._is_away:
            return None
        from qbench.storage.shared_entries import SharedEntries

        try:
            digests = SharedEntries(self.shared).fetch(kind, key, made)
        except StoreError as error:
            self._note_shared(error)
            _remove(made)
            return None
        return None if digests is None else Seal(digests, {})

    def _share(self, kind: str, key: str, made: Path, seal: Seal) -> None:
        """Store an entry for other computers, unless it was made from files of this one."""
        if self.shared is None or self._is_away or seal.read:
            return
        from qbench.storage.shared_entries import SharedEntries

        try:
            SharedEntries(self.shared).store(kind, key, made, seal.digests)
        except StoreError as error:
            self._note_shared(error)

    @property
    def _is_away(self) -> bool:
        """Whether the shared entries could not be reached before in this process."""
        return f"away: {self.shared}" in _told(self.folder)

    def _note_shared(self, error: StoreError) -> None:
        """Say once what is wrong; after an outage this process goes on alone."""
        if isinstance(error, PlaceError):
            _told(self.folder).add(f"away: {self.shared}")
        if str(error) not in _told(self.folder):
            self.note(str(error))
            sys.stderr.write(f"qbench: {error}\n")

    def read_for(self, entry: Path) -> str:
        """The digest of the files that code of users read while ``entry`` was made; empty:
        none.
        """
        with contextlib.suppress(FileNotFoundError):
            read = Seal.of(entry).read
            return digest_plain(read) if read else ""
        return ""

    def passing_entry(
        self,
        kind: str,
        key: str,
        make: Callable[[Path], None],
        *,
        held: tuple[object, ...],
        why: str,
    ) -> Path:
        """As ``entry``, for what no key can tell from others: made once by this process, and
        gone with it.

        Args:
            held: the objects that it is made with: others have an entry of their own, also of the
                same key.
            why: what keeps it from being used again; a notice says so, once in a process.

        Raises:
            StoreError: as ``entry``.
        """
        made = _passing(self.folder / kind, os.getpid())
        identity = (key, *map(id, held))
        if identity not in made:
            with self._making_room(kind, key):
                stack = contextlib.ExitStack()
                work = stack.enter_context(made_aside(self.folder / kind))
            atexit.register(stack.close)
            with self._having_room(kind, key):
                make(work / key)
            made[identity] = work / key, held  # kept, so that no other object gets the id
            self.note(f"{why}: '{kind}' in the cache is made anew in every run")
        return made[identity][0]

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
        """Move ``made`` and its ``seal`` to ``path``, unless another process was faster; one at
        a time does.
        """
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):  # a disk without locks
                stack.enter_context(alone(path.parent, path.name + SEAL))
            damage = _broken(path)
            if damage is None:
                return
            if damage:
                text = (
                    f"'{path.parent.name}/{path.name}' {WAS_DAMAGED} ({damage}) and was made again"
                )
                _notices(self.folder).append(text)
                sys.stderr.write(f"qbench: {text}\n")
            with contextlib.suppress(FileNotFoundError):
                os.replace(path, made.with_name("former"))
            os.replace(seal, path.with_name(path.name + SEAL))
            os.replace(made, path)
            _sync(path.parent)

    def note(self, text: str) -> None:
        """Add the notice ``text``, once in a process."""
        if text not in _told(self.folder):
            _told(self.folder).add(text)
            _notices(self.folder).append(text)

    def take_notices(self) -> tuple[str, ...]:
        """Notices of entries that were damaged and made again since the last call in this
        process.
        """
        waiting = _notices(self.folder)
        taken = tuple(waiting)
        del waiting[: len(taken)]
        return taken

    @contextlib.contextmanager
    def alone(self, kind: str, key: str) -> Iterator[None]:
        """Entry (kind, key) held by one process at a time, for what is better made once; the
        others wait.

        Raises:
            StoreError: the cache folder cannot be written.
        """
        with contextlib.ExitStack() as stack:
            with self._making_room(kind, key):
                stack.enter_context(alone(self.folder / kind, key))
            yield

    @contextlib.contextmanager
    def _making_room(self, kind: str, key: str) -> Iterator[None]:
        """The folder of ``kind`` exists, without what killed processes left; an OSError is one
        sentence.
        """
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
def _notices(folder: Path) -> list[str]:  # noqa: ARG001 - one list per cache
    """Notices of entries made again in ``folder`` that were not reported yet."""
    return []


@functools.cache
def _told(folder: Path) -> set[str]:  # noqa: ARG001 - one set per cache
    """The notices that are given once in a process."""
    return set()


@functools.cache
def _passing(
    folder: Path,  # noqa: ARG001
    process: int,  # noqa: ARG001
) -> dict[tuple[object, ...], tuple[Path, tuple[object, ...]]]:
    """The entries of ``folder`` that this process alone uses."""
    return {}


@functools.cache
def _verified(path: Path) -> dict[str, tuple[int, int, int]]:  # noqa: ARG001 - one table per entry
    """The files of the entry at ``path`` as this process last compared them with their seal."""
    return {}


def _broken(path: Path) -> str | None:
    """What is wrong with the sealed entry at ``path``, in words; empty: it is absent, unsealed,
    or made from files that have changed; None: nothing.

    Raises:
        OSError: it cannot be read; a disk that fails to read what it has is damage.
    """
    try:
        states = {name: _state(file) for name, file in _files(path).items()}
        seal = Seal.of(path)
    except FileNotFoundError:
        return ""
    if seal.is_whole and not are_unchanged(seal.read):
        return ""
    if _verified(path) == states != {}:
        return None
    try:
        found = _digests(path)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return error.strerror or "unreadable"
    wanted = {name: one for name, one in seal.digests.items() if name != ALL_READ}
    wrong = sorted(
        name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)
    )
    if not seal.is_whole:
        wrong.append(SEAL)
    if wrong:
        return f"{wrong[0] or 'its file'} is not as it was written"
    known = _verified(path)
    known.clear()
    known.update(states)
    return None


def _remove(path: Path) -> None:
    """Remove the file or folder at ``path``, if there is one."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _files(path: Path) -> dict[str, Path]:
    """The files of an entry by their names in it; one that is a file itself has an empty name."""
    if not path.is_dir():
        path.stat()  # raises where there is nothing
        return {"": path}
    return {
        file.relative_to(path).as_posix(): file
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


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
