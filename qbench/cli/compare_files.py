"""``qbench compare``: two runs, cell by cell; like ``diff``, 0 says the same and 1 says something changed."""

import argparse
from typing import TYPE_CHECKING

from qbench.cli.command import Command, ExitCode
from qbench.cli.history_files import declare_history, find_run
from qbench.cli.printing import print_columns, print_json

if TYPE_CHECKING:
    from qbench.tracking import CellChange, MetricChange


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench compare``."""
    parser.add_argument("old", metavar="A", help="the earlier run: a file, an id (its beginning will do), or 'latest'")
    parser.add_argument("new", metavar="B", help="the later run")
    declare_history(parser)
    parser.add_argument("--all", action="store_true", help="list cells that did not change, too")
    parser.add_argument("--json", action="store_true", help="print JSON")


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Print what differs; GATE_FAILED when a comparable cell answers otherwise, or any cell ended otherwise.

    Raises:
        IncomparableError: not one cell can be compared.
    """
    from qbench.tracking import Relation, compare_runs

    old, new = find_run(arguments.old, arguments.history), find_run(arguments.new, arguments.history)
    rows = compare_runs(old, new)
    differs = [row for row in rows if row.relation is Relation.CHANGED or row.outcome_changed]
    if arguments.json:
        print_json({"old": old.id, "new": new.id, "differ": len(differs), "cells": rows})
        return ExitCode.GATE_FAILED if differs else ExitCode.FINE
    shown = [row for row in rows if arguments.all or row.relation is not Relation.SAME or row.outcome_changed]
    print(f"{old.id} → {new.id}: {len(rows)} cells, {len(differs)} differ")
    if shown:
        print_columns([_line(row) for row in shown], ("cell", "relation", "outcome", "numbers"))
    return ExitCode.GATE_FAILED if differs else ExitCode.FINE


def _line(row: "CellChange") -> tuple[str, str, str, str]:
    outcome = " → ".join(dict.fromkeys(filter(None, (row.old_outcome, row.new_outcome))))
    numbers = ", ".join(_numbers(metric) for metric in row.metrics)
    return str(row.cell), row.relation.value, outcome, f"{numbers} ({row.why})" if row.why else numbers


def _numbers(metric: "MetricChange") -> str:
    old, new = ("—" if hits is None else str(hits) for hits in (metric.old, metric.new))
    counts = new if old == new else f"{old} → {new}"
    return f"{metric.metric} {counts} of {metric.out_of}"


COMMAND = Command(
    name="compare",
    summary="compare two runs cell by cell",
    example="qbench compare nightly-old.jsonl latest",
    declare=declare,
    execute=execute,
)
