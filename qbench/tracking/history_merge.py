"""Merging histories: the union of their run files, by the id of each run; no file is ever
overwritten.

Copies of a run are the same when their bytes are, and one is an earlier copy of another when it
is its beginning: the longest is used. A file with torn lines is a copy of another that has all
its other lines, each in its place. Any two other files of one id are a conflict: one was changed.
Then neither is taken, whatever the order.
"""

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from qbench.errors import InputError, StoreError
from qbench.storage import digest_bytes, work_folder
from qbench.tracking.attempts import job_of
from qbench.tracking.history import parse_run
from qbench.tracking.store import (
    HistoryStore,
    folder_of,
    not_plain,
    run_files,
    shown_path,
    unreadable,
)

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")

_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """What a merge did.

    Args:
        added: run files that were written.
        same: runs that the target already held, whole.
        conflicts: a sentence for each id that two files hold with different content; neither was
            taken.
        problems: a sentence for each file that is not a run file, or not whole (its whole lines
            were taken).
        unreadable: how many files are not run files.
    """

    added: tuple[Path, ...]
    same: int
    conflicts: tuple[str, ...]
    problems: tuple[str, ...]
    unreadable: int


def merge_run_files(sources: Sequence[Path], target: HistoryStore | Path) -> Merge:
    """Copy every run of ``sources`` (folders of run files, or run files) that the folder
    ``target`` lacks into it.

    One merge at a time: another one into ``target`` waits, and then sees what this one added.

    Raises:
        InputError: a source does not exist.
        StoreError: the target cannot be written; what was added before is whole and stays.
        UnavailableError: the target is not a folder of run files.
    """
    target = folder_of(target, "Merging histories")
    for source in sources:
        if not source.exists():
            raise InputError(
                f"Merging into '{target}'",
                found=f"no '{source}'",
                expected="folders of run files, or run files",
                remedy="Check the path.",
            )
    with contextlib.ExitStack() as stack:
        work = target
        with contextlib.suppress(OSError, StoreError):
            # A folder that cannot be locked or written is used as it is: writing a run says why.
            target.mkdir(parents=True, exist_ok=True)
            work = stack.enter_context(work_folder(target))
        return _merged(sources, target, work)


def _merged(sources: Sequence[Path], target: Path, work: Path) -> Merge:
    files, others = _files([*sources, target])
    copies, problems, unread = _read(files)
    problems = [*others, *problems]
    added, conflicts, same = [], [], 0
    for (run_id, _), found in sorted(copies.items()):
        paths = sorted(found.values(), key=lambda path: path.stat().st_size, reverse=True)
        fullest = next((path for path in paths if not _differing(path, paths)), paths[0])
        data, odd = _bytes(fullest), _differing(fullest, paths)
        if odd:
            conflicts.append(
                f"'{shown_path(odd[0])}' and '{shown_path(fullest)}' "
                f"hold different content for run '{run_id}': neither was taken; "
                "a run file is never changed, so find out which one was."
            )
        elif fullest.is_relative_to(target):
            same += 1
        else:
            added.append(_write_new(target, work, run_id, data))
    return Merge(
        added=tuple(added),
        same=same,
        conflicts=tuple(conflicts),
        problems=tuple(problems),
        unreadable=unread,
    )


def _differing(fullest: Path, paths: Sequence[Path]) -> list[Path]:
    """Those of ``paths`` that are not copies of ``fullest``, whole, unfinished or torn."""
    data = _bytes(fullest)
    others = [path for path in paths if path != fullest]
    return [
        path
        for path in others
        if not data.startswith(copy := _bytes(path)) and not _is_torn_copy(copy, data)
    ]


def _is_torn_copy(copy: bytes, whole: bytes) -> bool:
    """Whether every line of ``copy`` that can be read is at the same place in ``whole``."""
    lines, known = copy.rstrip(b"\n").split(b"\n"), whole.split(b"\n")
    same = (
        line == there or not _can_be_read(line) for line, there in zip(lines, known, strict=False)
    )
    return len(lines) <= len(known) and all(same)


def _can_be_read(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _files(places: Iterable[Path]) -> tuple[list[Path], tuple[str, ...]]:
    """The run files in ``places``, and a sentence for each that is not a plain file."""
    files: list[Path] = []
    others: list[str] = []
    for place in places:
        if place.is_file():
            files.append(place)
        elif place.exists() and not place.is_dir():
            others.append(str(not_plain(place)))
        else:
            found, odd = run_files(place)
            files += found
            others += odd
    return files, tuple(dict.fromkeys(others))


def _read(
    paths: Iterable[Path],
) -> tuple[dict[tuple[str, str], dict[str, Path]], list[str], int]:
    """Id, and of an attempt its start → digests of the contents found under it, each with its
    (last) path; sentences; unreadable files.
    """
    copies: dict[tuple[str, str], dict[str, Path]] = {}
    problems: dict[str, None] = {}
    unread = set()
    for path in paths:
        try:
            data = _bytes(path)
            run = parse_run(data, path)
        except StoreError as error:
            problems[str(error)] = None
            unread.add(path.resolve())
            continue
        problems |= dict.fromkeys(run.notices)
        began = "" if job_of(run.header) is None else str(run.header["started"])
        copies.setdefault((run.id, began), {})[digest_bytes(data)] = path
    return copies, list(problems), len(unread)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error.strerror or str(error)) from error


def _write_new(target: Path, work: Path, run_id: str, data: bytes) -> Path:
    """A new file in ``target`` with ``data``, whole or not at all; a name that is taken gets
    the digest as well.

    ``work``: the folder of the temporary file, on the same disk.

    Raises:
        StoreError: it cannot be written.
    """
    digest = digest_bytes(data)[:_DIGITS]
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
