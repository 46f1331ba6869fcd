"""A content-addressed cache on disk: a key is the digest of everything an entry was made from.

An entry is made under a temporary name and renamed, so a killed process leaves no half entry, and two
processes that make the same one at the same time both end with a whole one. What a killed process left under such a
name is swept by the next that makes an entry beside it.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from qbench.errors import StoreError
from qbench.storage.holding import alone, made_aside, sweep


def default_folder() -> Path:
    """``$QBENCH_CACHE``, else ``qbench`` under the user's cache folder (``$XDG_CACHE_HOME``, ``~/.cache``)."""
    if own := os.environ.get("QBENCH_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "qbench"


@dataclass(frozen=True, slots=True)
class Cache:
    """A folder of entries ``<kind>/<key>``; each entry is one file or one folder and never changes."""

    folder: Path

    @classmethod
    def default(cls) -> "Cache":
        """The user's cache."""
        return cls(default_folder())

    def entry(self, kind: str, key: str, make: Callable[[Path], None]) -> Path:
        """The path of entry (kind, key); when absent, ``make(path)`` writes it to a temporary path first.

        Args:
            kind: what it is, one word; a subfolder of the cache.
            key: file name: the digest of the entry's inputs, with a suffix if a reader wants one.
            make: creates a file or a folder at the path it is given.

        Raises:
            StoreError: the cache folder cannot be written. What ``make`` raises passes through.
        """
        path = self.folder / kind / key
        if path.exists():
            return path
        with contextlib.ExitStack() as stack:
            with self._making_room(kind, key):
                work = stack.enter_context(made_aside(path.parent))
            made = work / key
            make(made)
            try:
                os.replace(made, path)
            except OSError:
                if not path.exists():  # else another process was faster with the same content
                    raise
        return path

    @contextlib.contextmanager
    def alone(self, kind: str, key: str) -> Iterator[None]:
        """Entry (kind, key) held by one process at a time, for what is better made once; the others wait.

        Raises:
            StoreError: the cache folder cannot be written.
        """
        with contextlib.ExitStack() as stack:
            with self._making_room(kind, key):
                stack.enter_context(alone(self.folder / kind, key))
            yield

    @contextlib.contextmanager
    def _making_room(self, kind: str, key: str) -> Iterator[None]:
        """The folder of ``kind`` is there, and rid of what killed processes left; an OSError is one sentence."""
        folder = self.folder / kind
        try:
            folder.mkdir(parents=True, exist_ok=True)
            sweep(folder)
            yield
        except OSError as error:
            raise StoreError(
                f"Making room in the cache for '{kind}/{key}'",
                found=error.strerror or str(error),
                expected=f"a writable folder '{self.folder}'",
                remedy="Make it writable, or set QBENCH_CACHE to another folder.",
            ) from error
