"""Bringing an index up to date with the run files of a folder."""

import contextlib
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Connection,
    MetaData,
    bindparam,
    delete,
    func,
    insert,
    inspect,
    select,
    update,
)

from qbench.errors import InputError, StoreError
from qbench.storage import digest_bytes
from qbench.tracking import index_tables as tables
from qbench.tracking.history import disagreement, parse_run
from qbench.tracking.index_queries import generation_of, problems_of
from qbench.tracking.index_tables import Results, Row, run_rows, storable
from qbench.tracking.store import RunFile
from qbench.working import each_told

_LOCK = 0x7162656E6368
"""PostgreSQL's lock of the writer: an arbitrary number that no other program takes (the letters
of qbench).
"""

_PREFIX = "qbench_"
"""What the names of our tables begin with."""

_AT_ONCE = 200_000
"""Results that are gathered before they are written: some 50 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexUpdate:
    """What an update did: run files by fate, and a sentence for each that could not be read, or not
    whole.

    ``unreadable``: the files that hold no run. ``runs``: those in the other files, each counted
        once.
    ``was_damaged``: the index was not a database, and was deleted.
    """

    added: int
    changed: int
    gone: int
    kept: int
    unreadable: int
    problems: tuple[str, ...]
    runs: int = 0
    was_damaged: bool = False


def claim(connection: Connection) -> None:
    """Wait until no other process writes the index, and keep others out until the transaction
    ends.
    """
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))


def prepare_tables(connection: Connection, *, rebuild: bool) -> None:
    """Make the tables where they are missing or of another version, and for ``rebuild`` anew.

    Raises:
        InputError: a newer qbench made the index.
    """
    found = version_of(connection)
    if found is not None and found > tables.VERSION and not rebuild:
        raise InputError(
            "Updating the index of the history",
            found=f"an index of version {found}, made by a newer qbench",
            expected=f"version {tables.VERSION}",
            remedy="Update qbench, or name another index with --db.",
        )
    if rebuild or found != tables.VERSION:
        generation = generation_of(connection) if found == tables.VERSION else 0
        old = MetaData()
        # another version had others
        old.reflect(connection, only=lambda name, _: name.startswith(_PREFIX))
        old.drop_all(connection)
        tables.metadata.create_all(connection)
        connection.execute(
            insert(tables.state), {"version": tables.VERSION, "generation": generation}
        )


def version_of(connection: Connection) -> int | None:
    """The version of the index in the database; None when it has none."""
    if not inspect(connection).has_table(tables.state.name):
        return None
    return connection.execute(select(tables.state.c.version)).scalar()


def update_index(
    connection: Connection, files: Sequence[RunFile], others: Sequence[str]
) -> IndexUpdate:
    """Bring the tables up to date with the ``files`` of a history; the caller commits.

    ``others``: sentences about files that are none of a run.
    """
    rows = connection.execute(select(tables.run)).all()
    indexed = {row.path: row for row in rows}
    results = Results(connection)
    numbers = itertools.count(max((row.key for row in rows), default=0) + 1)
    fates = Counter[str]()
    seen = set()
    for file in each_told("reading run files", files, "files"):
        name = storable(file.name)
        seen.add(name)
        before = indexed.get(name)
        data, facts = _read(file, None if before is None else (before.size, before.modified_ns))
        if before is not None and facts.get("digest", before.digest) == before.digest:
            fates["kept"] += 1
            if facts:  # written again as it was, or copied
                connection.execute(
                    update(tables.run).where(tables.run.c.key == before.key).values(facts)
                )
            continue
        _remove(connection, [] if before is None else [before.key])
        fates["added" if before is None else "changed"] += 1
        of_run, detail, lines = run_rows(next(numbers), data, file.shown)
        connection.execute(insert(tables.run), {"path": name, **facts, **of_run})
        connection.execute(insert(tables.detail), detail)
        results.add(of_run["key"], lines)
        if results.count >= _AT_ONCE:
            results.write(connection)
    results.write(connection)
    gone = [row.key for row in rows if row.path not in seen]
    _remove(connection, gone)
    copies = _count_fullest(connection)
    if fates["added"] or fates["changed"] or gone:
        connection.execute(update(tables.state).values(generation=tables.state.c.generation + 1))
    runs = connection.execute(select(func.count()).where(tables.run.c.counted)).scalar_one()
    problems = *others, *problems_of(connection), *_disagreements(files, copies)
    unreadable = connection.execute(
        select(func.count()).where(tables.run.c.id.is_(None))
    ).scalar_one()
    return IndexUpdate(
        added=fates["added"],
        changed=fates["changed"],
        gone=len(gone),
        kept=fates["kept"],
        runs=runs,
        unreadable=unreadable,
        problems=problems,
    )


def _read(file: RunFile, known: tuple[int, int] | None) -> tuple[bytes, Row]:
    """The bytes of ``file`` with its size, time and digest; nothing when size and time are the
    ``known`` ones.
    """
    try:
        # before it is read: what is appended meanwhile makes it another size next time
        size, modified = file.state()
        if known == (size, modified):
            return b"", {}
        data = file.read()
    except (OSError, StoreError):
        # no file has this size: it is tried again next time
        return b"", {"size": -1, "modified_ns": 0, "digest": ""}
    return data, {"size": size, "modified_ns": modified, "digest": digest_bytes(data)}


def _remove(connection: Connection, keys: Sequence[int]) -> None:
    if not keys:
        return
    for table, column in (
        (tables.result, tables.result.c.run),
        (tables.detail, tables.detail.c.run),
        (tables.run, tables.run.c.key),
    ):
        connection.execute(
            delete(table).where(column == bindparam("gone")), [{"gone": key} for key in keys]
        )


def _count_fullest(connection: Connection) -> list[tuple[str, str]]:
    """Of each run the fullest copy counts, of equals the first by path, as in a History;
    (lesser, fullest) paths.
    """
    best: dict[str, Any] = {}
    rows = connection.execute(select(tables.run).where(tables.run.c.id.is_not(None))).all()
    for row in sorted(rows, key=lambda row: Path(row.path)):
        before = best.get(row.id)
        if before is None or (row.complete, row.cells) > (before.complete, before.cells):
            best[row.id] = row
    chosen = {row.key for row in best.values()}
    for row in rows:
        if row.counted != (row.key in chosen):
            statement = update(tables.run).where(tables.run.c.key == row.key)
            connection.execute(statement.values(counted=row.key in chosen))
    return [(row.path, best[row.id].path) for row in rows if row.key not in chosen]


def _disagreements(files: Sequence[RunFile], copies: Sequence[tuple[str, str]]) -> list[str]:
    """A sentence for each copy whose content differs from the one that counts; copies are few."""
    by_name = {storable(file.name): file for file in files}
    sentences: list[str] = []
    for lesser, fullest in copies:
        with contextlib.suppress(StoreError, OSError):  # gone since then
            one, other = (by_name[name] for name in (lesser, fullest))
            sentences += disagreement(
                parse_run(one.read(), one.shown), parse_run(other.read(), other.shown)
            )
    return sentences
