"""Writing a file whole or not at all: a temporary name beside it, then a rename."""

import contextlib
import os
import tempfile
from pathlib import Path

from qbench.errors import StoreError


def write_bytes(path: Path, data: bytes) -> None:
    """Put ``data`` at ``path``, making its folder; a reader sees the old file or the new one, never half.

    Raises:
        StoreError: the folder is read-only, the disk is full, or the path is not writable.
    """
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp's 0600 would hide a committed baseline from other users
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise StoreError(
            f"Writing '{path}'",
            found=error.strerror or str(error),
            expected="a writable folder with free space",
            remedy="Make the folder writable or name another one.",
        ) from error


def write_text(path: Path, text: str) -> None:
    """Put ``text`` at ``path`` as UTF-8, whole or not at all (see ``write_bytes``)."""
    write_bytes(path, text.encode("utf-8"))
