"""qbench compare: two runs, cell by cell."""

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from qbench.cli.command import Command, ExitCode
from qbench.cli.history_files import declare_history, find_run
from qbench.cli.options import declare_json
from qbench.cli.printing import print_columns, print_json, put, say
from qbench.number_text import change_text, counted

if TYPE_CHECKING:
    from qbench.tracking import CellChange, MetricChange, Run

_PRECEDENCE = """

where several exit codes apply, the first in this list is returned:
  2  A or B does not exist or is not a run
  3  no cell is in both runs and comparable
  1  a cell has other answers, another metric or another outcome,
     even if other cells are missing
  4  A or B was interrupted, or has lines that cannot be read;
     all that could be compared is equal
  0  both runs are complete, and all that could be compared is equal
"""


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench compare``."""
    parser.epilog = f"{parser.epilog or ''}{_PRECEDENCE}"
    parser.add_argument("old", metavar="A", help="the earlier run: a file, an id or its beginning, or 'latest'")
    parser.add_argument("new", metavar="B", help="the later run")
    declare_history(parser)
    parser.add_argument("--all", action="store_true", help="list unchanged cells too")
    declare_json(parser)


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Print what differs; GATE_FAILED when a comparable cell has other numbers, or any cell ended otherwise.

    Else INCOMPLETE when one of the runs is not whole: what is missing in it was not compared.

    Raises:
        IncomparableError: not one cell can be compared.
    """
    from qbench.tracking import COMPARED_KEYS, Relation, compare_runs

    old, new = (find_run(text, arguments.history, COMPARED_KEYS) for text in (arguments.old, arguments.new))
    partial = list(dict.fromkeys(sentence for run in (old, new) for sentence in _missing(run)))
    for sentence in partial:
        say(sentence)
    rows = compare_runs(old, new)
    differs = [row for row in rows if row.relation is Relation.CHANGED or row.outcome_changed]
    code = ExitCode.GATE_FAILED if differs else ExitCode.INCOMPLETE if partial else ExitCode.FINE
    if arguments.json:
        print_json({"old": old.id, "new": new.id, "differ": len(differs), "incomplete": partial, "cells": rows})
        return code
    shown = [row for row in rows if arguments.all or row.relation is not Relation.SAME or row.outcome_changed]
    put(f"{old.id} → {new.id}: {len(rows)} cells, {len(differs)} differ")
    if shown:
        print_columns([_line(row) for row in shown], ("cell", "relation", "outcome", "numbers"))
    return code


def _missing(run: "Run") -> Iterator[str]:
    """Why ``run`` may lack cells."""
    if not run.complete:
        yield f"the run {run.id} was interrupted: the cells that it did not measure are not compared"
    if run.damaged:
        yield f"{counted(run.damaged, 'line')} of the run {run.id} cannot be read: their cells are not compared"


def _line(row: "CellChange") -> tuple[str, str, str, str]:
    outcome = " → ".join(dict.fromkeys(filter(None, (row.old_outcome, row.new_outcome))))
    numbers = ", ".join(_numbers(metric) for metric in row.metrics)
    return str(row.cell), row.relation.value, outcome, f"{numbers} ({row.why})" if row.why else numbers


def _numbers(metric: "MetricChange") -> str:
    """``top1 356 → 350 of 360 (−1.67 pp, worse)`` or ``sqnr 35.2 → 33.1 dB (−2.1 dB, worse)``."""
    if metric.unit == "%" and not metric.is_distance:
        old, new = ("—" if hits is None else str(hits) for hits in (metric.old, metric.new))
        unit = f"of {metric.out_of}"
    else:
        scale = (100 if metric.unit == "%" else 1) / metric.out_of
        old, new = ("—" if hits is None else f"{scale * hits:.6g}" for hits in (metric.old, metric.new))
        unit = metric.unit
    values = f"{metric.metric} {new if old == new else f'{old} → {new}'} {unit}".rstrip()
    if not metric.moved:
        return values
    return f"{values} ({change_text(metric.moved, metric.unit, digits=3)}, {'worse' if metric.is_worse else 'better'})"


COMMAND = Command(
    name="compare",
    summary="compare two runs cell by cell",
    example="qbench compare nightly-old.jsonl latest",
    declare=declare,
    execute=execute,
)
