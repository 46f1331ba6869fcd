"""Files of named arrays without code in them: safetensors and CTranslate2."""

import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError

# The safetensors format: a table of names, types, shapes and places, and behind it the numbers.
#
#     length of the table (int64) · table (JSON) · numbers, little-endian, from the end of the table
#     on
#
# Nothing in it can be run; what is checked is that every array lies inside the file, and holds what
# its shape says. Source: the format's own description, huggingface/safetensors.

_TYPES: Mapping[str, str] = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "U8": "|u1",
}


def read_safetensors(data: bytes, name: str) -> dict[str, npt.NDArray[Any]]:
    """Name → array of all that the file ``data`` holds; ``name`` is how errors call it.

    Raises:
        InputError: it is no such file, is cut short, or has an array of a type or in a place that
            cannot be.
    """
    try:
        (length,) = struct.unpack_from("<Q", data)
        table, numbers = json.loads(data[8 : 8 + length]), memoryview(data)[8 + length :]
        return {
            key: _array(entry, numbers) for key, entry in table.items() if key != "__metadata__"
        }
    except (struct.error, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f"Reading the safetensors file '{name}'",
            found=str(error) or "no table",
            expected="a whole file of arrays of known types",
            remedy="Get the file again.",
        ) from error


def _array(entry: Mapping[str, Any], numbers: memoryview) -> npt.NDArray[Any]:
    if entry["dtype"] not in _TYPES:
        raise ValueError(f"numbers of type '{entry['dtype']}'")
    dtype = np.dtype(_TYPES[entry["dtype"]])
    shape = tuple(entry["shape"])
    start, end = entry["data_offsets"]
    if not 0 <= start <= end <= len(numbers) or end - start != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"an array of shape {shape} at {start} to {end} of {len(numbers)} bytes")
    return np.frombuffer(numbers, dtype, math.prod(shape), start).reshape(shape)


# CTranslate2's model files: a list of named arrays, and second names for some of them.
#
#     version 6 (uint32) · specification (text) · revision (uint32)
#     count (uint32) · of each: name (text), rank (uint8), sizes (uint32 each), type (uint8),
#                      bytes (uint32), numbers
#     count (uint32) · of each: second name (text), name (text)
#
# All of it little-endian; a text is its length in 16 bits, its UTF-8 and a zero byte, which the
# length counts. Nothing in it can be run; what is checked is that the file holds what its numbers
# say, and nothing behind it. Source: CTranslate2's own reader, ``src/models/model.cc``.

_VERSION = 6
_CTRANSLATE2_TYPES = ("<f4", "|i1", "<i2", "<i4", "<f2")


def read_ctranslate2(data: bytes, name: str) -> dict[str, npt.NDArray[Any]]:
    """Name → array of all that the file ``data`` holds, second names too; ``name`` is how
    errors call the file.

    Raises:
        InputError: it is no such file, of another version, cut short, or has an array of an unknown
            type or of another length than its sizes say, or a second name for nothing.
    """
    try:
        return _arrays(_Reader(data))
    except ValueError as error:
        raise InputError(
            f"Reading the CTranslate2 file '{name}'",
            found=str(error),
            expected=f"a whole file of version {_VERSION} with arrays of known types",
            remedy="Get the file again.",
        ) from error


class _Reader:
    """Goes through ``data`` from its start to its end."""

    def __init__(self, data: bytes) -> None:
        self._data, self._place = data, 0

    def number(self, kind: str) -> int:
        """The next unsigned number: ``B``, ``H`` or ``I``, of 8, 16 or 32 bits."""
        (found,) = struct.unpack(f"<{kind}", self.bytes(struct.calcsize(kind)))
        return int(found)

    def text(self) -> str:
        """The next text."""
        found = self.bytes(self.number("H"))
        if not found.endswith(b"\0"):
            raise ValueError(f"a text without its end before byte {self._place}")
        return found[:-1].decode("utf-8")

    def bytes(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        found = self._data[self._place : self._place + count]
        if len(found) < count:
            raise ValueError(
                f"its end at byte {len(self._data)}, where {self._place + count} are needed"
            )
        self._place += count
        return found

    def finish(self) -> None:
        """Check that nothing is left."""
        if self._place < len(self._data):
            raise ValueError(f"{len(self._data) - self._place} bytes behind its end")


def _arrays(reader: _Reader) -> dict[str, npt.NDArray[Any]]:
    version = reader.number("I")
    if version != _VERSION:
        raise ValueError(f"version {version}")
    reader.text()  # what the arrays are for, and in which revision
    reader.number("I")
    arrays: dict[str, npt.NDArray[Any]] = {}
    for _ in range(reader.number("I")):
        title = reader.text()
        if title in arrays:
            raise ValueError(f"two arrays '{title}'")
        arrays[title] = _ctranslate2_array(reader, title)
    for _ in range(reader.number("I")):
        second, first = reader.text(), reader.text()
        if first not in arrays or second in arrays:
            raise ValueError(f"a second name '{second}' for '{first}'")
        arrays[second] = arrays[first]
    reader.finish()
    return arrays


def _ctranslate2_array(reader: _Reader, title: str) -> npt.NDArray[Any]:
    shape = tuple(reader.number("I") for _ in range(reader.number("B")))
    kind = reader.number("B")
    if kind >= len(_CTRANSLATE2_TYPES):
        raise ValueError(f"'{title}' of an unknown type {kind}")
    dtype, length = np.dtype(_CTRANSLATE2_TYPES[kind]), reader.number("I")
    if length != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"'{title}' of shape {shape} in {length} bytes")
    return np.frombuffer(reader.bytes(length), dtype).reshape(shape)
