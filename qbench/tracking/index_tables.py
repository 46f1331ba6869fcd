"""The tables of the index, the same in SQLite and PostgreSQL; everything in them is derived from run files.

    run             one row a file, with its size, time and digest, so that an update reads what is new
    told            its first lines, and what is wrong with it, as JSON; apart, so that run stays short
    cell, series    what the nights of one trend share, by number; a trend whose samples or reference became more or
                    fewer has several of the second
    context         what results of one cell line share, and most lines: outcome, integer share, {data set: digest}
    result          one row a metric of a measured cell line: the position of the line in its run, and what was counted
                    and can be another count tomorrow; as short as it can be, for there are millions

Results lie on disk in the order of their key, so that all nights of one series are neighbours there.

A value is hits / out_of; a series are the results of one number that belong to runs that are counted.

``counted`` is false of a file that is the lesser copy of a run, or that could not be read. There are no foreign keys
and no unique texts: one process writes, in one transaction, and checking a row would take longer than writing it. There
are no migrations: another VERSION is another index, and is made anew from the files.
"""

from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, MetaData, Table, Text

VERSION = 4

NATURE = ("direction", "unit", "against", "proportion")
"""What the numbers of a metric are: columns of a series, and fields of a ``MetricRecord``."""

metadata = MetaData()

state = Table(
    "qbench_index",
    metadata,
    Column("version", Integer, nullable=False),
    Column("generation", BigInteger, nullable=False),  # another one after every update: what a reader knows is old
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

told = Table(
    "qbench_told",
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
    sqlite_with_rowid=False,
)
