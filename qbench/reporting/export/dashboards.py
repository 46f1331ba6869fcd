"""Dashboards that draw numbers over commits: github-action-benchmark's ``customSmallerIsBetter``, and Bencher's BMF.

    github-action-benchmark   [{"name", "unit", "value", "extra"}, …]: the drop against fp32, in percentage points
    Bencher Metric Format     {benchmark: {measure: {"value", "lower_value", "upper_value"}}}: the score in percent

The first knows one direction only, so a score would be drawn upside down; a drop is better when it is smaller, whatever
the metric. The second takes names of measures as they are. Bounds are fp32's score plus the paired interval
(Bonett and Price 2012) of shares of right samples; other metrics have none.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from qbench.judging import paired_interval
from qbench.storage import json_text
from qbench.tracking import MetricRow, Run, metric_rows, metrics_of_line

_AXES = ("suite", "model", "backend", "schema", "variant")


def github_benchmark_text(runs: Sequence[Run]) -> str:
    """The drops of every measured cell of ``runs``, for ``tool: customSmallerIsBetter``."""
    return json_text(
        [
            {
                "name": f"{_name(row)} {row.metric}",
                "unit": "pp",
                "value": round(100 * _drop(row, is_lower=is_lower), 6),
                "extra": f"{row.hits} of {row.out_of}, fp32 {row.reference_hits}; {row.environment_class}",
            }
            for row, is_lower, _ in _measured(runs)
        ]
    )


def bencher_text(runs: Sequence[Run]) -> str:
    """The scores of every measured cell of ``runs`` in Bencher's metric format; of several runs the last counts."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for row, _, is_share in _measured(runs):
        measure = {"value": round(100 * row.value, 6)}
        if is_share and row.n == row.out_of and max(row.losses, row.gains) <= row.n:
            low, high = paired_interval(row.losses, row.gains, row.n, method="bonett-price")
            measure["lower_value"] = round(100 * (row.reference_value + low), 6)
            measure["upper_value"] = round(100 * (row.reference_value + high), 6)
        found.setdefault(_name(row), {})[row.metric] = measure
    return json_text(found)


def _measured(runs: Sequence[Run]) -> Iterator[tuple[MetricRow, bool, bool]]:
    """(row, whether lower is better, whether it is a share of right samples) of each metric of each cell."""
    for run in runs:
        facts: dict[tuple[str, str, str, str, str, str], Any] = {}
        for line in run.cells:
            suite, model, backend, schema, variant = (str(line.get(axis, "")) for axis in _AXES)
            for metric, table in metrics_of_line(line).items():
                facts[suite, model, backend, schema, variant, metric] = table
        for row in metric_rows([run]):
            table = facts[row.suite, row.model, row.backend, row.schema, row.variant, row.metric]
            yield row, table.get("direction") == "lower", table.get("proportion") is True


def _name(row: MetricRow) -> str:
    slug = "+".join(part for part in (row.backend, row.schema, row.variant) if part)
    return f"{row.suite}/{row.model}::{slug}"


def _drop(row: MetricRow, *, is_lower: bool) -> float:
    rise = (row.hits - row.reference_hits) / row.out_of
    return rise if is_lower else -rise
