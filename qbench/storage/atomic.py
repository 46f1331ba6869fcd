"""Writing a file, or several that belong together, whole or not at all: temporary names beside them, then renames."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
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
        raise _unwritable(path, error) from error


@contextlib.contextmanager
def staged_files(path: Path) -> Iterator[Path]:
    """A folder for ``path`` and the files that go beside it, all under their own names; they move there at the end.

    When anything is raised inside, nothing moves and nothing is left. ``path`` itself moves last.

    Raises:
        StoreError: the folder is read-only, the disk is full, or the path is not writable.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as name:
            folder = Path(name)
            yield folder
            for staged in sorted(folder.iterdir(), key=lambda file: file.name == path.name):
                with staged.open("rb") as file:
                    os.fsync(file.fileno())
                os.chmod(staged, 0o644)
                os.replace(staged, path.parent / staged.name)
    except OSError as error:
        raise _unwritable(path, error) from error


def require_writable(path: Path) -> None:
    """Check that a file could be put at ``path`` now; leaves nothing behind, no folder either.

    Raises:
        StoreError: ``path`` is a folder or a device, its folder is read-only, or there can be no such folder.
    """
    if path.exists() and not path.is_file():
        raise _unwritable(path, OSError("a folder" if path.is_dir() else "no plain file"))
    try:
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        with tempfile.NamedTemporaryFile(prefix=f".{path.name}.", dir=folder):
            pass
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"Writing '{path}'",
        found=error.strerror or str(error),
        expected="a writable folder with free space",
        remedy="Make the folder writable or name another one.",
    )


def write_text(path: Path, text: str) -> None:
    """Put ``text`` at ``path`` as UTF-8, whole or not at all (see ``write_bytes``)."""
    write_bytes(path, text.encode("utf-8"))
