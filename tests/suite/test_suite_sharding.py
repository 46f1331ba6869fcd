"""Shares of a suite: every model in exactly one, the same one everywhere, and errors that say
how it is written.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.errors import InputError
from qbench.suite import Shard

NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789_.-", min_size=1, max_size=20)


@given(NAMES, st.integers(1, 50))
def test_every_model_falls_to_exactly_one_share(model, count):
    assert sum(Shard(index, count).holds(model) for index in range(1, count + 1)) == 1


def test_shares_are_the_same_on_every_machine():
    """By ``sha256sum``: SHA-256 of the name modulo 4, plus one. Python's own hash would differ
    in every process.
    """
    shares = {
        m: next(i for i in range(1, 5) if Shard(i, 4).holds(m))
        for m in ("mobilenet_v2", "digits_cnn", "magika")
    }
    assert shares == {"mobilenet_v2": 1, "digits_cnn": 4, "magika": 2}


@pytest.mark.parametrize(("text", "shown"), [("", ""), ("1/1", ""), ("2/5", "2/5")])
def test_texts(text, shown):
    assert Shard.parse(text).text == shown


@pytest.mark.parametrize("text", ["0/3", "4/3", "2", "2/", "/3", "a/b", "1/0", "-1/3", "1/2/3"])
def test_what_is_no_share(text):
    with pytest.raises(InputError, match="expected i/N"):
        Shard.parse(text)
