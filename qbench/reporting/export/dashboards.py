"""Dashboards that draw numbers over commits: github-action-benchmark's ``customSmallerIsBetter``, and Bencher's BMF.

    github-action-benchmark   [{"name", "unit", "value", "extra"}, …]: the drop against fp32, a share's in pp
    Bencher Metric Format     {benchmark: {measure: {"value", "lower_value", "upper_value"}}}: the score, a share in %

The first knows one direction only, so a score would be drawn upside down; a drop is better when it is smaller, whatever
the metric. A distance has no score of fp32 to drop from: it is written as it is, or with its sign turned where larger
is better. The second takes names of measures as they are. Bounds are fp32's score plus the paired interval
(Bonett and Price 2012) of shares of right samples, within 0 and 100; other metrics have none.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from qbench.judging import paired_interval
from qbench.reporting.export.rows import json_list
from qbench.storage import neutral_json
from qbench.tracking import MetricRow, Nature, Run, metric_rows, metrics_of_line, nature_of

_AXES = ("suite", "model", "backend", "schema", "variant")


def github_benchmark_text(runs: Iterable[Run]) -> Iterator[str]:
    """The drops of every measured cell of ``runs``, for ``tool: customSmallerIsBetter``."""
    return json_list(
        {
            "name": f"{_name(row)} {row.metric}",
            "unit": "pp" if nature.unit == "%" else nature.unit,
            "value": _shown(_drop(row, nature), nature),
            "extra": f"{_counted(row, nature)}; {row.environment_class}",
        }
        for row, nature in _measured(runs)
    )


def bencher_text(runs: Iterable[Run]) -> Iterator[str]:
    """The scores of every measured cell of ``runs`` in Bencher's metric format; of several runs the last counts."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for row, nature in _measured(runs):
        measure = {"value": _shown(row.value, nature)}
        if _is_share(row, nature):
            low, high = paired_interval(row.losses, row.gains, row.n, method="bonett-price")
            if nature.lower_is_better:
                low, high = -high, -low
            measure["lower_value"] = _shown(max(row.reference_value + low, 0.0), nature)
            measure["upper_value"] = _shown(min(row.reference_value + high, 1.0), nature)
        found.setdefault(_name(row), {})[row.metric] = measure
    yield neutral_json(found)


def _measured(runs: Iterable[Run]) -> Iterator[tuple[MetricRow, Nature]]:
    """(row, what its numbers are) of each metric of each cell."""
    for run in runs:
        facts: dict[tuple[str, str, str, str, str, str], Any] = {}
        for line in run.cells:
            suite, model, backend, schema, variant = (str(line.get(axis, "")) for axis in _AXES)
            for metric, table in metrics_of_line(line).items():
                facts[suite, model, backend, schema, variant, metric] = table
        for row in metric_rows([run]):
            table = facts[row.suite, row.model, row.backend, row.schema, row.variant, row.metric]
            yield row, nature_of(table)


def _name(row: MetricRow) -> str:
    slug = "+".join(part for part in (row.backend, row.schema, row.variant) if part)
    return f"{row.suite}/{row.model}::{slug}"


def _is_share(row: MetricRow, nature: Nature) -> bool:
    """Whether losses and gains tell all of it, and make sense."""
    return nature.proportion and row.n == row.out_of and row.losses + row.gains <= row.n


def _drop(row: MetricRow, nature: Nature) -> float:
    """How much worse than fp32 it is; of a distance, how far away."""
    before = 0 if nature.is_distance else row.reference_hits
    worse = row.hits - before if nature.lower_is_better else before - row.hits
    return worse / row.out_of


def _counted(row: MetricRow, nature: Nature) -> str:
    told = f"{row.hits} of {row.out_of}"
    return told if nature.is_distance else f"{told}, fp32 {row.reference_hits}"


def _shown(value: float, nature: Nature) -> float:
    """``value`` in its unit, to six places; nothing is less than nothing: not -0.0, which rounding leaves."""
    return round(100 * value if nature.unit == "%" else value, 6) + 0.0
