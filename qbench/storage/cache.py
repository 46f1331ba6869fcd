"""A content-addressed cache on disk: a key is the digest of everything an entry was made from.

An entry is made under a temporary name and renamed, so a killed process leaves no half entry, and two
processes that make the same one at the same time both end with a whole one.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from qbench.errors import StoreError


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
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            work = Path(tempfile.mkdtemp(prefix=".making-", dir=path.parent))
        except OSError as error:
            raise StoreError(
                f"Making room in the cache for '{kind}/{key}'",
                found=error.strerror or str(error),
                expected=f"a writable folder '{self.folder}'",
                remedy="Make it writable, or set QBENCH_CACHE to another folder.",
            ) from error
        try:
            made = work / key
            make(made)
            try:
                os.replace(made, path)
            except OSError:
                if not path.exists():  # else another process was faster with the same content
                    raise
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return path
