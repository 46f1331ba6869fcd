"""The columns of the tables of cells, for HTML, Markdown, the terminal and CSV.

A column is one row of ``COLUMNS``: its key, its heading, how the field of a cell is written, and
which fields of a record that reads. A table names the keys of its columns in order. So a new column
is a row here, its key in the tables that show it and, where no property of the cell has its value
yet, a property in ``view.py``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from qbench.number_text import thousands
from qbench.reporting.format import (
    change_text,
    count_text,
    counted,
    course_text,
    executed_text,
    margin_text,
    parts_text,
    planned_text,
    red_age,
    symbol_of_cell,
    value_text,
)
from qbench.reporting.view import CellView, MetricView
from qbench.tracking import COMPARED_KEYS, MetricRow

Text = Callable[[CellView], str]


def _nothing(cell: CellView) -> str:  # noqa: ARG001 - the text of columns that a template draws
    return ""


def _lead(text: Callable[[MetricView], str]) -> Text:
    """``text`` of the first metric of a cell; empty where it has none."""
    return lambda cell: "" if cell.lead is None else text(cell.lead)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One fact of a cell: ``text`` writes it, ``sort_key`` is the number to sort by where the
    text does not do.

    ``reads``: the fields of a record that it is made of, besides the axes; reports keep no others.
    ``of_metric``: it is about the first metric; ``is_number``: it is aligned to the right.
    ``special`` columns hold links, charts or commands on pages: ``parts.html.j2`` draws them by
    their key.
    """

    key: str
    heading: str
    text: Text = _nothing
    sort_key: Text = _nothing
    reads: tuple[str, ...] = ("metrics", "gates", "outcome")
    of_metric: bool = True
    is_number: bool = True
    special: bool = False


def _flips_words(metric: MetricView) -> str:
    if metric.is_distance or not (metric.losses or metric.gains):
        return ""
    words = f"{counted(metric.losses, 'loss', 'losses')}, {counted(metric.gains, 'gain')}"
    known = metric.clusters
    return (
        words
        if known is None
        else f"{words} in {metric.n} samples from {counted(known.sources, 'source')}"
    )


def _moved(cell: CellView) -> str:
    return (
        f"{change_text(cell.lead, cell.moved)} since last run" if cell.lead and cell.moved else ""
    )


def _why(cell: CellView) -> str:
    """The headline; of a cell in quarantine what its entry gives as the reason, and the entry; of
    one that is not decided what would decide it.
    """
    if cell.record.outcome != "quarantined":
        return cell.wanting or cell.record.headline
    listed = (text.partition("listed as ")[2] for text in cell.record.notices)
    return "; ".join(filter(None, (next(filter(None, listed), ""), cell.record.rule)))


def _quantizer(cell: CellView) -> str:
    """``NNCF 3.4.0: 12.3 s, 340 MB``; empty where qbench quantized."""
    return "" if cell.record.quantizer is None else cell.record.quantizer.short


def _simulated(cell: CellView) -> str:
    """``simulated float8e4m3fn``: types of floats that the backend computed in float32."""
    types = cell.record.simulated
    return f"simulated {', '.join(types)}" if types else ""


def _runs(cell: CellView) -> str:
    """``350 to 355 in 5 runs``: the counts of the first metric, where runs of the same code
    differ.
    """
    repeats = cell.record.repeats
    counts = None if repeats is None or cell.lead is None else repeats.metrics.get(cell.lead.name)
    if repeats is None or counts is None:
        return ""
    return f"{thousands(min(counts.hits))} to {thousands(max(counts.hits))} in {repeats.runs} runs"


def _fact(
    key: str, heading: str, text: Text = _nothing, *reads: str, special: bool = False
) -> Column:
    """A column in words about the cell itself."""
    return Column(
        key=key,
        heading=heading,
        text=text,
        reads=reads,
        of_metric=False,
        is_number=False,
        special=special,
    )


