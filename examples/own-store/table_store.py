"""A store of your own: every line of every run is a row of one SQLite table."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from qbench.errors import StoreError

TABLE = (
    "CREATE TABLE IF NOT EXISTS lines (number INTEGER PRIMARY KEY, "
    "run TEXT NOT NULL, line BLOB NOT NULL)"
)


class TableStore:
    """Everything that qbench asks of a store; the name of a run is its id."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def runs(self) -> list[str]:
        with self._database() as database:
            return [
                run for (run,) in database.execute("SELECT DISTINCT run FROM lines ORDER BY run")
            ]

    def read(self, name: str) -> Iterator[bytes]:
        with self._database() as database:
            rows = database.execute("SELECT line FROM lines WHERE run = ? ORDER BY number", (name,))
            yield from (line for (line,) in rows)

    def create(self, run_id: str) -> str:
        if run_id in self.runs():
            raise FileExistsError(run_id)
        return run_id

    def append(self, name: str, line: bytes) -> None:
        with self._database() as database:
            database.execute("INSERT INTO lines (run, line) VALUES (?, ?)", (name, line))

    def close(self, name: str, *, complete: bool) -> None:
        pass  # SQLite has written every line to the disk when its transaction ends

    @contextlib.contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        """A connection whose changes are kept, unless there is an error."""
        try:
            with contextlib.closing(sqlite3.connect(self.path)) as database, database:
                database.execute(TABLE)
                yield database
        except sqlite3.Error as error:
            raise StoreError(
                f"Using the table of runs in '{self.path}'",
                found=str(error),
                expected="a database that can be read and written",
                remedy="Check the file and its folder.",
            ) from error
