"""Finding runs: a path, an id (or the beginning of one), or ``latest`` in the history folder."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.printing import say
from qbench.errors import InputError

if TYPE_CHECKING:
    from qbench.tracking import History, Run


def declare_history(parser: argparse.ArgumentParser) -> None:
    """``--history DIR``."""
    parser.add_argument(
        "--history", metavar="DIR", default="reports/history", help="folder of run files (default: reports/history)"
    )


def open_history(folder: str) -> "History":
    """The history in ``folder``.

    Raises:
        InputError: there is no such folder.
    """
    from qbench.host import utc_now
    from qbench.tracking import History

    if not Path(folder).is_dir():
        raise InputError(
            f"Reading the history in '{folder}'",
            found="no such folder",
            expected="a folder of run files",
            remedy="Name it with --history, or run a suite first.",
        )
    return History(Path(folder), now=utc_now())


def find_run(text: str, folder: str, keys: "Sequence[str]" = ()) -> "Run":
    """The run that ``text`` names: a file, ``latest``, or an id of the history in ``folder``, whole or its beginning.

    Of the history one run alone is read. ``latest`` is the last night: its shards are one run.

    Args:
        keys: what is kept of each cell; none: everything.

    Raises:
        InputError: there is none, or several begin so.
        StoreError: the file is no run file.
    """
    from qbench.tracking import kept_keys, read_run

    keep = kept_keys(*keys) if keys else None
    if Path(text).is_file():
        return read_run(Path(text), keep)
    history = open_history(folder) if Path(folder).is_dir() else None
    runs = () if history is None else history.heads
    if history is not None and text == "latest":
        for notice in history.clock_notices:
            say(notice)
        found = list(history.nights()[-1:])
    else:
        found = [run for run in runs if run.id.startswith(text)]
        found = [run for run in found if run.id == text] or found
    if history is not None and len(found) == 1:
        found = list(history.each(found, keep))
    if len(found) != 1:
        raise InputError(
            f"Looking for the run '{text}'",
            found=f"{len(found)} runs of that name among {len(runs)} in '{folder}'"
            if found
            else f"no such file, and no such run among {len(runs)} in '{folder}'",
            expected="a run file, the id of a run, or 'latest'",
            remedy="Give more of its id." if found else "Check the path, or name the folder with --history.",
        )
    return found[0]
