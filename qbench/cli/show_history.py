"""``qbench history show``: the values of one cell over all runs, with the steps in them."""

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from qbench.cli.command import Command, ExitCode
from qbench.cli.history_files import declare_history, open_history
from qbench.cli.printing import print_columns, print_json, say
from qbench.errors import unknown_name

if TYPE_CHECKING:
    from qbench.tracking import Series


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench history``."""
    parser.add_argument("action", choices=("show",), help="show: one line a run and metric")
    parser.add_argument("cell", metavar="CELL", help="model::backend+schema[+variant]")
    declare_history(parser)
    parser.add_argument("--suite", help="of this suite only")
    parser.add_argument("--json", action="store_true", help="print JSON")


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Print the series of one cell, the earliest run first.

    Raises:
        InputError: there is no history, or no such cell in it.
    """
    from qbench.tracking import trend_series

    history = open_history(arguments.history)
    for problem in history.problems:
        say(problem)
    every = trend_series(history.runs(arguments.suite))
    series = [one for one in every if str(one.cell) == arguments.cell]
    if not series:
        known = {str(one.cell) for one in every}
        raise unknown_name(f"Reading the history in '{arguments.history}'", "cell", arguments.cell, known)
    if arguments.json:
        print_json(series)
    else:
        header = ("started", "commit", "metric", "class", "value", "")
        print_columns([row for one in series for row in _rows(one)], header)
    return ExitCode.FINE


def _rows(series: "Series") -> Iterator[tuple[str, ...]]:
    for index, point in enumerate(series.points):
        mark = "other samples" if index in series.breaks else "step" if index in series.steps else ""
        value = f"{100 * point.value:.2f} % of {point.out_of}"
        yield point.started, point.commit[:9], series.metric, series.environment_class, value, mark


COMMAND = Command(
    name="history",
    summary="show the values of one cell over all runs",
    example="qbench history show mobilenet_v2::ort-cpu+w8a8_asym_pc",
    declare=declare,
    execute=execute,
)
