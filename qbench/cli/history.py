"""qbench history: its actions."""

import argparse
from types import ModuleType

from qbench.cli import check_history, index_history, show_history
from qbench.cli.command import Command, ExitCode

_ACTIONS: tuple[tuple[str, str, ModuleType], ...] = (
    ("show", "print the values of one cell over all commits", show_history),
    ("check", "list regressions that have no annotation; for continuous integration", check_history),
    ("index", "make or update the database that answers queries", index_history),
)


def declare(parser: argparse.ArgumentParser) -> None:
    """The actions of ``qbench history``, each with its own arguments."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for name, summary, action in _ACTIONS:
        one = actions.add_parser(name, help=summary, description=f"{summary}.", allow_abbrev=False)
        action.declare(one)
        one.set_defaults(action=action.execute)


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
