"""Files that git left with both sides of a merge in them, and files that a newer qbench wrote."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from qbench.errors import InputError, QbenchError, StoreError

E = TypeVar("E", bound=QbenchError)

_MARKS = (re.compile(rb"^<{7}( |\r?$)", re.MULTILINE), re.compile(rb"^>{7}( |\r?$)", re.MULTILINE))
_VERSIONED = re.compile(r"(?P<name>.*?)(?P<version>\d+)")


def has_conflict(text: bytes) -> bool:
    """Whether ``text`` has the markers that git writes where two sides changed the same lines."""
    return all(mark.search(text) for mark in _MARKS)


def conflict_error(kind: type[E], path: Path) -> E:
    """The error of a file at ``path`` that holds both sides of a merge that git could not join."""
    return kind(
        f"Reading '{path}'",
        found="the conflict markers of git: both sides of a merge",
        expected="one of them, or both joined",
        remedy=f"Take both sides: {shlex.join(['qbench', 'merge', '--conflict', str(path)])}.",
    )


def require_format(table: Mapping[str, object], known: str, doing: str) -> None:
    """Check the key ``format`` of a file that people write, where it has one; without it, it is of the first version.

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
    """Refuse a file whose ``format`` has a higher number than ``known``, such as ``qbench-baseline/1``.

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
            remedy="Install that version of qbench; nothing was changed, and version control has what came before.",
        )
