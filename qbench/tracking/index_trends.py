"""An index → its trends: what ``trend_series`` gives of the runs, cell by cell from where its nights are neighbours.

No run is put together again for it: of two years of nights that would take longer than all the rest.
"""

import itertools
import operator
from collections.abc import Sequence

from sqlalchemy import Connection

from qbench.judging import Cell
from qbench.tracking.counts import Nature
from qbench.tracking.index_queries import RESULTS_OF, Context, contexts_of, started_runs, wanted_series
from qbench.tracking.ordering import measured_commit
from qbench.tracking.shards import joined_shards, shard_groups
from qbench.tracking.trend import CONFIRM, Course, Point, Series, TrendKey, data_of, in_order, series_of
from qbench.tracking.wanted import Wanted


def wanted_trends(connection: Connection, wanted: Wanted, commits: Sequence[str]) -> tuple[Series, ...]:
    """The series that are ``wanted``, sorted, with their levels; ``commits`` as of ``trend_series``."""
    started = started_runs(connection)
    keys, runs = tuple(started), tuple(started.values())
    groups = shard_groups([run.header for run in runs])
    night_of = {run.id: group for run, group in zip(joined_shards(runs), groups, strict=True)}
    nights = {
        keys[shard]: (place, run.id, str(run.header.get("started", "")), measured_commit(run))
        for place, run in enumerate(in_order(runs, commits))
        for shard in night_of[run.id]
    }
    contexts = contexts_of(connection)
    found: dict[TrendKey, Course] = {}
    cell_of = operator.itemgetter(slice(0, 5))
    for axes, several in itertools.groupby(sorted(wanted_series(connection, wanted).values(), key=cell_of), cell_of):
        cell = Cell(*axes)
        shared = {
            row.key: ((cell, row.metric, row.environment_class), Nature(*row[7:11]), row.out_of) for row in several
        }
        _follow(connection, shared, nights, contexts, found)
    return series_of(found, CONFIRM)


def _follow(
    connection: Connection,
    shared: dict[int, tuple[TrendKey, Nature, int]],
    nights: dict[int, tuple[int, str, str, str]],
    contexts: dict[int, Context],
    found: dict[TrendKey, Course],
) -> None:
    """Put the points of one cell into ``found``, night by night."""
    results = connection.execute(RESULTS_OF, {"series": list(shared)}).all()
    data: dict[tuple[int, int], str] = {}
    rows = [
        (nights[run], position, number, context, hits)
        for number, run, position, context, hits, _, _ in results
        if run in nights  # not of a lesser copy
    ]
    rows.sort()
    for (_, run_id, started, commit), _, number, context, hits in rows:
        key, nature, out_of = shared[number]
        label = data.get((number, context))
        if label is None:
            label = data[number, context] = data_of(key[1], contexts[context][2])
        course = found.get(key)
        if course is None:
            course = found[key] = Course(nature)
        course.nature = nature
        course.points.append(
            Point(run=run_id, started=started, commit=commit, value=hits / out_of, out_of=out_of, data=label)
        )
