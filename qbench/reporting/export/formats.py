"""The formats by name: each turns runs into the text of one file, piece by piece."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from qbench.errors import unknown_name
from qbench.reporting.export.dashboards import bencher_text, github_benchmark_text
from qbench.reporting.export.junit import junit_text
from qbench.reporting.export.rows import csv_text, rows_text
from qbench.tracking import Run

EXPORT_FORMATS: Mapping[str, Callable[[Iterable[Run]], Iterator[str]]] = MappingProxyType(
    {
        "csv": csv_text,
        "json": rows_text,
        "junit": junit_text,
        "github-benchmark": github_benchmark_text,
        "bencher": bencher_text,
    }
)

EXPORT_KEYS = (
    *("suite", "model", "backend", "schema", "variant", "environment_class", "metrics", "digests", "integer_macs"),
    *("outcome", "headline", "rule", "notices", "remedy", "seconds"),
)
"""What of a ``cell`` line an export is made of."""


def export_text(runs: Iterable[Run], name: str) -> str:
    """``runs`` in the format ``name``.

    Raises:
        InputError: the format does not exist.
    """
    return "".join(export_pieces(runs, name))


def export_pieces(runs: Iterable[Run], name: str) -> Iterator[str]:
    """``export_text`` piece by piece: of a long history neither runs nor text are in memory at once.

    Raises:
        InputError: the format does not exist.
    """
    if name not in EXPORT_FORMATS:
        raise unknown_name("Exporting runs", "format", name, EXPORT_FORMATS)
    return EXPORT_FORMATS[name](runs)
