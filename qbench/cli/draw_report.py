"""``qbench report``: draw the pages again from the history alone."""

import argparse
from pathlib import Path

from qbench.cli.command import Command, ExitCode
from qbench.cli.history_files import declare_history, open_history
from qbench.cli.printing import print_json, say

KINDS = ("html", "md", "png")


def declare_output(parser: argparse.ArgumentParser) -> None:
    """``-o DIR``."""
    parser.add_argument("-o", "--output", metavar="DIR", default="reports", help="folder of reports (default: reports)")


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench report``."""
    declare_history(parser)
    declare_output(parser)
    parser.add_argument(
        "--report", action="append", choices=KINDS, help=f"only this kind; repeatable (default: {', '.join(KINDS)})"
    )
    parser.add_argument("--json", action="store_true", help="print the paths of what was written as JSON")


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Write the pages and print their paths; run files that cannot be read are named and passed over.

    Raises:
        InputError: there is no history. StoreError: the folder cannot be written.
    """
    from qbench.reporting import write_reports

    history = open_history(arguments.history)
    for problem in history.problems:
        say(problem)
    written = write_reports(history.runs(), Path(arguments.output), arguments.report or KINDS)
    if arguments.json:
        print_json([str(path) for path in written])
    else:
        for path in written:
            print(path)
    return ExitCode.FINE


COMMAND = Command(
    name="report",
    summary="draw the report pages from the history alone",
    example="qbench report --history reports/history -o reports",
    declare=declare,
    execute=execute,
)
