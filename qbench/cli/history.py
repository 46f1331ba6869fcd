"""qbench history: its actions, and the shorter of them: ``index``, ``pull`` and ``push``."""

import argparse
import tempfile
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from qbench.cli import check_history, show_history
from qbench.cli.command import Command, ExitCode
from qbench.cli.history_files import (
    declare_history,
    index_of,
    open_history,
)
from qbench.cli.options import declare_json
from qbench.cli.printing import print_json, put, say
from qbench.number_text import counted
from qbench.storage import place_of

if TYPE_CHECKING:
    from qbench.host import FileBranch

BRANCH = "qbench-history"
"""The branch that run files are kept on, of no use but that: it shares no commit with the
others.
"""


def _declare_index(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench history index``."""
    declare_history(parser)
    parser.add_argument(
        "--db",
        metavar="PLACE",
        help="an SQLite file, or postgresql://USER@HOST/DATABASE (default: index.sqlite in the "
        "history folder, of a URL in the cache folder); the password is taken from PGPASSWORD or "
        "the user's .pgpass",
    )
    parser.add_argument(
        "--rebuild", action="store_true", help="empty the database and read every file"
    )
    declare_json(parser)


def _update_index(arguments: argparse.Namespace) -> ExitCode:
    """Update the index and say what was done; USAGE when a file in the history is not a run file.

    Raises:
        InputError: there is no history, or the place is not a database.
        StoreError: the database cannot be reached or written.
        UnavailableError: SQLAlchemy or psycopg is not installed.
    """
    from qbench.tracking import HistoryIndex

    history = open_history(arguments.history)
    with HistoryIndex(arguments.db or str(index_of(arguments.history))) as index:
        done = index.update(history.store, rebuild=arguments.rebuild)
        if done.was_damaged:
            say(
                f"'{index.name}' was not a database or was damaged: it was created again from the "
                "run files."
            )
        for problem in done.problems:
            say(problem)
        fates = {name: getattr(done, name) for name in ("added", "changed", "gone", "kept", "runs")}
        if arguments.json:
            print_json(
                {
                    "index": index.name,
                    **fates,
                    "unreadable": done.unreadable,
                    "problems": list(done.problems),
                }
            )
        else:
            others = f"{done.changed} changed, {done.gone} gone, {done.kept} as they were"
            put(
                f"{index.name}: {counted(done.added, 'run file')} added, {others}; "
                f"{counted(done.runs, 'run')} in all"
            )
    return ExitCode.USAGE if done.unreadable else ExitCode.FINE


# The history on a branch of the repository: every checkout can read it, and a nightly job adds its
# run file to it.


def _declare_branch(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench history pull`` and ``push``."""
    declare_history(parser)
    parser.add_argument(
        "--branch", metavar="NAME", default=BRANCH, help=f"branch of run files (default: {BRANCH})"
    )
    parser.add_argument(
        "--remote", metavar="NAME", default="origin", help="git remote (default: origin)"
    )
    declare_json(parser)


def _declare_push(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench history push``."""
    _declare_branch(parser)
    parser.add_argument(
        "--also",
        metavar="FILE",
        action="append",
        default=[],
        help=(
            "a file to keep on the branch in its newest version, such as reports/badge.json; "
            "repeatable"
        ),
    )


def _branch(arguments: argparse.Namespace) -> "FileBranch":
    from qbench.host import FileBranch

    return FileBranch(".", arguments.remote, arguments.branch)


def _pull(arguments: argparse.Namespace) -> ExitCode:
    """Copy the run files of the branch that the history lacks into it; a branch that does not
    exist has none.

    Raises:
        StoreError: git cannot fetch the branch, or the history cannot be written.
    """
    from qbench.tracking import history_at, merge_run_files

    branch = _branch(arguments)
    tip = branch.fetch()
    target = history_at(arguments.history)
    with tempfile.TemporaryDirectory(prefix="qbench-") as scratch:
        for name, data in branch.files(tip, ".jsonl").items():
            (Path(scratch) / name).write_bytes(data)
        done = merge_run_files([Path(scratch)], target)
    for sentence in (*done.problems, *done.conflicts):
        say(sentence)
    if arguments.json:
        print_json(
            {
                "branch": str(branch),
                "exists": bool(tip),
                "added": [name.rpartition("/")[2] for name in done.added],
            }
        )
    elif tip:
        put(
            f"{arguments.history}: {counted(len(done.added), 'run')} added from {branch}, "
            f"{done.same} there already"
        )
    else:
        put(f"{arguments.history}: nothing added, since {branch} does not exist yet")
    return ExitCode.USAGE if done.conflicts or done.unreadable else ExitCode.FINE


def _push(arguments: argparse.Namespace) -> ExitCode:
    """Commit the run files of the history that the branch lacks, and push it.

    Raises:
        InputError: there is no such folder.
        StoreError: git refuses to push.
    """
    history = open_history(arguments.history)
    place = PurePath(str(place_of(arguments.history)))
    names = [PurePath(history.name_of(head)) for head in history.heads]
    also = [Path(name) for name in arguments.also]
    for path in also:
        if not path.is_file():
            say(f"'{path}' does not exist: left out")
    branch = _branch(arguments)
    added = branch.add(
        {
            name.name: b"".join(history.store.read(history.name_of(head)))
            for name, head in zip(names, history.heads, strict=True)
            if name.parent == place
        },
        "Add run files of qbench",
        replaced={path.name: path.read_bytes() for path in also if path.is_file()},
    )
    if arguments.json:
        print_json({"branch": str(branch), "added": added})
    else:
        put(f"{branch}: {counted(added, 'run file')} added")
    return ExitCode.FINE


_ACTIONS = (
    (
        "show",
        "print the values of one cell over all commits",
        show_history.declare,
        show_history.execute,
    ),
    (
        "check",
        "list regressions that have no annotation; for continuous integration",
        check_history.declare,
        check_history.execute,
    ),
    ("index", "make or update the database that answers queries", _declare_index, _update_index),
    ("pull", "copy the run files on a git branch into the history", _declare_branch, _pull),
    (
        "push",
        "commit new run files to a git branch and push it; for continuous integration",
        _declare_push,
        _push,
    ),
)


_CODES = {
    "show": "exit codes: 0 printed, 2 usage or bad input (no such cell, no history)",
    "check": (
        "exit codes: 0 no new regression, 1 a confirmed regression without annotation,\n"
        "  2 usage or bad input, 4 nothing new in a history that is not whole (no runs,\n"
        "  an interrupted run, a missing share, an unreadable file)"
    ),
    "index": "exit codes: 0 fine, 2 usage or bad input, or a file in the history is no run file",
    "pull": "exit codes: 0 fine, 2 usage or bad input, or a file that differs or cannot be read",
    "push": "exit codes: 0 fine, 2 usage or bad input, or git refuses",
}


def declare(parser: argparse.ArgumentParser) -> None:
    """The actions of ``qbench history``, each with its own arguments."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for name, summary, declare_action, execute_action in _ACTIONS:
        one = actions.add_parser(name, help=summary, description=f"{summary}.", allow_abbrev=False)
        declare_action(one)
        one.set_defaults(action=execute_action)
        one.epilog = _CODES.get(name)


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Run the action that was named."""
    code: ExitCode = arguments.action(arguments)
    return code


COMMAND = Command(
    name="history",
    summary="show trends of cells, and check them for regressions",
    example="qbench history check --suite nightly",
    declare=declare,
    execute=execute,
)
