"""Findings as they are stored: lines of a run file, after the line of the cell that they are about.

    {"type": "finding", "suite": …, "model": …, "backend": …, "schema": …, "variant": …,
     "finding": {…}}

What has its default value is left out, and numbers have six digits. A reader ignores keys that
only a newer qbench knows; suspects with an unknown cause become notes.
"""

import math
from collections.abc import Mapping
from typing import Any

from qbench.errors import InputError
from qbench.judging import (
    Cause,
    Cell,
    Finding,
)
from qbench.storage import table_from_value, value_of_plain
from qbench.tracking.record import cell_of_line

_DIGITS = 6
_CAUSES = frozenset(cause.value for cause in Cause)


def finding_line(cell: Cell, finding: Finding) -> dict[str, Any]:
    """The ``finding`` line of ``cell``."""
    axes = {
        name: getattr(cell, name) for name in ("suite", "model", "backend", "schema", "variant")
    }
    return {"type": "finding", **axes, "finding": _short(table_from_value(finding))}


def finding_of_line(line: Mapping[str, Any]) -> tuple[Cell, Finding]:
    """The cell that a ``finding`` line is about, and what was found.

    Raises:
        InputError: the line does not hold what ``finding_line`` writes.
    """
    try:
        cell, table = cell_of_line(line), dict(line["finding"])
        later = [one for one in table.get("suspects", ()) if one["cause"] not in _CAUSES]
        table["suspects"] = [one for one in table.get("suspects", ()) if one["cause"] in _CAUSES]
        table["notes"] = [*table.get("notes", ()), *(_as_note(one) for one in later)]
        finding = value_of_plain(Finding, table)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            "Reading the finding of "
            f"'{line.get('model')}::{line.get('backend')}+{line.get('schema')}' of a run file",
            found=f"a line that cannot be used ({type(error).__name__}: {error})",
            expected="nodes, suspects and notes",
            remedy="Take another run file.",
        ) from error
    return cell, finding


def _as_note(suspect: Mapping[str, Any]) -> str:
    return (
        f"{suspect['node']}: {suspect['cause']} (a cause that this qbench does not know); "
        f"{suspect['evidence']}"
    )


def _short(value: Any) -> Any:  # noqa: ANN401 - a plain value, of whatever kind
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _short(one) for name, one in value.items()}
    return [_short(one) for one in value] if isinstance(value, list) else value
