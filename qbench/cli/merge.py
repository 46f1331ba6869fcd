"""qbench merge: the run files of several computers in one folder, and both sides of a file that
git could not join.
"""

import argparse
import shlex
from pathlib import Path

from qbench.cli.command import Command, ExitCode
from qbench.cli.options import declare_json
from qbench.cli.printing import print_json, put, say
from qbench.errors import InputError
from qbench.number_text import counted


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench merge``."""
    parser.add_argument(
        "sources",
        nargs="*",
        metavar="FROM",
        help="folders of run files, run files, or URLs of them",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        help="folder, or s3://, gs:// or file://, that the missing run files are copied to",
    )
    parser.add_argument(
        "--conflict",
        metavar="FILE",
        help=(
            "instead: take both sides of a baseline or a TOML file of entries that git could not "
            "join"
        ),
    )
    declare_json(parser)


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Merge and report; USAGE when a file was not a run file, or two files of one run differ.

    Raises:
        InputError: there is no such folder or file. StoreError: the target cannot be written.
    """
    if arguments.conflict:
        return _joined(arguments)
    if not arguments.sources or not arguments.output:
        raise InputError(
            "Merging run files",
            found="no folder of run files"
            if not arguments.sources
            else "no folder to copy them to",
            expected="both",
            remedy="Name them: qbench merge FROM… -o DIR.",
        )
    from qbench.tracking import history_at, merge_run_files

    sources = [history_at(source) for source in arguments.sources]
    done = merge_run_files(sources, history_at(arguments.output))
    for sentence in (*done.problems, *done.conflicts):
        say(sentence)
    if arguments.json:
        print_json(
            {
                "added": list(done.added),
                "same": done.same,
                "conflicts": list(done.conflicts),
                "problems": list(done.problems),
            }
        )
    else:
        conflicts = f", {counted(len(done.conflicts), 'conflict')}" if done.conflicts else ""
        put(
            f"{arguments.output}: {counted(len(done.added), 'run')} added, {done.same} there "
            f"already{conflicts}"
        )
    return ExitCode.USAGE if done.conflicts or done.unreadable else ExitCode.FINE


def _joined(arguments: argparse.Namespace) -> ExitCode:
    from qbench.cli.git_conflict import join_conflict

    if arguments.sources or arguments.output:
        raise InputError(
            f"Joining both sides of '{arguments.conflict}'",
            found="folders of run files, too",
            expected="one of the two",
            remedy="Merge them by another command.",
        )
    written = [str(path) for path in join_conflict(Path(arguments.conflict))]
    if arguments.json:
        print_json({"joined": written})
    else:
        put(f"both sides are in it now: {shlex.join(['git', 'add', *written])}")
    return ExitCode.FINE


COMMAND = Command(
    name="merge",
    summary="copy the run files of several computers into one folder",
    example="qbench merge ci-artifacts/one ci-artifacts/two -o reports/history",
    declare=declare,
    execute=execute,
)
