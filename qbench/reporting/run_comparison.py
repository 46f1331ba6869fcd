"""Two runs compared, for pages and tables."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from qbench.errors import IncomparableError
from qbench.judging import Cell
from qbench.reporting.format import change_text, symbol_of_cell, value_text
from qbench.reporting.histories import views_of
from qbench.reporting.report import Report
from qbench.reporting.view import Cells, CellView, MetricView, RunView, read_run
from qbench.tracking import (
    CellRecord,
    CostChange,
    Relation,
    Run,
    compare_runs,
    cost_changes,
    last_green,
    share_a_class,
)

ORDER = (
    Relation.CHANGED,
    Relation.ONLY_NEW,
    Relation.ONLY_OLD,
    Relation.INCOMPARABLE,
    Relation.SAME,
)
"""Differences first."""


class ComparedMetric(NamedTuple):
    """One metric in words: its name, its values before and now, and its change with its
    direction; empty: not known.
    """

    name: str
    before: str
    now: str
    moved: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCell:
    """One cell: ``old`` and ``new`` are None where a run has no such cell.

    ``why`` is the reason for ``relation``; ``differs``: what was exchanged between the two, such as
    an engine.
    """

    key: Cell
    relation: Relation
    old: CellView | None
    new: CellView | None
    why: str = ""
    differs: tuple[str, ...] = ()

    @property
    def metrics(self) -> tuple[MetricView | None, MetricView | None]:
        """The metric to show, before and now: the lead of the newer side that has one."""
        lead = next((side.lead for side in (self.new, self.old) if side and side.lead), None)
        if lead is None:
            return None, None
        return _named(self.old, lead.name), _named(self.new, lead.name)

    @property
    def moved(self) -> float | None:
        """How far the value moved, a fraction with its sign; None when it may not be compared."""
        return self._moved(*self.metrics)

    @property
    def costs(self) -> tuple[CostChange, ...]:
        """Its times and sizes before and now, where they are judged."""
        old, new = (None if side is None else side.record for side in (self.old, self.new))
        return cost_changes(old, new)

    @property
    def shown(self) -> tuple[ComparedMetric, ...]:
        """The metric to show as words; where it did not change, also every other metric that
        changed.
        """
        lead = self.metrics
        if self.moved:
            return (_words(*lead, self.moved),)
        named = {metric.name: metric for metric in self.old.metrics} if self.old else {}
        both = [
            (named.get(metric.name), metric) for metric in (self.new.metrics if self.new else ())
        ]
        others = [pair for pair in both if pair[1] != lead[1] and self._moved(*pair)]
        return tuple(_words(*pair, self._moved(*pair)) for pair in (lead, *others) if any(pair))

    def _moved(self, old: MetricView | None, new: MetricView | None) -> float | None:
        comparable = self.relation in (Relation.SAME, Relation.CHANGED)
        return new.value - old.value if comparable and old and new else None

    @property
    def is_same(self) -> bool:
        """Whether both runs have the same outcome and the same answers, or neither run measured
        it.
        """
        unmeasured = self.old and self.new and not self.old.metrics and not self.new.metrics
        return not self.turned and (self.relation is Relation.SAME or bool(unmeasured))

    @property
    def turned(self) -> bool:
        """Whether both runs have it with different outcomes."""
        both = {side.record.outcome for side in (self.old, self.new) if side}
        return len(both) > 1 and both != {"accepted", "passed"}


def _named(side: CellView | None, name: str) -> MetricView | None:
    """The metric ``name`` of one side, where it has that."""
    if side is None:
        return None
    return next((metric for metric in side.metrics if metric.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Every cell of two runs, differences first. ``problem``: why no cell can be compared;
    empty where some can.

    ``old_name``: what the older run is to the newer one. ``across``: whether environment classes
        are compared, too.
    """

    old: RunView
    new: RunView
    cells: tuple[ComparedCell, ...] = ()
    problem: str = ""
    old_name: str = "Before"
    across: bool = False

    @property
    def differs(self) -> tuple[tuple[str, int], ...]:
        """(what was exchanged between the two runs, in how many cells), the most frequent first."""
        return tuple(Counter(what for cell in self.cells for what in cell.differs).most_common())

    @property
    def tallies(self) -> tuple[tuple[str, int], ...]:
        """(relation, count), in order."""
        counts = Counter(cell.relation for cell in self.cells)
        return tuple((relation.value, counts[relation]) for relation in ORDER if counts[relation])

    @property
    def news(self) -> tuple[ComparedCell, ...]:
        """The cells that differ in answers or outcome; not those that neither run measured."""
        return tuple(cell for cell in self.cells if not cell.is_same)

    @property
    def same(self) -> tuple[tuple[ComparedCell, ...], ...]:
        """The other cells, grouped by model, backend and outcome."""
        groups: dict[tuple[str, str, str], list[ComparedCell]] = {}
        for cell in self.cells:
            if cell.is_same and cell.new:
                groups.setdefault(
                    (cell.key.model, cell.key.backend, cell.new.record.outcome), []
                ).append(cell)
        return tuple(map(tuple, groups.values()))


