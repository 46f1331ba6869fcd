"""qbench history show."""

import argparse
import fnmatch
import operator
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from qbench.cli.command import ExitCode
from qbench.cli.history_files import Trends, declare_trends, read_trends, released_package
from qbench.cli.options import declare_json
from qbench.cli.printing import print_columns, print_json, put, say
from qbench.errors import unknown_name
from qbench.number_text import change_text, value_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qbench.tracking import Alert, Point, Series


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench history show``."""
    parser.add_argument(
        "cell",
        metavar="CELL",
        help="model::backend+schema[+variant], or a pattern such as 'my_net::*'",
    )
    parser.add_argument("--metric", metavar="M", help="show only this metric")
    parser.add_argument(
        "--class", dest="environment_class", metavar="C", help="show only this environment class"
    )
    declare_trends(parser)
    declare_json(parser)


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Print the series of each cell that is named: metric by metric, class by class, the
    earliest commit first.

    Raises:
        InputError: there is no history, or no such cell, metric or class in it.
    """
    is_pattern = bool(set("*?[") & set(arguments.cell))
    trends = read_trends(arguments, None if is_pattern else arguments.cell)
    for problem in trends.problems:
        say(problem)
    doing = f"Reading the history in '{arguments.history}'"
    series = list(trends.series)
    for kind, wanted, of in (
        ("cell", arguments.cell, lambda one: str(one.cell)),
        ("metric", arguments.metric, lambda one: one.metric),
        ("environment class", arguments.environment_class, lambda one: one.environment_class),
    ):
        known = {of(one) for one in series}
        matches = fnmatch.fnmatchcase if is_pattern and kind == "cell" else operator.eq
        series = [one for one in series if wanted is None or matches(of(one), wanted)]
        if not series:
            raise unknown_name(doing, kind, wanted, known)
    if arguments.json:
        print_json([_facts(one, trends) for one in series])
        return ExitCode.FINE
    for number, one in enumerate(series):
        if number:
            put()
        _print(one, trends)
    return ExitCode.FINE


def _alerts(series: "Series", trends: Trends) -> "tuple[Alert, ...]":
    from qbench.tracking import find_alerts

    return find_alerts(
        [series], commits=trends.commits, accepted=trends.accepted, annotations=trends.annotations
    )


def _facts(series: "Series", trends: Trends) -> dict[str, object]:
    from qbench.storage import plain
    from qbench.tracking import accepted_value

    names = (one.name for one in fields(series) if one.name not in ("points", "changes"))
    facts: dict[str, Any] = {
        "points": plain(tuple(series.points)),
        **{one: plain(getattr(series, one)) for one in names},
    }
    accepted = accepted_value(series, trends.accepted)
    dirty = _dirty_commits(trends)
    for point, shown in zip(series.points, facts["points"], strict=True):
        shown["dirty"] = dirty.get(point.run, "")
        own = accepted_value(series, trends.accepted, point)
        shown["to_accepted"] = None if own is None else point.value - own
    return facts | {
        "steps": list(series.steps),
        "accepted": accepted,
        "alerts": _alerts(series, trends),
    }


def _dirty_commits(trends: Trends) -> "Mapping[str, str]":
    """Run → the commit that was checked out, where files in it were not committed: what it
    measured has no name.
    """
    from qbench.tracking import measured_commit

    return {run.id: run.commit for run in trends.runs if run.commit and not measured_commit(run)}


def _print(series: "Series", trends: Trends) -> None:
    from qbench.tracking import accepted_value

    accepted = accepted_value(series, trends.accepted)
    accepted_words = (
        "nothing accepted in this class"
        if accepted is None
        else f"accepted {valued(series, accepted)}"
    )
    put(f"{series.metric} of {series.cell} on {series.environment_class} ({accepted_words})")
    marks = {alert.run: _words(alert) for alert in reversed(_alerts(series, trends))}
    dirty = _dirty_commits(trends)
    rows = [
        _row(series, index, accepted_value(series, trends.accepted, point), marks, dirty)
        for index, point in enumerate(series.points)
    ]
    print_columns(
        rows,
        (
            "started",
            released_package(trends.runs) or "commit",
            "value",
            "of",
            "to accepted",
            "runs",
            "",
        ),
    )


def _row(
    series: "Series",
    index: int,
    accepted: float | None,
    marks: dict[str, str],
    dirty: "Mapping[str, str]",
) -> tuple[str, ...]:
    """The fields of one point; ``accepted``: what was accepted on its samples, None: nothing."""
    point = series.points[index]
    marked = [marks[point.run]] if point.run in marks else []
    if index in series.breaks:
        marked.insert(0, "other samples from here on")
    elif not marked and index in series.steps:
        direction = "up" if point.value > series.points[index - 1].value else "down"
        marked.append(f"step {direction}")
    return (
        point.started[:16].replace("T", " "),
        _commit(point, dirty),
        valued(series, point.value),
        str(point.out_of),
        "—" if accepted is None else moved(series, point.value - accepted),
        str(point.runs),
        "; ".join(marked),
    )


def _commit(point: "Point", dirty: "Mapping[str, str]") -> str:
    """``1a2b3c4d5``, or ``1a2b3c4d5 dirty`` where files in it were not committed."""
    if point.commit:
        return point.commit[:9]
    return f"{dirty[point.run][:9]} dirty" if point.run in dirty else "—"


def _words(alert: "Alert") -> str:
    return "; ".join(filter(None, (f"{alert.kind.value} ({alert.state.value})", alert.why)))


def valued(series: "Series | Alert", value: float) -> str:
    """A value of ``series`` in its unit: ``98.61 %``, ``35.213 dB``."""
    return value_text(value, series.unit)


def moved(series: "Series | Alert", difference: float) -> str:
    """A difference of values of ``series``, signed: points of a share, else as the values are."""
    return (
        change_text(difference, "%").removesuffix(" pp")
        if series.unit == "%"
        else change_text(difference, "")
    )
