"""Frozen dataclasses → TOML tables: what ``value_from_table`` reads, without what has its default anyway.

value_from_table(cls, tomllib.loads(toml_text(value)), …) == value
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from qbench.storage.plain_values import plain


def table_from_value(value: object) -> dict[str, Any]:
    """The fields of the dataclass ``value`` that differ from their defaults, as plain values, in the class's order.

    A field that is added later, with what was meant before as its default, therefore changes no table. Fields hold
    texts, numbers, enums, tuples and dataclasses of these; what a value makes of its other fields is no part of it.
    """
    assert is_dataclass(value)
    assert not isinstance(value, type)
    found = ((one, getattr(value, one.name)) for one in fields(value) if one.init)
    return {one.name: _plain(held) for one, held in found if held != _default(one)}


def toml_text(value: object) -> str:
    """``table_from_value`` as TOML, one line a field."""
    return "".join(f"{name} = {_spelled(held)}\n" for name, held in table_from_value(value).items())


def _default(one: "Field[Any]") -> object:
    return one.default if one.default_factory is MISSING else one.default_factory()


def _plain(value: object) -> Any:  # noqa: ANN401 - a plain value, of whatever kind
    if is_dataclass(value) and not isinstance(value, type):
        return table_from_value(value)
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return plain(value)


def _spelled(value: object) -> str:
    if isinstance(value, Mapping):
        inside = ", ".join(f"{name} = {_spelled(held)}" for name, held in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_spelled, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON takes DEL as it is, TOML does not
