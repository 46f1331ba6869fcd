"""Tables out of frozen values: short, and read back as what they were."""

import enum
import tomllib
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from qbench.storage import table_from_value, toml_text, value_from_table


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    colour: Colour
    depth: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    name: str
    inner: Inner = field(default_factory=lambda: Inner(colour=Colour.RED))
    other: Inner | None = None
    several: tuple[Inner, ...] = ()
    words: tuple[str, ...] = ()
    on: bool = False
    share: float = 0.5


inners = st.builds(Inner, colour=st.sampled_from(Colour), depth=st.integers(-9, 9))
texts = st.text(st.characters(codec="utf-8"), max_size=9)
outers = st.builds(
    Outer,
    name=texts,
    inner=inners,
    other=st.none() | inners,
    several=st.lists(inners, max_size=3).map(tuple),
    words=st.lists(texts, max_size=3).map(tuple),
    on=st.booleans(),
    share=st.floats(0, 1),
)


@given(outers)
def test_text_is_read_back_as_what_it_was(value):
    assert value_from_table(Outer, tomllib.loads(toml_text(value)), "the table") == value


def test_what_is_as_by_default_is_left_out():
    assert table_from_value(Outer(name="a")) == {"name": "a"}
    assert table_from_value(Outer(name="a", on=True, inner=Inner(colour=Colour.RED, depth=4))) == {
        "name": "a",
        "inner": {"colour": "red", "depth": 4},
        "on": True,
    }


def test_one_line_a_field():
    value = Outer(
        name="a",
        several=(Inner(colour=Colour.BLUE), Inner(colour=Colour.RED, depth=1)),
        words=("x", "y"),
    )
    assert toml_text(value).splitlines() == [
        'name = "a"',
        'several = [{ colour = "blue" }, { colour = "red", depth = 1 }]',
        'words = ["x", "y"]',
    ]
