"""Plain values, JSON text, and TOML tables to and from frozen dataclasses."""

import enum
import functools
import json
import math
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from qbench.errors import InputError, nearest, unknown_name
from qbench.storage.conflicts import conflict_error, has_conflict
from qbench.storage.places import ObjectFile

# Plain values: what JSON can hold, and the two spellings we write (a reviewed file, a log line).
#
# numpy scalars and enums become Python numbers and strings here and nowhere else, because
# pytest-xdist can send only plain values between its processes.

Plain = None | bool | int | float | str | list[Any] | dict[str, Any]


def plain(value: object) -> Any:  # noqa: ANN401 - the result is a Plain; mypy cannot follow the recursion usefully
    """``value`` with every dataclass, mapping, sequence, enum and numpy scalar as plain JSON.

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
    """``value`` as JSON that is easy to review: sorted keys, one scalar a line, LF at the end."""
    return _encodable(
        json.dumps(plain(value), indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
        + "\n"
    )


def json_line(value: object) -> str:
    """``value`` as one compact line of JSON with a final newline, for append-only files."""
    return _encodable(
        json.dumps(plain(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False) + "\n"
    )


def _encodable(text: str) -> str:
    """``text`` of JSON with lone surrogates, which stand for bytes of file names, as JSON's
    escapes for them.
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


# TOML tables ↔ frozen dataclasses: unknown keys and wrong types are errors that suggest the nearest
# name.
#
# The fields of the dataclass are the schema of the table. Understood types: ``str``, ``int``,
# ``float`` (an integer is taken for one), ``bool``, ``tuple[X, ...]``, ``Mapping[str, X]``, unions
# with ``None``, enums by value, and dataclasses of these.

T = TypeVar("T")


def read_toml(path: Path) -> dict[str, Any]:
    """The table in the TOML file at ``path``.

    Raises:
        InputError: the file cannot be read, or is not TOML (the line is named).
    """
    try:
        return text_toml(path.read_bytes().decode("utf-8"), path)
    except OSError as error:
        found, remedy = error.strerror or str(error), "Check the path."
    except UnicodeDecodeError as error:
        found, remedy = str(error), "Correct the file."
    raise InputError(f"Reading '{path}'", found=found, expected="a TOML file", remedy=remedy)


def text_toml(text: str, path: Path | ObjectFile) -> dict[str, Any]:
    """The table in the ``text`` of the TOML file at ``path``.

    Raises:
        InputError: it is not TOML (the line is named), or holds both sides of a merge of git.
    """
    import tomllib  # not needed where pytest runs without a suite

    if has_conflict(text.encode("utf-8")):
        raise conflict_error(InputError, path)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # of numbers without end, too
        raise InputError(
            f"Reading '{path}'",
            found=str(error),
            expected="a TOML file",
            remedy="Correct the file.",
        ) from error


def read_project(folder: Path) -> dict[str, Any]:
    """``[tool.qbench]`` of the pyproject.toml in ``folder``; empty where there is none.

    Raises:
        InputError: the file is not TOML, one of the two is not a table, or it has an unknown key.
    """
    path = folder / "pyproject.toml"
    if not path.is_file():
        return {}
    table = read_toml(path)
    for name in ("tool", "qbench"):
        inner = table.get(name, {})
        if not isinstance(inner, dict):
            raise InputError(
                f"Reading [tool.qbench] of '{path.name}'",
                found=f"{name} = {inner!r}",
                expected="a table",
                remedy="Correct the file.",
            )
        table = inner
    for key in table:
        if key not in _PROJECT_KEYS:
            raise unknown_name(f"Reading [tool.qbench] of '{path.name}'", "key", key, _PROJECT_KEYS)
    return table


_PROJECT_KEYS = ("extensions", "repository")


def read_json(path: Path, doing: str) -> dict[str, Any]:
    """The object in the JSON file at ``path``; ``doing`` is for the error.

    Raises:
        InputError: the file cannot be read, or is not a JSON object.
    """
    try:
        found = json.loads(path.read_bytes())
        if isinstance(found, dict):
            return found
        problem, remedy = f"a {type(found).__name__}", "Check the path."
    except OSError as error:
        problem, remedy = error.strerror or str(error), "Check the path."
    except (ValueError, RecursionError) as error:  # of the encoding, too
        problem, remedy = str(error), "Make the file again."
    raise InputError(doing, found=problem, expected="a JSON object", remedy=remedy)