def compare(
    old: Run, new: Run, *, across: bool = False, known: Mapping[str, Cells] = MappingProxyType({})
) -> Comparison:
    """Run ``new`` compared with run ``old``; ``across``: also where the environment classes differ.

    Args:
        known: id of a run → the views of its cells, as far as they were made before.

    Raises:
        IncomparableError: not one cell can be compared.
    """
    before, after = _readable(old), _readable(new)
    changes = compare_runs(before, after, across=across)
    olds = views_of(before.cells, known.get(old.id, _NOTHING))
    news = views_of(after.cells, known.get(new.id, olds))
    cells = []
    for change in changes:
        key = change.cell
        cells.append(
            ComparedCell(
                key=key,
                relation=change.relation,
                old=olds.get(key),
                new=news.get(key),
                why=change.why,
                differs=change.differs,
            )
        )
    cells.sort(
        key=lambda cell: (
            ORDER.index(cell.relation),
            not cell.turned,
            -abs(cell.moved or 0.0),
            cell.key,
        )
    )
    return Comparison(old=read_run(old), new=read_run(new), cells=tuple(cells), across=across)


_NOTHING: Cells = MappingProxyType({})


def newest_comparison(
    runs: Sequence[Run], known: Mapping[str, Cells] = MappingProxyType({})
) -> Comparison | None:
    """The newest of ``runs`` (of one suite, oldest → newest) compared with an earlier complete
    one, if there is one.

    A red run is compared with the last green one, so that a fault of several nights does not look
    unchanged; else, or without a green one, it is the last run before it, in the same environment
    class if there is one. Where there is none, classes are compared. ``known``: as of ``compare``.
    """
    before = [run for run in runs[:-1] if run.complete]
    if not before:
        return None
    new = runs[-1]
    green = last_green(reversed(before), new) if any(cell.is_red for cell in new.cells) else None
    alike = next((run for run in reversed(before) if share_a_class(run, new)), before[-1])
    old, name = (alike, "Before") if green is None else (green, "Last green")
    for across in (False, True):
        try:
            return replace(compare(old, new, across=across, known=known), old_name=name)
        except IncomparableError as error:
            problem = str(error)
    return Comparison(old=read_run(old), new=read_run(new), problem=problem, old_name=name)


def _words(old: MetricView | None, new: MetricView | None, moved: float | None) -> ComparedMetric:
    metric = new or old
    assert metric is not None
    return ComparedMetric(
        name=metric.name,
        before=value_text(old) if old else "",
        now=value_text(new) if new else "",
        moved="" if moved is None else _moved_text(metric, moved),
    )


def _moved_text(metric: MetricView, moved: float) -> str:
    """``−1.67 pp worse``; without a direction where nothing moved."""
    text = change_text(metric, moved)
    if not moved:
        return text
    return f"{text} worse" if (moved > 0) is metric.lower_is_better else f"{text} better"


def _readable(run: Run) -> Run:
    """``run`` with only the cells whose names can be read, because cells are compared by name."""
    return replace(run, cells=tuple(filter(_is_named, run.cells)))


def _is_named(record: CellRecord) -> bool:
    try:
        return bool(record.cell)
    except ValueError:
        return False


