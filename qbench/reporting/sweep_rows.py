"""A sweep as a table: its rows sorted and numbered, and each number as text, for the terminal, the
page and the charts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qbench.number_text import percent, points, settled, signed, value_text
from qbench.storage import plain
from qbench.tracking import SweepCell, SweepState, fronts_of

SortKey = Callable[[SweepCell], float | str | None]
SORTS: Mapping[str, SortKey] = {
    "loss": lambda cell: cell.loss,
    "size": lambda cell: cell.file_bytes,
    "time": lambda cell: cell.ms,
    "executed": lambda cell: None if cell.executed is None else -cell.executed,
    "agreement": lambda cell: None if cell.agreement is None else -cell.agreement,
    "name": lambda cell: cell.name,
}
"""What rows can be sorted by, the best first."""
SORTED_BY = {
    "loss": "loss, the least first",
    "size": "size of the file, the smallest first",
    "time": "time of a sample, the fastest first",
    "executed": "executed share, the largest first",
    "agreement": "agreement with fp32, the most first",
    "name": "name",
}
_TIES = ("loss", "size", "time", "name")
"""By which equal rows are sorted further."""
KEPT = "kept"
"""Marks a result of an earlier run of the same sweep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """One cell with its number in the table, from 1, and the costs whose front it is on."""

    number: int
    cell: SweepCell
    fronts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTable:
    """The rows of a sweep.

    Args:
        model, data, calibration: as the user wrote them; ``calibration`` empty: there is none.
        samples: how many were scored.
        sort: a name of ``SORTS``.
        rows: of measured cells, sorted.
        others: cells without a result.
        measured: the newest time of a result, in UTC.
    """

    model: str
    data: str
    calibration: str = ""
    samples: int
    sort: str
    rows: tuple[SweepRow, ...]
    others: tuple[SweepCell, ...] = ()

    @property
    def measured(self) -> str:
        """When the newest result was measured, in UTC."""
        return max((row.cell.measured for row in self.rows), default="")

    @property
    def lead(self) -> SweepCell | None:
        """A cell whose metric is that of all; None: no cell was measured."""
        return self.rows[0].cell if self.rows else None

    @property
    def left(self) -> tuple[SweepCell, ...]:
        """Cells that the budget left out."""
        return tuple(one for one in self.others if one.state is SweepState.NOT_MEASURED)

    @property
    def refused(self) -> tuple[SweepCell, ...]:
        """Cells that their backend cannot run."""
        return tuple(one for one in self.others if one.state is SweepState.UNSUPPORTED)

    @property
    def environments(self) -> tuple[str, ...]:
        """The environment classes of the results, each once."""
        return tuple(dict.fromkeys(row.cell.environment for row in self.rows))


def sweep_table(
    cells: Sequence[SweepCell],
    *,
    model: str,
    data: str,
    calibration: str = "",
    sort: str = "loss",
) -> SweepTable:
    """The table of ``cells``, sorted by ``sort``; equal rows by loss, size, time and name."""
    fronts = fronts_of(cells)
    measured = sorted(
        (cell for cell in cells if cell.is_measured), key=lambda cell: _order(cell, sort)
    )
    return SweepTable(
        model=model,
        data=data,
        calibration=calibration,
        samples=max((cell.samples for cell in measured), default=0),
        sort=sort,
        rows=tuple(
            SweepRow(number=number, cell=cell, fronts=fronts.get(cell.name, ()))
            for number, cell in enumerate(measured, 1)
        ),
        others=tuple(cell for cell in cells if not cell.is_measured),
    )


def _order(cell: SweepCell, sort: str) -> list[tuple[bool, Any]]:
    """What is not known comes last."""
    values = [SORTS[name](cell) for name in (sort, *_TIES)]
    return [(value is None, 0.0 if value is None else value) for value in values]


# Numbers as text.


def loss_text(cell: SweepCell, loss: float | None = None, *, unit: bool = True) -> str:
    """A loss of ``cell`` (its own when left out): ``0.44 pp``; less than nothing is a gain. Of a
    distance its value: ``35.2 dB``.
    """
    shown = cell.loss if loss is None else loss
    if shown is None:
        return ""
    if cell.is_distance:
        distance = abs(shown)
        return value_text(distance, cell.unit) if unit else f"{distance:.4g}"
    if cell.unit == "%":
        return points(settled(shown), unit=unit).removeprefix("+")
    text = signed(shown, 3).removeprefix("+")
    return f"{text} {cell.unit}".strip() if unit else text


