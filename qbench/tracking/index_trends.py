"""An index → its trends: what ``trend_series`` gives of the runs, cell by cell from where its nights are neighbours.

No run is put together again for it: of two years of nights that would take longer than all the rest.
"""

import datetime
import itertools
import operator
from collections.abc import Sequence

from sqlalchemy import Connection

from qbench.judging import Cell
from qbench.tracking.index_queries import RESULTS_OF, Context, contexts_of, metric_of, started_runs, wanted_series
from qbench.tracking.ordering import in_commit_order, measured_commit
from qbench.tracking.record import MetricRecord
from qbench.tracking.shards import joined_shards, shard_groups
from qbench.tracking.trend import CONFIRM, Courses, Series, TrendKey, data_of
from qbench.tracking.wanted import Wanted


def wanted_trends(
    connection: Connection, wanted: Wanted, commits: Sequence[str], now: datetime.datetime | None
) -> tuple[Series, ...]:
    """The series that are ``wanted``, sorted, with their levels; ``commits`` as of ``trend_series``."""
    started = started_runs(connection, now)
    keys, runs = tuple(started), tuple(started.values())
    groups = shard_groups([run.header for run in runs])
    night_of = {run.id: group for run, group in zip(joined_shards(runs), groups, strict=True)}
    found = Courses()
    nights: dict[int, int] = {}
    for run in in_commit_order(joined_shards(runs), commits):
        place = found.night(run.id, str(run.header.get("started", "")), measured_commit(run))
        nights |= {keys[shard]: place for shard in night_of[run.id]}
    contexts = contexts_of(connection)
    cell_of = operator.itemgetter(slice(0, 5))
    for axes, several in itertools.groupby(sorted(wanted_series(connection, wanted).values(), key=cell_of), cell_of):
        cell = Cell(*axes)
        shared = {row.key: ((cell, row.metric, row.environment_class), metric_of(row), row.out_of) for row in several}
        _follow(connection, shared, nights, contexts, found)
    return found.series(CONFIRM)


def _follow(
    connection: Connection,
    shared: dict[int, tuple[TrendKey, MetricRecord, int]],
    nights: dict[int, int],
    contexts: dict[int, Context],
    found: Courses,
) -> None:
    """Put the points of one cell into ``found``, night by night."""
    results = connection.execute(RESULTS_OF, {"series": list(shared)}).all()
    kinds: dict[tuple[int, int], int] = {}
    rows = [
        (nights[run], position, number, context, hits)
        for number, run, position, context, hits, _, _ in results
        if run in nights  # not of a lesser copy
    ]
    rows.sort()
    for night, _, number, context, hits in rows:
        key, metric, out_of = shared[number]
        kind = kinds.get((number, context))
        if kind is None:
            kind = kinds[number, context] = found.kind(out_of, data_of(key[1], contexts[context][2]))
        found.course(key, metric).points.add(night, kind, hits / out_of)
