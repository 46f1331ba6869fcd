"""Runs as rows and as one pandas frame: a row for each metric of each measured cell of each run."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from qbench.tracking.runs import Run

if TYPE_CHECKING:
    import pandas as pd


_DIGITS = 12


class MetricRow(NamedTuple):
    """One metric of one measured cell of one run.

    ``started`` is a UTC time (ISO 8601), values are fractions, ``data`` names the samples of all metrics of the cell.
    """

    run: str
    started: str
    commit: str
    complete: bool
    suite: str
    model: str
    backend: str
    schema: str
    variant: str
    environment_class: str
    outcome: str
    metric: str
    hits: int
    out_of: int
    value: float
    reference_hits: int
    reference_value: float
    losses: int
    gains: int
    n: int
    integer_macs: float
    data: str


COLUMNS = MetricRow._fields


def metric_rows(runs: Iterable[Run]) -> Iterator[MetricRow]:
    """The rows of ``runs``, in their order and that of their files. A cell that was skipped or broken has none."""
    for run in runs:
        started = str(run.header.get("started", ""))
        for record in run.cells:
            label = data_label(record.digests_of("data"))
            for name, metric in record.counted():
                yield MetricRow(
                    run.id,
                    started,
                    run.commit,
                    run.complete,
                    record.suite,
                    record.model,
                    record.backend,
                    record.schema,
                    record.variant,
                    record.environment_class,
                    record.outcome,
                    name,
                    metric.hits,
                    metric.out_of,
                    metric.value,
                    metric.reference_hits,
                    metric.reference_value,
                    metric.losses,
                    metric.gains,
                    metric.n,
                    record.integer_share,
                    label,
                )


def data_label(digests: Mapping[str, str]) -> str:
    """``photos:0f3a…``: the data sets of a cell with the beginnings of their digests."""
    return "+".join(f"{name}:{digest[:_DIGITS]}" for name, digest in digests.items())


def cell_frame(runs: Iterable[Run]) -> "pd.DataFrame":
    """``metric_rows(runs)`` as a frame: columns ``COLUMNS``; ``started`` is a UTC time, NaT where it is none."""
    return frame_of_rows(metric_rows(runs))


def frame_of_rows(rows: Iterable[tuple[object, ...]]) -> "pd.DataFrame":
    """A frame of tuples that are laid out as ``MetricRow`` is."""
    import pandas as pd

    frame = pd.DataFrame(list(rows), columns=list(COLUMNS))
    frame["started"] = pd.to_datetime(frame["started"], utc=True, format="ISO8601", errors="coerce")
    return frame