def interval_text(cell: SweepCell) -> str:
    """``−0.89 … 1.78``, in the unit of the loss; with its confidence where that is not 95 %."""
    if cell.interval is None:
        return ""
    text = " … ".join(loss_text(cell, end, unit=False) for end in cell.interval)
    return text if cell.confidence == _USUAL else f"{text} ({percent(cell.confidence, 0)})"


_USUAL = 0.95


def executed_text(cell: SweepCell) -> str:
    """The executed share of the multiply-accumulates in integers, and the planned one where it is
    another: ``8 % of 100 %``.
    """
    if cell.is_float:
        return "float"
    if cell.weights_only:
        return "weights"
    planned = "" if cell.planned is None else percent(cell.planned, 0)
    if cell.executed is None:
        return f"? of {planned}"
    executed = percent(cell.executed, 0)
    return executed if executed == planned else f"{executed} of {planned}"


def bytes_text(size: int | None) -> str:
    """``3.54 MB``, ``412 kB``; empty where the size is not known."""
    if size is None:
        return ""
    return f"{size / 1e6:.2f} MB" if size >= _MEGA else f"{size / 1e3:.3g} kB"


_MEGA = 1_000_000


def time_text(ms: float | None) -> str:
    """``9.81``: milliseconds, three digits."""
    return "" if ms is None else f"{ms:#.3g}".rstrip(".")


def agreement_text(cell: SweepCell) -> str:
    """The share of samples answered as fp32 answers them."""
    return "" if cell.agreement is None else percent(cell.agreement)


def front_text(row: SweepRow) -> str:
    """``size, time``: the fronts that the row is on."""
    return ", ".join(row.fronts)


def schema_text(cell: SweepCell) -> str:
    """The schema, marked where the result was kept from an earlier run."""
    return f"{cell.schema} ({KEPT})" if cell.kept else cell.schema


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepColumn:
    """One column: its ``heading``, the ``text`` of a row, and the number that a page sorts by."""

    heading: str
    text: Callable[[SweepRow], str]
    key: Callable[[SweepRow], float | None] | None = None


def sweep_columns(table: SweepTable) -> tuple[SweepColumn, ...]:
    """The columns of ``table``, for the terminal and the page."""
    lead, name, confidence = table.lead, "loss", "95 % interval"
    if lead is not None and lead.is_distance:
        name = lead.metric
    if lead is not None and lead.confidence != _USUAL:
        confidence = "interval"
    columns = (
        SweepColumn(heading="#", text=lambda row: str(row.number), key=lambda row: row.number),
        SweepColumn(heading="backend", text=lambda row: row.cell.backend),
        SweepColumn(heading="schema", text=lambda row: schema_text(row.cell)),
        SweepColumn(heading=name, text=lambda row: loss_text(row.cell), key=_number("loss")),
        SweepColumn(heading=confidence, text=lambda row: interval_text(row.cell)),
        SweepColumn(
            heading="executed", text=lambda row: executed_text(row.cell), key=_number("executed")
        ),
        SweepColumn(
            heading="file", text=lambda row: bytes_text(row.cell.file_bytes), key=_number("size")
        ),
        SweepColumn(
            heading="ms/sample", text=lambda row: time_text(row.cell.ms), key=_number("time")
        ),
        SweepColumn(
            heading="agreement",
            text=lambda row: agreement_text(row.cell),
            key=_number("agreement"),
        ),
        SweepColumn(heading="front", text=front_text),
    )
    return tuple(one for one in columns if _is_needed(one, table))


def _is_needed(column: SweepColumn, table: SweepTable) -> bool:
    """Whether any row has something there; the loss is always shown."""
    return any(column.text(row) for row in table.rows)


def _number(sort: str) -> Callable[[SweepRow], float | None]:
    def key(row: SweepRow) -> float | None:
        value = SORTS[sort](row.cell)
        return value if isinstance(value, float | int) else None

    return key


def sweep_facts(table: SweepTable) -> dict[str, Any]:
    """All facts as plain values, for ``--json``: one object per cell, in the order of the table."""
    numbered = [(row.cell, row.number, row.fronts) for row in table.rows]
    others: list[tuple[SweepCell, int | None, tuple[str, ...]]] = [
        (cell, None, ()) for cell in table.others
    ]
    return {
        "model": table.model,
        "data": table.data,
        "calibration": table.calibration or None,
        "samples": table.samples,
        "sort": table.sort,
        "cells": [_cell_facts(*one) for one in [*numbered, *others]],
    }


def _cell_facts(cell: SweepCell, number: int | None, fronts: tuple[str, ...]) -> dict[str, Any]:
    facts: dict[str, Any] = plain(cell)
    facts |= {"number": number, "front": list(fronts), "cell": cell.name}
    del facts["is_distance"]
    return facts
