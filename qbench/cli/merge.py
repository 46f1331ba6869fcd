"""qbench merge: the run files of several computers in one folder."""

import argparse
from pathlib import Path

from qbench.cli.command import Command, ExitCode
from qbench.cli.options import declare_json
from qbench.cli.printing import print_json, put, say
from qbench.number_text import counted


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench merge``."""
    parser.add_argument("sources", nargs="+", metavar="FROM", help="folders of run files, or run files")
    parser.add_argument(
        "-o", "--output", metavar="DIR", required=True, help="folder that the missing run files are copied to"
    )
    declare_json(parser)


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Merge and report; USAGE when a file was not a run file, or two files of one run differ.

    Raises:
        InputError: there is no such folder or file. StoreError: the target cannot be written.
    """
    from qbench.tracking import merge_run_files

    done = merge_run_files([Path(source) for source in arguments.sources], Path(arguments.output))
    for sentence in (*done.problems, *done.conflicts):
        say(sentence)
    if arguments.json:
        print_json(
            {
                "added": [str(path) for path in done.added],
                "same": done.same,
                "conflicts": list(done.conflicts),
                "problems": list(done.problems),
            }
        )
    else:
        conflicts = f", {counted(len(done.conflicts), 'conflict')}" if done.conflicts else ""
        put(f"{arguments.output}: {counted(len(done.added), 'run')} added, {done.same} there already{conflicts}")
    return ExitCode.USAGE if done.conflicts or done.unreadable else ExitCode.FINE


COMMAND = Command(
    name="merge",
    summary="copy the run files of several computers into one folder",
    example="qbench merge ci-artifacts/one ci-artifacts/two -o reports/history",
    declare=declare,
    execute=execute,
)
