"""Qt's binary resource files: a tree of names, and the bytes of the files in it.

    header   "qres" · version · where the tree, the data and the names begin
             (32 bits each, big-endian)
    entry    22 bytes (14 before version 2): name · flags
             · a folder: how many entries, the first of them
             · a file: locale, where its data is
    name     length in characters · hash · UTF-16
    data     length · bytes (behind 4 more, deflated, where flagged)

Source: Qt 5, qtbase/src/corelib/io/qresource.cpp.
"""

import struct
import zlib

from qbench.errors import InputError

_MAGIC = b"qres"
_DEFLATED, _FOLDER = 1, 2
_DEEPEST = 32


def read_qt_resources(data: bytes, name: str) -> dict[str, bytes]:
    """Path → content of every file in the resource file ``data``, which errors call ``name``.

    Raises:
        InputError: it is no such file, is cut short, or is packed in a way that is not known here.
    """
    try:
        version, tree, content, names = struct.unpack_from(">4I", data, _begun(data))
        files: dict[str, bytes] = {}
        _walk(data, (tree, content, names), 22 if version >= 2 else 14, 0, (), files)
    except (struct.error, ValueError, IndexError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(
            f"Reading the Qt resources '{name}'",
            found=str(error),
            expected="a whole Qt resource file, plain or deflated",
            remedy="Get the file again.",
        ) from error
    return files


def _begun(data: bytes) -> int:
    """Where the magic word ends."""
    if not data.startswith(_MAGIC):
        raise ValueError("another beginning")
    return len(_MAGIC)


def _walk(  # noqa: PLR0917 - where everything begins, and where we are
    data: bytes,
    starts: tuple[int, int, int],
    width: int,
    index: int,
    folders: tuple[str, ...],
    files: dict[str, bytes],
) -> None:
    if len(folders) > _DEEPEST:
        raise ValueError(f"more than {_DEEPEST} folders in each other")
    entry = starts[0] + index * width
    name_at, flags = struct.unpack_from(">IH", data, entry)
    path = (*folders, _name(data, starts[2] + name_at)) if index else ()
    if flags & _FOLDER:
        count, first = struct.unpack_from(">II", data, entry + 6)
        if first + count > len(data) // width:
            raise ValueError(f"a folder of {count} entries")
        if first <= index:
            raise ValueError("a folder within itself")
        for child in range(first, first + count):
            _walk(data, starts, width, child, path, files)
        return
    (data_at,) = struct.unpack_from(">I", data, entry + 10)
    files["/".join(path)] = _content(data, starts[1] + data_at, flags)


def _name(data: bytes, at: int) -> str:
    (length,) = struct.unpack_from(">H", data, at)
    name = data[at + 6 : at + 6 + 2 * length]
    if len(name) != 2 * length:
        raise ValueError("a name that is cut short")
    return name.decode("utf-16-be")


def _content(data: bytes, at: int, flags: int) -> bytes:
    (length,) = struct.unpack_from(">I", data, at)
    packed = data[at + 4 : at + 4 + length]
    if len(packed) != length:
        raise ValueError("a file that is cut short")
    if flags & ~(_DEFLATED | _FOLDER):
        raise ValueError(f"a file packed in the way {flags}")
    return zlib.decompress(packed[4:]) if flags & _DEFLATED else packed
