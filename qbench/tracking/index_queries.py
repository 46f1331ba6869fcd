"""Queries of an index: results as rows, as runs and as trends."""

import datetime
import functools
import itertools
import json
import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from msgspec import structs
from sqlalchemy import Connection, Row, Select, bindparam, select

from qbench.judging import Cell, Outcome
from qbench.tracking import index_tables as tables
from qbench.tracking.attempts import attempt_ranks
from qbench.tracking.history import MetricRow, Wanted, data_label
from qbench.tracking.index_tables import NATURE
from qbench.tracking.record import AXES, CellRecord, MetricRecord, Run
from qbench.tracking.shards import (
    in_commit_order,
    joined_shards,
    measured_commit,
    shard_groups,
    start_order,
)
from qbench.tracking.trend import CONFIRM, Facts, Series, SeriesBuilder, TrendKey, data_of, facts_of

# Texts are sorted here and not by the database: PostgreSQL sorts by the language of its server.

_SHARED = ("place", "out_of", "reference_hits", "n", "accepted")
"""What the results of one series number have in common besides NATURE."""

_GENERATION = select(tables.state.c.generation)

_SERIES = select(
    *(tables.cell.c[axis] for axis in AXES),
    *(tables.series.c[name] for name in ("environment_class", "metric", *NATURE, *_SHARED, "key")),
).join_from(tables.series, tables.cell, tables.cell.c.key == tables.series.c.cell)

_RUNS = (
    select(tables.run, tables.detail)
    .join_from(tables.run, tables.detail, tables.detail.c.run == tables.run.c.key)
    .where(tables.run.c.counted)
)

_RESULTS = select(*tables.result.c)

RESULTS_OF = _RESULTS.where(tables.result.c.series.in_(bindparam("series", expanding=True)))

_CONTEXTS = select(tables.context)

_CONTEXTS_OF = _CONTEXTS.where(tables.context.c.key.in_(bindparam("keys", expanding=True)))

Context = tuple[str, float, dict[str, str]]
"""Outcome, integer share, {data set: digest}: what results of one cell line share."""

_MANY = 10_000
"""The numbers that fit into one query; for more, all rows are read and filtered here: databases
limit a query.
"""


@dataclass(frozen=True, slots=True)
class _Found:
    """What is wanted: ``results`` as ``_RESULTS`` has them, and by number what they share."""

    series: Mapping[int, Row[Any]]
    contexts: Mapping[int, Context]
    results: Sequence[Any]


Heads = Mapping[int, tuple[int, tuple[str, str, str, bool]]]
"""Number of a run → its place in the order of starts, and id, start, commit, whether it is
complete.
"""


def generation_of(connection: Connection) -> int:
    """A number that no two states of the index share, between two rebuilds."""
    return int(connection.execute(_GENERATION).scalar_one())


def heads_of(connection: Connection, now: datetime.datetime | None) -> Heads:
    """The runs that count; ``now``: as of ``start_order``."""
    return {
        row.key: (place, (row.id, row.started, row.commit_sha, row.complete))
        for place, (row, _) in enumerate(_ordered(connection, now))
    }


def wanted_rows(connection: Connection, wanted: Wanted, runs: Heads) -> list[MetricRow]:
    """The rows that ``metric_rows`` gives of the ``runs``: these in their order, each in that
    of its file.
    """
    found = _found(connection, wanted)
    contexts = {
        key: (outcome, share, data_label(data))
        for key, (outcome, share, data) in found.contexts.items()
    }
    series = {
        key: (row[:6], row.metric, row.place, row.out_of, row.reference_hits, row.n)
        for key, row in found.series.items()
    }
    ordered = []
    for number, run, position, context, hits, losses, gains, facts_text in found.results:
        of_run = runs.get(run)
        if of_run is None:
            continue
        where, metric, place, out_of, reference, n = series[number]
        outcome, share, label = contexts[context]
        start, facts = of_run
        mean = json.loads(facts_text)["mean"] if facts_text else None
        value = hits / out_of if mean is None else mean
        values = (
            *facts, *where, outcome, metric,
            hits, out_of, value, reference, reference / out_of, losses, gains, n, share, label,
        )  # fmt: skip
        ordered.append((start, position, place, number, values))
    ordered.sort()
    return [MetricRow._make(last[4]) for last in ordered]


