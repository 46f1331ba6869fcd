"""A catalogue is lazy, finds names, suggests the nearest, and refuses two owners of one name."""

from types import SimpleNamespace

import pytest

from qbench.errors import InputError
from qbench.extension import Catalogue, Extension


def boom() -> int:
    raise AssertionError("a factory was called before its name was used")


def test_lookup_is_lazy_and_knows_owners() -> None:
    two = SimpleNamespace(name="two")  # what a factory of others makes is checked to be of its kind
    catalogue = Catalogue("metric", {"one": lambda: 1, "bad": boom})
    extended = catalogue.extended(
        [Extension(name="acme", metrics={"two": lambda: two}), Extension(name="idle")]
    )
    assert extended.names() == ("bad", "one", "two")
    assert extended.get("two") is two
    assert (extended.owner("one"), extended.owner("two")) == ("qbench", "acme")
    assert catalogue.names() == ("bad", "one")


def test_a_clash_names_both_owners() -> None:
    with pytest.raises(InputError, match=r"'one' of 'acme'.*'qbench' defines the same name"):
        Catalogue("metric", {"one": lambda: 1}).extended(
            [Extension(name="acme", metrics={"one": lambda: 2})]
        )
    pair = [Extension(name=name, metrics={"two": lambda: 2}) for name in ("acme", "umbrella")]
    with pytest.raises(InputError, match=r"'two' of 'umbrella'.*'acme'"):
        Catalogue("metric", {}).extended(pair)


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown metric 'tpo1'.*Did you mean 'top1'\?"):
        Catalogue("metric", {"top1": boom, "agreement": boom}).get("tpo1")
    with pytest.raises(InputError, match=r"Choose one of: top1"):
        Catalogue("metric", {"top1": boom}).get("xyzzy")


def test_the_four_parts_and_the_exit_code() -> None:
    error = InputError("Doing x", found="a", expected="b", remedy="Do c.")
    assert str(error) == "Doing x: found a; expected b. Do c."
    assert error.exit_code == 2
