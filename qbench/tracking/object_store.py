"""A history behind a URL: each run is one write-once object, ``<run id>.jsonl``.

An object cannot be added to. So a run grows line by line in a file of this computer, in the spool,
and is stored whole when it ends. A store that does not answer then ends nothing: the file stays in
the spool, and the next run that writes to the same store stores it.

A run begins with the object ``<run id>.begun``, which one computer alone can create: it reserves
the id. What was read of a store is kept in the cache folder as long as the listing has it
unchanged: objects never change, so that each is fetched once.
"""

import contextlib
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.errors import QbenchError, StoreError, UnavailableError
from qbench.number_text import counted
from qbench.storage import (
    ObjectFacts,
    ObjectFolder,
    OtherContentError,
    PlaceError,
    digest_bytes,
    object_of_line,
    place_of,
    user_folder,
    write_bytes,
)
from qbench.tracking.attempts import job_of
from qbench.tracking.store import FolderStore, HistoryStore, RunFile, store_of, unreadable

if TYPE_CHECKING:
    from filelock import FileLock

_RUN, _HEAD, _BEGUN, _LOCK = ".jsonl", ".head", ".begun", ".lock"
_COPY = re.compile(rf"[0-9a-f]{{32}}({re.escape(_RUN)}|{re.escape(_HEAD)})")
_HEAD_BYTES = 1 << 14
"""Of each run that is fetched to put it in order: its first line has about 1,000 bytes."""
_AT_ONCE = 64
"""Runs whose first lines are asked for at the same time."""
NAME_DIGITS = 12
"""Of the digest in the name of a run whose own name is taken."""
_PAUSE_S = 10.0
"""After a failure, for so long a store is not asked again which runs it has: each question may wait
for a minute.
"""


class NotStoredError(StoreError):
    """A run is whole in the spool, and not in the store."""


