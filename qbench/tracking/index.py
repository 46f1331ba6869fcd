"""The index of a history: a database derived from its run files, for queries."""

import contextlib
import datetime
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from qbench.errors import InputError, StoreError, UnavailableError
from qbench.extension import install_command
from qbench.lazy import gc_paused
from qbench.tracking.history import MetricRow, Wanted, frame_of_rows
from qbench.tracking.object_store import store_with_files
from qbench.tracking.record import Run
from qbench.tracking.store import HistoryStore, RunFile
from qbench.tracking.trend import Series

if TYPE_CHECKING:
    import pandas as pd
    from sqlalchemy import Connection, Engine

    from qbench.tracking.index_building import IndexUpdate
    from qbench.tracking.index_queries import Heads


# A damaged SQLite index is recognized by SQLite's error code and deleted: it is derived from the
# run files.
#
# Only a file with the default name is deleted: a path that a user named, ``--db notes.txt``, may
# hold something else.

INDEX_FILE = "index.sqlite"
"""The default name of an index, in the history folder."""

_CODES = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


class DamagedIndexError(StoreError):
    """The file of an SQLite index is not a database, or a torn one."""


def is_damaged(error: Exception) -> bool:
    """Whether a database's ``error`` says that its file is not a database, or torn."""
    code = getattr(getattr(error, "orig", None) or error, "sqlite_errorcode", 0)
    return code & 0xFF in _CODES  # the lowest byte; the others hold the detail


def damaged_index(doing: str, found: str, file: Path) -> DamagedIndexError:
    """The error of the damaged ``file``, with what repairs it."""
    again = "'qbench history index --rebuild' makes it anew"
    other = (
        f"name another file, 'qbench history index --db {file.with_suffix('.new.sqlite')}', and "
        "keep this one"
    )
    return DamagedIndexError(
        doing,
        found=found,
        expected="an SQLite database",
        remedy=f"The run files are untouched, and the index is made from them: "
        f"{again if file.name == INDEX_FILE else other}.",
    )


