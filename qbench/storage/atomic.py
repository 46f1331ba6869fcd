"""Writing a file, or several that belong together, whole or not at all."""

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from qbench.errors import StoreError
from qbench.storage.cache import spare_folder


def write_bytes(path: Path, data: bytes, *, aside: Path | None = None) -> None:
    """Put ``data`` at ``path``, making its folder; a reader sees the old file or the new one, never half.

    Args:
        aside: the folder of the temporary file (``work_folder``); None, or of another disk: a spare one.

    Raises:
        StoreError: the folder is read-only, the disk is full, or the path is not writable.
    """
    temporary: str | None = None
    with contextlib.ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if aside is None or aside.stat().st_dev != path.parent.stat().st_dev:
                aside = stack.enter_context(spare_folder(path.parent))
            handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=aside)
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
    """A folder for ``path`` and the files next to it, all under their own names; they move to their place at the end.

    When anything is raised inside, nothing moves and nothing is left. ``path`` itself moves last.

    Raises:
        StoreError: the folder is read-only, the disk is full, or the path is not writable.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            spare_folder(path.parent) as aside,
            tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=aside) as name,
        ):
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
    """Check that a file may be put at ``path``, by permissions alone: nothing is made and nothing removed.

    Raises:
        StoreError: ``path`` is a folder or a device, its folder is read-only, or there can be no such folder.
    """
    try:
        reason = _hindrance(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    if reason:
        raise _unwritable(path, OSError(reason))


def _hindrance(path: Path) -> str:
    """Why no file may be put at ``path``; empty where one may."""
    if path.exists() and not path.is_file():
        return "a folder" if path.is_dir() else "not a plain file"
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir():
        return os.strerror(errno.ENOTDIR)
    may_write = os.access(folder, os.W_OK | os.X_OK) and folder.stat().st_mode & 0o222  # access lets root into /proc
    return "" if may_write else os.strerror(errno.EACCES)


def _unwritable(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"Writing '{path}'",
        found=error.strerror or str(error),
        expected="a writable folder with free space",
        remedy="Make the folder writable or name another one.",
    )


def write_text(path: Path, text: str) -> None:
    """Put ``text`` at ``path`` as UTF-8, whole or not at all (see ``write_bytes``); a lone surrogate is escaped."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def sync_folder(folder: Path) -> None:
    """Write the names in ``folder`` to the disk: earlier renames there survive a power cut from now on.

    Raises:
        StoreError: the disk is gone.
    """
    if os.name == "nt":  # a folder cannot be opened there
        return
    try:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):  # disks that do not support it
            raise _unwritable(folder, error) from error
