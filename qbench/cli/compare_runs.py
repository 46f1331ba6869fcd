"""qbench compare: two runs, cell by cell, also of two engines or computers; or two files of
answers.
"""

import argparse
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.cli.command import Command, ExitCode, count_from_one
from qbench.cli.history_files import RUN_NAMES, declare_history, find_runs
from qbench.cli.options import declare_json
from qbench.cli.printing import print_columns, print_json, put, say
from qbench.errors import InputError
from qbench.lazy import gc_paused
from qbench.number_text import change_text, counted, value_text

if TYPE_CHECKING:
    from qbench.judging import Cell
    from qbench.tracking import CellChange, MetricChange, Pairs, Run

_PRECEDENCE = """

where several exit codes apply, the first in this list is returned:
  2  A or B does not exist or is not a run
  3  no cell is in both runs and comparable
  1  a cell has other answers, another metric or another outcome,
     even if other cells are missing; with --across too
  4  A or B was interrupted, has lines that cannot be read or cells without a
     line, or B lacks or no longer supports cells that A measured, or measured
     one on other samples or in another environment class; all that could be
     compared is equal
  0  both runs are whole, B has all cells of A, and all are equal

files of answers are compared sample by sample (docs/answers.md), with the
same codes: 1 where a sample differs, or with --margin where a loss beyond it
is proven; 4 where samples are in one file alone, or with --margin where the
loss is neither proven nor refuted; 3 where no sample or metric is in both
"""


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench compare``."""
    parser.epilog = f"{parser.epilog or ''}{_PRECEDENCE}"
    parser.add_argument(
        "old", metavar="A", help=f"the earlier run: {RUN_NAMES}; or a file of answers"
    )
    parser.add_argument("new", metavar="B", help="the later run, or a file of answers")
    declare_history(parser)
    parser.add_argument(
        "--across",
        action="store_true",
        help=(
            "also compare cells whose environment classes differ: after an upgrade, or of two "
            "computers"
        ),
    )
    parser.add_argument("--all", action="store_true", help="list unchanged cells too")
    parser.add_argument(
        "--top",
        metavar="N",
        type=count_from_one,
        help="of runs, list only the N cells whose metrics moved furthest, these first",
    )
    parser.add_argument(
        "--metric",
        metavar="M,…",
        action="joined",
        help="of files of answers, the metrics that are compared (default: all of both)",
    )
    parser.add_argument(
        "--margin",
        metavar="X",
        type=_margin,
        help=(
            "of files of answers, the largest loss that passes: a share such as 0.01, else in the "
            "metric's unit"
        ),
    )
    declare_json(parser)


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Print what differs; GATE_FAILED when a comparable cell has other numbers, or any cell
    ended otherwise.

    Else INCOMPLETE when one of the runs is not whole, the new one lacks cells, or cells of both are
    incomparable: these were not compared.

    Raises:
        IncomparableError: not one cell can be compared.
    """
    if _has_answers(arguments.old, arguments.new):
        from qbench.cli import compare_answers

        return compare_answers.execute(arguments)
    if arguments.metric is not None or arguments.margin is not None:
        raise InputError(
            f"Comparing '{arguments.old}' with '{arguments.new}'",
            found="--metric or --margin with runs",
            expected=(
                "them with files of answers alone: cells of runs have their rules in the suite"
            ),
            remedy="Leave them out.",
        )
    with gc_paused():
        return _compare(arguments)


def _has_answers(*names: str) -> bool:
    """Whether one of ``names`` is a file of answers."""
    files = [path for path in map(Path, names) if path.is_file()]
    if not files:  # names of runs, for which nothing is loaded that reads arrays
        return False
    from qbench.metrics import is_answer_file

    return any(map(is_answer_file, files))


