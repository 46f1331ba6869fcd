"""TOML tables become frozen values, and every way to get one wrong is one sentence."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from qbench.errors import InputError
from qbench.storage import read_toml, value_from_table


class Color(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    count: int

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError("a negative count")


@dataclass(frozen=True)
class Pair:
    id: str
    left: int
    right: int


@dataclass(frozen=True)
class Outer:
    name: str
    share: float = 0.5
    flag: bool = False
    color: Color = Color.RED
    names: tuple[str, ...] = ()
    inner: Inner | None = None
    either: float | Mapping[str, float | Inner] | None = None
    inners: tuple[Inner, ...] = field(default=())
    pairs: tuple[Pair, ...] = ()


def test_every_understood_type() -> None:
    table = {
        "name": "x",
        "share": 1,
        "flag": True,
        "color": "red",
        "names": ["a", "b"],
        "inner": {"count": 3},
        "either": {"a": 0.5, "b": {"count": 1}},
        "inners": [{"count": 1}],
    }
    value = value_from_table(Outer, table, "t")
    assert value == Outer(
        "x", 1.0, True, Color.RED, ("a", "b"), Inner(3), {"a": 0.5, "b": Inner(1)}, (Inner(1),)
    )
    assert isinstance(value.share, float)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"name": "x", "shere": 1.0}, ["'shere'", "Did you mean 'share'?"]),
        ({}, ["no key 'name'"]),
        (
            {"name": "x", "inners": [{"count": 1}, {}]},
            ["no key 'count'", "item 2 of 'inners' of t"],
        ),
        (
            {"name": "x", "pairs": [{"id": "a"}]},
            ["item 1 ('a') of 'pairs'", "'left', 'right'", "'left = …', 'right = …'"],
        ),
        ({"name": 3}, ["an integer (3)", "a string", "'name' of t"]),
        ({"name": "x", "share": True}, ["a boolean", "a number"]),
        ({"name": "x", "flag": 1}, ["true or false"]),
        ({"name": "x", "color": "blue"}, ["'blue'", "'red'"]),
        ({"name": "x", "names": "a"}, ["a list"]),
        ({"name": "x", "names": ["a", 1]}, ["item 2 of 'names'"]),
        ({"name": "x", "inner": {"count": -1}}, ["a negative count", "'inner' of t"]),
        ({"name": "x", "inner": [1]}, ["a table"]),
        ({"name": "x", "either": {"a": "b"}}, ["'a' in 'either' of t"]),
    ],
)
def test_a_wrong_table_is_one_sentence(table: dict[str, object], words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        value_from_table(Outer, table, "t")
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("content", "word"), [(b"a = \n b", "line 1"), (b"\xff\xfe", "decode"), (None, "No such file")]
)
def test_a_file_that_is_no_toml(tmp_path, content: bytes | None, word: str) -> None:
    path = tmp_path / "x.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=word):
        read_toml(path)
