"""What a run can tell from chance: margins under one unit, losses that are significant, and the
power of the data.
"""

from collections.abc import Iterable, Sequence
from statistics import median

from qbench.judging import (
    FP32,
    DataPower,
    GateKind,
    benjamini_hochberg,
    loss_midp,
    spread_of,
)
from qbench.metrics import Gathering
from qbench.number_text import rough_percent, thousands
from qbench.reporting.format import counted
from qbench.reporting.view import (
    ABSENT,
    CellView,
    MetricView,
)

# Margins smaller than one counted unit: 0.5 % of 100 right samples is half a sample. Cells that
# their samples do not decide are ≈; the notice says why, because the user expects such a margin to
# decide.

_NAMED = 3


def coarse_notices(cells: Sequence[CellView]) -> tuple[str, ...]:
    """A sentence for each number of samples and each rule whose margin is smaller than one
    sample.
    """
    groups: dict[tuple[int, str, bool], list[tuple[CellView, str]]] = {}
    for cell in cells:
        for metric, rule in _coarse(cell):
            groups.setdefault((metric.out_of, rule, metric.proportion), []).append(
                (cell, metric.name)
            )
    return tuple(_sentence(*what, found) for what, found in groups.items())


def _coarse(cell: CellView) -> Iterable[tuple[MetricView, str]]:
    """The metrics of ``cell`` that are not decided and whose margin is under one sample, or one
    edit, each with the rule that set it.

    Records of older versions have such a gate in the state ``shown``, without its margin.
    """
    if cell.record.outcome == ABSENT:
        return
    metrics = {metric.name: metric for metric in cell.metrics}
    for gate in cell.record.gates:
        metric = metrics.get(gate.metric) if gate.kind == GateKind.LOSS else None
        if metric is None:
            continue
        is_under = metric.margin is not None and 0 < metric.margin * metric.out_of < 1
        if gate.state == "shown" or (gate.state == "inconclusive" and is_under):
            yield metric, gate.rule


def _sentence(
    out_of: int, rule: str, proportion: bool, found: Sequence[tuple[CellView, str]]
) -> str:
    metrics = dict.fromkeys(name for _, name in found)
    names = " and ".join(metrics)
    models = list(dict.fromkeys(cell.key.model for cell, _ in found))
    where = ", ".join(models) if len(models) <= _NAMED else counted(len(models), "model")
    is_ = "is" if len(metrics) == 1 else "are"
    unit = "sample" if proportion else "count"
    cells = counted(len({cell.key for cell, _ in found}), "cell")
    return (
        f"one {unit} of {thousands(out_of)} is {rough_percent(1 / out_of)}, more than {rule} "
        f"admits: {names} {is_} not decided in {cells} ({where}); more samples or a wider "
        "tolerance would decide."
    )


# Which losses of a run are larger than chance explains, given how many cells were tested: a line of
# information, never a gate.
#
# One test per quantized cell that is scored against labels: McNemar's one-sided mid-p of its first
# metric that is a share of right samples (where samples share sources, the mid-p of those),
# adjusted over the run by Benjamini and Hochberg. Cells share samples and so depend on each other
# positively, which the procedure allows (Benjamini and Yekutieli, Ann Stat 29:1165, 2001).

LEVEL = 0.05


def significant_losses(cells: Sequence[CellView]) -> tuple[tuple[tuple[CellView, float], ...], int]:
    """((cell, adjusted p) of the losses significant at 5 %, the smallest p first; how many
    cells were tested).
    """
    tested = [(cell, metric) for cell in cells if (metric := _tested(cell)) is not None]
    adjusted = benjamini_hochberg([_loss_p(metric) for _, metric in tested])
    found = [(cell, p) for (cell, _), p in zip(tested, adjusted, strict=True) if p <= LEVEL]
    return tuple(sorted(found, key=lambda pair: (pair[1], pair[0].key))), len(tested)


def significance_notice(cells: Sequence[CellView]) -> str:
    """The line; empty where fewer than two cells were tested, or no loss is significant."""
    found, tests = significant_losses(cells)
    if tests < 2 or not found:
        return ""
    named = ", ".join(str(cell.key) for cell, _ in found[:_NAMED])
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    verb = "loses" if len(found) == 1 else "lose"
    return (
        f"{len(found)} of the {counted(tests, 'cell')} scored against labels {verb} more samples "
        f"than chance explains (Benjamini-Hochberg 5 %, for information): {named}{more}."
    )


def _loss_p(metric: MetricView) -> float:
    """The one-sided p of "no loss". Where samples share sources it is computed over sources."""
    if metric.clusters is None:
        return loss_midp(metric.losses, metric.gains)
    half = metric.clusters.p / 2
    return half if metric.losses >= metric.gains else 1 - half


def _tested(cell: CellView) -> MetricView | None:
    if cell.key.schema == FP32 or cell.record.outcome == ABSENT:
        return None
    return next(
        (m for m in cell.metrics if m.proportion and m.against_labels and m.out_of == m.n), None
    )


# Which loss the data of each model can tell from chance, for each metric that gates a loss, over
# the quantized cells of the model. The margin is the strictest; design effect and standard error
# are the medians of what the cells showed.


def data_powers(cells: Iterable[CellView]) -> tuple[DataPower, ...]:
    """One for each model and metric, in the order of the cells."""
    gating: dict[tuple[str, str], list[tuple[MetricView, float]]] = {}
    for cell in cells:
        if cell.key.schema == FP32 or cell.record.outcome == ABSENT:
            continue
        losing = {gate.metric for gate in cell.record.gates if gate.kind == GateKind.LOSS}
        for metric in cell.metrics:
            margin = metric.margin
            if margin is None and cell.record.tolerance is not None:
                # a tolerance under one sample gives the metric no margin of its own
                margin = cell.record.tolerance * abs(metric.reference_value)
            if metric.name in losing and margin is not None:
                gating.setdefault((cell.key.model, metric.name), []).append((metric, margin))
    return tuple(
        found
        for (model, _), several in gating.items()
        if (found := _data_power(model, several)) is not None
    )


def _data_power(model: str, several: Sequence[tuple[MetricView, float]]) -> DataPower | None:
    first = several[0][0]
    known = [metric.clusters for metric, _ in several if metric.clusters is not None]
    errors = [spread_of(*metric.interval) for metric, _ in several if metric.interval is not None]
    if not first.proportion and not errors:
        return None
    return DataPower(
        model=model,
        metric=first.name,
        n=first.n,
        margin=min(margin for _, margin in several),
        sources=known[0].sources if known else None,
        found=_median([one.gathering for one in known]) if known else None,
        unit=first.unit,
        error=None if first.proportion else median(errors),
    )


def _median(found: Sequence[Gathering]) -> Gathering:
    return Gathering(
        median(one.effect for one in found),
        median(one.freedom for one in found),
        median(one.equal for one in found),
    )
