"""The formats by name: each turns runs into the text of one file."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from qbench.errors import unknown_name
from qbench.reporting.export.dashboards import bencher_text, github_benchmark_text
from qbench.reporting.export.junit import junit_text
from qbench.reporting.export.rows import csv_text, rows_text
from qbench.tracking import Run

EXPORT_FORMATS: Mapping[str, Callable[[Sequence[Run]], str]] = MappingProxyType(
    {
        "csv": csv_text,
        "json": rows_text,
        "junit": junit_text,
        "github-benchmark": github_benchmark_text,
        "bencher": bencher_text,
    }
)


def export_text(runs: Sequence[Run], name: str) -> str:
    """``runs`` in the format ``name``.

    Raises:
        InputError: there is no such format.
    """
    if name not in EXPORT_FORMATS:
        raise unknown_name("Exporting runs", "format", name, EXPORT_FORMATS)
    return EXPORT_FORMATS[name](runs)
