"""The file of an SQLite index that is no database any more: told from other faults, and thrown away.

It is derived from the run files, so that nothing is lost with it. Only under the name an index has by itself: a path
that a user named, ``--db notes.txt``, may hold something else.
"""

import sqlite3
from pathlib import Path

from qbench.errors import StoreError

INDEX_FILE = "index.sqlite"
"""The index of a history folder where nobody names another."""

_CODES = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


class DamagedIndexError(StoreError):
    """The file of an SQLite index is no database, or a torn one."""


def is_damaged(error: Exception) -> bool:
    """Whether a database's ``error`` says that its file is none, or torn."""
    code = getattr(getattr(error, "orig", None) or error, "sqlite_errorcode", 0)
    return code & 0xFF in _CODES  # the lowest byte; above it stands the detail


def damaged_index(doing: str, found: str, file: Path) -> DamagedIndexError:
    """The error of the damaged ``file``, with what repairs it."""
    again = "'qbench history index --rebuild' makes it anew"
    other = f"if it is nothing else that you want, delete it and run 'qbench history index --db {file}'"
    return DamagedIndexError(
        doing,
        found=found,
        expected="an SQLite database",
        remedy=f"The run files are untouched, and the index is made from them: "
        f"{again if file.name == INDEX_FILE else other}.",
    )


def discard_index(file: Path) -> None:
    """Delete the index at ``file`` with what SQLite keeps beside it.

    Raises:
        StoreError: the folder cannot be written.
    """
    try:
        for suffix in ("", "-wal", "-shm"):
            file.with_name(file.name + suffix).unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(
            f"Deleting the damaged index '{file}'",
            found=error.strerror or str(error),
            expected="a folder that can be written",
            remedy="Delete it yourself, and run 'qbench history index' again.",
        ) from error
