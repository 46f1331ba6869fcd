"""One row a metric of each measured cell of each run, as CSV (RFC 4180) or as a JSON array of objects."""

import itertools
from collections.abc import Iterable, Iterator

from qbench.storage import csv_text as table_text
from qbench.storage import neutral_json
from qbench.tracking import MetricRow, Run, metric_rows

_AT_ONCE = 1000


def csv_text(runs: Iterable[Run]) -> Iterator[str]:
    """``runs`` as CSV, first the names of the columns."""
    yield table_text([MetricRow._fields])
    for run in runs:
        yield table_text(metric_rows([run]))


def rows_text(runs: Iterable[Run]) -> Iterator[str]:
    """``runs`` as JSON: one object a row, with the names of ``MetricRow``."""
    return json_list(row._asdict() for row in metric_rows(runs))


def json_list(values: Iterable[object]) -> Iterator[str]:
    """What ``neutral_json`` writes of a list of ``values``, some at a time: one by one takes twice as long."""
    rows, before = iter(values), "["
    while several := list(itertools.islice(rows, _AT_ONCE)):
        yield before + neutral_json(several)[1:-3]  # without the brackets
        before = ","
    yield "\n]\n" if before == "," else "[]\n"
