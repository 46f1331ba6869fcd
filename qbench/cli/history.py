"""qbench history: its actions, and the shortest of them, ``index``."""

import argparse
from pathlib import Path

from qbench.cli import check_history, show_history
from qbench.cli.command import Command, ExitCode
from qbench.cli.history_files import declare_history, open_history
from qbench.cli.options import declare_json
from qbench.cli.printing import print_json, put, say
from qbench.number_text import counted


def _declare_index(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench history index``."""
    declare_history(parser)
    parser.add_argument(
        "--db",
        metavar="PLACE",
        help="an SQLite file, or postgresql://USER@HOST/DATABASE (default: index.sqlite in the history folder); "
        "the password is taken from PGPASSWORD or the user's .pgpass",
    )
    parser.add_argument("--rebuild", action="store_true", help="empty the database and read every file")
    declare_json(parser)


def _update_index(arguments: argparse.Namespace) -> ExitCode:
    """Update the index and say what was done; USAGE when a file in the history is no run file.

    Raises:
        InputError: there is no history, or the place is not a database.
        StoreError: the database cannot be reached or written.
        UnavailableError: SQLAlchemy or psycopg is not installed.
    """
    from qbench.tracking import INDEX_FILE, HistoryIndex

    history = open_history(arguments.history)
    with HistoryIndex(arguments.db or str(Path(arguments.history) / INDEX_FILE)) as index:
        done = index.update(history.store, rebuild=arguments.rebuild)
        if done.was_damaged:
            say(f"'{index.name}' was not a database or was damaged: it was created again from the run files.")
        for problem in done.problems:
            say(problem)
        fates = {name: getattr(done, name) for name in ("added", "changed", "gone", "kept", "runs")}
        if arguments.json:
            print_json({"index": index.name, **fates, "unreadable": done.unreadable, "problems": list(done.problems)})
        else:
            others = f"{done.changed} changed, {done.gone} gone, {done.kept} as they were"
            put(f"{index.name}: {counted(done.added, 'run file')} added, {others}; {counted(done.runs, 'run')} in all")
    return ExitCode.USAGE if done.unreadable else ExitCode.FINE


_ACTIONS = (
    ("show", "print the values of one cell over all commits", show_history.declare, show_history.execute),
    (
        "check",
        "list regressions that have no annotation; for continuous integration",
        check_history.declare,
        check_history.execute,
    ),
    ("index", "make or update the database that answers queries", _declare_index, _update_index),
)


def declare(parser: argparse.ArgumentParser) -> None:
    """The actions of ``qbench history``, each with its own arguments."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for name, summary, declare_action, execute_action in _ACTIONS:
        one = actions.add_parser(name, help=summary, description=f"{summary}.", allow_abbrev=False)
        declare_action(one)
        one.set_defaults(action=execute_action)


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