def _compare(arguments: argparse.Namespace) -> ExitCode:
    """Two runs, as ``execute`` says."""
    from qbench.tracking import COMPARED_KEYS, Relation, compare_runs

    old, new = find_runs((arguments.old, arguments.new), arguments.history, COMPARED_KEYS)
    if old.id == new.id and arguments.old != arguments.new:
        say(f"'{arguments.old}' and '{arguments.new}' are one run, {old.id}")
    partial = list(dict.fromkeys(sentence for run in (old, new) for sentence in _missing(run)))
    for sentence in partial:
        say(sentence)
    every = arguments.all or arguments.json
    rows = compare_runs(old, new, across=arguments.across, with_repeated=every)
    lost = _lost(rows, old, is_named=any(_missing(new)))
    for sentence in lost:
        say(sentence)
    partial += lost
    for sentence in (apart := _apart(rows, old, new)):
        say(sentence)
    partial += apart
    differs = [row for row in rows if row.relation is Relation.CHANGED or row.outcome_changed]
    code = ExitCode.FINE
    if differs:
        code = ExitCode.GATE_FAILED
    elif partial:
        code = ExitCode.INCOMPLETE
    if arguments.json:
        facts = {
            "old": old.id,
            "new": new.id,
            "across": arguments.across,
            "exchanged": dict(_exchanged(rows)),
        }
        print_json(
            {
                **facts,
                "differ": len(differs),
                "incomplete": partial,
                "cells": [_facts(row) for row in _listed(rows, arguments.top)],
            }
        )
        return code
    shown = [
        row
        for row in rows
        if arguments.all
        or row.relation is not Relation.SAME
        or row.outcome_changed
        or any(cost.is_changed for cost in row.costs)
    ]
    listed = _listed(shown, arguments.top)
    cells = {record.cell for run in (old, new) for record in run.cells}
    put(f"{old.id} → {new.id}: {len(cells)} cells, {len(differs)} differ")
    _print_exchanged(old, new, rows)
    if listed:
        print_columns(
            [_line(row, across=arguments.across) for row in listed],
            ("cell", "relation", "outcome", "numbers"),
        )
    if len(listed) < len(shown):
        put(f"{counted(len(shown) - len(listed), 'cell')} more left out (--top)")
    if arguments.across and any(
        not metric.pairs or not metric.pairs.is_exact for row in listed for metric in row.moved
    ):
        put(_RANGES)
    return code


def _listed(rows: "Sequence[CellChange]", top: int | None) -> "Sequence[CellChange]":
    """``rows``, or the ``top`` of them whose metrics moved furthest, these first; of equals those
    with another outcome, then in the order of ``rows``.
    """
    if top is None:
        return rows
    order = sorted(rows, key=lambda row: (-row.largest_move, not row.outcome_changed))
    return order[:top]


def _print_exchanged(old: "Run", new: "Run", rows: "Sequence[CellChange]") -> None:
    """What differs between two runs besides the results."""
    if changed := _between(old, new, rows):
        put(f"changed between these runs: {'; '.join(changed)}")
    classes = {row.other_class for row in rows}
    for what, count in _exchanged(rows):
        if what in classes:
            put(f"across environment classes: {what} in {counted(count, 'cell')}")
    for sentence in dict.fromkeys(_moved_model(row) for row in rows if row.has_another_model):
        put(sentence)