class ObjectStore:
    """The run files ``*.jsonl`` behind a URL at any depth, named by their URLs.

    Args:
        goes_on: as a night does: where the store does not answer, ``runs`` gives the runs of this
            computer alone, and ``outage`` is the reason; some seconds later it is asked again.
            Else that is an error.
    """

    def __init__(self, folder: ObjectFolder, *, goes_on: bool = False) -> None:
        self.folder = folder
        self.goes_on = goes_on
        self.outage: QbenchError | None = None
        """Why the store was not reached, until it is reached again."""
        self._asks_from = 0.0
        """``time.monotonic`` of the end of the pause after the last failure."""
        self._has_waiting = False
        """Whether it was not reached since runs of earlier nights were last stored."""
        self._listed: dict[str, ObjectFacts] = {}
        self._open: dict[str, tuple[FolderStore, Path]] = {}
        self._locks: dict[Path, FileLock] = {}
        self._notices: list[str] = []

    @property
    def spool(self) -> Path:
        """The folder of the runs that this computer has not stored yet."""
        return user_folder("spool", self.folder)

    @property
    def kept(self) -> Path:
        """A folder of this computer for what is made from the runs of this store."""
        return user_folder("stores", self.folder)

    @property
    def may_exist(self) -> bool:
        """Whether something can be there: False where the folder of a ``file://`` is not, and no
        run waits for it. A bucket has no folders, and nothing is asked of it.
        """
        return (
            self.folder.scheme != "file" or Path(self.folder.path).is_dir() or self.spool.is_dir()
        )

    def take_notices(self) -> tuple[str, ...]:
        """Sentences about runs of earlier nights that were stored since the last call, or could
        not be.
        """
        taken = tuple(dict.fromkeys(self._notices))  # each number that is tried delivers again
        self._notices.clear()
        return taken

    # Reading.

    def runs(self) -> Iterable[str]:
        """The URLs of the runs, sorted, with those that wait in the spool.

        Raises:
            StoreError: the store does not answer, or refuses.
        """
        is_paused = self.outage is not None and time.monotonic() < self._asks_from
        if not (self.goes_on and is_paused):
            try:
                self._list()
            except StoreError as error:
                if not self.goes_on:
                    raise
                self._note_outage(error)
        names = {*self._listed, *(path.name for path in self._spooled())}
        return [self._url(name) for name in sorted(names)]

    def _note_outage(self, error: QbenchError) -> None:
        self.outage = error
        self._asks_from = time.monotonic() + _PAUSE_S
        self._has_waiting = True

    def read(self, name: str) -> Iterator[bytes]:
        """The lines of one run; for the first one alone little is fetched."""
        inner = self._inner(name)
        here = self._here(inner)
        has_head = False
        try:
            if here is None:
                head = self._copy(inner, _HEAD)
                if head.is_file():
                    has_head = True
                    yield head.read_bytes()
                here = self._fetched(inner, name)
            with here.open("rb") as file:
                for number, line in enumerate(file):
                    if number or not has_head:
                        yield line
        except OSError as error:
            raise unreadable(name, error.strerror or type(error).__name__) from error

    def files(self) -> tuple[tuple[RunFile, ...], tuple[str, ...]]:
        """The runs as files, for what asks which of them have changed."""
        return tuple(self._file(name) for name in self.runs()), ()

    def stored_files(self) -> tuple[RunFile, ...]:
        """The runs that are in the store, without those that wait in the spool.

        Raises:
            StoreError: the store does not answer, or refuses.
        """
        self._list()
        return tuple(self._file(self._url(name)) for name in self._listed)

    def _file(self, name: str) -> RunFile:
        inner = self._inner(name)

        def state() -> tuple[int, int]:
            facts = self._listed.get(inner)
            if facts is None:
                status = (self.spool / inner).stat()
                return status.st_size, status.st_mtime_ns
            # 60 bits: the largest number of 15 digits that every database holds
            return facts.size, int(digest_bytes(facts.state.encode())[:15], 16)

        return RunFile(inner, name, state, lambda: b"".join(self.read(name)))

    def _list(self) -> None:
        """Ask which runs there are, and for the first lines of those that are new here."""
        self._listed = self.folder.listing(_RUN)
        self.outage = None
        wanted = {self._copy(name, end).name for name in self._listed for end in (_RUN, _HEAD)}
        with contextlib.suppress(OSError):  # no folder yet, or another process removes them
            for path in self.kept.iterdir():
                if _COPY.fullmatch(path.name) and path.name not in wanted:
                    path.unlink(missing_ok=True)
        new = [
            name
            for name in self._listed
            if self._here(name) is None and not self._copy(name, _HEAD).is_file()
        ]
        for first in range(0, len(new), _AT_ONCE):
            self._keep_heads(new[first : first + _AT_ONCE])

    def _keep_heads(self, names: Sequence[str]) -> None:
        for name, start in zip(names, self.folder.read_starts(names, _HEAD_BYTES), strict=True):
            line, end, _ = start.partition(b"\n")
            if end:
                self._write(self._copy(name, _HEAD), line + end)

    def _here(self, inner: str) -> Path | None:
        """The file of this computer that has the content of a run; None: it is to be fetched."""
        facts = self._listed.get(inner)
        if facts is None:
            return path if (path := self.spool / inner).is_file() else None
        path = self._copy(inner, _RUN)
        return path if path.is_file() and path.stat().st_size == facts.size else None

    def _fetched(self, inner: str, name: str) -> Path:
        """The file of this computer with the content of a run, once it is fetched.

        Raises:
            StoreError: there is no such run, or the store does not answer.
        """
        if inner not in self._listed:
            self._listed = {**self._listed, **self.folder.listing(inner)}
        content = self.folder.read(inner) if inner in self._listed else None
        if content is None or len(content) != self._listed[inner].size:
            found = "no such object" if content is None else "another size than in the listing"
            raise unreadable(name, found, remedy="Do this again: it was removed or replaced.")
        path = self._copy(inner, _RUN)
        self._write(path, content)
        with contextlib.suppress(OSError):
            self._copy(inner, _HEAD).unlink(missing_ok=True)
        return path

    def _copy(self, inner: str, ending: str) -> Path:
        """Where what is read of a run is kept: a name for each state of the object."""
        state = self._listed[inner].state if inner in self._listed else ""
        digest = digest_bytes(repr((inner, state)).encode())
        return self.kept / f"{digest[:32]}{ending}"

    def _write(self, path: Path, content: bytes) -> None:
        with contextlib.suppress(OSError):  # writing says why
            path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, content, aside=path.parent, lasting=False)

    # Writing.

    def create(self, run_id: str) -> str:
        """Begin a run in the spool, and reserve its id where the store answers.

        Raises:
            FileExistsError: there is a run of this id, or it has begun elsewhere.
            StoreError: the spool cannot be written.
        """
        if self.outage is None:
            self.deliver()
        spool = FolderStore(self.spool)
        path = Path(spool.create(run_id))
        name = self._url(path.name)
        self._hold(path)
        self._open[name] = spool, path
        try:
            if self.outage is None:
                self._reserve(run_id)
        except FileExistsError:
            del self._open[name]
            spool.close(str(path), complete=False)
            self._remove(path)
            raise
        except PlaceError as error:
            self._note_outage(error)
        return name

    def is_growing(self, name: str) -> bool:
        """Whether another process of this computer writes the run in the spool."""
        path = self.spool / self._inner(name)
        if path in self._locks or not path.is_file():
            return False
        if not self._hold(path):
            return True
        self._release(path)
        return False

    def append(self, name: str, line: bytes) -> None:
        """Add one line to the run in the spool."""
        spool, path = self._open[name]
        spool.append(str(path), line)

    def close(self, name: str, *, complete: bool) -> None:
        """Store the run, complete or not.

        Raises:
            NotStoredError: the store does not answer, or refuses, or has another run of this id;
                the run stays in the spool.
        """
        del complete  # an object is on the disks of its store, and the spool until then on this one
        spool, path = self._open.pop(name)
        try:
            spool.close(str(path), complete=True)
            self._store(path)
        finally:
            self._release(path)
        if self._has_waiting:
            self.deliver()

    def deliver(self) -> None:
        """Store the runs of earlier nights that are in the spool, unless a process still writes
        them; notices say what was done.
        """
        self._has_waiting = False
        self._remove_idle_locks()
        waiting = [path for path in self._spooled() if path not in self._locks]
        for number, path in enumerate(waiting):
            if not self._hold(path):
                continue
            try:
                if path.stat().st_size:
                    self._store(path)
                    self._notices.append(
                        f"The run '{path.stem}' of an earlier night is in '{self.folder}' now."
                    )
                else:  # begun, and nothing written
                    self._remove(path)
            except FileNotFoundError:
                continue  # another process was faster
            except NotStoredError as error:
                self._notices.append(str(error))
                if self.outage is not None:
                    self._notice_others(len(waiting) - number - 1)
                    return
            finally:
                self._release(path)

    def add(self, run_id: str, content: bytes) -> str:
        """Store one run whole; its name.

        Raises:
            FileExistsError: there is another run of this id.
            StoreError: the store does not answer, or refuses.
        """
        inner = f"{run_id}{_RUN}"
        try:
            self.folder.create(inner, content)
        except FileExistsError:
            if self.folder.read(inner) != content:
                raise
        return self._url(inner)

    def require_open(self) -> None:
        """Check that the store answers.

        Raises:
            StoreError: it does not, or refuses.
            UnavailableError: a package that reaches it is not installed.
        """
        self.folder.require_client()
        self.runs()

    def _reserve(self, run_id: str) -> None:
        token = f"{run_id} {secrets.token_hex(16)}\n".encode()
        if self.folder.has(f"{run_id}{_RUN}"):
            raise FileExistsError(run_id)
        try:
            self.folder.create(f"{run_id}{_BEGUN}", token)
        except FileExistsError:
            # the client tries again where an answer is lost, and then finds our own
            if self.folder.read(f"{run_id}{_BEGUN}") != token:
                raise

    def _store(self, path: Path) -> None:
        """Store what the spool has at ``path``, and remove it there."""
        try:
            self._keep(path)
        except StoreError as error:
            self.outage = None
            remedy = f"{error.remedy} The run is kept in '{path}'."
            if isinstance(error, PlaceError):
                self._note_outage(error)
                remedy = (
                    f"It is kept in '{path}': the next run with this store stores it, or "
                    f"'qbench merge {path} -o {self.folder}'."
                )
            raise NotStoredError(
                f"Storing the run '{path.stem}' in '{self.folder}'",
                found=error.found,
                expected=error.expected,
                remedy=remedy,
            ) from error
        self.outage = None
        self._remove(path)

    def _keep(self, path: Path) -> None:
        """Make the object of the run at ``path``. An attempt whose number another machine took
        while the store was away gets the name that a merge gives it.
        """
        content = path.read_bytes()
        try:
            self.folder.keep(path.name, content)
        except OtherContentError:
            if not _is_other_attempt(content, self.folder.read(path.name) or b""):
                raise
            digest = digest_bytes(content)[:NAME_DIGITS]
            self.folder.keep(f"{path.stem}.{digest}{_RUN}", content)

    def _notice_others(self, count: int) -> None:
        if count:
            self._notices.append(
                f"{counted(count, 'more run')} of earlier nights wait in '{self.spool}'."
            )

    def _spooled(self) -> list[Path]:
        return sorted(self.spool.glob(f"*{_RUN}"))

    def _remove_idle_locks(self) -> None:
        """Remove the locks that killed processes left of runs that are stored: the lock of a run
        is made after its file and removed after it.
        """
        for lock in self.spool.glob(f"*{_LOCK}"):
            path = lock.with_suffix(_RUN)
            if path not in self._locks and not path.exists() and self._hold(path):
                self._release(path)

    def _remove(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        self._release(path)

    def _hold(self, path: Path) -> bool:
        """Show other processes that this one writes or stores the file; whether none did."""
        from filelock import FileLock, Timeout

        lock = FileLock(path.with_suffix(_LOCK), blocking=False)
        try:
            lock.acquire()
        except Timeout:
            return False
        except OSError:  # a disk without locks: two processes store the same content, which is fine
            return True
        self._locks[path] = lock
        return True

    def _release(self, path: Path) -> None:
        lock = self._locks.pop(path, None)
        if lock is not None:
            with contextlib.suppress(OSError):
                path.with_suffix(_LOCK).unlink(missing_ok=True)
            lock.release()

    def _url(self, inner: str) -> str:
        return f"{self.folder}/{inner}"

    def _inner(self, name: str) -> str:
        return name.removeprefix(f"{self.folder}/")


def _is_other_attempt(content: bytes, held: bytes) -> bool:
    """Whether two run files are attempts at a job that began at different moments."""
    headers = [object_of_line(one.partition(b"\n")[0]) or {} for one in (content, held)]
    if not all(job_of(header) for header in headers):
        return False
    first, second = (header.get("started") for header in headers)
    return first != second


def history_at(
    text: str | Path, base: Path = Path(), *, goes_on: bool = False
) -> Path | ObjectStore:
    """The history that ``text`` names: the path of a folder, under ``base`` if it is relative, or a
    URL.

    Args:
        goes_on: as of ``ObjectStore``.

    Raises:
        InputError: a URL that is none of ``place_of``.
    """
    place = place_of(text, base)
    return place if isinstance(place, Path) else ObjectStore(place, goes_on=goes_on)


def store_with_files(place: HistoryStore | Path, doing: str) -> FolderStore | ObjectStore:
    """The store at ``place``, for what works on whole run files.

    Raises:
        UnavailableError: a store whose runs are not files.
    """
    store = store_of(place)
    if isinstance(store, FolderStore | ObjectStore):
        return store
    raise UnavailableError(
        doing,
        found=f"a history in a {type(store).__name__}",
        expected="a folder of run files, or a URL",
        remedy="Write its runs into a folder: each run is one file of its lines.",
    )
