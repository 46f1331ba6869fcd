"""Files that git left with both sides of a merge in them, and files that a newer qbench wrote."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from qbench.errors import InputError, QbenchError, StoreError
from qbench.storage.places import ObjectFile

E = TypeVar("E", bound=QbenchError)

_MARKS = (re.compile(rb"^<{7}( |\r?$)", re.MULTILINE), re.compile(rb"^>{7}( |\r?$)", re.MULTILINE))
_VERSIONED = re.compile(r"(?P<name>.*?)(?P<version>\d+)")


def has_conflict(text: bytes) -> bool:
    """Whether ``text`` has the markers that git writes where two sides changed the same lines."""
    return all(mark.search(text) for mark in _MARKS)


def sides_of_markers(text: bytes) -> tuple[bytes, bytes | None, bytes] | None:
    """Ours, the base (None: git did not write it) and theirs, of a ``text`` with markers; None:
    they have no sense.
    """
    sides: tuple[list[bytes], list[bytes], list[bytes]] = ([], [], [])
    part: int | None = None
    has_base = False
    for line in text.splitlines(keepends=True):
        mark = line[:7] if line[7:8] in (b" ", b"\r", b"\n", b"") else b""
        if mark == b"<" * 7 and part is None:
            part = 0
        elif mark == b"|" * 7 and part == 0:
            part, has_base = 1, True
        elif mark == b"=" * 7 and part in (0, 1):
            part = 2
        elif mark == b">" * 7 and part == 2:
            part = None
        elif part is None:
            for side in sides:
                side.append(line)
        else:
            sides[part].append(line)
    if part is not None:
        return None
    ours, base, theirs = (b"".join(side) for side in sides)
    return ours, base if has_base else None, theirs


def conflict_error(kind: type[E], path: Path | ObjectFile) -> E:
    """The error of a file at ``path`` that holds both sides of a merge that git could not join."""
    return kind(
        f"Reading '{path}'",
        found="the conflict markers of git: both sides of a merge",
        expected="one of them, or both joined",
        remedy=f"Take both sides: {shlex.join(['qbench', 'merge', '--conflict', str(path)])}.",
    )


def require_format(table: Mapping[str, object], known: str, doing: str) -> None:
    """Check the key ``format`` of a file that people write, where it has one; without it, it is
    of the first version.

    Raises:
        StoreError: a newer qbench made it. InputError: it is a file of another kind.
    """
    found = table.get("format", known)
    refuse_newer(doing, found, known)
    family = known.rpartition("/")[0]
    if not isinstance(found, str) or found.rpartition("/")[0] != family:
        remedy = "Take the key out, or name another file."
        raise InputError(doing, found=f"format = {found!r}", expected=f"'{known}'", remedy=remedy)


def refuse_newer(doing: str, found: object, known: str) -> None:
    """Refuse a file whose ``format``, such as ``qbench-baseline/1``, is newer than ``known``.

    Raises:
        StoreError: it was made by a newer qbench. It is whole, so nothing may replace it.
    """
    mine = _VERSIONED.fullmatch(known)
    theirs = _VERSIONED.fullmatch(str(found))
    if mine is None or theirs is None or theirs["name"] != mine["name"]:
        return
    if int(theirs["version"]) > int(mine["version"]):
        raise StoreError(
            doing,
            found=f"the format '{found}', made by a newer qbench",
            expected=f"'{known}' or an earlier one",
            remedy=(
                "Install that version of qbench; nothing was changed, and version control has what "
                "came before."
            ),
        )
