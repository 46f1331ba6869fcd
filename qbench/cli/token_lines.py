"""The table of two token streams as lines of a terminal and as JSON."""

import math
from typing import TYPE_CHECKING, Any

from qbench.cli.printing import print_columns, put
from qbench.number_text import counted, value_text

if TYPE_CHECKING:
    from qbench.metrics import TokenRow, TokenTable

_HEADER = ("of tokens", "value", "at most", "±", "bootstrap 90 % by source")


def print_token_table(table: "TokenTable") -> None:
    """A line for each row; a column that no row fills is left out."""
    put(
        f"{counted(table.tokens, 'token')} of {counted(table.samples, 'sample')}, "
        f"{counted(table.sources, 'source')}:"
    )
    lines = [_HEADER, *map(_line, table.rows)]
    filled = [any(line[place] for line in lines[1:]) for place in range(len(_HEADER))]
    kept = [
        tuple(text for text, is_filled in zip(line, filled, strict=True) if is_filled)
        for line in lines
    ]
    print_columns(kept[1:], kept[0])


def _line(row: "TokenRow") -> tuple[str, ...]:
    most = "" if row.most is None else _number(row.most, row.unit)
    error = "" if row.error is None else _number(row.error, row.unit)
    ends = (
        "" if row.interval is None else " … ".join(_number(end, row.unit) for end in row.interval)
    )
    return (row.title, _number(row.value, row.unit), most, error, ends)


def _number(value: float, unit: str) -> str:
    if math.isfinite(value):
        return value_text(value, unit)
    return "unbounded" if value == math.inf else "–"


def plain_table(table: "TokenTable") -> dict[str, Any]:
    """The table for ``--json``; numbers that are not finite are null."""
    return {
        "tokens": table.tokens,
        "samples": table.samples,
        "sources": table.sources,
        "rows": {row.name: _plain_row(row) for row in table.rows},
    }


def _finite(number: float | None) -> float | None:
    """JSON has no other numbers."""
    return number if number is not None and math.isfinite(number) else None


def _plain_row(row: "TokenRow") -> dict[str, Any]:
    numbers = {"value": row.value, "most": row.most, "error": row.error}
    finite = {name: _finite(value) for name, value in numbers.items()}
    unbounded = row.most == math.inf
    return {
        "title": row.title,
        "unit": row.unit,
        **finite,
        "unbounded": unbounded,
        "interval": None if row.interval is None else [_finite(end) for end in row.interval],
    }
