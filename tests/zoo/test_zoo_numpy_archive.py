"""numpy's archives: what goes in comes out, and anything but numbers is a sentence."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.errors import InputError
from qbench.zoo.formats.numpy_archive import read_numpy_archive

ARRAYS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([1, -1]), "c": np.float16(0.5)}


def archive(save: Callable[..., None] = np.savez, **arrays: Any) -> bytes:
    stream = io.BytesIO()
    save(stream, **arrays)
    return stream.getvalue()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_come_out_as_they_went_in(save: Callable[..., None]) -> None:
    found = read_numpy_archive(archive(save, **ARRAYS), "x.npz")
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], np.asarray(array), strict=True)


def single() -> bytes:
    stream = io.BytesIO()
    np.save(stream, ARRAYS["a"])
    return stream.getvalue()


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (archive(a=np.array([{}], dtype=object)), "Object arrays"),
        (single(), "one array and no archive"),
        (b"text", "pickled"),
        (b"", "no data left|No data left"),
        (archive(**ARRAYS)[:-1], "zip"),
    ],
)
def test_what_is_no_archive_of_numbers_is_refused(data: bytes, found: str) -> None:
    with pytest.raises(InputError, match=rf"'x\.npz'.*({found})") as caught:
        read_numpy_archive(data, "x.npz")
    assert "\n" not in str(caught.value)


@given(st.data())
def test_a_damaged_archive_gives_arrays_or_a_sentence(draws: st.DataObject) -> None:
    data = bytearray(archive(np.savez_compressed, **ARRAYS))
    for _ in range(draws.draw(st.integers(1, 4))):
        data[draws.draw(st.integers(0, len(data) - 1))] = draws.draw(st.integers(0, 255))
    try:
        found = read_numpy_archive(bytes(data[: draws.draw(st.integers(0, len(data)))]), "x.npz")
    except InputError:
        return
    assert all(isinstance(array, np.ndarray) for array in found.values())
