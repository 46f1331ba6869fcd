"""One row a metric of each measured cell of each run, as CSV (RFC 4180) or as a JSON array of objects."""

import csv
import io
from collections.abc import Iterable, Iterator

from qbench.storage import json_text
from qbench.tracking import MetricRow, Run, metric_rows

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_text(runs: Iterable[Run]) -> Iterator[str]:
    """``runs`` as CSV, first the names of the columns.

    A text that a spreadsheet would take for a formula gets an apostrophe before it: run files come from elsewhere too.
    """
    yield _csv([MetricRow._fields])
    for run in runs:
        yield _csv(
            [f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value for value in row]
            for row in metric_rows([run])
        )


def _csv(rows: Iterable[Iterable[object]]) -> str:
    target = io.StringIO(newline="")
    csv.writer(target).writerows(rows)
    return target.getvalue()


def rows_text(runs: Iterable[Run]) -> Iterator[str]:
    """``runs`` as JSON: one object a row, with the names of ``MetricRow``."""
    return json_list(row._asdict() for row in metric_rows(runs))


def json_list(values: Iterable[object]) -> Iterator[str]:
    """What ``json_text`` writes of a list of ``values`` (tables with something in them), one at a time."""
    before = "[\n "
    for value in values:
        yield before + json_text(value).rstrip("\n").replace("\n", "\n ")
        before = ",\n "
    yield "\n]\n" if before != "[\n " else "[]\n"
