"""One row a metric of each measured cell of each run, as CSV (RFC 4180) or as a JSON array of objects."""

from collections.abc import Iterable, Iterator

from qbench.storage import csv_text as table_text
from qbench.storage import neutral_json
from qbench.tracking import MetricRow, Run, metric_rows


def csv_text(runs: Iterable[Run]) -> Iterator[str]:
    """``runs`` as CSV, first the names of the columns."""
    yield table_text([MetricRow._fields])
    for run in runs:
        yield table_text(metric_rows([run]))


def rows_text(runs: Iterable[Run]) -> Iterator[str]:
    """``runs`` as JSON: one object a row, with the names of ``MetricRow``."""
    return json_list(row._asdict() for row in metric_rows(runs))


def json_list(values: Iterable[object]) -> Iterator[str]:
    """What ``neutral_json`` writes of a list of ``values`` (tables with something in them), one at a time."""
    before = "[\n "
    for value in values:
        yield before + neutral_json(value).rstrip("\n").replace("\n", "\n ")
        before = ",\n "
    yield "\n]\n" if before != "[\n " else "[]\n"