_ALL = (
    _fact("cell", "Cell", lambda cell: str(cell.key), special=True),
    _fact("model", "Model", lambda cell: cell.key.model, special=True),
    _fact("backend", "Backend", lambda cell: cell.key.backend),
    _fact("schema", "Schema", lambda cell: cell.key.column),
    _fact(
        "outcome",
        "Outcome",
        lambda cell: f"{symbol_of_cell(cell)} {cell.outcome_words}",
        "outcome",
        "ungated",
        "carried",
        special=True,
    ),
    _fact("quantizer", "Quantizer", _quantizer, "quantizer"),
    _fact("simulated", "Simulated", _simulated, "simulated"),
    _fact("red", "Red", red_age, "outcome", "excused"),
    _fact("moved", "Moved", _moved, "metrics", "gates", "environment_class"),
    _fact("why", "Why", _why, "outcome", "rule", "headline", "notices", special=True),
    _fact("finding", "Finding", lambda cell: cell.found, special=True),
    _fact("history", "History", _nothing, "metrics", "environment_class", "digests", special=True),
    Column(key="metric", heading="Metric", text=_lead(lambda lead: lead.name), is_number=False),
    Column(key="now", heading="Now", text=_lead(value_text)),
    Column(key="count", heading="Count", text=_lead(count_text)),
    Column(
        key="runs", heading="Runs", text=_runs, reads=("metrics", "gates", "outcome", "repeats")
    ),
    Column(
        key="metric_count",
        heading="Count",
        text=_lead(lambda lead: f"{lead.name}, {count_text(lead)}"),
    ),
    Column(
        key="now_count",
        heading="Now",
        text=_lead(lambda lead: f"{value_text(lead)} ({count_text(lead)})"),
    ),
    Column(
        key="fp32", heading="fp32", text=_lead(lambda lead: value_text(lead, lead.reference_value))
    ),
    Column(
        key="change",
        heading="Change",
        text=_lead(change_text),
        sort_key=_lead(lambda lead: f"{-lead.worse:.6g}" if lead.lower_is_better else ""),
    ),
    Column(
        key="parts",
        heading="Parts",
        text=parts_text,
        reads=("metrics", "gates", "outcome", "digests"),
    ),
    Column(key="course", heading="Now", text=_lead(course_text)),
    Column(key="margin", heading="Margin", text=_lead(margin_text)),
    Column(
        key="margin_size",
        heading="Margin",
        text=_lead(
            lambda lead: margin_text(lead).removeprefix("may lose ").removeprefix("may rise ")
        ),
    ),
    Column(
        key="flips",
        heading="Losses / gains",
        text=_lead(lambda lead: f"{thousands(lead.losses)} / {thousands(lead.gains)}"),
    ),
    Column(
        key="wanting",
        heading="Decided by",
        text=lambda cell: cell.wanting.partition(": ")[2],
        reads=("metrics", "gates", "outcome", "notices"),
    ),
    Column(key="flips_words", heading="Losses, gains", text=_lead(_flips_words)),
    Column(
        key="planned",
        heading="Planned",
        text=planned_text,
        reads=("integer_macs", "weight_macs"),
    ),
    Column(
        key="executed",
        heading="Executed",
        text=executed_text,
        reads=("integer_macs", "executed_macs"),
    ),
    Column(
        key="costs",
        heading="Time and size",
        text=lambda cell: ", ".join(f"{one.name} {one.text}" for one in cell.record.costs),
        reads=("gates",),
    ),
    Column(
        key="seconds",
        heading="Seconds",
        text=lambda cell: "" if cell.seconds is None else f"{cell.seconds:.2f}",
        reads=("seconds", "carried"),
    ),
)
COLUMNS: Mapping[str, Column] = MappingProxyType({column.key: column for column in _ALL})

