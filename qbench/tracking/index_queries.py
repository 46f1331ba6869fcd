"""What an index is asked: the results that are wanted, as rows or as the runs they came from.

Texts are put in order here and not by the database: PostgreSQL sorts by the language of its server.
"""

import json
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import Connection, Row, select

from qbench.tracking import index_tables as tables
from qbench.tracking.counts import Nature
from qbench.tracking.frame import AXES, MetricRow, data_label
from qbench.tracking.runs import Run
from qbench.tracking.wanted import Wanted

_COUNTS = ("hits", "out_of", "reference_hits", "losses", "gains", "n")

_RUNS = select(*(tables.run.c[name] for name in ("key", "id", "started", "commit_sha", "complete"))).where(
    tables.run.c.counted
)

_SERIES = select(
    *(tables.cell.c[axis] for axis in AXES),
    *(tables.series.c[name] for name in ("metric", "environment_class", *Nature._fields, "key")),
).join_from(tables.series, tables.cell, tables.cell.c.key == tables.series.c.cell)

_TOLD = (
    select(tables.run, tables.told)
    .join_from(tables.run, tables.told, tables.told.c.run == tables.run.c.key)
    .where(tables.run.c.counted)
)

_RESULTS = select(*(tables.result.c[name] for name in ("series", "run", "position", "place", "context", *_COUNTS)))

_CONTEXTS = select(tables.context)

_MANY = 10_000
"""Numbers that are asked for one by one; of more, all are read and the others passed over: databases limit them."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What is wanted: ``results`` as ``_RESULTS`` has them, and by number what they share."""

    series: Mapping[int, Row[Any]]
    contexts: Mapping[int, tuple[str, float, dict[str, str]]]
    results: Sequence[Any]


def wanted_rows(connection: Connection, wanted: Wanted) -> list[MetricRow]:
    """The rows that ``metric_rows`` gives of the runs: these by time, each in the order of its file."""
    runs = {row.key: row[1:] for row in connection.execute(_RUNS).all()}
    found = _found(connection, wanted)
    contexts = {key: (outcome, share, data_label(data)) for key, (outcome, share, data) in found.contexts.items()}
    heads = {key: (tuple(facts[:5]), facts.environment_class, facts.metric) for key, facts in found.series.items()}
    ordered = []
    for number, run, position, place, context, hits, out_of, reference, losses, gains, n in found.results:
        if run not in runs:
            continue
        run_id, started, commit, complete = runs[run]
        axes, environment, metric = heads[number]
        outcome, share, label = contexts[context]
        values = (
            run_id, started, commit, complete, *axes, environment, outcome, metric,
            hits, out_of, hits / out_of, reference, reference / out_of, losses, gains, n, share, label,
        )  # fmt: skip
        ordered.append((started, run_id, position, place, number, values))
    ordered.sort()
    return [MetricRow._make(last[5]) for last in ordered]


def wanted_runs(connection: Connection, wanted: Wanted) -> tuple[Run, ...]:
    """The runs of the suite that is wanted, by time, with such results alone; a run without any has no cells.

    A cell's line has what trends and frames read: axes, class, outcome, counts with their direction, digests of data.
    """
    lines: dict[int, dict[int, dict[str, Any]]] = {}
    found = _found(connection, wanted)
    for number, run, position, _, context, *counts in sorted(found.results, key=operator.itemgetter(1, 2, 3)):
        facts = found.series[number]
        line = lines.setdefault(run, {}).get(position)
        if line is None:
            outcome, share, data = found.contexts[context]
            line = lines[run][position] = {
                "type": "cell",
                **dict(zip(AXES, facts[:5], strict=True)),
                "environment_class": facts.environment_class,
                "outcome": outcome,
                "integer_macs": share,
                "digests": {f"data:{name}": digest for name, digest in data.items()},
                "metrics": {},
            }
        named = dict(zip((*_COUNTS, *Nature._fields), (*counts, *facts[7:11]), strict=True))
        line["metrics"][facts.metric] = {**named, "value": counts[0] / counts[1]}
    return tuple(
        Run(
            header=json.loads(row.header),
            environment=json.loads(row.environment),
            cells=tuple(lines.get(row.key, {}).values()),
            complete=row.complete,
            notices=tuple(json.loads(row.problems)),
            path=row.path,
        )
        for row in sorted(connection.execute(_TOLD).all(), key=lambda row: (row.started, row.id))
        if row.key in lines or wanted.suite in (None, row.suite)
    )


def problems_of(connection: Connection) -> tuple[str, ...]:
    """A sentence for each file that could not be read, or not whole, as the last update found it; by path."""
    told = select(tables.run.c.path, tables.told.c.problems).join(tables.told, tables.told.c.run == tables.run.c.key)
    rows = sorted(map(tuple, connection.execute(told)))
    return tuple(problem for _, problems in rows for problem in json.loads(problems))


def _found(connection: Connection, wanted: Wanted) -> _Found:
    series = _wanted_series(connection, wanted)
    if len(series) < _MANY:
        results = connection.execute(_RESULTS.where(tables.result.c.series.in_(list(series)))).all()
    else:
        results = [row for row in connection.execute(_RESULTS).all() if row[0] in series]
    used = {row[4] for row in results}
    statement = _CONTEXTS.where(tables.context.c.key.in_(list(used))) if len(used) < _MANY else _CONTEXTS
    contexts = {
        row.key: (row.outcome, row.integer_macs, json.loads(row.digests)) for row in connection.execute(statement).all()
    }
    return _Found(series, contexts, results)


def _wanted_series(connection: Connection, wanted: Wanted) -> dict[int, Row[Any]]:
    limits = {field.name: getattr(wanted, field.name) for field in fields(Wanted)}
    columns = {**tables.cell.c, **tables.series.c}
    statement = _SERIES.where(*(columns[name] == limit for name, limit in limits.items() if limit is not None))
    return {row.key: row for row in connection.execute(statement).all()}
