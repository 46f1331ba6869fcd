"""``qbench merge --conflict FILE``: both sides of a merge that git could not join."""

import re
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qbench.errors import IncomparableError, InputError
from qbench.storage import has_conflict

_Sides = tuple[bytes, bytes | None, bytes]
"""Ours, the base and theirs."""

_TABLE = re.compile(r"^\[\[[^\]\n]+\]\][ \t]*(?:#.*)?$", re.MULTILINE)


def join_conflict(path: Path) -> tuple[Path, ...]:
    """Join both sides of the file at ``path``: a baseline, or a TOML file of entries
    (``[[cell]]``, ``[[model]]``).

    The files that are written, for ``git add``.

    Where the file was committed with its markers, the sides are those between them.

    Raises:
        InputError: git has no conflict in the file. IncomparableError: both sides changed one thing
            in other ways; the file is as it was. StoreError: it cannot be written.
    """
    from qbench.host import OURS_BASE_THEIRS, indexed_file
    from qbench.storage import sides_of_markers

    doing = f"Joining both sides of '{path}'"
    ours, base, theirs = (indexed_file(path, stage) for stage in OURS_BASE_THEIRS)
    marked = None
    if ours is None or theirs is None:
        text = path.read_bytes() if path.is_file() else b""
        marked = sides_of_markers(text) if has_conflict(text) else None
        if marked is None:
            raise InputError(
                doing,
                found="no two sides, neither in git's index nor between markers in the file",
                expected="a file of a merge, a rebase or a stash that git could not join",
                remedy=(
                    "Name a file that 'git status' lists as changed by both, or one with both "
                    "sides in it."
                ),
            )
        ours, base, theirs = marked
    if path.suffix == ".json":
        return _join_baseline(path, doing, marked, has_base=base is not None)
    return _join_entries(path, (base, ours, theirs), doing)


def _join_baseline(
    path: Path, doing: str, marked: _Sides | None, *, has_base: bool
) -> tuple[Path, ...]:
    """``marked``: the sides between the markers of a file that was committed with them; None:
    in git's index.
    """
    from qbench.host import OURS_BASE_THEIRS
    from qbench.tracking import (
        changing_baseline,
        find_baseline,
        joined_baselines,
        parts_of_baseline,
    )

    files = (path, *parts_of_baseline(path))
    sides = []
    with tempfile.TemporaryDirectory(prefix="qbench-") as folder:
        for place, stage in enumerate(OURS_BASE_THEIRS):
            own = Path(folder) / str(stage)
            own.mkdir()
            for file in files:
                text = (
                    _side_in_index(file, stage)
                    if marked is None
                    else _side_of_marked(file, path, marked[place])
                )
                if text is not None:
                    (own / file.name).write_bytes(text)
            is_there = has_base or stage != OURS_BASE_THEIRS[1]
            sides.append(find_baseline(own / path.name) if is_there else None)
    ours, base, theirs = sides
    if ours is None or theirs is None:  # never: both were read above
        raise InputError(doing, found="one side", expected="two", remedy="Resolve it by hand.")
    with changing_baseline(path) as change:
        change.save(joined_baselines(base, ours, theirs, doing))
    return tuple(file for file in files if file.exists())


def _side_in_index(file: Path, stage: int) -> bytes | None:
    from qbench.host import indexed_file

    text = indexed_file(file, stage)
    # git joined this file, or one side has it
    return indexed_file(file, 0) if text is None else text


def _side_of_marked(file: Path, path: Path, side: bytes | None) -> bytes | None:
    """The text of ``file`` on one side of the baseline at ``path``: its arrays have no markers,
    and are as they are.
    """
    if file == path:
        return side
    return file.read_bytes() if file.is_file() else None


def _join_entries(path: Path, sides: Sequence[bytes | None], doing: str) -> tuple[Path, ...]:
    """The head of the file as one side changed it, and the entries of both, those of ours first."""
    from qbench.storage import changing_file

    texts = ["" if one is None else one.decode("utf-8") for one in sides]
    try:
        (base_head, base), (head, ours), (other_head, theirs) = map(_entries, texts)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        found, remedy = f"a side that is not TOML ({error})", "Resolve it by hand."
        raise InputError(doing, found=found, expected="two TOML files", remedy=remedy) from error
    if tomllib.loads(head) == tomllib.loads(base_head):
        head = other_head
    elif tomllib.loads(other_head) not in (tomllib.loads(base_head), tomllib.loads(head)):
        raise IncomparableError(
            doing,
            found="other tables in front of the entries on each side",
            expected="a change of one side alone, besides entries",
            remedy="Resolve it by hand.",
        )
    kept = [text for text, value in ours if _is_in(value, theirs) or not _is_in(value, base)]
    added = [text for text, value in theirs if not _is_in(value, ours) and not _is_in(value, base)]
    joined = "\n\n".join(part.strip() for part in (head, *kept, *added) if part.strip()) + "\n"
    tomllib.loads(joined)
    with changing_file(path) as change:
        change.write(joined)
    return (path,)


def _entries(text: str) -> tuple[str, list[tuple[str, dict[str, Any]]]]:
    """What is in front of the first ``[[table]]``, and each such table as (text, value)."""
    starts = [found.start() for found in _TABLE.finditer(text)]
    pieces = [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=False)]
    return text[: starts[0]] if starts else text, [
        (piece, tomllib.loads(piece)) for piece in pieces
    ]


def _is_in(value: dict[str, Any], entries: Sequence[tuple[str, dict[str, Any]]]) -> bool:
    return any(value == other for _, other in entries)
