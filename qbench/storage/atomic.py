"""Writing a file, or several that belong together, whole or not at all."""

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from qbench.errors import StoreError
from qbench.storage.cache import spare_folder, work_folder


def write_bytes(
    path: Path, data: bytes, *, aside: Path | None = None, lasting: bool = True
) -> None:
    """Put ``data`` at ``path``, making its folder; a reader sees the old file or the new one.

    Args:
        aside: the folder of the temporary file (``work_folder``); None, or of another disk: a spare
            one.
        lasting: whether it is there after a power cut; else the file may be empty then.

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
                if lasting:
                    os.fsync(file.fileno())
            # mkstemp's 0600 would hide a committed baseline from other users
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except OSError as error:
            if temporary is not None:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            raise _unwritable(path, error) from error


@contextlib.contextmanager
def changing_file(path: Path) -> "Iterator[FileChange]":
    """The file at ``path`` held by one process at a time, to be read, changed and written.

    What is written depends on what is there: every such change of a user's file goes through this.
    A link stays one. Not reentrant, also not for other files of the same folder.

    Raises:
        StoreError: the folder cannot be written, or its disk has no locks.
    """
    real = Path(os.path.realpath(path))
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from error
    with work_folder(real.parent) as aside:
        yield FileChange(path, real, aside)


class FileChange:
    """The file at ``path`` while this process holds it."""

    def __init__(self, path: Path, real: Path, aside: Path) -> None:
        self.path = path
        self._real = real
        self._aside = aside

    def read(self) -> str | None:
        """What is there now; None: no file.

        Raises:
            StoreError: it cannot be read, or is not UTF-8.
        """
        try:
            return self._real.read_bytes().decode("utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(
                f"Reading '{self.path}' to change it",
                found=getattr(error, "strerror", None) or str(error),
                expected="a text file that can be read; nothing was changed",
                remedy="Make it readable, and do this again.",
            ) from error

    def write(self, text: str) -> None:
        """Put ``text`` there, whole or not at all.

        Raises:
            StoreError: the folder cannot be written.
        """
        write_bytes(self._real, text.encode("utf-8", "backslashreplace"), aside=self._aside)
        sync_folder(self._real.parent)


@contextlib.contextmanager
def staged_files(path: Path) -> Iterator[Path]:
    """A folder for ``path`` and the files next to it, all under their own names; they move to
    their place at the end.

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
    """Check that a file may be put at ``path``, by permissions alone; makes nothing.

    Raises:
        StoreError: ``path`` is a folder or a device, its folder is read-only, or there can be no
            such folder.
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
    # access lets root into /proc
    may_write = os.access(folder, os.W_OK | os.X_OK) and folder.stat().st_mode & 0o222
    return "" if may_write else os.strerror(errno.EACCES)


def _unwritable(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"Writing '{path}'",
        found=error.strerror or str(error),
        expected="a writable folder with free space",
        remedy="Make the folder writable or name another one.",
    )


def write_text(path: Path, text: str) -> None:
    """Put ``text`` at ``path`` as UTF-8, whole or not at all (see ``write_bytes``); a lone
    surrogate is escaped.
    """
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


@contextlib.contextmanager
def writing_pages(folder: Path) -> Iterator[Callable[[Path, str], None]]:
    """What writes a text to a path below ``folder``, as ``write_text`` does, for pages that can
    be redrawn.

    They share one folder of temporary files and are not forced to the disk one by one.
    """
    with contextlib.suppress(OSError):  # writing says it in words
        folder.mkdir(parents=True, exist_ok=True)
    with spare_folder(folder) as aside:

        def write(path: Path, text: str) -> None:
            write_bytes(path, text.encode("utf-8", "backslashreplace"), aside=aside, lasting=False)

        yield write


def sync_folder(folder: Path) -> None:
    """Write the names in ``folder`` to the disk: earlier renames survive a power cut.

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
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            # disks that do not support it
            raise _unwritable(folder, error) from error
