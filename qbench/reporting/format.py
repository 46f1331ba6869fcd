"""Metrics, cells and outcomes as people read them: one spelling for the terminal, the pages and
the charts.

A symbol is always next to a colour, so that no report needs colours to be read. Plain numbers are
written by ``qbench.number_text``.
"""

import math
from collections import Counter
from collections.abc import Iterable

from qbench import number_text
from qbench.judging import DataPower
from qbench.metrics import BILLION
from qbench.number_text import MINUS, distance_text, points, tenth_percent, thousands
from qbench.reporting.view import ABSENT, UNJUDGED, CellView, MetricView

SYMBOLS = {
    "passed": "✓",
    "accepted": "⊕",
    "inconclusive": "≈",
    UNJUDGED: "≈",
    "quarantined": "◇",
    "unsupported": "–",
    "failed": "✗",
    "drifted": "≠",
    "missing": "?",
    "stale": "↻",
    "expired": "◆",
    "error": "!",
    "infra": "‼",
    ABSENT: "·",
}
BELOW = "▽"
"""The symbol of a cell that passes by its floor alone: see ``CellView.is_below_tolerance``."""
BELOW_MEANING = "accepted, though farther below fp32 than its tolerance"
STATES = {"red": "✗", "incomplete": "…", "empty": "·", "green": "✓"}
"""The symbol of a whole report, by its state."""

MEANINGS = {
    "passed": "within its tolerance",
    "accepted": "accepted as measured",
    "inconclusive": "not decided: too few samples, or noise that is wider than the margin",
    UNJUDGED: "no gate judges its answers",
    "quarantined": "fails, as its quarantine entry expects",
    "unsupported": "skipped with a reason, not counted as passed",
    "failed": "loses more than allowed",
    "drifted": "within tolerance, but not the accepted result",
    "missing": "no baseline yet",
    "stale": "its baseline is of another model or data",
    "expired": "its quarantine entry no longer holds",
    "error": "could not be measured",
    "infra": "the process that ran it died",
    ABSENT: "not part of the newest run",
}


def symbol_of(outcome: str) -> str:
    """One character for an outcome; ``!`` for one that is not known here."""
    return SYMBOLS.get(outcome, "!")


POWER_HEADINGS = ("Model", "Metric", "Samples", "Tells from chance", "May lose", "To settle it")


def power_row(power: DataPower) -> tuple[str, ...]:
    """The fields under ``POWER_HEADINGS``."""
    more = power.more_text.removesuffix(" settle it").removesuffix(" settles it")
    return (
        power.model,
        power.metric,
        power.data_text,
        power.tells_text,
        power.margin_text,
        more or "enough",
    )


def symbol_of_cell(cell: CellView) -> str:
    """The symbol of its outcome, or ``BELOW``."""
    return BELOW if cell.is_below_tolerance else symbol_of(cell.shown_outcome)


def tally_lines(
    report_cells: Iterable[CellView], tallies: Iterable[tuple[str, int]]
) -> list[tuple[str, str, int]]:
    """(symbol, words, number of cells) of each symbol in use: each outcome, and ``BELOW`` after
    those that pass.
    """
    below = Counter(cell.shown_outcome for cell in report_cells if cell.is_below_tolerance)
    found = []
    for name, count in tallies:
        if count > below[name]:
            found.append((symbol_of(name), name, count - below[name]))
        if below[name]:
            found.append((BELOW, f"{name} below tolerance", below[name]))
    return found


def is_agreement(lead: MetricView) -> bool:
    """Whether ``lead`` counts answers equal to those of fp32, right or wrong."""
    return not lead.against_labels and not lead.is_distance


NOT_ACCURACY = "agreement with fp32, not accuracy"


def shown_as(lead: MetricView) -> str:
    """The quantity that a matrix shows of ``lead``."""
    if lead.is_distance:
        return "distance to fp32"
    if is_agreement(lead):
        return f"change against fp32 in pp ({NOT_ACCURACY})"
    if not lead.unit:
        return "change against fp32"
    unit = "pp" if lead.unit == "%" else lead.unit
    return f"change against fp32 in {unit}"


def value_text(metric: MetricView, value: float | None = None) -> str:
    """A value of ``metric`` (its own when left out) in its unit."""
    return number_text.value_text(metric.value if value is None else value, metric.unit).replace(
        "-", MINUS
    )


def change_text(metric: MetricView, change: float | None = None, *, unit: bool = True) -> str:
    """A difference in values of ``metric`` (that to its reference when left out; a distance has
    none), signed.
    """
    if change is None and metric.is_distance:
        return "—"
    shown = metric.change if change is None else change
    if metric.unit == "%":
        return points(shown, unit=unit)
    text = f"{round(shown, _decimals(metric)):+.5g}".replace("-", MINUS)
    if not unit:
        return text
    return f"{text} {metric.unit}".rstrip()


def _decimals(metric: MetricView) -> int:
    """The decimals that five digits of a value of ``metric`` have: its changes have no more."""
    size = abs(metric.value)
    if not metric.is_distance:
        size = max(size, abs(metric.reference_value))
    if not size:
        return 9
    return 4 - math.floor(math.log10(size))


def course_text(metric: MetricView) -> str:
    """``top1 71.10 % → 70.20 % (−0.90 pp)``: from fp32 to what was measured; of a distance its
    value.
    """
    if metric.is_distance:
        return f"{metric.name} {value_text(metric)}"
    return (
        f"{metric.name} {value_text(metric, metric.reference_value)} → {value_text(metric)} "
        f"({change_text(metric)})"
    )


