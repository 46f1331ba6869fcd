"""What an index is asked: the results that are wanted, as rows or as the runs they came from.

Texts are put in order here and not by the database: PostgreSQL sorts by the language of its server.
"""

import json
import operator
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, Row, and_, select

from qbench.tracking import index_tables as tables
from qbench.tracking.frame import AXES, MetricRow, data_label
from qbench.tracking.runs import Run
from qbench.tracking.wanted import Wanted

_COUNTS = ("hits", "out_of", "reference_hits", "losses", "gains", "n")

_RUNS = select(*(tables.run.c[name] for name in ("key", "id", "started", "commit_sha", "complete"))).where(
    tables.run.c.counted
)

_SERIES = select(
    *(tables.cell.c[axis] for axis in AXES),
    *(tables.series.c[name] for name in ("metric", "environment_class", "direction", "key")),
).join_from(tables.series, tables.cell, tables.cell.c.key == tables.series.c.cell)

# The cell is in the condition, so that a series finds its outcomes side by side.
_RESULTS = (
    select(
        *(tables.result.c[name] for name in ("series", "run", "position", "place", *_COUNTS)),
        *(tables.outcome.c[name] for name in ("outcome", "integer_macs", "samples")),
    )
    .join_from(tables.result, tables.series, tables.series.c.key == tables.result.c.series)
    .join(
        tables.outcome,
        and_(
            tables.outcome.c.cell == tables.series.c.cell,
            tables.outcome.c.run == tables.result.c.run,
            tables.outcome.c.position == tables.result.c.position,
        ),
    )
)

_SAMPLES = select(tables.samples.c.key, tables.samples.c.digests)

_MANY = 10_000
"""Series that are asked for by number; of more, all are read and the others passed over: databases limit parameters."""


def wanted_rows(connection: Connection, wanted: Wanted) -> list[MetricRow]:
    """The rows that ``metric_rows`` gives of the runs: these by time, each in the order of its file."""
    runs = {row[0]: tuple(row) for row in connection.execute(_RUNS).all()}
    series, results, digests = _results(connection, wanted)
    labels = {number: data_label(table) for number, table in digests.items()}
    heads = {number: (tuple(facts[:5]), facts.environment_class, facts.metric) for number, facts in series.items()}
    found = []
    for number, run, position, place, hits, out_of, reference, losses, gains, n, outcome, share, samples in results:
        if run not in runs or number not in heads:
            continue
        _, run_id, started, commit, complete = runs[run]
        axes, environment, metric = heads[number]
        values = (
            run_id, started, commit, complete, *axes, environment, outcome, metric,
            hits, out_of, hits / out_of, reference, reference / out_of, losses, gains, n, share, labels[samples],
        )  # fmt: skip
        found.append((started, run_id, position, place, number, values))
    found.sort()
    return [MetricRow._make(last[5]) for last in found]


def wanted_runs(connection: Connection, wanted: Wanted) -> tuple[Run, ...]:
    """The runs that hold such results, by time, with these alone.

    A cell's line has what trends and frames read: axes, class, outcome, counts with their direction, digests of data.
    """
    lines: dict[int, dict[int, dict[str, Any]]] = {}
    series, results, digests = _results(connection, wanted)
    ordered = sorted((tuple(row) for row in results if row[0] in series), key=operator.itemgetter(1, 2, 3))
    for number, run, position, _, *counts, outcome, share, samples in ordered:
        facts = series[number]
        line = lines.setdefault(run, {}).setdefault(
            position,
            {
                "type": "cell",
                **dict(zip(AXES, facts[:5], strict=True)),
                "environment_class": facts.environment_class,
                "outcome": outcome,
                "integer_macs": share,
                "digests": {f"data:{name}": digest for name, digest in digests[samples].items()},
                "metrics": {},
            },
        )
        named = dict(zip(_COUNTS, counts, strict=True))
        line["metrics"][facts.metric] = {**named, "value": counts[0] / counts[1], "direction": facts.direction}
    told = connection.execute(select(tables.run, tables.told).join(tables.told, tables.told.c.run == tables.run.c.key))
    return tuple(
        Run(
            header=json.loads(row.header),
            environment=json.loads(row.environment),
            cells=tuple(lines[row.key].values()),
            complete=row.complete,
            notices=tuple(json.loads(row.problems)),
            path=row.path,
        )
        for row in sorted(told, key=lambda row: (row.started or "", row.id or ""))
        if row.counted and row.key in lines
    )


def problems_of(connection: Connection) -> tuple[str, ...]:
    """A sentence for each file that could not be read, or not whole, as the last update found it; by path."""
    told = select(tables.run.c.path, tables.told.c.problems).join(tables.told, tables.told.c.run == tables.run.c.key)
    rows = sorted(map(tuple, connection.execute(told)))
    return tuple(problem for _, problems in rows for problem in json.loads(problems))


def _results(
    connection: Connection, wanted: Wanted
) -> tuple[dict[int, Row[Any]], Sequence[Any], dict[int, dict[str, str]]]:
    """Series that are wanted and samples, by number; results of these series, of very many maybe with others."""
    series = _wanted_series(connection, wanted)
    statement = _RESULTS.where(tables.result.c.series.in_(list(series))) if len(series) < _MANY else _RESULTS
    results = connection.execute(statement).all()
    numbers = list({row[-1] for row in results})
    named = _SAMPLES.where(tables.samples.c.key.in_(numbers)) if len(numbers) < _MANY else _SAMPLES
    return series, results, {number: json.loads(text) for number, text in connection.execute(named).all()}


def _wanted_series(connection: Connection, wanted: Wanted) -> dict[int, Row[Any]]:
    limits = {field.name: getattr(wanted, field.name) for field in fields(Wanted)}
    columns = {**tables.cell.c, **tables.series.c}
    statement = _SERIES.where(*(columns[name] == limit for name, limit in limits.items() if limit is not None))
    return {row.key: row for row in connection.execute(statement).all()}