def _margin(text: str) -> float:
    """A loss that passes.

    Raises:
        ArgumentTypeError: it is not a number from 0.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"found '{text}'; expected a number from 0, such as 0.01")
    return value


_RANGES = (
    "lost, gained and p are ranges where the samples on which the two runs differ are not known: a "
    "run file counts losses and gains against fp32, without labels"
)


def _exchanged(rows: "Sequence[CellChange]") -> list[tuple[str, int]]:
    """What differs between the runs besides the results, each with the number of its cells; the
    most frequent first.
    """
    return Counter(what for row in rows for what in row.differs).most_common()


def _between(old: "Run", new: "Run", rows: "Sequence[CellChange]") -> list[str]:
    """What was exchanged between two runs, the most frequent first, and the commits."""
    words = [f"{what} ({counted(count, 'cell')})" for what, count in _exchanged(rows)]
    if words and old.commit and new.commit and old.commit != new.commit:
        words.append(f"commit {old.commit[:9]} → {new.commit[:9]}")
    return words


def _facts(row: "CellChange") -> dict[str, Any]:
    """``row`` in plain values, with what follows from its pairs."""
    from qbench.storage import plain

    facts: dict[str, Any] = plain(row)
    for metric, table in zip(row.metrics, facts["metrics"], strict=True):
        if metric.pairs is not None:
            table["pairs"] |= {
                "midp": list(metric.pairs.midp),
                "interval": list(metric.pairs.interval),
            }
    return facts


def _moved_model(row: "CellChange") -> str:
    """``m is another model: fp32 top1 392 → 390 of 400``."""
    moves = [
        f"fp32 {metric.metric} {_both(*_counts(metric, metric.references))}"
        for metric in row.metrics
        if metric.references is not None
    ]
    return (
        f"{row.cell.model} is another model in the new run: "
        f"{', '.join(moves) or 'nothing is measured by labels'}"
    )


def _missing(run: "Run") -> Iterator[str]:
    """Why ``run`` may lack cells."""
    from qbench.tracking import incomplete_words

    for words in incomplete_words(run, f"the run {run.id}"):
        yield f"{words}: the cells that it did not measure are not compared"


def _lost(rows: "Sequence[CellChange]", old: "Run", *, is_named: bool) -> list[str]:
    """The cells that the old run measured and the new one does not have, or does not support
    any more.

    ``is_named``: whether it is already said that the new run lacks cells.
    """
    from qbench.tracking import Relation

    had = _measured(old)
    gone = [row for row in rows if row.relation is Relation.ONLY_OLD and not is_named]
    unsupported = [row for row in rows if row.new_outcome == "unsupported" and row.cell in had]
    sentences = []
    for lost, words in ((gone, "only in"), (unsupported, "unsupported now, measured in")):
        if lost:
            verb = "is" if len(lost) == 1 else "are"
            sentences.append(
                f"{counted(len(lost), 'cell')} {verb} {words} the old run ({old.id}): "
                f"{_named(lost)}"
            )
    return sentences


def _apart(rows: "Sequence[CellChange]", old: "Run", new: "Run") -> list[str]:
    """The cells that both runs measured and that cannot be compared, one sentence for each
    reason.
    """
    from qbench.tracking import Relation

    both = _measured(old) & _measured(new)
    reasons: dict[str, list[CellChange]] = {}
    for row in rows:
        if row.relation is Relation.INCOMPARABLE and row.cell in both:
            reasons.setdefault(row.why, []).append(row)
    return [
        f"{counted(len(apart), 'cell')} of both runs not compared ({why}): {_named(apart)}"
        for why, apart in reasons.items()
    ]


def _measured(run: "Run") -> set["Cell"]:
    return {record.cell for record in run.cells if record.is_measured}


def _named(rows: "Sequence[CellChange]") -> str:
    more = f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
    return ", ".join(str(row.cell) for row in rows[:_NAMED]) + more


_NAMED = 3
"""Cells that a sentence names; the table lists all."""


def _line(row: "CellChange", *, across: bool) -> tuple[str, str, str, str]:
    outcome = " → ".join(dict.fromkeys(filter(None, (row.old_outcome, row.new_outcome))))
    parts = [_numbers(metric, with_pairs=across) for metric in row.metrics]
    if across:
        parts += [
            f"{_span(*flips)} answers on {data} differ"
            for data, flips in row.flips.items()
            if flips[1]
        ]
    parts += [cost.text for cost in row.costs]
    numbers = ", ".join(parts)
    return (
        str(row.cell),
        row.relation.value,
        outcome,
        f"{numbers} ({row.why})" if row.why else numbers,
    )


def _span(least: float, most: float, digits: str = "d") -> str:
    """``3``, or ``2 to 7``."""
    return " to ".join(dict.fromkeys(f"{one:{digits}}" for one in (least, most)))


def _paired(pairs: "Pairs") -> str:
    """``2 to 7 lost, 0 to 5 gained, p 0.5 to 0.77``; where samples share sources also how many
    of how many.
    """
    lost, gained = _span(*pairs.losses), _span(*pairs.gains)
    text = f"{lost} lost, {gained} gained, p {_span(*pairs.midp, digits='.2g')}"
    return (
        text
        if pairs.sources is None
        else f"{text}, {pairs.n} samples from {counted(pairs.sources, 'source')}"
    )


def _sides(metric: "MetricChange") -> tuple[str, str, str]:
    """(the old value, the new one, what they are counted in)."""
    if any(mean is not None for mean in metric.means):
        old, new = ("—" if one is None else value_text(one, metric.unit) for one in metric.values)
        return old, new, "(mean of runs)"
    if metric.unit == "%" and not metric.is_distance:
        return _counts(metric, (metric.old, metric.new))
    whole = 100 if metric.unit == "%" else 1
    old, new = ("—" if one is None else f"{whole * one:.6g}" for one in metric.values)
    return old, new, metric.unit


def _counts(metric: "MetricChange", hits: tuple[int | None, int | None]) -> tuple[str, str, str]:
    """The old hits, the new ones, and of how many; each side with its own number where they
    differ.
    """
    old, new = ("—" if one is None else str(one) for one in hits)
    if metric.old_out_of == metric.out_of:
        return old, new, f"of {metric.out_of}"
    return f"{old} of {metric.old_out_of}", f"{new} of {metric.out_of}", ""


def _both(old: str, new: str, unit: str) -> str:
    """``356 → 350 of 360``; once what is equal."""
    return f"{' → '.join(dict.fromkeys((old, new)))} {unit}".rstrip()


def _numbers(metric: "MetricChange", *, with_pairs: bool = False) -> str:
    """``top1 356 → 350 of 360 (−1.67 pp, worse)`` or ``sqnr 35.2 → 33.1 dB (−2.1 dB, worse)``."""
    values = f"{metric.metric} {_both(*_sides(metric))}"
    if not metric.moved:
        return values
    facts = [
        change_text(metric.moved, metric.unit, digits=3),
        "worse" if metric.is_worse else "better",
    ]
    if with_pairs and metric.pairs is not None:
        facts.append(_paired(metric.pairs))
    return f"{values} ({', '.join(facts)})"


COMMAND = Command(
    name="compare",
    summary="compare two runs cell by cell",
    example="qbench compare last-green latest",
    declare=declare,
    execute=execute,
)