def parts_text(cell: CellView) -> str:
    """``schema −0.03 pp, counting −0.53 pp``: the two parts of the change; empty where they are
    not known.
    """
    if cell.parts is None or cell.lead is None or cell.record.outcome == ABSENT:
        return ""
    schema, counting = (
        change_text(cell.lead, part.change) for part in (cell.parts.schema, cell.parts.counting)
    )
    return f"schema {schema}, counting {counting}"


def count_text(metric: MetricView) -> str:
    """``778 / 1,000``: what was counted, out of how many; the samples alone where the value is
    not a share.
    """
    if metric.unit != "%" or metric.out_of == BILLION:
        return counted(metric.n, "sample")
    return f"{thousands(metric.hits)} / {thousands(metric.out_of)}"


def planned_text(cell: CellView) -> str:
    """The planned share in integers: ``98.6 %``, or ``98.6 % by weights`` where only these are
    quantized or the types are floats; empty where nothing is planned.
    """
    if cell.record.weight_macs:
        return f"{tenth_percent(cell.record.weight_macs)} by weights"
    return tenth_percent(cell.record.integer_macs) if cell.record.integer_macs else ""


def executed_text(cell: CellView) -> str:
    """``0.4 % executed``: the share that the engine ran in integers, as far as it is known."""
    executed = cell.record.executed_macs
    if executed is None or not (executed or cell.record.integer_macs):
        return ""
    return f"{tenth_percent(executed)} executed"


def integers_text(cell: CellView) -> str:
    """How much is planned and executed in integers, as far as it is known: ``100 % planned, 0.4 %
    executed``.
    """
    planned, executed = cell.record.integer_macs, cell.record.executed_macs
    if not planned and not executed:
        return ""
    text = tenth_percent(planned or 0.0)
    if executed is None:
        return f"{text} planned"
    if tenth_percent(executed) == text:
        return f"{text} planned and executed"
    return f"{text} planned, {tenth_percent(executed)} executed"


def executed_otherwise(cell: CellView, *, short: bool = False) -> str:
    """``0.4 % executed of 100 % planned`` where the engine ran another share in integers than
    planned (``short``: without the plan); more than planned is an error of ours, and says so;
    empty elsewhere.
    """
    planned, executed = cell.record.integer_macs or 0.0, cell.record.executed_macs
    if executed is None or tenth_percent(executed) == tenth_percent(planned):
        return ""
    if executed > planned:
        return (
            f"{tenth_percent(executed)} executed of {tenth_percent(planned)} planned: an error of "
            "qbench"
        )
    plan = "" if short else f" of {tenth_percent(planned)} planned"
    return f"{tenth_percent(executed)} executed{plan}"


def margin_text(metric: MetricView) -> str:
    """``may lose 0.39 pp``: how much worse than the reference the value may be; empty without a
    limit.
    """
    if metric.margin is None:
        return ""
    if metric.is_distance:
        return f"limit {value_text(metric, metric.limit)}"
    size = distance_text(metric.margin, metric.unit).replace("-", MINUS)
    verb = "rise" if metric.lower_is_better else "lose"
    return f"may {verb} {size}"


def margin_used(metric: MetricView) -> float:
    """Share of the margin used up; without a limit, the share of 0.5 % of the reference or of
    one sample.
    """
    allowed = metric.margin
    if allowed is None:
        allowed = max(0.005 * metric.reference_value, 1 / metric.out_of)
    if allowed <= 0:
        return 0.0 if metric.worse <= 0 else 9.0
    return metric.worse / allowed


def margin_level(metric: MetricView) -> int:
    """How deep to shade a cell: −1 better than fp32, 0 equal, 1 to half the margin, 2 all of
    it, 3 twice, 4 beyond.
    """
    if metric.is_distance:
        return 4 if metric.limit is not None and metric.excess > 0 else 0
    if metric.worse < 0:
        return -1
    if metric.worse == 0:
        return 0
    used = margin_used(metric)
    return next((level for level, end in ((1, 0.5), (2, 1.0), (3, 2.0)) if used <= end + 1e-9), 4)


def common_lead(cells: Iterable[CellView | None]) -> MetricView | None:
    """Of the lead metrics of ``cells`` the one that most of them share; the first where there
    are several.
    """
    leads = [cell.lead for cell in cells if cell and cell.lead]
    counts = Counter(lead.name for lead in leads)
    return max(leads, key=lambda lead: counts[lead.name]) if leads else None


def cell_text(cell: CellView | None) -> str:
    """A cell of the matrix: its symbol and its change, or its value for a distance and an
    unchanged fp32 cell.
    """
    if cell is None:
        return ""
    if cell.lead is None or cell.record.outcome == ABSENT:
        return symbol_of_cell(cell)
    if cell.lead.is_distance or (cell.key.schema == "fp32" and not cell.lead.change):
        return f"{symbol_of_cell(cell)} {value_text(cell.lead)}"
    return f"{symbol_of_cell(cell)} {change_text(cell.lead, unit=cell.lead.unit != '%')}"


def counted(count: int, one: str, many: str = "") -> str:
    """``1 cell``, ``1,234 cells``."""
    return number_text.counted(count, one, many, grouped=True)


def red_age(cell: CellView) -> str:
    """``new`` or ``red for 12 runs, since 1a2b3c4``; empty for a green cell."""
    if not cell.is_red or not cell.red_runs:
        return ""
    if cell.red_runs == 1:
        return "new"
    since = f", since {cell.red_since}" if cell.red_since else ""
    return f"red for {cell.red_runs} runs{since}"
