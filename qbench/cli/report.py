"""qbench report: pages from the history alone."""

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.command import Command, ExitCode
from qbench.cli.history_files import (
    RUN_NAMES,
    annotations_of,
    declare_annotations,
    declare_history,
    find_history,
    find_runs,
    folder_around,
    open_history,
)
from qbench.cli.options import declare_baselines
from qbench.cli.printing import print_commands, print_json, put, say
from qbench.errors import InputError
from qbench.lazy import gc_paused
from qbench.reporting import ALL_KINDS, GITHUB, KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qbench.reporting import Memory, Report
    from qbench.tracking import Run


def declare_output(parser: argparse.ArgumentParser) -> None:
    """``-o DIR``."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        default="reports",
        help="folder of reports (default: reports)",
    )


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench report``."""
    declare_history(parser)
    declare_output(parser)
    parser.add_argument(
        "--report",
        action="listed",
        among=ALL_KINDS,
        help=f"write only this kind; repeatable (default: {', '.join(KINDS)}); badge: badge.json "
        "for shields.io; comment: comment.md for a pull request; github: annotations, and the "
        "job's summary",
    )
    parser.add_argument(
        "--compare",
        nargs=2,
        metavar=("A", "B"),
        help=f"write only the page that compares these two runs; each {RUN_NAMES}",
    )
    parser.add_argument(
        "--across", action="store_true", help="with --compare: also different environment classes"
    )
    parser.add_argument(
        "--runs", type=int, metavar="N", help="show the newest N runs of a suite (default: 120)"
    )
    declare_baselines(parser)
    declare_annotations(parser)
    parser.add_argument(
        "--json", action="store_true", help="print the paths of what was written as JSON"
    )


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Write the pages and print their paths; run files that cannot be read are named and passed
    over.

    Raises:
        InputError: there is no history, or a mistake in a suite.
        StoreError: the folder cannot be written, or a baseline is damaged.
        IncomparableError: not one cell of the two runs can be compared.
    """
    folder = Path(arguments.output)
    with gc_paused():
        written = (
            _draw_comparison(arguments, folder)
            if arguments.compare
            else _draw_history(arguments, folder)
        )
    if arguments.json:
        print_json([str(path) for path in written])
    else:
        from qbench.reporting import front_pages

        for path in [
            path for path in written if path.name == "compare.html" and arguments.compare
        ] or front_pages(written, folder):
            put(str(path))
    return ExitCode.FINE


def _draw_comparison(arguments: argparse.Namespace, folder: Path) -> list[Path]:
    """The compare page of the site in ``folder``, with the two runs that were asked for."""
    from qbench.reporting import READ, compare, write_comparison

    old, new = find_runs(arguments.compare, arguments.history, READ)
    newest = () if (history := find_history(arguments.history)) is None else history.heads[-1:]
    first = newest[0].suite if newest else new.suite
    return [write_comparison(compare(old, new, across=arguments.across), folder, first=first)]


def _draw_history(arguments: argparse.Namespace, folder: Path) -> list[Path]:
    from qbench.host import utc_now
    from qbench.reporting import WINDOW, build_reports, recent_runs, write_reports
    from qbench.storage import PREVIEWS

    if arguments.runs is not None and arguments.runs < 1:
        raise InputError(
            "Reading --runs",
            found=str(arguments.runs),
            expected="a whole number from 1",
            remedy="Correct the option.",
        )
    window = arguments.runs or WINDOW
    recent = recent_runs(open_history(arguments.history).store, window, now=utc_now())
    for problem in recent.problems:
        say(problem)
    memory = _memory(arguments, recent.runs)
    kinds = arguments.report or list(KINDS)
    drawn = [kind for kind in kinds if kind != GITHUB]
    if GITHUB in kinds:
        _tell_github(build_reports(recent.runs, window=window, memory=memory))
    if not drawn:
        return []
    around = folder_around(arguments.history)
    previews = folder if (folder / PREVIEWS).is_dir() else around
    return write_reports(
        recent.runs, folder, drawn, window=window, memory=memory, previews=previews
    )


def _memory(arguments: argparse.Namespace, runs: "Sequence[Run]") -> "Memory":
    """What was accepted for the cells of ``runs`` and the annotations of alerts, where the
    files exist.
    """
    from qbench.cli.history_files import equivalents_of
    from qbench.host import first_parents
    from qbench.reporting import read_memory, read_repository

    repository = read_repository(Path())
    notes = annotations_of(arguments)
    same = equivalents_of({run.suite for run in runs}, Path("suites"))
    memory = read_memory(
        runs, Path(arguments.baselines), notes, parents=first_parents("."), equivalents=same
    )
    return replace(memory, repository=repository, meanings=_meanings(runs))


def _meanings(runs: "Sequence[Run]") -> dict[str, str]:
    """One line for each schema and metric of ``runs`` that is known here."""
    from qbench.suite import gather, meanings

    records = [record for run in runs for record in run.cells]
    schemas = {record.schema for record in records}
    tables = {id(record.metrics): record.metrics for record in records}  # nights share most
    metrics = {name for table in tables.values() for name in table}
    return meanings(gather(suites=Path("suites")), schemas, metrics)


def _tell_github(reports: "Sequence[Report]") -> None:
    """Print the annotations, and add the summary to the file that GitHub names, if it names one."""
    from qbench.reporting import add_step_summary, annotations

    files = {r.suite: f"suites/{r.suite}.qbench.toml" for r in reports}
    print_commands(
        annotations(reports, {suite: file for suite, file in files.items() if Path(file).is_file()})
    )
    add_step_summary(reports, os.environ.get("GITHUB_STEP_SUMMARY"))


COMMAND = Command(
    name="report",
    summary="write the report pages from the history, without a run",
    example="qbench report --history reports/history -o reports",
    declare=declare,
    execute=execute,
)
