"""Seeded damage to files of JSON and TOML: flipped bytes, and values in the place of others."""

import copy
import json
import math
import random
import tomllib
from collections.abc import Iterator
from typing import Any

STRANGE = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        7,
        2**31,
        -(2**63),
        2**64,
        2**70,
        10**30,
        0.0,
        -0.5,
        1e-320,
        1e308,
    ),
    *(
        math.inf,
        -math.inf,
        math.nan,
        "",
        " ",
        "x",
        "conv",
        "uint8",
        "../x",
        "a\nb",
        "\u202e",
        "\x00",
        "=1",
        "1e5",
    ),
    *(
        "9" * 5000,
        [],
        {},
        [[]],
        [{}],
        [None],
        [0, "x"],
        {"x": 1},
        {"": {}},
        [[1, 2], [3]],
        [1e308] * 3,
        [[[[1]]]],
    ),
)
"""Values of every kind, in the place of others."""


def damaged_bytes(text: str, seed: int) -> bytes:
    """``text`` with a few bytes flipped, removed, repeated or cut."""
    draw, data = random.Random(seed), bytearray(text.encode())
    for _ in range(draw.randint(1, 4)):
        if not data:
            break
        at = draw.randrange(len(data))
        match draw.randrange(5):
            case 0:
                data[at] ^= 1 << draw.randrange(8)
            case 1:
                data[at] = draw.randrange(256)
            case 2:
                del data[at : at + draw.randint(1, 20)]
            case 3:
                data[at:at] = data[at : at + draw.randint(1, 40)]
            case 4:
                del data[max(at, len(data) // 2) :]
    return bytes(data)


def damaged_json(text: str, seed: int) -> bytes:
    """The document in ``text`` with a value or two replaced, removed or moved."""
    tree = json.loads(text)
    _damage(tree, random.Random(seed))
    return json.dumps(tree).encode()


def damaged_toml(text: str, seed: int) -> bytes:
    """The same of TOML, which has no null."""
    tree = tomllib.loads(text)
    _damage(tree, random.Random(seed))
    return "".join(_tables(tree)).encode("utf-8", "surrogatepass")


def _damage(tree: Any, draw: random.Random) -> None:
    for _ in range(draw.randint(1, 2)):
        places = list(_places(tree))
        if not places:
            return
        holder, key = draw.choice(places)
        match draw.randrange(6):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[draw.choice(["", "x", "name", "kind", "scale"])] = holder.pop(key)
            case 2:
                holder[key] = [holder[key]]
            case _:
                holder[key] = copy.deepcopy(draw.choice(STRANGE))


def _places(tree: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    if depth > 12:
        return
    keys = (
        list(tree)
        if isinstance(tree, dict)
        else range(min(len(tree), 60))
        if isinstance(tree, list)
        else ()
    )
    for key in keys:
        yield tree, key
        yield from _places(tree[key], depth + 1)


def _tables(tree: dict[str, Any]) -> Iterator[str]:
    last: list[str] = []
    for key, value in tree.items():
        if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            last += [f"[[{_key(key)}]]\n{''.join(_pairs(one))}" for one in value]
        elif isinstance(value, dict):
            last.append(f"[{_key(key)}]\n{''.join(_pairs(value))}")
        else:
            yield f"{_key(key)} = {_value(value)}\n"
    yield from last


def _pairs(table: dict[str, Any]) -> Iterator[str]:
    return (f"{_key(key)} = {_value(value)}\n" for key, value in table.items())


def _key(text: object) -> str:
    return json.dumps(str(text))


def _value(value: Any, depth: int = 0) -> str:
    if depth > 30:
        return "0"
    match value:
        case None:
            return '"null"'
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case float():
            return (
                "inf"
                if value == math.inf
                else "-inf"
                if value == -math.inf
                else "nan"
                if value != value
                else repr(value)
            )
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list():
            return "[" + ", ".join(_value(one, depth + 1) for one in value) + "]"
        case dict():
            return (
                "{"
                + ", ".join(f"{_key(key)} = {_value(one, depth + 1)}" for key, one in value.items())
                + "}"
            )
    return json.dumps(str(value))
