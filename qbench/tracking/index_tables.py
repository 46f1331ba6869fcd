"""The tables of the index, and a run file as their rows."""

import itertools
import json
import operator
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    Integer,
    MetaData,
    Table,
    Text,
    select,
)

from qbench.errors import StoreError
from qbench.tracking.history import kept_keys, parse_run
from qbench.tracking.record import AXES, CellRecord, MetricRecord

# The tables of the index, the same in SQLite and PostgreSQL; everything in them is derived from run
# files.
#
#     run             one row for each file, with its size, time and digest, so that an update reads
#                     only new files
#     detail          its first lines, and what is wrong with it, as JSON; apart, so that rows of
#                     run stay short
#     cell, series    what the nights of one trend share, by number; a trend whose number of
#                     samples, reference or accepted result changed has several rows in series
#     context         what results of one cell line share, and most lines: outcome, integer share,
#                     {data set: digest}
#     result          one row for each metric of a measured cell line: the position of the line in
#                     its run, and the counts that may differ every night; as short as possible,
#                     because there are millions
#
# Results lie on disk in the order of their key, so that all nights of one series are neighbours
# there.
#
# A value is hits / out_of; a series is the results of one number, of the runs that are counted.
#
# ``counted`` is false of a file that is the lesser copy of a run, or that could not be read. There
# are no foreign keys and no unique texts: one process writes, in one transaction, and checking a
# row would take longer than writing it. There are no migrations: another VERSION is another index,
# and is made anew from the files.

VERSION = 5

NATURE = ("direction", "unit", "against", "proportion")
"""What the numbers of a metric are: columns of a series, and fields of a ``MetricRecord``."""

FACTS = ("mean", "noise")
"""What a result may have besides its counts: fields of a ``MetricRecord``."""

metadata = MetaData()

state = Table(
    "qbench_index",
    metadata,
    Column("version", Integer, nullable=False),
    # another one after every update: what a reader knows is old
    Column("generation", BigInteger, nullable=False),
)

