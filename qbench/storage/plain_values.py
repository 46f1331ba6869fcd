"""Plain values: what JSON can hold, and the two spellings we write (a reviewed file, a log line).

numpy scalars and enums become Python numbers and strings here and nowhere else, because pytest-xdist can
carry nothing but plain values between its processes.
"""

import enum
import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

Plain = None | bool | int | float | str | list[Any] | dict[str, Any]


def plain(value: object) -> Any:  # noqa: ANN401 - the result is a Plain; mypy cannot follow the recursion usefully
    """``value`` with every dataclass, mapping, sequence, enum and numpy scalar as plain JSON values.

    Raises:
        TypeError: something in it has no plain form (an array, a model).
        ValueError: a float is not finite, which JSON cannot hold.
    """
    if value is None or (isinstance(value, bool | str) and not isinstance(value, enum.Enum)):
        return value
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not finite: a record holds finite numbers only")
        return float(value)
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a numpy scalar
        return plain(value.item())
    raise TypeError(f"a {type(value).__name__} has no plain form")


def json_text(value: object) -> str:
    """``value`` as reviewed JSON: keys sorted, one scalar a line, LF, a final newline."""
    return _encodable(json.dumps(plain(value), indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n")


def json_line(value: object) -> str:
    """``value`` as one compact line of JSON with a final newline, for files that are only appended to."""
    return _encodable(json.dumps(plain(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False) + "\n")


def _encodable(text: str) -> str:
    """``text`` of JSON with lone surrogates, which stand for bytes of file names, as JSON's escapes for them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