def wanted_runs(
    connection: Connection, wanted: Wanted, now: datetime.datetime | None
) -> tuple[Run, ...]:
    """The runs of the suite that is wanted, in their order, with such results alone; one
    without any has no cells.

    A record has what trends and frames read: axes, class, outcome, counts with their direction,
        digests of data.
    """
    cells: dict[int, dict[int, CellRecord]] = {}
    found = _found(connection, wanted)
    ordered = sorted(found.results, key=lambda row: (row[1], row[2], found.series[row[0]].place))
    for number, run, position, context, hits, losses, gains, text in ordered:
        facts = found.series[number]
        record = cells.setdefault(run, {}).get(position)
        if record is None:
            outcome, share, data = found.contexts[context]
            record = cells[run][position] = CellRecord(
                **dict(zip(AXES, facts[:5], strict=True)),
                environment_class=facts.environment_class,
                outcome=outcome,
                integer_macs=share,
                digests={f"data:{name}": digest for name, digest in data.items()},
                metrics={},
            )
        record.metrics[facts.metric] = metric_of(
            facts, hits=hits, losses=losses, gains=gains, text=text
        )
    return tuple(
        replace(run, cells=tuple(cells.get(key, {}).values()))
        for key, run in started_runs(connection, now).items()
        if key in cells or wanted.suite in (None, run.suite)
    )


def metric_of(
    facts: Row[Any], *, hits: int = 0, losses: int = 0, gains: int = 0, text: str | None = None
) -> MetricRecord:
    """The record of one result, or of no special one, of the series in ``facts``; ``text``:
    what else it has.
    """
    nature: dict[str, Any] = dict(zip(NATURE, facts[7:11], strict=True))
    shared = {name: getattr(facts, name) for name in ("n", "out_of", "reference_hits", "accepted")}
    more = json.loads(text) if text else {}
    return MetricRecord(**nature, **shared, hits=hits, losses=losses, gains=gains, **more)


def started_runs(connection: Connection, now: datetime.datetime | None) -> dict[int, Run]:
    """Number → run, without its cells, of the runs that count, in the order of their starts."""
    environments = functools.cache(json.loads)  # most nights have the same one
    return {
        row.key: Run(
            header=header,
            environment=environments(row.environment),
            complete=row.complete,
            notices=tuple(json.loads(row.problems)),
            path=row.path,
        )
        for row, header in _ordered(connection, now)
    }


def _ordered(
    connection: Connection, now: datetime.datetime | None
) -> list[tuple[Any, dict[str, Any]]]:
    """(row, its header) of the runs that count, in the order of ``start_order``."""
    rows = sorted(connection.execute(_RUNS).all(), key=lambda row: row.key)
    headers = [json.loads(row.header) for row in rows]
    return [(rows[place], headers[place]) for place in start_order(headers, now)]


def problems_of(connection: Connection) -> tuple[str, ...]:
    """A sentence for each file that could not be read, or not whole, as the last update found
    it; by path.
    """
    statement = select(tables.run.c.path, tables.detail.c.problems).join(
        tables.detail, tables.detail.c.run == tables.run.c.key
    )
    rows = sorted(map(tuple, connection.execute(statement)))
    return tuple(problem for _, problems in rows for problem in json.loads(problems))


def _found(connection: Connection, wanted: Wanted) -> _Found:
    series = wanted_series(connection, wanted)
    if len(series) < _MANY:
        results = connection.execute(RESULTS_OF, {"series": list(series)}).all()
    else:
        results = [row for row in connection.execute(_RESULTS).all() if row[0] in series]
    return _Found(series, contexts_of(connection, {row[3] for row in results}), results)


def wanted_series(connection: Connection, wanted: Wanted) -> dict[int, Row[Any]]:
    """Number of a group → the values that its results share, of the wanted groups."""
    limits = {field.name: getattr(wanted, field.name) for field in fields(Wanted)}
    limits = {name: limit for name, limit in limits.items() if limit is not None}
    return {row.key: row for row in connection.execute(_series_statement(tuple(limits)), limits)}


