"""Qt resource files: a tree written here comes out path by path; what is broken is refused."""

import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.errors import InputError
from qbench_zoo.readers.qt_resources import read_qt_resources

TREE: dict[str, Any] = {
    "photos": {"hen.webp": b"a hen", "äpfel.webp": b"apples" * 50},
    "top.txt": b"",
}
PATHS = {"photos/hen.webp": b"a hen", "photos/äpfel.webp": b"apples" * 50, "top.txt": b""}


def written(
    tree: dict[str, Any], version: int = 2, *, deflate: bool = False, flags: int = 0
) -> bytes:
    entries: list[bytes] = [b""]
    data, names = b"", b""
    width = 22 if version >= 2 else 14
    waiting = [(0, tree)]
    while waiting:
        place, folder = waiting.pop(0)
        entries[place] = entries[place][:4] + struct.pack(">HII", 2, len(folder), len(entries))
        if not place:
            entries[0] = struct.pack(">IHII", 0, 2, len(folder), 1)
        for name, content in folder.items():
            named = struct.pack(">I", len(names))
            names += struct.pack(">HI", len(name), 7) + name.encode("utf-16-be")
            if isinstance(content, dict):
                waiting.append((len(entries), content))
                entries.append(named)
                continue
            packed = (
                struct.pack(">I", len(content)) + zlib.compress(content) if deflate else content
            )
            entries.append(named + struct.pack(">HHHI", flags | int(deflate), 0, 0, len(data)))
            data += struct.pack(">I", len(packed)) + packed
    tree_bytes = b"".join(entry.ljust(width, b"\0") for entry in entries)
    starts = (20, 20 + len(tree_bytes), 20 + len(tree_bytes) + len(data))
    return b"qres" + struct.pack(">4I", version, *starts) + tree_bytes + data + names


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("deflate", [False, True])
def test_every_file_comes_out_under_its_path(version: int, deflate: bool) -> None:
    assert read_qt_resources(written(TREE, version, deflate=deflate), "a.rcc") == PATHS


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "another beginning"),
        (b"PK\3\4" + written(TREE)[4:], "another beginning"),
        (written(TREE, flags=4), "packed in the way 4"),
        (
            b"qres"
            + struct.pack(">4I", 2, 20, 42, 42)
            + struct.pack(">IHII", 0, 2, 2**31, 1)
            + bytes(8),
            "2147483648",
        ),
        (
            b"qres"
            + struct.pack(">4I", 2, 20, 42, 42)
            + struct.pack(">IHII", 0, 2, 1, 0)
            + bytes(8),
            "within itself",
        ),
    ],
)
def test_what_is_broken_is_refused(data: bytes, found: str) -> None:
    with pytest.raises(InputError, match=found):
        read_qt_resources(data, "a.rcc")


@given(st.integers(0, len(written(TREE, deflate=True)) - 1))
def test_a_file_that_is_cut_short_is_refused(length: int) -> None:
    with pytest.raises(InputError, match=r"a\.rcc"):
        read_qt_resources(written(TREE, deflate=True)[:length], "a.rcc")
