"""qbench history check."""

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from qbench.cli.command import ExitCode
from qbench.cli.history_files import Trends, declare_trends, read_trends, released_package
from qbench.cli.options import declare_json
from qbench.cli.printing import print_columns, print_json, put, say
from qbench.cli.show_history import moved, valued
from qbench.number_text import counted

if TYPE_CHECKING:
    from qbench.judging import Cell
    from qbench.tracking import Alert, Annotation, CellRecord, Regression, Standing

_CELLS = 8
"""Rows shown of one regression; ``--all`` shows the rest."""


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench history check``."""
    declare_trends(parser)
    parser.add_argument(
        "--all",
        action="store_true",
        help="also list known, provisional and fixed regressions, and all rows",
    )
    declare_json(parser)


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Print regressions and red cells; GATE_FAILED when one is new, INCOMPLETE when the history
    is not whole.

    Raises:
        InputError: there is no history, or the annotations have a mistake.
    """
    from qbench.tracking import find_alerts, group_alerts

    trends = read_trends(arguments)
    alerts = find_alerts(
        trends.series,
        commits=trends.commits,
        accepted=trends.accepted,
        annotations=trends.annotations,
    )
    regressions = sorted(group_alerts(alerts, trends.commits), key=_rank)
    red = [(one, _without_ruled(one, alerts)) for one in trends.newest]
    incomplete = list(_incomplete(trends))
    idle = _idle(trends.annotations, alerts)
    new = [one for one in regressions if one.is_new]
    if arguments.json:
        facts = {"runs": len(trends.runs), "series": len(trends.series), "new": len(new)}
        words = {
            "incomplete": incomplete,
            "idle_annotations": idle,
            "red": [_red_facts(*one) for one in red],
        }
        print_json(
            {
                **facts,
                **words,
                "regressions": [_facts(one, arguments.project) for one in regressions],
            }
        )
    else:
        _print(regressions, trends, arguments)
        for standing, records in red:
            _print_red(standing, records, arguments)
    for sentence in incomplete:
        say(sentence)
    for note in idle:
        say(
            f"the annotation of {note.commit} for '{note.cell}' ({note.author}) fits no alert: "
            "remove or correct it"
        )
    if new or any(records for _, records in red):
        return ExitCode.GATE_FAILED
    return ExitCode.INCOMPLETE if incomplete else ExitCode.FINE


def _rank(one: "Regression") -> tuple[bool, bool]:
    """The order: alerts that are still open first, those that have ended last."""
    return not one.is_new, one.alerts[0].state.value in ("fixed", "accepted")


def _incomplete(trends: Trends) -> Iterator[str]:
    """Why what is not there might be missed."""
    from qbench.tracking import lacking_shares

    yield from trends.problems
    if not trends.runs:
        yield "the history has no runs"
    for run in {run.suite: run for run in trends.runs}.values():
        if lacking := lacking_shares(run.header):
            yield (
                f"the last run of '{run.suite}' ({run.id}) lacks {_parts(lacking)}: the cells of "
                "these are not checked"
            )
    for one in trends.newest:
        yield from _lacks(one)


def _parts(lacking: "Sequence[str]") -> str:
    """The parts of a night, the first by name: ``shares 1/3, 2/3``, ``job 17 of 50``."""
    kind = "shares " if len(lacking) > 1 else "share "
    if lacking[0].startswith("job"):
        kind = ""
    more = f" and {len(lacking) - _NAMED} more" if len(lacking) > _NAMED else ""
    return kind + ", ".join(lacking[:_NAMED]) + more


_NAMED = 10


def _lacks(one: "Standing") -> Iterator[str]:
    """What the newest run of a suite lacks, and the cells that the suite lost."""
    from qbench.tracking import incomplete_words, is_of_all

    last, whole = f"the last run of '{one.suite}' ({one.newest.id})", one.run
    for words in incomplete_words(one.newest, last):
        yield f"{words}: the cells that it did not measure are not checked"
    if whole.id != one.newest.id and is_of_all(whole):
        for words in incomplete_words(whole, f"the last run of all of '{one.suite}' ({whole.id})"):
            yield f"{words}: the cells that it did not measure are not checked"
    if one.newest.cells and all(record.outcome == "unsupported" for record in one.newest.cells):
        yield (
            f"{last} supports none of its {counted(len(one.newest.cells), 'cell')}: nothing was "
            "measured"
        )
    for cells, why in (
        (one.lost.gone, "measured or accepted before, and not in it any more"),
        (one.lost.unsupported, "measured or accepted before, and unsupported now"),
    ):
        if cells:
            yield (
                f"{counted(len(cells), 'cell')} of '{one.suite}' {_verb(cells)} {why}: "
                f"{_named(cells)}"
            )


def _verb(cells: "Sequence[Cell]") -> str:
    return "was" if len(cells) == 1 else "were"


def _named(cells: "Sequence[Cell]") -> str:
    """The first of ``cells``, and how many more."""
    more = f" and {len(cells) - _CELLS} more" if len(cells) > _CELLS else ""
    return ", ".join(map(str, cells[:_CELLS])) + more


