"""Margins that are finer than what is counted: under one sample only a proven loss is red, under one edit every edit.

0.5 % of 100 right samples is half a sample. People who set such a number believe that something is watched.
"""

from collections.abc import Iterable, Sequence

from qbench.judging import rough_percent
from qbench.reporting.view import ABSENT, CellView, MetricView
from qbench.reporting.words import counted, thousands

_NAMED = 3


def coarse_notices(cells: Sequence[CellView]) -> tuple[str, ...]:
    """A sentence for each number of samples and rule of which one sample is more than is admitted."""
    groups: dict[tuple[int, str, bool], list[tuple[CellView, str]]] = {}
    for cell in cells:
        for metric, rule in _coarse(cell):
            groups.setdefault((metric.out_of, rule, metric.proportion), []).append((cell, metric.name))
    return tuple(_sentence(*what, found) for what, found in groups.items())


def _coarse(cell: CellView) -> Iterable[tuple[MetricView, str]]:
    """The metrics of ``cell`` whose margin is under one sample, or one edit, each with the rule that set it."""
    if cell.outcome == ABSENT:
        return
    metrics = {metric.name: metric for metric in cell.metrics}
    for gate in cell.gates:
        metric = metrics.get(gate.metric) if gate.kind == "loss" else None
        if metric is None:
            continue
        single = metric.margin is not None and not metric.proportion and 0 < metric.margin * metric.out_of < 1
        if gate.state == "shown" or single:
            yield metric, gate.rule


def _sentence(out_of: int, rule: str, proportion: bool, found: Sequence[tuple[CellView, str]]) -> str:
    metrics = dict.fromkeys(name for _, name in found)
    names = " and ".join(metrics)
    models = list(dict.fromkeys(cell.key.model for cell, _ in found))
    where = ", ".join(models) if len(models) <= _NAMED else counted(len(models), "model")
    one = f"one {'sample of' if proportion else 'count of'} {thousands(out_of)} is {rough_percent(1 / out_of)}"
    does, is_ = ("does", "is") if len(metrics) == 1 else ("do", "are")
    so = f"{does} not gate" if proportion else f"{is_} red at any single loss"
    why = ", as no greater loss is proven" if proportion else ""
    return (
        f"{one}, more than {rule} admits: {names} {so} in {counted(len({cell.key for cell, _ in found}), 'cell')} "
        f"({where}){why}; more samples or a wider tolerance would gate it as meant."
    )
