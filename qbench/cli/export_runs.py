"""``qbench export``: runs in other tools' formats."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.command import Command, ExitCode
from qbench.cli.history_files import declare_history, find_run, open_history
from qbench.cli.printing import say

if TYPE_CHECKING:
    from qbench.tracking import Run

_FORMATS = ("csv", "json", "junit", "github-benchmark", "bencher")


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench export``."""
    parser.add_argument(
        "runs", nargs="*", metavar="RUN", help="run files, ids (their beginnings will do), 'latest' (default) or 'all'"
    )
    parser.add_argument(
        "--format",
        required=True,
        choices=_FORMATS,
        help="csv, json: a row a metric; junit; github-benchmark: drops for customSmallerIsBetter; bencher: its BMF",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write there (default: standard output)")
    declare_history(parser)
    parser.add_argument("--suite", help="of 'all', the runs of this suite only")


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Write the file; INCOMPLETE when a run in it was interrupted.

    Raises:
        InputError: there is no such run. StoreError: the file cannot be written.
    """
    from qbench.reporting import export_text
    from qbench.storage import write_text

    runs = _chosen(arguments)
    text = export_text(runs, arguments.format)
    if arguments.output:
        write_text(Path(arguments.output), text)
    else:
        sys.stdout.write(text)
    partial = [run.id for run in runs if not run.complete]
    if partial:
        say(f"interrupted, so that cells are missing: {', '.join(partial)}")
    return ExitCode.INCOMPLETE if partial else ExitCode.FINE


def _chosen(arguments: argparse.Namespace) -> "list[Run]":
    found: list[Run] = []
    for text in arguments.runs or ["latest"]:
        if text == "all":
            history = open_history(arguments.history)
            found += history.runs(arguments.suite)
            for problem in history.problems:
                say(problem)
        else:
            found.append(find_run(text, arguments.history))
            for notice in found[-1].notices:
                say(notice)
    return found


COMMAND = Command(
    name="export",
    summary="write runs in other tools' formats",
    example="qbench export latest --format junit -o junit.xml",
    declare=declare,
    execute=execute,
)