_OUTSIDE_TABLES = ("remedy", "notices", "refusals", "refusal_count", "constant_bytes", "tolerance")
"""What pages show of a cell outside of tables, and in marks."""

READ = tuple(
    dict.fromkeys(
        (*COMPARED_KEYS, *(name for column in _ALL for name in column.reads), *_OUTSIDE_TABLES)
    )
)
"""The fields of a record that a report reads: for its columns, for the comparison of two runs,
and outside tables.
"""


@dataclass(frozen=True, slots=True)
class Place:
    """A column in a table; ``below``: columns in smaller letters under its text; ``style`` and
    ``width`` on a page.
    """

    key: str
    below: tuple[str, ...] = ()
    style: str = ""
    width: str = ""

    @property
    def column(self) -> Column:
        """The column."""
        return COLUMNS[self.key]

    def lines_below(self, cell: CellView) -> tuple[str, ...]:
        """What is written below the text of ``cell``; only what is known."""
        return tuple(text for key in self.below if (text := COLUMNS[key].text(cell)))


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of one table in order. ``sorts``: a reader can sort it, so that fields have
    keys to sort by.
    """

    places: tuple[Place, ...]
    sorts: bool = False

    def without(self, *keys: str) -> "Table":
        """The table without the columns ``keys``."""
        return Table(tuple(place for place in self.places if place.key not in keys), self.sorts)

    @property
    def headings(self) -> tuple[str, ...]:
        """The heading of each column."""
        return tuple(place.column.heading for place in self.places)

    @property
    def of_metric(self) -> tuple[str, ...]:
        """The keys of the columns about a metric: those for which a cell without numbers has
        one field of words.
        """
        return tuple(place.key for place in self.places if place.column.of_metric)


CELLS = Table(
    (
        *(Place("model"), Place("backend")),
        *(Place("schema", below=("quantizer", "simulated")), Place("outcome"), Place("metric")),
        *(
            Place("now", below=("count", "runs")),
            Place("fp32"),
            Place("change", below=("parts",)),
            Place("margin_size", below=("wanting",)),
        ),
        *(
            Place("flips"),
            Place("planned", below=("executed",)),
            Place("seconds", below=("costs",)),
            Place("finding"),
        ),
    ),
    sorts=True,
)
"""Every cell of a run, on a page."""

ATTENTION = Table(
    (
        Place("cell", below=("finding", "quantizer", "simulated"), width="28%"),
        Place("now", below=("metric_count", "runs"), style="b", width="17%"),
        Place("fp32", width="9%"),
        Place("change", below=("margin", "parts"), style="strong", width="12%"),
        Place("flips", width="11%"),
        Place("red", below=("moved",), width="16%"),
        Place("history", width="7.5rem"),
    )
)
"""The red cells of one cause, on a page."""

KNOWN = Table((Place("cell"), Place("now", below=("metric",)), Place("change"), Place("why")))
"""Cells that are not judged like the others, on a page."""

MARKDOWN = Table(
    (
        *(Place("cell", below=("quantizer", "simulated")), Place("metric"), Place("red")),
        *(Place("now_count"), Place("fp32")),
        *(Place("change", below=("parts",), style="strong"), Place("margin"), Place("flips")),
    )
)
"""The red cells of one cause, in Markdown."""

TERMINAL = Table((Place("course"), Place("margin"), Place("flips_words"), Place("simulated")))
"""What the line of a red cell on a terminal has about its first metric, between the name and
the age.
"""

CSV = MetricRow._fields
"""One row per metric of each cell; the names are those of the data frame."""


def words_instead(cell: CellView) -> str | None:
    """The text for a red cell that has no numbers, or whose numbers do not explain why it is
    red; else None.
    """
    if cell.told_by_gate is not None:
        return cell.told_by_gate.detail
    if cell.is_unequal and cell.equality is not None:
        return cell.equality.detail
    return None if cell.lead and not cell.is_retrained else cell.record.headline
