"""Pickled numpy arrays: the numbers of a good file,
and a refusal before anything runs of all others.
"""

import collections
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.errors import InputError
from qbench_zoo.readers.pickles import read_numpy_pickle

LAYERS = {
    "conv": [np.arange(6, dtype="<f4").reshape(1, 2, 3), np.array([0.5, -1], "<f4")],
    "last": [np.ones(1, "<f8")],
}


def written(content: Any) -> bytes:
    """As numpy 1 wrote it under protocol 3: today's names are those of numpy 2."""
    return pickle.dumps(content, protocol=3).replace(
        b"numpy._core.multiarray", b"numpy.core.multiarray"
    )


def test_layers_come_out_array_by_array() -> None:
    arrays = read_numpy_pickle(written(LAYERS), "weights.pkl")
    assert sorted(arrays) == ["conv.0", "conv.1", "last.0"]
    for name, array in arrays.items():
        layer, place = name.split(".")
        np.testing.assert_array_equal(array, LAYERS[layer][int(place)])


class Bomb:
    exploded = False

    def __reduce__(self) -> Any:
        return setattr, (Bomb, "exploded", True)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ({"a": [Bomb()]}, "builtins.setattr"),
        ({"a": [collections.OrderedDict()]}, "collections.OrderedDict"),
        ({"a": [1.5]}, "is a float and no array"),
        ([np.ones(2)], "a list where the dictionary"),
        ({"a": [np.ones(2, ">f4")]}, "big-endian"),
        ({"a": [np.arange(2)]}, "numbers of type 'i8'"),
        ({"a": [np.asfortranarray(np.ones((2, 2)))]}, "not of numbers in the order of C"),
        ({"a": [np.array(["x"], object)]}, "numbers of type 'O8'"),
        ({"a": [np.ones(0)]}, "0 bytes for an array"),
        ({"a": []}, "no array"),
        ({}, "no array"),
        ({1: [np.ones(2)]}, "a int where a layer's name"),
    ],
)
def test_anything_else_is_refused(content: Any, found: str) -> None:
    with pytest.raises(InputError, match=found):
        read_numpy_pickle(written(content), "weights.pkl")
    assert not Bomb.exploded


@given(st.integers(0, len(written(LAYERS)) - 1))
def test_a_file_that_is_cut_short_is_refused(length: int) -> None:
    with pytest.raises(InputError, match=r"weights\.pkl"):
        read_numpy_pickle(written(LAYERS)[:length], "weights.pkl")


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (b"\x80\x02})" + b"\x85" * 1000 + b"Ns.", "a tuple where a layer's name should be"),
        (b"\x80\x02})" + b"\x85" * 1_000_000 + b"Ns.", "more than 30000 tuples"),
        (b"\x80\x02cnumpy\ndtype\n)" + b"\x85" * 20_000 + b"\x85R.", "recursion"),
    ],
    ids=["deep", "deeper", "format"],
)
def test_values_nested_too_deeply_are_refused(program: bytes, found: str) -> None:
    with pytest.raises(InputError, match=found):
        read_numpy_pickle(program, "weights.pkl")
