"""Pages of an earlier report whose suite, model or cell has moved or is gone: they would be read as if they were new.

Only what bears the mark of this package is removed, and only where its pages lie: in the folder of reports itself, in
``models/`` and ``findings/``, and the same below ``suites/<suite>/``. A compare page beside pages that stay is kept: it
may have been asked for by itself.
"""

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path

from qbench.errors import StoreError
from qbench.reporting.places import TABS

MARK = '<meta name="generator" content="qbench">'
"""Stands near the beginning of every page."""

_HEAD = 1024
_BELOW = ("models", "findings")


def remove_outdated(folder: Path, written: Collection[Path]) -> None:
    """Remove the pages below ``folder`` that are none of those ``written`` just now, and folders they leave empty.

    Raises:
        StoreError: a page cannot be removed.
    """
    kept = {path.parent for path in written if path.name == "index.html"}
    for site in (folder, *sorted(path for path in (folder / "suites").glob("*") if path.is_dir())):
        for page in _pages(site):
            is_asked_for = page.name == "compare.html" and page.parent in kept
            if page not in written and not is_asked_for and _is_ours(page):
                _remove(page)
        for place in (*(site / name for name in _BELOW), site, folder / "suites"):
            with contextlib.suppress(OSError):  # not empty, or not there
                place.rmdir()


def _pages(site: Path) -> Iterator[Path]:
    for name in TABS:
        yield site / f"{name}.html"
    for below in _BELOW:
        yield from sorted((site / below).glob("*.html"))


def _is_ours(page: Path) -> bool:
    """Whether it is a page that a report of qbench has drawn; a link is none."""
    if page.is_symlink() or not page.is_file():
        return False
    with page.open("rb") as file:
        return MARK.encode() in file.read(_HEAD)


def _remove(page: Path) -> None:
    try:
        page.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(
            f"Removing the outdated page '{page}'",
            found=error.strerror or str(error),
            expected="a folder that can be written",
            remedy="Remove the page, or draw the report into another folder with -o.",
        ) from error
