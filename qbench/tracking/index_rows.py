"""A run file as rows of the index: what many rows share is kept once and named by a number."""

import itertools
import json
import operator
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, select

from qbench.errors import StoreError
from qbench.tracking import index_tables as tables
from qbench.tracking.history import kept_keys, parse_run
from qbench.tracking.index_tables import NATURE
from qbench.tracking.record import AXES, CellRecord

_axes = operator.attrgetter(*AXES)
_nature = operator.attrgetter(*NATURE)

_KEPT = kept_keys(*AXES, "outcome", "environment_class", "integer_macs", "metrics", "digests")

Row = dict[str, Any]
Values = tuple[Any, ...]


@dataclass(slots=True)
class Numbers:
    """The numbers of a table of what is shared: those it holds, and those that are new since.

    What is numbered are its columns behind the key.
    """

    table: Table
    known: dict[Values, int] = field(default_factory=dict)
    new: list[Values] = field(default_factory=list)
    last: int = 0

    @classmethod
    def read(cls, connection: Connection, table: Table) -> "Numbers":
        """What ``table`` holds now."""
        known = {tuple(row[1:]): row[0] for row in connection.execute(select(table))}
        return cls(table, known, last=max(known.values(), default=0))

    def number(self, *shared: Any) -> int:  # noqa: ANN401 - texts and numbers, as the table's columns say
        """The number of what is ``shared``; a new one where it is new."""
        found = self.known.get(shared)
        if found is None:
            kept = tuple(storable(one) if isinstance(one, str) else one for one in shared)
            found = self.known.get(kept)
            if found is None:
                found = self.known[kept] = self.last = self.last + 1
                self.new.append((found, *kept))
            self.known[shared] = found
        return found

    def write(self, connection: Connection) -> None:
        """Put what is new into the table."""
        insert_values(connection, self.table, self.new)
        self.new.clear()


class Results:
    """Results of many runs on their way into the index.

    They are gathered by series, as they lie on disk: written run by run, each run would touch every page of the table.
    """

    def __init__(self, connection: Connection) -> None:
        self._cells = Numbers.read(connection, tables.cell)
        self._series = Numbers.read(connection, tables.series)
        self._contexts = Numbers.read(connection, tables.context)
        self._waiting: defaultdict[int, list[Values]] = defaultdict(list)
        self._last: dict[tuple[int, str], tuple[object, list[tuple[int, int, int, int]]]] = {}
        self.count = 0

    def add(self, run: int, records: Iterable[CellRecord]) -> None:
        """Take the metrics of the cells of ``run``; of several runs the one of the lesser number first."""
        for position, record in enumerate(records):
            counted = self._counted(record)
            if not counted:
                continue
            digests = json.dumps(record.digests_of("data"))
            context = self._contexts.number(record.outcome, record.integer_share, digests)
            for series, hits, losses, gains in counted:
                self._waiting[series].append((series, run, position, context, hits, losses, gains))
            self.count += len(counted)

    def _counted(self, record: CellRecord) -> list[tuple[int, int, int, int]]:
        """(series, hits, losses, gains) of the metrics of a cell; most nights repeat the night before."""
        cell = self._cells.number(*_axes(record))
        environment, metrics = record.environment_class, record.metrics
        before = self._last.get((cell, environment))
        if before is None or before[0] != metrics:
            counted = []
            for place, (name, one) in enumerate(record.counted()):
                shared = (*_nature(one), place, one.out_of, one.reference_hits, one.n)
                series = self._series.number(cell, name, environment, *shared)
                counted.append((series, one.hits, one.losses, one.gains))
            before = self._last[cell, environment] = metrics, counted
        return before[1]

    def write(self, connection: Connection) -> None:
        """Put what was taken into the tables."""
        for numbers in (self._cells, self._series, self._contexts):
            numbers.write(connection)
        rows = itertools.chain.from_iterable(self._waiting[series] for series in sorted(self._waiting))
        insert_values(connection, tables.result, list(rows))
        self._waiting.clear()
        self.count = 0


def run_rows(key: int, data: bytes, path: Path) -> tuple[Row, Row, tuple[CellRecord, ...]]:
    """What ``run`` and ``told`` hold of the run in ``data``, and its cells; of a file that is none, why not."""
    try:
        run = parse_run(data, path, _KEPT)
    except StoreError as error:
        unknown: Row = dict.fromkeys(("id", "suite", "started", "commit_sha"))
        told: Row = {"run": key, "header": "{}", "environment": "{}", "problems": json.dumps([str(error)])}
        return {**unknown, "key": key, "complete": False, "cells": 0, "counted": False}, told, ()
    facts: Row = {
        "key": key,
        "id": storable(run.id),
        "suite": storable(run.suite),
        "started": storable(str(run.header["started"])),
        "commit_sha": storable(run.commit),
        "complete": run.complete,
        "cells": len(run.cells),
        "counted": False,
    }
    header, environment = json.dumps(run.header), json.dumps(run.environment)  # ASCII, which every database takes
    told = {"run": key, "header": header, "environment": environment, "problems": json.dumps(run.notices)}
    return facts, told, run.cells


def insert_values(connection: Connection, table: Table, rows: Sequence[Values]) -> None:
    """Put ``rows``, laid out as the columns of ``table``, into it, past SQLAlchemy's own work on each of millions.

    Raises:
        psycopg.Error: PostgreSQL takes them by COPY, in a tenth of the time, which SQLAlchemy knows nothing of.
    """
    if not rows:
        return
    into = f"{table.name} ({', '.join(table.columns.keys())})"
    if connection.dialect.name == "sqlite":
        marks = ", ".join("?" * len(table.columns))
        connection.exec_driver_sql(f"INSERT INTO {into} VALUES ({marks})", list(rows))
        return
    driver: Any = connection.connection
    with driver.cursor() as cursor, cursor.copy(f"COPY {into} FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)


def storable(text: str) -> str:
    """``text`` as any database takes it: PostgreSQL has no NUL, neither has lone surrogates, which JSON can spell."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\N{REPLACEMENT CHARACTER}")