@functools.cache  # writing a statement takes as long as running it
def _series_statement(axes: tuple[str, ...]) -> Select[Any]:
    columns = {**tables.cell.c, **tables.series.c}
    return _SERIES.where(*(columns[name] == bindparam(name) for name in axes))


def contexts_of(connection: Connection, used: Collection[int] | None = None) -> dict[int, Context]:
    """Number → outcome, integer share, {data set: digest}; of those that are ``used``, or of
    all.
    """
    few = used is not None and len(used) < _MANY
    rows = (
        connection.execute(_CONTEXTS_OF, {"keys": list(used or ())})
        if few
        else connection.execute(_CONTEXTS)
    )
    return {key: (outcome, share, json.loads(digests)) for key, outcome, share, digests in rows}


# Trends from an index: what ``trend_series`` gives of the runs, cell by cell, because the nights of
# a series are neighbours on disk. No ``Run`` is made for it: for two years of nights that would
# take longer than everything else.


def wanted_trends(
    connection: Connection, wanted: Wanted, commits: Sequence[str], now: datetime.datetime | None
) -> tuple[Series, ...]:
    """The series that are ``wanted``, sorted, with their levels; ``commits`` as of
    ``trend_series``.
    """
    started = started_runs(connection, now)
    keys, runs = tuple(started), tuple(started.values())
    groups = shard_groups([run.header for run in runs])
    joined = joined_shards(runs)
    night_of = {run.id: group for run, group in zip(joined, groups, strict=True)}
    found = SeriesBuilder([run.id for run in joined])
    ranks = attempt_ranks(runs)
    nights: dict[int, Place] = {}
    for run in in_commit_order(joined, commits):
        place = found.night(run.id, str(run.header.get("started", "")), measured_commit(run))
        nights |= {
            keys[shard]: (place, *ranks[shard]) for shard in night_of[run.id] if shard in ranks
        }
    contexts = contexts_of(connection)
    cell_of = operator.itemgetter(slice(0, 5))
    for axes, several in itertools.groupby(
        sorted(wanted_series(connection, wanted).values(), key=cell_of), cell_of
    ):
        cell = Cell(*axes)
        shared = {
            row.key: ((cell, row.metric, row.environment_class), metric_of(row), row.out_of)
            for row in several
        }
        _add_points(connection, shared, nights, contexts, found)
    return found.series(CONFIRM)


Place = tuple[int, int, int]
"""Of a run: its night, its piece of work, and which attempt at this it is."""


def _add_points(
    connection: Connection,
    shared: dict[int, tuple[TrendKey, MetricRecord, int]],
    nights: dict[int, Place],
    contexts: dict[int, Context],
    found: SeriesBuilder,
) -> None:
    """Put the points of one cell into ``found``, night by night."""
    results = connection.execute(RESULTS_OF, {"series": list(shared)}).all()

    @functools.cache  # most nights repeat the one before
    def facts_by(number: int, text: str, listed: bool) -> tuple[float | None, Facts]:
        _, metric, _ = shared[number]
        known = structs.replace(metric, **json.loads(text)) if text else metric
        return known.mean, facts_of(known, listed=listed)

    kinds: dict[tuple[int, int], int] = {}
    first: dict[int, int] = {}  # of each piece of work, the attempt that counts for this cell
    for row in results:
        if row.run in nights:  # not of a lesser copy
            _, work, attempt = nights[row.run]
            first[work] = min(attempt, first.get(work, attempt))
    rows = [
        (nights[run][0], position, number, context, hits, text or "")
        for number, run, position, context, hits, _, _, text in results
        if run in nights and first[nights[run][1]] == nights[run][2]
    ]
    rows.sort()
    for night, _, number, context, hits, text in rows:
        key, metric, out_of = shared[number]
        kind = kinds.get((number, context))
        if kind is None:
            kind = kinds[number, context] = found.kind(
                out_of, data_of(key[1], contexts[context][2])
            )
        mean, facts = facts_by(number, text, contexts[context][0] == Outcome.QUARANTINED.value)
        value = hits / out_of if mean is None else mean
        found.course(key, metric).points.add(night, kind, value, facts=facts)