def _without_ruled(one: "Standing", alerts: "Sequence[Alert]") -> "tuple[CellRecord, ...]":
    """The red cells of ``one`` but those of which every alert that has not ended was ruled on
    by a person.
    """
    rulings = {"acknowledged", "expected", "invalid"}
    states: dict[Cell, set[str]] = {}
    for alert in alerts:
        if alert.state.value not in ("fixed", "accepted"):
            states.setdefault(alert.cell, set()).add(alert.state.value)
    return tuple(
        record for record in one.red if not (states.get(record.cell) or {"none"}) <= rulings
    )


def _red_facts(one: "Standing", records: "Sequence[CellRecord]") -> dict[str, object]:
    cells = [
        {"cell": str(record.cell), "outcome": record.outcome, "headline": record.headline}
        for record in records
    ]
    lost = {
        "gone": list(map(str, one.lost.gone)),
        "unsupported": list(map(str, one.lost.unsupported)),
    }
    return {"suite": one.suite, "run": one.run.id, "cells": cells, **lost}


def _print_red(
    one: "Standing", records: "Sequence[CellRecord]", arguments: argparse.Namespace
) -> None:
    """The red cells of the newest run, each with its outcome and cause."""
    if not records:
        return
    put()
    put(f"{counted(len(records), 'cell')} of '{one.suite}' {_is(records)} red in {one.run.id}")
    shown = records if arguments.all else records[:_CELLS]
    print_columns([(f"  {record.cell}", record.outcome, record.headline) for record in shown])
    if len(shown) < len(records):
        put(f"  and {len(records) - len(shown)} more (--all)")


def _is(records: "Sequence[CellRecord]") -> str:
    return "is" if len(records) == 1 else "are"


def _idle(annotations: "Sequence[Annotation]", alerts: "Sequence[Alert]") -> "list[Annotation]":
    """The annotations that no alert is about."""
    return [
        note
        for note in annotations
        if not any(
            note.covers(alert.cell, alert.metric)
            and (
                alert.annotation == note.commit
                or any(one.startswith(note.commit) for one in alert.stretch)
            )
            for alert in alerts
        )
    ]


def _print(
    regressions: "Sequence[Regression]", trends: Trends, arguments: argparse.Namespace
) -> None:
    new = [one for one in regressions if one.is_new]
    known = Counter(one.alerts[0].state.value for one in regressions if not one.is_new)
    others = ", ".join(f"{count} {state}" for state, count in sorted(known.items()))
    checked = f"{counted(len(trends.series), 'trend')} over {counted(len(trends.runs), 'run')}"
    found = counted(len(new), "new regression") if new else "no new regression"
    put(f"{found} in {checked}" + (f"; and {others}" if others else ""))
    for one in regressions:
        if one.is_new or arguments.all:
            put()
            _print_one(one, trends, arguments)
    if new:
        put()
        put(
            "Fix it, bisect it, accept the new results, or classify it in "
            f"{trends.annotations_path}."
        )


def _print_one(one: "Regression", trends: Trends, arguments: argparse.Namespace) -> None:
    put(_headline(one, arguments.project, released_package(trends.runs)))
    shown = one.alerts if arguments.all else one.alerts[:_CELLS]
    print_columns([_row(alert) for alert in shown])
    if len(shown) < len(one.alerts):
        put(f"  and {len(one.alerts) - len(shown)} more (--all)")


def _headline(one: "Regression", project: str, package: str) -> str:
    """What is found and where; ``package``: that whose releases the commits are, empty where
    they are commits.
    """
    from qbench.host import subject_line

    worst = one.alerts[0]
    cells = counted(len({alert.cell for alert in one.alerts}), "cell")
    state = worst.state.value
    if one.kind.value == "slide":
        since = f"{package or 'commit'} {worst.commit[:9]}" if worst.commit else f"run {worst.run}"
        than = "before" if worst.own_past else "what was accepted"
        return f"slide, {state}: {worst.cell} is worse than {than} since {since}, by no one step"
    if one.suspects and package:
        return (
            f"step, {state}: {cells} at {package} "
            f"{' … '.join(dict.fromkeys((one.suspects[0], one.suspects[-1])))}"
        )
    if len(one.suspects) == 1:
        subject = subject_line(one.suspects[0], project)
        quoted = f" “{subject}”" if subject else ""
        return f"step, {state}: {cells} at {one.suspects[0][:9]}{quoted}"
    if one.suspects:
        between = f"{one.suspects[0][:9]} … {one.suspects[-1][:9]}"
        return f"step, {state}: {cells} at one of {len(one.suspects)} commits, {between}"
    return f"step, {state}: {cells} at run {worst.run}, of no known commit"


def _row(alert: "Alert") -> tuple[str, ...]:
    levels = f"{valued(alert, alert.before)} → {valued(alert, alert.after)}"
    where = alert.environment_class + (f" ({alert.why})" if alert.why else "")
    return (
        "  " + str(alert.cell),
        alert.metric,
        levels,
        moved(alert, alert.after - alert.before),
        where,
    )


def _facts(one: "Regression", project: str) -> dict[str, object]:
    from qbench.host import subject_line

    subject = subject_line(one.suspects[0], project) if len(one.suspects) == 1 else ""
    return {
        "kind": one.kind,
        "new": one.is_new,
        "suspects": one.suspects,
        "subject": subject,
        "alerts": one.alerts,
    }