KEYS = "keys"
"""In the metadata of a field that is a mapping: key of the table → type, of the keys that are
collected in it.
"""

FORMER_NAME = "former name"
"""In the metadata of a field: what its key was called; a table that has that key is refused with
the new name.
"""

NOT_WRITTEN = "not written"
"""In the metadata of a field that no table has: it comes from another file."""


def _refuse_unknown(
    table: Mapping[str, Any], known: Sequence[str], renamed: Mapping[str, str], where: str
) -> None:
    for key in table:
        if key not in known:
            close = renamed.get(key) or nearest(key, known)
            raise InputError(
                f"Reading {where}",
                found=f"an unknown key '{key}'",
                expected=f"one of: {', '.join(known)}",
                remedy=f"Did you mean '{close}'?" if close else "Remove it.",
            )


class _Keys(NamedTuple):
    """The keys of the table of one dataclass.

    ``types``: key → its type. ``own``: those that are fields. ``needed``: of these, those without a
    default. ``gathered``: each other key → the field that collects it. ``renamed``: former name of
    a key → key.
    """

    types: Mapping[str, Any]
    own: tuple[str, ...]
    needed: tuple[str, ...]
    gathered: Mapping[str, str]
    renamed: Mapping[str, str]


@functools.cache  # resolving the annotations takes longer than reading a table
def _keys_of(cls: type[Any]) -> _Keys:
    types_by_key = typing.get_type_hints(cls)
    for one in fields(cls):
        types_by_key |= one.metadata.get(KEYS, {})
    own = [
        one
        for one in fields(cls)
        if one.init and KEYS not in one.metadata and NOT_WRITTEN not in one.metadata
    ]
    return _Keys(
        types=types_by_key,
        own=tuple(one.name for one in own),
        needed=tuple(
            one.name for one in own if one.default is MISSING and one.default_factory is MISSING
        ),
        gathered={key: one.name for one in fields(cls) for key in one.metadata.get(KEYS, ())},
        renamed={one.metadata[FORMER_NAME]: one.name for one in own if FORMER_NAME in one.metadata},
    )


def value_from_table(cls: type[T], table: Mapping[str, Any], where: str) -> T:
    """A ``cls`` (frozen dataclass) whose fields are the keys of ``table``; ``where`` names the
    table in errors.

    Raises:
        InputError: an unknown key, a missing one, or a value of the wrong type. A ``ValueError`` of
            ``cls`` itself becomes an ``InputError`` too.
    """
    keys = _keys_of(cls)  # type: ignore[arg-type]  # a class can be hashed
    _refuse_unknown(table, [*keys.own, *keys.gathered], keys.renamed, where)
    values: dict[str, Any] = {}
    for key, value in table.items():
        converted = _converted(keys.types[key], value, f"'{key}' of {where}")
        if key in keys.gathered:
            values.setdefault(keys.gathered[key], {})[key] = converted
        else:
            values[key] = converted
    if missing := [name for name in keys.needed if name not in values]:
        raise InputError(
            f"Reading {where}",
            found=f"no key{'s' * (len(missing) > 1)} {', '.join(map(repr, missing))}",
            expected="it to be given" if len(missing) == 1 else "them to be given",
            remedy=f"Add {', '.join(repr(f'{name} = …') for name in missing)}.",
        )
    try:
        return cls(**values)
    except InputError as error:  # about a value in the table: name the table
        raise InputError(
            f"Reading {where}", found=error.found, expected=error.expected, remedy=error.remedy
        ) from error
    except ValueError as error:
        # of the form "X is impossible: it is Y"
        found, _, expected = str(error).partition(": it is ")
        expected = expected or "a possible value"
        raise InputError(
            f"Reading {where}", found=found, expected=expected, remedy="Correct the table."
        ) from error


