"""Arrays of an ``.npz`` or ``.npy`` file, from any source: only numbers are read, nothing is
unpickled.

What the headers declare is added up before any array is read, so that a small file cannot ask for
much memory.
"""

import io
import math
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

Arrays = "dict[str, np.ndarray[Any, Any]]"

_NUMBERS = "biufcU"
_HEADER_BYTES = 1 << 16
_PACKED = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
"""The methods that numpy writes, which need no more memory than the unpacked data."""


class ArchiveError(ValueError):
    """The file does not hold arrays of numbers; the message names what it holds instead."""


class TooLargeError(ArchiveError):
    """The arrays would take ``size`` bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(f"arrays of {size:,} bytes")
        self.size = size


def read_archive(
    source: Path | bytes, names: Collection[str] | None = None, *, most: int
) -> "dict[str, np.ndarray[Any, Any]]":
    """The arrays in ``source`` by name, in its order.

    Args:
        source: a file or its bytes.
        names: those that are read; None: all.
        most: bytes of them together.

    Raises:
        ArchiveError: it is not an archive of arrays of numbers. TooLargeError: they take more than
            ``most``.
        OSError: the file cannot be read.
    """
    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                return _arrays(archive, names, most)
        except (OSError, ArchiveError):
            raise
        except zipfile.BadZipFile as error:
            raise ArchiveError(f"no archive of named arrays ({error})") from error
        except MemoryError as error:
            raise ArchiveError("arrays that memory does not hold") from error
        except Exception as error:
            # damaged bytes cause many errors in numpy, zipfile, zlib, tokenize and ast: no list of
            # them is complete
            raise ArchiveError(f"a damaged file ({type(error).__name__})") from error


def read_array(source: Path, *, most: int) -> "np.ndarray[Any, Any]":
    """The array in the ``.npy`` file ``source``.

    Args:
        source: the file.
        most: bytes of it.

    Raises:
        ArchiveError: it is not an array of numbers. TooLargeError: it takes more than ``most``.
        OSError: the file cannot be read.
    """
    from numpy.lib import format as npy

    with source.open("rb") as file:
        size = _size(io.BytesIO(file.read(_HEADER_BYTES)), source.name, source.stat().st_size)
        if size > most:
            raise TooLargeError(size)
        file.seek(0)
        try:
            return npy.read_array(file, allow_pickle=False)
        except ValueError as error:
            raise ArchiveError(f"a damaged file ({error})") from error


def inflate(data: bytes, *, most: int) -> bytes:
    """What ``zlib.compress`` packed into ``data``; no more than ``most`` bytes are unpacked.

    Raises:
        ArchiveError: it is damaged, or holds more.
    """
    unpacker = zlib.decompressobj()
    try:
        found = unpacker.decompress(data, most + 1)
    except zlib.error as error:
        raise ArchiveError(f"data that cannot be unpacked ({error})") from error
    if len(found) > most:
        raise ArchiveError(f"more than {most:,} bytes when unpacked")
    if not unpacker.eof:
        raise ArchiveError("packed data that are cut short")
    return found


def array_names(source: Path) -> tuple[str, ...]:
    """The names that the archive ``source`` lists, without reading their content.

    Raises:
        ArchiveError: it is not an archive. OSError: the file cannot be read.
    """
    try:
        with source.open("rb") as file, zipfile.ZipFile(file) as archive:
            return tuple(_name(member) for member in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise ArchiveError(f"no archive of named arrays ({error})") from error


def _arrays(
    archive: zipfile.ZipFile, names: Collection[str] | None, most: int
) -> "dict[str, np.ndarray[Any, Any]]":
    from numpy.lib import format as npy

    members = {
        _name(one): one for one in archive.infolist() if names is None or _name(one) in names
    }
    size = sum(_declared(archive, one) for one in members.values())
    if size > most:
        raise TooLargeError(size)
    found = {}
    for name, member in members.items():
        with archive.open(member) as file:
            found[name] = npy.read_array(file, allow_pickle=False)
    return found


def _declared(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """The bytes of the array in ``member`` by its header.

    Raises:
        ArchiveError: it is not an array of numbers, is compressed or encrypted in another way than
            numpy's, or is cut short.
    """
    name = member.filename
    if member.flag_bits & 1 or member.compress_type not in _PACKED:
        raise ArchiveError(f"'{name}', which is encrypted or packed in another way than numpy's")
    with archive.open(member) as file:
        start = io.BytesIO(file.read(_HEADER_BYTES))
    return _size(start, name, member.file_size)


def _size(start: io.BytesIO, name: str, whole: int) -> int:
    """The bytes of the array whose file of ``whole`` bytes begins with ``start``.

    Raises:
        ArchiveError: it is not an array of numbers, or is cut short.
    """
    from numpy.lib import format as npy

    try:
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[
            npy.read_magic(start)
        ]
        shape, _, dtype = read(start)
    except Exception as error:  # tokenize, ast and numpy's own
        raise ArchiveError(f"'{name}', which is not an array ({type(error).__name__})") from error
    if dtype.kind not in _NUMBERS:
        what = (
            "Python objects (pickles), which are never loaded"
            if dtype.hasobject
            else f"values of dtype {dtype}"
        )
        raise ArchiveError(f"'{name}' with {what}")
    if any(type(one) is not int or one < 0 for one in shape):
        raise ArchiveError(f"'{name}' of shape {shape}")
    size = math.prod(shape) * dtype.itemsize
    if whole - start.tell() != size:
        raise ArchiveError(
            f"'{name}' with {whole - start.tell():,} bytes where its shape needs {size:,}"
        )
    return size


def _name(member: zipfile.ZipInfo) -> str:
    return member.filename.removesuffix(".npy")
