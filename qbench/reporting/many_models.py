"""A suite of thousands of models: which of them a site and its pictures show, and the part of a
report about one model.

A page or a row takes milliseconds to draw, and thousands of them are more than a reader can use. Up
to ``MOST_MODELS`` all models are shown; of more, those that need attention or have moved, then
others by their names. What was left out is said.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from qbench.judging import Cell
from qbench.number_text import thousands
from qbench.reporting.report import Matrix, Report
from qbench.reporting.trends import StepGroup
from qbench.reporting.view import CellView

MOST_MODELS = 1_000
"""Models of a site: with more, drawing takes minutes and the tables are too large for a browser."""


def most_telling(report: Report, most: int = MOST_MODELS) -> Report:
    """``report`` with the cells of at most ``most`` models, and a notice where it had more."""
    models = report.models
    if len(models) <= most:
        return report
    chosen = _telling_models(report, most)
    matrices = (_only(matrix, chosen) for matrix in report.matrices)
    notice = (
        f"{thousands(most)} of {thousands(len(models))} models are shown, those that need "
        "attention or have moved; 'qbench export latest --format csv' has every cell"
    )
    return replace(
        report,
        cells=tuple(cell for cell in report.cells if cell.key.model in chosen),
        matrices=tuple(matrix for matrix in matrices if matrix.rows),
        costs=report.costs.of(cell.key for cell in report.cells if cell.key.model in chosen),
        powers=tuple(power for power in report.powers if power.model in chosen),
        notices=(notice, *report.notices),
    )


def _telling_models(report: Report, most: int) -> set[str]:
    """At most ``most`` models of ``report``: those that need attention or have moved come first."""
    found = {key.model for key in report.findings}
    weight = Counter({model: 1_000 * (model in found) for model in report.models})
    eventful = report.eventful
    for cell in report.cells:
        weight[cell.key.model] += 100 * cell.is_red + (cell.key in eventful)
    return set(sorted(weight, key=lambda model: (-weight[model], model))[:most])


MOST_ROWS = 4_000
"""Cells of one table: with more, a page is larger than two megabytes."""
MOST_COURSES = 400
"""The courses of the last nights that a page draws: of those that moved, and of the others."""
MOST_KNOWN = 1_500
"""Cells that the page of known, missing and stale ones lists, over all its tables."""
MOST_NAMED = 4_000
"""Unsupported cells that it names."""
MOST_REASONS = 100
"""Reasons for unsupported cells that it gives."""


def known_cells(
    report: Report, outcomes: Sequence[str], most: int = MOST_KNOWN
) -> dict[str, tuple[tuple[CellView, ...], int]]:
    """Outcome → the cells that are listed with it, and how many more have it; with more than
    ``most`` in all, each outcome has the same share of them.
    """
    found: dict[str, list[CellView]] = {outcome: [] for outcome in outcomes}
    for cell in report.cells:
        if cell.record.outcome in found:
            found[cell.record.outcome].append(cell)
    if sum(map(len, found.values())) > most:
        share = most // sum(map(bool, found.values()))
        return {one: (tuple(cells[:share]), len(cells[share:])) for one, cells in found.items()}
    return {outcome: (tuple(cells), 0) for outcome, cells in found.items()}


def unsupported_cells(
    report: Report, most: int = MOST_NAMED
) -> tuple[tuple[str, tuple[Cell, ...], int], ...]:
    """(reason, the cells that are named with it, how many more have it) of the most frequent
    reasons; with more than ``most`` cells in all, each reason has the same share of them.
    """
    reasons = report.unsupported[:MOST_REASONS]
    share = most // max(len(reasons), 1)
    if sum(len(keys) for _, keys in reasons) <= most:
        share = most
    return tuple((reason, keys[:share], len(keys[share:])) for reason, keys in reasons)


def listed_cells(report: Report, most: int = MOST_ROWS) -> tuple[CellView, ...]:
    """At most ``most`` cells of ``report``, in its order: those that need attention or have moved
    come first.
    """
    if len(report.cells) <= most:
        return report.cells
    eventful = report.eventful
    first = sorted(report.cells, key=lambda cell: cell.key not in eventful)[:most]
    chosen = {cell.key for cell in first}
    return tuple(cell for cell in report.cells if cell.key in chosen)


def drawn_matrices(
    report: Report, most: int = MOST_ROWS
) -> tuple[tuple[Matrix, ...], tuple[str, ...]]:
    """The matrices of ``report`` with the models that have at most ``most`` cells together, and
    the models that are left out.
    """
    models = report.models
    if len(report.cells) <= most:
        return report.matrices, ()
    chosen = _telling_models(report, max(1, most * len(models) // len(report.cells)))
    matrices = (_only(matrix, chosen) for matrix in report.matrices)
    return (
        tuple(matrix for matrix in matrices if matrix.rows),
        tuple(model for model in models if model not in chosen),
    )


def _only(matrix: Matrix, models: set[str]) -> Matrix:
    return replace(matrix, rows=tuple(row for row in matrix.rows if row[0] in models))


def by_model(report: Report) -> Iterator[tuple[str, Report]]:
    """Each model with the part of ``report`` that is about it: cells, steps and costs."""
    cells: dict[str, list[CellView]] = {model: [] for model in report.models}
    for cell in report.cells:
        cells[cell.key.model].append(cell)
    steps: dict[str, list[StepGroup]] = {}
    for group in report.step_groups:
        for model in dict.fromkeys(step[0].model for step in group.steps):
            steps.setdefault(model, []).append(group)
    for model, own in cells.items():
        groups = tuple(steps.get(model, ()))
        costs = report.costs.of(cell.key for cell in own)
        kept = replace(report, cells=tuple(own), step_groups=groups, costs=costs)
        yield model, kept