# The newest runs of a report as data of the compare page, where a reader chooses two of them
# without a network.
#
#     {"runs": [[id, time, commit, machine, complete], …],
#      "words": [text, …],
#      "metrics": [[name, unit, lower], …],
#      "cells": [[model, backend, column, [first run, state, first run, state, …], [state, …]], …]}
#     state = [outcome, red, class, data, predictions, [[metric, text, value], …]]
#
# A state has a number in its cell; -1 is a run without the cell. Outcomes and classes are numbers
# of words, data and predictions numbers of what their digests say. Two runs differ in a cell where
# its predictions or values do, as ``tracking.compare_runs`` finds it. A cell with one state needs
# no values.

CHOICE_BYTES = 40_000
"""The data of more runs than fit are left out, the oldest first."""
_LEAST_LINE = '["a","b","c",[0,0],[[0,0,0,0,0,[]]]]'
"""The shortest line of a cell that the newest run has."""


def run_choice(report: Report) -> str:
    """The runs of ``report`` from which two can be chosen, as JSON; empty where it has fewer
    than two.
    """
    count = len(report.runs)
    if report.past and len(report.past[-1]) * len(_LEAST_LINE) > CHOICE_BYTES:
        return ""  # too many cells, whatever the number of runs
    while count > 1:
        text = json.dumps(_choice(report, count), separators=(",", ":"))
        if len(text) <= CHOICE_BYTES:
            return text
        count = min(count - 1, int(0.9 * count * CHOICE_BYTES / len(text)))
    return ""


def runs_to_choose(report: Report) -> frozenset[str]:
    """The ids of the runs that the compare page holds: the list of runs offers no others."""
    text = run_choice(report)
    return frozenset(run[0] for run in json.loads(text)["runs"]) if text else frozenset()


class _Numbers:
    """The number of each text, metric and digest that the data name."""

    def __init__(self) -> None:
        self.words: dict[str, int] = {}
        self.metrics: dict[tuple[str, str, bool], int] = {}
        self.digests: dict[str, int] = {}

    def state(self, view: CellView) -> list[Any]:
        """What two runs are compared by in one cell, the lead metric first."""
        record = view.record
        values = [
            [
                self.metrics.setdefault(
                    (metric.name, metric.unit, metric.lower_is_better), len(self.metrics)
                ),
                value_text(metric),
                float(f"{metric.value:.12g}"),
            ]
            for metric in sorted(view.metrics, key=lambda metric: metric is not view.lead)
        ]
        texts = (f"{symbol_of_cell(view)} {view.shown_outcome}", record.environment_class)
        outcome, measured_in = (self.words.setdefault(text, len(self.words)) for text in texts)
        digests = (str(record.digests_of(kind)) for kind in ("data", "predictions"))
        data, predictions = (self.digests.setdefault(text, len(self.digests)) for text in digests)
        return [outcome, int(view.is_red), measured_in if values else -1, data, predictions, values]


def _choice(report: Report, count: int) -> dict[str, Any]:
    numbers, past = _Numbers(), report.past[-count:]
    cells = [
        _states(key, past, numbers) for key in sorted({key for cells in past for key in cells})
    ]
    return {
        "runs": [
            [run.id, run.started, run.commit, run.processor, int(run.complete)]
            for run in report.runs[-count:]
        ],
        "words": list(numbers.words),
        "metrics": [[name, unit, int(lower)] for name, unit, lower in numbers.metrics],
        "cells": cells,
    }


def _states(key: Cell, past: Sequence[Cells], numbers: _Numbers) -> list[Any]:
    """The line of one cell: its axes, its state from run to run, and its states."""
    stretches: list[int] = []
    known: dict[str, int] = {}
    states: list[list[Any]] = []
    before: CellView | None = None
    last = -2
    for place, cells in enumerate(past):
        view = cells.get(key)
        if view is None:
            number = -1
        elif view is before:  # lines that are equal are one view
            number = last
        else:
            state = numbers.state(view)
            number = known.setdefault(str(state), len(known))
            states += [state] if number == len(states) else []
        if number != last:
            stretches += [place, number]
        before, last = view, number
    if len(states) == 1:
        states[0][-1] = []
    return [key.model, key.backend, key.column, stretches, states]
