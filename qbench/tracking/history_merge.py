"""Merging histories: the union of their run files, by the id of each run; no file is ever
overwritten.

Copies of a run are the same when their bytes are, and one is an earlier copy of another when it
is its beginning: the longest is used. A file with torn lines is a copy of another that has all
its other lines, each in its place. Any two other files of one id are a conflict: one was changed.
Then neither is taken, whatever the order.
"""

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from qbench.errors import InputError, StoreError
from qbench.storage import digest_bytes, object_of_line, work_folder
from qbench.tracking.attempts import job_of
from qbench.tracking.history import parse_run
from qbench.tracking.object_store import NAME_DIGITS, ObjectStore, store_with_files
from qbench.tracking.store import (
    FolderStore,
    HistoryStore,
    RunFile,
    not_plain,
    run_file,
    shown_path,
    unreadable,
)

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """What a merge did.

    Args:
        added: the paths or URLs of the runs that were written.
        same: runs that the target already held, whole.
        conflicts: a sentence for each id that two files hold with different content; neither was
            taken.
        problems: a sentence for each file that is not a run file, or not whole (its whole lines
            were taken).
        unreadable: how many files are not run files.
    """

    added: tuple[str, ...]
    same: int
    conflicts: tuple[str, ...]
    problems: tuple[str, ...]
    unreadable: int


def plans_of(sources: Sequence[Path | ObjectStore]) -> frozenset[str]:
    """The first digits of the plans that the runs of ``sources`` are jobs of, by their first lines;
    empty text: of none. Files that cannot be read are left out.
    """
    found = set()
    for line in _first_lines(sources):
        header = object_of_line(line)
        if header is not None and header.get("type") == "run":
            job = job_of(header)
            found.add("" if job is None else job.plan)
    return frozenset(found)


def _first_lines(sources: Sequence[Path | ObjectStore]) -> Iterator[bytes]:
    """The first line of each file that can be read; no more of it is read."""
    for source in sources:
        for store, name in _named(source):
            with contextlib.suppress(StoreError):
                yield next(iter(store.read(name)), b"").rstrip(b"\n")


def _named(source: Path | ObjectStore) -> Iterator[tuple[FolderStore | ObjectStore, str]]:
    """The name of each run of ``source``, with the store that reads it."""
    if isinstance(source, Path) and source.is_file():
        yield FolderStore(source.parent), str(source)
        return
    store = FolderStore(source) if isinstance(source, Path) else source
    for name in store.runs():
        yield store, name


def merge_run_files(sources: Sequence[Path | ObjectStore], target: HistoryStore | Path) -> Merge:
    """Copy every run of ``sources`` (folders of run files, run files, or stores behind URLs) that
    ``target`` lacks into it.

    One merge at a time into a folder: another one waits, and then sees what this one added. Objects
    are made one by one, where there is none of their name.

    Raises:
        InputError: a source does not exist.
        StoreError: a store does not answer, or the target cannot be written; what was added before
            is whole and stays.
        UnavailableError: the target is neither a folder of run files nor behind a URL.
    """
    into = store_with_files(target, "Merging histories")
    for source in sources:
        if isinstance(source, Path) and not source.exists():
            raise InputError(
                f"Merging into '{into.folder}'",
                found=f"no '{source}'",
                expected="folders of run files, or run files",
                remedy="Check the path.",
            )
    if isinstance(into, ObjectStore):
        return _merged(sources, into, lambda run_id, data: _add(into, run_id, data))
    folder = into.folder
    with contextlib.ExitStack() as stack:
        work = folder
        with contextlib.suppress(OSError, StoreError):
            # A folder that cannot be locked or written is used as it is: writing a run says why.
            folder.mkdir(parents=True, exist_ok=True)
            work = stack.enter_context(work_folder(folder))
        return _merged(
            sources, into, lambda run_id, data: str(_write_new(folder, work, run_id, data))
        )


def _merged(
    sources: Sequence[Path | ObjectStore],
    target: FolderStore | ObjectStore,
    write: Callable[[str, bytes], str],
) -> Merge:
    files, others = _files(sources)
    held, odd_held = (
        target.files() if isinstance(target, FolderStore) else (target.stored_files(), ())
    )
    copies, problems, unread = _read([*files, *held])
    problems = [*dict.fromkeys((*others, *odd_held)), *problems]
    names = {file.shown for file in held}
    added, conflicts, same = [], [], 0
    for (run_id, _), found in sorted(copies.items()):
        several = sorted(found.values(), key=lambda file: file.state()[0], reverse=True)
        fullest = next((one for one in several if not _differing(one, several)), several[0])
        data, odd = _bytes(fullest), _differing(fullest, several)
        if odd:
            conflicts.append(
                f"'{shown_path(odd[0].shown)}' and '{shown_path(fullest.shown)}' "
                f"hold different content for run '{run_id}': neither was taken; "
                "a run file is never changed, so find out which one was."
            )
        elif fullest.shown in names:
            same += 1
        else:
            added.append(write(run_id, data))
    return Merge(
        added=tuple(added),
        same=same,
        conflicts=tuple(conflicts),
        problems=tuple(problems),
        unreadable=unread,
    )


