"""numpy's archives: what goes in comes out, and anything but numbers is a sentence."""

import io
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.storage import ArchiveError, TooLargeError, array_names, inflate, read_archive

ARRAYS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.array([1, -1]),
    "c": np.float16(0.5),
}
MOST = 1 << 20


def archive(save: Callable[..., None] = np.savez, **arrays: Any) -> bytes:
    stream = io.BytesIO()
    save(stream, **arrays)
    return stream.getvalue()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_come_out_as_they_went_in(save: Callable[..., None]) -> None:
    found = read_archive(archive(save, **ARRAYS), most=MOST)
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], np.asarray(array), strict=True)


def single() -> bytes:
    stream = io.BytesIO()
    np.save(stream, ARRAYS["a"])
    return stream.getvalue()


def member(data: bytes, method: int = zipfile.ZIP_STORED) -> bytes:
    """An archive whose array ``x`` is ``data``."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as file:
        file.writestr("x.npy", data)
    return stream.getvalue()


def header(text: str) -> bytes:
    """The bytes before an array."""
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) + 1) + text.encode() + b"\n"


def shaped(shape: str, dtype: str = "<f4", body: bytes = b"") -> bytes:
    return member(
        header(f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}}}") + body
    )


def locked(data: bytes) -> bytes:
    """``data`` with the flag of an encrypted member, in both of its places."""
    changed = bytearray(data)
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        changed[data.index(mark) + place] |= 1
    return bytes(changed)


HOSTILE = {
    "objects": (archive(x=np.array([{}], dtype=object)), "Python objects"),
    "objects by the header": (shaped("(1,)", "|O", b"12345678"), "Python objects"),
    "a structure": (archive(x=np.zeros(2, [("a", "i4")])), "dtype"),
    "one array": (single(), "no archive"),
    "text": (b"text", "no archive"),
    "nothing": (b"", "no archive"),
    "cut": (archive(**ARRAYS)[:-1], "no archive"),
    "no array": (member(b"12345"), "not an array"),
    "no header": (member(header("{'descr': (((((")), "not an array"),
    "a header of other tokens": (member(header("{'descr': \x00 `")), "not an array"),
    "too many rows": (shaped(f"({2**37},)"), "where its shape needs"),
    "rows beyond 64 bits": (shaped(f"({2**70},)"), "where its shape needs"),
    "no rows of endless columns": (shaped(f"(0, {2**62}, {2**62})"), "damaged"),
    "fewer than no rows": (shaped("(-1,)"), "shape"),
    "a shape of truths": (shaped("(True,)", body=b"1234"), "shape"),
    "encrypted": (locked(member(b"12345678")), "encrypted"),
    "packed in another way": (member(single(), zipfile.ZIP_LZMA), "packed"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_archive_of_numbers_is_refused(name: str, tmp_path) -> None:
    data, found = HOSTILE[name]
    (tmp_path / "x.npz").write_bytes(data)
    for source in (data, tmp_path / "x.npz"):
        with pytest.raises(ArchiveError, match=found) as caught:
            read_archive(source, most=MOST)
        assert "\n" not in str(caught.value)


def test_what_is_declared_is_added_up_before_it_is_read(tmp_path) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(archive(np.savez_compressed, a=np.zeros((1 << 20, 4)), b=np.zeros(4)))
    assert path.stat().st_size < 1 << 17
    with pytest.raises(TooLargeError) as caught:
        read_archive(path, most=1 << 20)
    assert caught.value.size == (1 << 25) + 32
    assert list(read_archive(path, ["b"], most=1 << 20)) == ["b"]
    assert array_names(path) == ("a", "b")


@given(st.binary(max_size=50), st.integers(0, 60))
def test_no_more_is_unpacked_than_is_allowed(data: bytes, most: int) -> None:
    if len(data) <= most:
        assert inflate(zlib.compress(data), most=most) == data
        with pytest.raises(ArchiveError):
            inflate(zlib.compress(data)[:-1], most=most)
    else:
        with pytest.raises(ArchiveError):
            inflate(zlib.compress(data), most=most)


def test_what_is_beyond_takes_no_memory() -> None:
    packed = zlib.compress(bytes(1 << 25))
    tracemalloc.start()
    try:
        with pytest.raises(ArchiveError):
            inflate(packed, most=1 << 16)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@given(st.data())
def test_a_damaged_archive_gives_arrays_or_a_sentence(draws: st.DataObject) -> None:
    data = bytearray(archive(np.savez_compressed, **ARRAYS))
    for _ in range(draws.draw(st.integers(1, 4))):
        data[draws.draw(st.integers(0, len(data) - 1))] = draws.draw(st.integers(0, 255))
    try:
        found = read_archive(bytes(data[: draws.draw(st.integers(0, len(data)))]), most=MOST)
    except ArchiveError:
        return
    assert all(isinstance(array, np.ndarray) for array in found.values())