run = Table(
    "qbench_run",
    metadata,
    Column("key", Integer, primary_key=True, autoincrement=False),
    Column("path", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("modified_ns", BigInteger, nullable=False),
    Column("digest", Text, nullable=False),
    Column("id", Text),
    Column("suite", Text),
    Column("started", Text),
    Column("commit_sha", Text),
    Column("complete", Boolean, nullable=False),
    Column("cells", Integer, nullable=False),
    Column("counted", Boolean, nullable=False),
)

detail = Table(
    "qbench_told",  # stored name
    metadata,
    Column("run", Integer, primary_key=True, autoincrement=False),
    Column("header", Text, nullable=False),
    Column("environment", Text, nullable=False),
    Column("problems", Text, nullable=False),
)

cell = Table(
    "qbench_cell",
    metadata,
    Column("key", Integer, primary_key=True, autoincrement=False),
    Column("suite", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("backend", Text, nullable=False),
    Column("schema", Text, nullable=False),
    Column("variant", Text, nullable=False),
)

series = Table(
    "qbench_series",
    metadata,
    Column("key", Integer, primary_key=True, autoincrement=False),
    Column("cell", Integer, nullable=False),
    Column("metric", Text, nullable=False),
    Column("environment_class", Text, nullable=False),
    Column("direction", Text, nullable=False),
    Column("unit", Text, nullable=False),
    Column("against", Text, nullable=False),
    Column("proportion", Boolean, nullable=False),
    Column("place", Integer, nullable=False),
    Column("out_of", BigInteger, nullable=False),
    Column("reference_hits", BigInteger, nullable=False),
    Column("n", BigInteger, nullable=False),
    Column("accepted", BigInteger, nullable=True),
)

context = Table(
    "qbench_context",
    metadata,
    Column("key", Integer, primary_key=True, autoincrement=False),
    Column("outcome", Text, nullable=False),
    Column("integer_macs", Float, nullable=False),
    Column("digests", Text, nullable=False),
)

result = Table(
    "qbench_result",
    metadata,
    Column("series", Integer, primary_key=True, autoincrement=False),
    Column("run", Integer, primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("context", Integer, nullable=False),
    Column("hits", BigInteger, nullable=False),
    Column("losses", BigInteger, nullable=False),
    Column("gains", BigInteger, nullable=False),
    # JSON: the mean of runs that differ, and the noise, where there is one
    Column("facts", Text, nullable=True),
    sqlite_with_rowid=False,
)


# A run file as rows of the index: what many rows share is stored once and has a number.

_axes = operator.attrgetter(*AXES)
_nature = operator.attrgetter(*NATURE)

_KEPT = kept_keys(
    *AXES,
    *("outcome", "environment_class", "integer_macs", "metrics", "digests"),
    *("stopped", "carried"),  # whose metrics are not counted
)

Row = dict[str, Any]
Values = tuple[Any, ...]


@dataclass(slots=True)
class Numbers:
    """The numbers of the rows of a shared table: stored ones, and new ones that are not written
    yet.

    A number identifies the columns after the key.
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

    They are gathered by series, as they lie on disk: written run by run, each run would touch every
        page of the table.
    """

    def __init__(self, connection: Connection) -> None:
        self._cells = Numbers.read(connection, cell)
        self._series = Numbers.read(connection, series)
        self._contexts = Numbers.read(connection, context)
        self._waiting: defaultdict[int, list[Values]] = defaultdict(list)
        self._last: dict[
            tuple[int, str], tuple[object, list[tuple[int, int, int, int, str | None]]]
        ] = {}
        self.count = 0

    def add(self, run: int, records: Iterable[CellRecord]) -> None:
        """Take the metrics of the cells of ``run``; of several runs the one of the lesser
        number first.
        """
        for position, record in enumerate(records):
            counted = self._counted(record)
            if not counted:
                continue
            digests = json.dumps(record.digests_of("data"))
            context = self._contexts.number(record.outcome, record.integer_share, digests)
            for series, *values in counted:
                self._waiting[series].append((series, run, position, context, *values))
            self.count += len(counted)

    def _counted(self, record: CellRecord) -> list[tuple[int, int, int, int, str | None]]:
        """(series, hits, losses, gains, facts) of the metrics of a cell; most nights repeat the
        night before.
        """
        cell = self._cells.number(*_axes(record))
        environment, metrics = record.environment_class, record.metrics
        before = self._last.get((cell, environment))
        known = metrics, record.is_carried, record.stopped is not None
        if before is None or before[0] != known:
            counted = []
            for place, (name, one) in enumerate(record.counted()):
                shared = (*_nature(one), place, one.out_of, one.reference_hits, one.n, one.accepted)
                series = self._series.number(cell, name, environment, *shared)
                counted.append((series, one.hits, one.losses, one.gains, _facts(one)))
            before = self._last[cell, environment] = known, counted
        return before[1]

    def write(self, connection: Connection) -> None:
        """Put what was taken into the tables."""
        for numbers in (self._cells, self._series, self._contexts):
            numbers.write(connection)
        rows = itertools.chain.from_iterable(
            self._waiting[series] for series in sorted(self._waiting)
        )
        insert_values(connection, result, list(rows))
        self._waiting.clear()
        self.count = 0


def _facts(metric: MetricRecord) -> str | None:
    """What a result has besides its counts; None of most."""
    facts = {name: getattr(metric, name) for name in FACTS}
    return json.dumps(facts) if any(one is not None for one in facts.values()) else None


def run_rows(key: int, data: bytes, path: str) -> tuple[Row, Row, tuple[CellRecord, ...]]:
    """The rows of ``run`` and ``detail`` for the run in ``data``, and its cells; for an
    unreadable file, the reason.
    """
    try:
        run = parse_run(data, path, _KEPT)
    except StoreError as error:
        unknown: Row = dict.fromkeys(("id", "suite", "started", "commit_sha"))
        detail: Row = {
            "run": key,
            "header": "{}",
            "environment": "{}",
            "problems": json.dumps([str(error)]),
        }
        return {**unknown, "key": key, "complete": False, "cells": 0, "counted": False}, detail, ()
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
    # ASCII, which every database takes
    header, environment = json.dumps(run.header), json.dumps(run.environment)
    detail = {
        "run": key,
        "header": header,
        "environment": environment,
        "problems": json.dumps(run.notices),
    }
    return facts, detail, run.cells


def insert_values(connection: Connection, table: Table, rows: Sequence[Values]) -> None:
    """Put ``rows``, laid out as the columns of ``table``, into it, without SQLAlchemy's work on
    each of millions.

    Raises:
        psycopg.Error: PostgreSQL takes them by COPY, in a tenth of the time, which SQLAlchemy does
            not offer.
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
    """``text`` as any database takes it: PostgreSQL has no NUL, neither has lone surrogates,
    which JSON can spell.
    """
    if text.isascii() and "\0" not in text:
        return text
    return (
        text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\N{REPLACEMENT CHARACTER}")
    )
