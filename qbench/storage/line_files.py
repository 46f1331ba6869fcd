"""Files of one JSON object in each line: lines are added, and a process may end in the middle of
one.
"""

import os
from pathlib import Path
from typing import Any

import msgspec


def object_of_line(line: bytes) -> dict[str, Any] | None:
    """The JSON object in ``line``; None: the line is torn, or it is something else."""
    try:
        table = msgspec.json.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return table if isinstance(table, dict) else None


def append_line(path: Path, line: str) -> None:
    """Add ``line``, which ends with a line break; on return other processes can read it.

    Where the last line of the file is torn, the new one does not continue it.

    Raises:
        OSError: the file cannot be written.
    """
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o644)
    try:
        data = (b"\n" if _is_torn(handle) else b"") + line.encode()
        while data:
            data = data[os.write(handle, data) :]
    finally:
        os.close(handle)


def _is_torn(handle: int) -> bool:
    """Whether the last line of the file is not whole."""
    size = os.fstat(handle).st_size
    return bool(size) and os.pread(handle, 1, size - 1) != b"\n"
