"""The paths below a folder in which other processes make and remove folders meanwhile."""

import os
from pathlib import Path


def paths_below(folder: Path, ending: str = "") -> list[Path]:
    """What is below ``folder`` at any depth and whose name ends with ``ending``, sorted.

    ``Path.rglob`` fails where a folder is removed between its listing and its reading, such as the
    ``.qbench`` of a process that has just written there; here such a folder holds nothing, as do
    one that may not be read and a ``folder`` that does not exist. Links are not followed.

    Raises:
        OSError: a folder cannot be read for another reason.
    """
    return sorted(
        Path(above, name)
        for above, folders, files in os.walk(folder, onerror=_raise_others)
        for name in (*folders, *files)
        if name.endswith(ending)
    )


def _raise_others(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError | PermissionError):
        raise error
