"""Before the first cell is measured: can what this session is going to write be written?

Nothing is left behind by asking: the file that tries is nameless or gone at once, and no folder is made.
"""

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from qbench.errors import StoreError
from qbench.plugin.options import Options


def check_folders(options: Options) -> None:
    """Refuse to measure what could not be kept.

    Raises:
        pytest.UsageError: a folder this session is going to write cannot be written.
    """
    folders = [("history", options.history)]
    if options.writes_baselines:
        folders.append(("baselines", options.baselines))
    if options.report:
        folders.append(("reports", options.reports))
    try:
        for name, folder in folders:
            _try(name, folder)
    except StoreError as error:
        raise pytest.UsageError(str(error)) from error


def has_cells(items: Iterable[pytest.Item]) -> bool:
    """Whether any of ``items`` measures a cell; asked without loading anything."""
    if "qbench.plugin.opening" not in sys.modules:  # loaded by the first suite, whoever names it
        return False
    from qbench.plugin.items import CellItem

    return any(isinstance(item, CellItem) or "qbench_cell" in getattr(item, "fixturenames", ()) for item in items)


def _try(name: str, folder: Path) -> None:
    """Make a file in ``folder``, or in the nearest folder above that is there already.

    Raises:
        StoreError: that fails; nothing was measured yet.
    """
    there = next(place for place in (folder, *folder.parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            return
    except OSError as error:
        raise StoreError(
            f"Writing the {name} folder '{folder}'",
            found=f"'{there}': {error.strerror or error}",
            expected="a writable folder",
            remedy=f"Nothing was measured. Mend the folder or --qbench-{name}.",
        ) from error
