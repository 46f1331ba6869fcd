"""One row a metric of each measured cell of each run, as CSV (RFC 4180) or as a JSON array of objects."""

import csv
import io
from collections.abc import Sequence

from qbench.storage import json_text
from qbench.tracking import MetricRow, Run, metric_rows

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_text(runs: Sequence[Run]) -> str:
    """``runs`` as CSV, first the names of the columns.

    A text that a spreadsheet would take for a formula gets an apostrophe before it: run files come from elsewhere too.
    """
    target = io.StringIO(newline="")
    writer = csv.writer(target)
    writer.writerow(MetricRow._fields)
    for row in metric_rows(runs):
        writer.writerow(
            [f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value for value in row]
        )
    return target.getvalue()


def rows_text(runs: Sequence[Run]) -> str:
    """``runs`` as JSON: one object a row, with the names of ``MetricRow``."""
    return json_text([row._asdict() for row in metric_rows(runs)])
