"""A run file as rows of the index: what many rows share is kept once and named by a number."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, insert, select

from qbench.errors import StoreError
from qbench.tracking import index_tables as tables
from qbench.tracking.counts import counts_of_line, data_digests, integer_share
from qbench.tracking.history import parse_run

Row = dict[str, Any]
Values = tuple[Any, ...]


@dataclass(slots=True)
class Numbers:
    """The numbers of a table of shared names: those it holds, and those that are new since.

    Args:
        columns: what is numbered, in the order in which ``number`` takes it.
    """

    table: Table
    columns: tuple[str, ...]
    known: dict[tuple[Any, ...], int] = field(default_factory=dict)
    new: list[Row] = field(default_factory=list)
    last: int = 0

    @classmethod
    def read(cls, connection: Connection, table: Table, *columns: str) -> "Numbers":
        """What ``table`` holds now."""
        rows = connection.execute(select(table.c.key, *(table.c[name] for name in columns)))
        known = {tuple(row[1:]): row[0] for row in rows}
        return cls(table, columns, known, last=max(known.values(), default=0))

    def number(self, *names: Any) -> int:  # noqa: ANN401 - texts and numbers, as the table's columns say
        """The number of ``names``; a new one where they are new."""
        found = self.known.get(names)
        if found is None:
            found = self.last = self.last + 1
            self.known[names] = found
            self.new.append({"key": found, **dict(zip(self.columns, names, strict=True))})
        return found

    def write(self, connection: Connection) -> None:
        """Put what is new into the table."""
        if self.new:
            connection.execute(insert(self.table), self.new)
            self.new.clear()


class Shared:
    """The three tables of names that results share."""

    def __init__(self, connection: Connection) -> None:
        self.cells = Numbers.read(connection, tables.cell, "suite", "model", "backend", "schema", "variant")
        self.series = Numbers.read(connection, tables.series, "cell", "metric", "environment_class", "direction")
        self.samples = Numbers.read(connection, tables.samples, "digests")

    def write(self, connection: Connection) -> None:
        """Put what is new into the tables."""
        for numbers in (self.cells, self.series, self.samples):
            numbers.write(connection)


def run_rows(key: int, data: bytes, path: Path) -> tuple[Row, Row, tuple[Mapping[str, Any], ...]]:
    """What ``run`` and ``told`` hold of the run in ``data``, and its cell lines; of a file that is none, why not."""
    try:
        run = parse_run(data, path)
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


def result_rows(key: int, lines: Sequence[Mapping[str, Any]], shared: Shared) -> tuple[list[Values], list[Values]]:
    """The rows of ``outcome`` and of ``result`` for the cell lines of the run ``key``, laid out as their columns."""
    outcomes: list[Values] = []
    results: list[Values] = []
    number_series = shared.series.number
    for position, line in enumerate(lines):
        cell = shared.cells.number(*(line.get(axis, "") for axis in shared.cells.columns))
        environment = storable(str(line.get("environment_class", "")))
        samples = shared.samples.number(json.dumps(data_digests(line)))
        outcomes.append((cell, key, position, storable(str(line.get("outcome", ""))), integer_share(line), samples))
        for place, (metric, *counts, direction) in enumerate(counts_of_line(line)):
            series = number_series(cell, storable(metric), environment, storable(direction))
            results.append((series, key, position, place, *counts))
    return outcomes, results


def insert_values(connection: Connection, table: Table, rows: Sequence[Values]) -> None:
    """Put ``rows``, laid out as the columns of ``table``, into it, past SQLAlchemy's own work on each of millions."""
    if not rows:
        return
    mark = "?" if connection.dialect.paramstyle == "qmark" else "%s"
    marks = ", ".join([mark] * len(table.columns))
    connection.exec_driver_sql(f"INSERT INTO {table.name} ({', '.join(table.columns.keys())}) VALUES ({marks})", rows)


def storable(text: str) -> str:
    """``text`` as any database takes it: PostgreSQL has no NUL, neither has lone surrogates, which JSON can spell."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\N{REPLACEMENT CHARACTER}")