def discard_index(file: Path) -> None:
    """Delete the index at ``file`` with the files that SQLite keeps next to it.

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
            remedy=(
                "Make the folder writable, or name another file with --db: the run files are "
                "untouched."
            ),
        ) from error


# The index of a history: a database derived from its run files, for queries; SQLite, or PostgreSQL
# for a team.
#
# The files are the truth. An index can be deleted at any time and is made again from them; one
# process writes it, any number read it meanwhile.

_DRIVERS = {
    "sqlite": "sqlite",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
}

_WAIT_S = 60
"""How long a writer waits for another, in seconds."""


_CACHE_KIB, _MAPPED = 256 << 10, 1 << 30
"""SQLite's pages in memory: a run writes into every series, so that a small cache would write
each page 730 times.
"""


class HistoryIndex:
    """An index at a place: the path of an SQLite file, or a URL (``sqlite:///…``,
    ``postgresql://user@host/name``).

    Making one opens nothing. ``name`` is the place without its password, for messages. ``now``: as
    of ``History``.

    Raises:
        InputError: the place is no such URL. UnavailableError: SQLAlchemy or the database's driver
            is not installed.
    """

    def __init__(self, place: str, *, now: datetime.datetime | None = None) -> None:
        self._engine = _engine(place)
        self._now = now
        self._known = False
        self._heads: tuple[int, Heads] = (-1, {})
        self._driver_error: type[Exception] = self._engine.dialect.loaded_dbapi.Error
        self.name = _shown(place)

    def update(self, place: HistoryStore | Path, *, rebuild: bool = False) -> "IndexUpdate":
        """Bring it up to date with the run files of a history, all or nothing; only new files
        are read.

        Args:
            rebuild: forget what it holds and read everything; an ``index.sqlite`` that is not a
                database is replaced.

        Raises:
            StoreError: the database cannot be reached or written, or went away; it is as it was
                before.
            InputError: a newer qbench made it. UnavailableError: the runs in ``place`` are not
                files.
        """
        files = store_with_files(place, f"Updating the index '{self.name}'").files()
        try:
            return self._update(files, rebuild=rebuild)
        except DamagedIndexError:
            file = Path(self._engine.url.database or "")
            if not rebuild or file.name != INDEX_FILE:
                raise
            self.close()
            discard_index(file)
            return replace(self._update(files, rebuild=True), was_damaged=True)

    def _update(
        self, files: tuple[tuple[RunFile, ...], tuple[str, ...]], *, rebuild: bool
    ) -> "IndexUpdate":
        from qbench.tracking.index_building import claim, prepare_tables, update_index

        with gc_paused(), self._open(f"Updating the index '{self.name}'") as connection:
            claim(connection)
            prepare_tables(connection, rebuild=rebuild)
            done = update_index(connection, *files)
            connection.commit()
        return done

    def rows(self, wanted: Wanted | None = None) -> list[MetricRow]:
        """What ``metric_rows`` gives of the history as the last ``update`` read it, or of what
        is ``wanted`` of it.

        Raises:
            StoreError: there is no index, or it cannot be read.
        """
        from qbench.tracking.index_queries import wanted_rows

        with gc_paused(), self._reading() as connection:
            return wanted_rows(connection, wanted or Wanted(), self._runs_of(connection))

    def frame(self, wanted: Wanted | None = None) -> "pd.DataFrame":
        """What ``cell_frame`` gives of the history as the last ``update`` read it, or of what
        is ``wanted`` of it.

        Raises:
            StoreError: there is no index, or it cannot be read.
        """
        return frame_of_rows(self.rows(wanted))

    def runs(self, wanted: Wanted | None = None) -> tuple[Run, ...]:
        """The runs that hold what is ``wanted``, with these cells and metrics alone: for
        ``trend_series``.

        Raises:
            StoreError: there is no index, or it cannot be read.
        """
        from qbench.tracking.index_queries import wanted_runs

        with gc_paused(), self._reading() as connection:
            return wanted_runs(connection, wanted or Wanted(), self._now)

    def _runs_of(self, connection: "Connection") -> "Heads":
        """The runs as they are now: read again where a process has updated the index since."""
        from qbench.tracking.index_queries import generation_of, heads_of

        generation = generation_of(connection)
        if self._heads[0] != generation:
            self._heads = generation, heads_of(connection, self._now)
        return self._heads[1]

    def series(
        self, wanted: Wanted | None = None, *, commits: Sequence[str] = ()
    ) -> tuple[Series, ...]:
        """What ``trend_series`` gives of the history, or of what is ``wanted`` of it, in a
        fraction of the time.

        Args:
            commits: as of ``trend_series``.

        Raises:
            StoreError: there is no index, or it cannot be read.
        """
        from qbench.tracking.index_queries import wanted_trends

        with gc_paused(), self._reading() as connection:
            return wanted_trends(connection, wanted or Wanted(), commits, self._now)

    def starts(self, suite: str | None = None) -> tuple[Run, ...]:
        """The runs (of ``suite``) in the order of their starts, without their cells.

        Raises:
            StoreError: there is no index, or it cannot be read.
        """
        from qbench.tracking.index_queries import started_runs

        with self._reading() as connection:
            return tuple(
                run
                for run in started_runs(connection, self._now).values()
                if suite in (None, run.suite)
            )

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence for each file that the last update could not read, or not whole.

        Raises:
            StoreError: there is no index, or it cannot be read.
        """
        from qbench.tracking.index_queries import problems_of

        with self._reading() as connection:
            return problems_of(connection)

    def close(self) -> None:
        """Close the connections to the database."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def _reading(self) -> "Iterator[Connection]":
        from qbench.tracking.index_building import version_of
        from qbench.tracking.index_tables import VERSION

        doing = f"Reading the index '{self.name}'"
        file = self._engine.url.database
        if self._engine.dialect.name == "sqlite" and not (file and Path(file).is_file()):
            raise _missing(doing, "no such file")  # SQLite would make an empty one
        with self._open(doing) as connection:
            if not self._known and (version := version_of(connection)) != VERSION:
                raise _missing(
                    doing, "no index in it" if version is None else f"an index of version {version}"
                )
            self._known = True
            yield connection

    @contextlib.contextmanager
    def _open(self, doing: str) -> "Iterator[Connection]":
        """A connection, whose errors become a sentence; what was not committed is rolled back."""
        from sqlalchemy.exc import SQLAlchemyError

        try:
            with self._engine.connect() as connection:
                yield connection
        except (SQLAlchemyError, self._driver_error) as error:
            if is_damaged(error):
                raise damaged_index(
                    doing, _first_line(error), Path(self._engine.url.database or "")
                ) from error
            raise StoreError(
                doing,
                found=_first_line(error),
                expected="a database that can be reached and written",
                remedy="The run files are untouched: repair the database, or name another with "
                "--db, and run 'qbench history index' again.",
            ) from error


def _engine(place: str) -> "Engine":
    doing = f"Opening the index '{place.partition('@')[2] or place}'"
    try:
        import sqlalchemy
        from sqlalchemy.engine import URL, make_url
    except ModuleNotFoundError as error:
        raise _without(doing, "SQLAlchemy", "db") from error
    try:
        url = make_url(place) if "://" in place else URL.create("sqlite", database=place)
        driver = _DRIVERS[url.drivername]
    except (sqlalchemy.exc.ArgumentError, ValueError, KeyError) as error:
        raise InputError(
            doing,
            found="another kind of place",
            expected=(
                "the path of an SQLite file, sqlite:///PATH, or postgresql://USER@HOST/DATABASE"
            ),
            remedy="Write it so.",
        ) from error
    try:
        if url.drivername == "sqlite":
            engine = sqlalchemy.create_engine(url, connect_args={"timeout": _WAIT_S})
            sqlalchemy.event.listen(engine, "connect", _let_others_read)
            return engine
        return sqlalchemy.create_engine(url.set(drivername=driver))
    except ModuleNotFoundError as error:
        raise _without(doing, "psycopg", "postgres") from error


def _shown(place: str) -> str:
    """``place`` as it was written, without a password."""
    from sqlalchemy.engine import make_url

    return make_url(place).render_as_string() if "://" in place else place


def _let_others_read(connection: Any, _record: object) -> None:  # noqa: ANN401 - a connection of the driver
    """Readers see the state before a writer's transaction, and neither waits for the other;
    both cache pages.
    """
    _use_wal(connection)
    for setting in ("synchronous=NORMAL", f"cache_size=-{_CACHE_KIB}", f"mmap_size={_MAPPED}"):
        connection.execute(f"PRAGMA {setting}")


def _use_wal(connection: Any) -> None:  # noqa: ANN401 - a connection of the driver
    """Switch the file to a write-ahead log, and wait for a writer that holds it.

    SQLite refuses this switch at once while another connection writes in the old mode: its timeout
    does not apply.
    """
    last = time.monotonic() + _WAIT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > last:
                raise
            time.sleep(0.01)
        else:
            return


def _without(doing: str, package: str, extra: str) -> UnavailableError:
    return UnavailableError(
        doing,
        found=f"no {package}",
        expected=f"the extra '{extra}'",
        remedy=(f"Install it: {install_command(extra)}; everything but the index works without."),
    )


def _missing(doing: str, found: str) -> StoreError:
    return StoreError(
        doing,
        found=found,
        expected="an index that this qbench made",
        remedy="Make it with 'qbench history index'.",
    )


def _first_line(error: Exception) -> str:
    """What the database said, without the statement and its parameters."""
    said = str(getattr(error, "orig", None) or error).strip()
    return said.splitlines()[0] if said else type(error).__name__