def value_of_type(hint: Any, value: Any, where: str) -> Any:  # noqa: ANN401 - of whatever type
    """``value``, which TOML holds, as one of the understood types ``hint``; ``where`` names its
    place in errors.

    Raises:
        InputError: it is of another type.
    """
    return _converted(hint, value, where)


def _converted(hint: Any, value: Any, where: str) -> Any:  # noqa: ANN401, C901 - one match over the understood types
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _converted_union(arguments, value, where)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        if not isinstance(value, list):
            raise _wrong_type(where, value, "a list")
        return tuple(
            _converted(arguments[0], v, f"{_item(v, i)} of {where}")
            for i, v in enumerate(value, start=1)
        )
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise _wrong_type(where, value, "a table")
        return {k: _converted(arguments[1], v, f"'{k}' in {where}") for k, v in value.items()}
    if hint is Any or hint is object:
        return value
    if is_dataclass(hint):
        if not isinstance(value, dict):
            raise _wrong_type(where, value, "a table")
        return value_from_table(typing.cast(type[Any], hint), value, where)
    if issubclass(hint, enum.Enum):
        try:
            return hint(value)
        except ValueError:
            choices = ", ".join(repr(m.value) for m in hint)
            raise InputError(
                f"Reading {where}",
                found=repr(value),
                expected=f"one of {choices}",
                remedy="Choose one of these.",
            ) from None
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    raise _wrong_type(
        where,
        value,
        {str: "a string", int: "an integer", float: "a number", bool: "true or false"}.get(
            hint, str(hint)
        ),
    )


def _item(value: object, place: int) -> str:
    """How errors call the item at ``place``, from 1, of a list: with the name that it has."""
    names = (value.get(key) for key in ("id", "cell", "name")) if isinstance(value, dict) else ()
    name = next((one for one in names if isinstance(one, str)), None)
    return f"item {place}" if name is None else f"item {place} ('{name}')"


def _converted_union(choices: tuple[Any, ...], value: Any, where: str) -> Any:  # noqa: ANN401
    problem: InputError | None = None
    if value is None and types.NoneType in choices:  # JSON's null; TOML has none
        return None
    for choice in choices:
        if choice is types.NoneType:
            continue
        try:
            return _converted(choice, value, where)
        except InputError as error:
            problem = error
    assert problem is not None
    raise problem


def _wrong_type(where: str, value: object, expected: str) -> InputError:
    names = {
        str: "a string",
        bool: "a boolean",
        int: "an integer",
        float: "a number",
        list: "a list",
        dict: "a table",
    }
    return InputError(
        f"Reading {where}",
        found=f"{names.get(type(value), type(value).__name__)} ({value!r})",
        expected=expected,
        remedy="Write it in that type.",
    )


# Frozen dataclasses → TOML tables: what ``value_from_table`` reads, without fields that have their
# defaults.
#
# value_from_table(cls, tomllib.loads(toml_text(value)), …) == value


def table_from_value(value: object) -> dict[str, Any]:
    """The fields of the dataclass ``value`` that differ from their defaults, as plain values,
    in the class's order.

    So a field that is added later, with the former meaning as its default, changes no table. Fields
    are texts, numbers, enums, tuples and dataclasses of these; computed fields (``init=False``) and
    those of other files (``NOT_WRITTEN``) are left out.
    """
    assert is_dataclass(value)
    assert not isinstance(value, type)
    found = (
        (one, getattr(value, one.name))
        for one in fields(value)
        if one.init and NOT_WRITTEN not in one.metadata
    )
    return {one.name: _plain(held) for one, held in found if held != _default(one)}


def toml_text(value: object) -> str:
    """``table_from_value`` as TOML, one line per field."""
    return "".join(f"{name} = {_spelled(held)}\n" for name, held in table_from_value(value).items())


def value_of_plain(cls: type[T], value: object) -> T:
    """A ``cls`` (dataclasses, enums, tuples, mappings) from plain values, as JSON has them.

    Unlike ``value_from_table``, which reads what a user wrote, it ignores unknown keys: those of a
    newer version.

    Raises:
        ValueError: a key is missing, or a value has another type; the place of it is named.
    """
    import msgspec  # only a process that reads stored values needs it

    try:
        return msgspec.convert(value, cls)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


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
    # JSON takes DEL as it is, TOML does not
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
