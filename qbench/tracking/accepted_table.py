"""What was accepted, for people: old → new in each metric's own unit.

A metric counts in whole parts (a decibel is a thousand of them a sample), which only files are written in.
"""

from collections.abc import Iterable

from qbench.number_text import value_text
from qbench.tracking.accepted_row import AcceptedRow

NOTHING = "—"


def parts_text(row: AcceptedRow, parts: int | None) -> str:
    """``parts`` of what ``row`` counts out of: ``88.25 %``, ``20.368 dB``; a dash for None."""
    if parts is None:
        return NOTHING
    return value_text(parts / row.out_of, row.unit)


def accepted_lines(model: str, rows: Iterable[AcceptedRow], *, most: int) -> tuple[str, ...]:
    """A heading for each environment class and a line for each metric of a cell below it, in columns.

    ``most`` cells of a class are listed, and the others counted: the diff of the baseline shows them all.
    """
    classes: dict[str, dict[str, list[AcceptedRow]]] = {}
    for row in rows:
        classes.setdefault(row.environment_class, {}).setdefault(row.cell, []).append(row)
    lines = []
    for where, cells in classes.items():
        listed = list(cells) if len(cells) <= most else list(cells)[: most - 1]
        table = [
            (f"{model}::{slug}" if not index else "", row.metric, parts_text(row, row.old), parts_text(row, row.new))
            for slug in listed
            for index, row in enumerate(cells[slug])
        ]
        widths = [max(len(line[column]) for line in table) for column in range(3)]
        lines.append(f"accepted in {where}:")
        lines += [
            f"  {cell:<{widths[0]}}  {metric:<{widths[1]}}  {old:>{widths[2]}} → {new}"
            for cell, metric, old, new in table
        ]
        if len(cells) > len(listed):
            lines.append(f"  and {len(cells) - len(listed)} more cells of {model}")
    return tuple(lines)
