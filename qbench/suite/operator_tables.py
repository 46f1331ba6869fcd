"""Models of a suite that are single operators: one table for all that its id matches.

    [[model]]
    id = "op.conv.*"            # every operator subject of that kind, each on its own data

Of two tables that match a subject the later one holds.
"""

import fnmatch
from collections.abc import Iterable, Mapping
from typing import Any

from qbench.subjects import list_operators

_PREFIX = "op."


def with_operators(table: Mapping[str, Any]) -> dict[str, Any]:
    """``table`` of a suite with every table of operators as one a subject.

    Raises:
        InputError: an id matches no operator subject; the nearest is suggested.
    """
    models = table.get("model")
    if not isinstance(models, list) or not all(isinstance(model, dict) for model in models):
        return dict(table)
    found: list[dict[str, Any]] = []
    operators: dict[str, dict[str, Any]] = {}
    for model in models:
        if not str(model.get("id")).startswith(_PREFIX):
            found.append(dict(model))
            continue
        operators |= {name: {"data": name, "fp32": False, **model, "id": name} for name in list_operators(model["id"])}
    return {**table, "model": [*found, *operators.values()]} if operators else dict(table)


def lines_of_operators(lines: Mapping[str, int], models: Iterable[str]) -> dict[str, int]:
    """``lines`` (id as written → line) with the line of every model that a pattern among them stands for."""
    patterns = {written: line for written, line in lines.items() if written.startswith(_PREFIX)}
    return {**lines, **{name: line for name in models for written, line in patterns.items() if _fits(name, written)}}


def _fits(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern)
