"""The files that code of users reads while an entry of the cache is made, and what they held."""

import contextlib
import functools
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from qbench.storage.source_digest import digest_bytes, digest_file, is_foreign_file

# A key covers what code holds and names (``held_code``). What code opens under a name that it
# computes (``HERE / "stats" / f"{name}.npy"``) shows only when it runs: an audit hook of the
# interpreter sees each file that is opened for reading while an entry is made. The entry holds
# these files with their states, and is made anew where one has another state.
#
# Of a folder that code lists, the names in it count. Only what code of users opens counts: the
# innermost frame outside the standard library and installed packages says whose code it is. What
# qbench itself opens is in its keys.
#
# A function may keep what it has read (``functools.cache``), so a file that was read for one entry
# counts for all that the process makes after it.

_MOST_FILES, _MOST_BYTES = 64, 16 << 20
"""Files whose content is digested; of more, and of larger ones, size and time count."""
_EVENTS = ("open", "os.listdir", "os.scandir")
_OWN = str(Path(__file__).parents[1]) + os.sep

_read: dict[str, None] = {}
_open_windows: list[str] = []


@contextlib.contextmanager
def files_watched(cache: Path) -> Iterator[dict[str, str]]:
    """What is filled at the end, file → state, with all that code of users has read in this
    process while something was made; files below ``cache`` are none of them.
    """
    _install_hook()
    found: dict[str, str] = {}
    _open_windows.append(str(cache.absolute()) + os.sep)
    try:
        yield found
    finally:
        _open_windows.pop()
    for index, path in enumerate(sorted(path for path in _read if not _is_special(path))):
        found[_written(path)] = _state(path, is_read=index < _MOST_FILES)


def are_unchanged(states: dict[str, str]) -> bool:
    """Whether all files and folders of ``states`` have the same state now."""
    return all(
        state == _state(path, is_read="bytes" not in state) for path, state in states.items()
    )


def file_state(path: str, *, is_read: bool) -> str:
    """The content of the file at ``path``, or size and time where it is large; empty: there is
    none.
    """
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return ""
        if is_read and status.st_size <= _MOST_BYTES:
            return digest_file(Path(path))
    except (OSError, ValueError):
        return ""
    return f"{status.st_size} bytes {status.st_mtime_ns}"


def is_of_code(folder: str) -> bool:
    """Whether ``folder`` has code in it, or is above the current folder: results and caches are
    there, too.
    """
    try:
        with os.scandir(folder) as entries:
            is_code = any(entry.name.endswith(".py") for entry in entries)
        return is_code or Path.cwd().is_relative_to(Path(folder).resolve())
    except OSError:
        return True


def _state(path: str, *, is_read: bool) -> str:
    """The state of a file; of a folder, whose path ends with a slash, the names in it."""
    if not path.endswith(os.sep):
        return file_state(path, is_read=is_read)
    try:
        return digest_bytes(os.fsencode("\n".join(sorted(os.listdir(path)))))
    except OSError:
        return ""


def _is_special(path: str) -> bool:
    """Whether ``path`` is a device, a pipe, or a folder of which no state is taken."""
    if path.endswith(os.sep):
        return is_of_code(path)
    return os.path.exists(path) and not os.path.isfile(path)


def _written(path: str) -> str:
    """``path`` as an entry names it: from the current folder on, so that a copy of a project
    is known by its own files.
    """
    below = os.getcwd().rstrip(os.sep) + os.sep
    return path.removeprefix(below)


@functools.cache
def _install_hook() -> None:
    """Hooks stay as long as the process: one that makes nothing has none."""
    sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if not _open_windows or event not in _EVENTS:
        return
    if event == "open" and _is_for_writing(*arguments[1:3]):
        return
    try:
        path = os.path.abspath(os.fsdecode(arguments[0]))
    except (OSError, TypeError, ValueError):  # a number of an open file; no current folder
        return
    is_outside = not f"{path}{os.sep}".startswith(tuple(_open_windows))
    if is_outside and not is_foreign_file(path) and _is_opened_by_user():
        _read[path if event == "open" else path.rstrip(os.sep) + os.sep] = None


def _is_for_writing(mode: object, flags: object) -> bool:
    """Whether a file is opened to be written alone, or as well; ``os.open`` has no mode."""
    if isinstance(mode, str):
        return any(one in mode for one in "wax+")
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR))


def _is_opened_by_user() -> bool:
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - whose code opens the file
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_OWN):
            return False
        if not file.startswith("<frozen ") and not is_foreign_file(file):
            return True
        frame = frame.f_back
    return False
