"""qbench bisect: the choice between commits and releases."""

import argparse
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from qbench.cli import bisect_commits, bisect_package
from qbench.cli.command import Command, ExitCode, Parser

_ACTIONS: tuple[tuple[str, str, ModuleType], ...] = (
    ("commits", "find the commit of the project under test that made a cell worse", bisect_commits),
    (
        "package",
        "find the release of a package that changed the outputs of a model",
        bisect_package,
    ),
)


class _BeforeACommand(Parser):
    """A parser that keeps the words after ``--`` as ``command``, where its action takes one."""

    def parse_known_args(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        namespace: Any = None,  # noqa: ANN401 - argparse's own
    ) -> tuple[Any, list[str]]:
        """As argparse, which would take ``--`` for the beginning of further positional
        arguments.
        """
        given = list(args or ())
        if self.get_default("command") is None or "--" not in given:
            return super().parse_known_args(args, namespace)
        cut = given.index("--")
        namespace, unknown = super().parse_known_args(given[:cut], namespace)
        namespace.command = tuple(given[cut + 1 :])
        return namespace, unknown


def declare(parser: argparse.ArgumentParser) -> None:
    """The actions of ``qbench bisect``, each with its own arguments."""
    actions = parser.add_subparsers(
        title="actions", metavar="ACTION", required=True, parser_class=_BeforeACommand
    )
    for name, summary, action in _ACTIONS:
        one = actions.add_parser(name, help=summary, description=f"{summary}.", allow_abbrev=False)
        action.declare(one)
        one.set_defaults(action=action.execute)


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Run the action that was named."""
    code: ExitCode = arguments.action(arguments)
    return code


COMMAND = Command(
    name="bisect",
    summary="find the commit or the release that changed the numbers",
    example="qbench bisect commits --good v1.2 --build make suites/mine.qbench.toml",
    declare=declare,
    execute=execute,
)