def _differing(fullest: RunFile, files: Sequence[RunFile]) -> list[RunFile]:
    """Those of ``files`` that are not copies of ``fullest``, whole, unfinished or torn."""
    data = _bytes(fullest)
    others = [file for file in files if file is not fullest]
    return [
        file
        for file in others
        if not data.startswith(copy := _bytes(file)) and not _is_torn_copy(copy, data)
    ]


def _is_torn_copy(copy: bytes, whole: bytes) -> bool:
    """Whether every line of ``copy`` that can be read is at the same place in ``whole``."""
    lines, known = copy.rstrip(b"\n").split(b"\n"), whole.split(b"\n")
    same = (
        line == there or object_of_line(line) is None
        for line, there in zip(lines, known, strict=False)
    )
    return len(lines) <= len(known) and all(same)


def _files(places: Iterable[Path | ObjectStore]) -> tuple[list[RunFile], tuple[str, ...]]:
    """The run files in ``places``, and a sentence for each that is not a plain file."""
    files: list[RunFile] = []
    others: list[str] = []
    for place in places:
        if isinstance(place, Path) and place.is_file():
            files.append(run_file(place, place.parent))
        elif isinstance(place, Path) and place.exists() and not place.is_dir():
            others.append(str(not_plain(place)))
        else:
            store = FolderStore(place) if isinstance(place, Path) else place
            found, odd = store.files()
            files += found
            others += odd
    return files, tuple(others)


def _read(
    files: Iterable[RunFile],
) -> tuple[dict[tuple[str, str], dict[str, RunFile]], list[str], int]:
    """Id, and of an attempt its start → digests of the contents found under it, each with its
    (last) file; sentences; unreadable files.
    """
    copies: dict[tuple[str, str], dict[str, RunFile]] = {}
    problems: dict[str, None] = {}
    unread = set()
    for file in files:
        try:
            data = _bytes(file)
            run = parse_run(data, file.shown)
        except StoreError as error:
            problems[str(error)] = None
            unread.add(os.path.realpath(file.shown))
            continue
        problems |= dict.fromkeys(run.notices)
        began = "" if job_of(run.header) is None else str(run.header["started"])
        copies.setdefault((run.id, began), {})[digest_bytes(data)] = file
    return copies, list(problems), len(unread)


def _bytes(file: RunFile) -> bytes:
    try:
        return file.read()
    except OSError as error:
        raise unreadable(file.shown, error.strerror or str(error)) from error


def _add(target: ObjectStore, run_id: str, data: bytes) -> str:
    """A new object with ``data``; a name that is taken gets the digest as well."""
    digest = digest_bytes(data)[:NAME_DIGITS]
    stem = run_id if _SAFE_NAME.fullmatch(run_id) else f"run-{digest}"
    try:
        return target.add(stem, data)
    except FileExistsError:
        return target.add(f"{stem}.{digest}", data)


def _write_new(target: Path, work: Path, run_id: str, data: bytes) -> Path:
    """A new file in ``target`` with ``data``, whole or not at all; a name that is taken gets
    the digest as well.

    ``work``: the folder of the temporary file, on the same disk.

    Raises:
        StoreError: it cannot be written.
    """
    digest = digest_bytes(data)[:NAME_DIGITS]
    stem = run_id if _SAFE_NAME.fullmatch(run_id) else f"run-{digest}"
    try:
        target.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".merging-", dir=work)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            for name in (f"{stem}.jsonl", f"{stem}.{digest}.jsonl"):
                with contextlib.suppress(FileExistsError):
                    os.link(temporary, target / name)  # fails where a rename would write over
                    return target / name
            # another merge was faster with the same content
            return target / f"{stem}.{digest}.jsonl"
        finally:
            os.unlink(temporary)
    except OSError as error:
        raise StoreError(
            f"Merging run '{run_id}' into '{target}'",
            found=error.strerror or str(error),
            expected="a writable folder with free space",
            remedy="Make room or name another folder, and merge again: what was merged is kept.",
        ) from error
