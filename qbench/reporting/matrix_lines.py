"""The matrix for a terminal: for each backend the models down and the schemas across, and what its symbols mean."""

from collections.abc import Iterable, Sequence

from qbench.reporting.line import BOUND, Line, wrapped
from qbench.reporting.report import Matrix, Report
from qbench.reporting.view import CellView, MetricView
from qbench.reporting.words import cell_text, common_lead, counted, shown_as, symbol_of

MATRIX_LINES = 60
"""A longer matrix shows only the models in which something is not green."""


def matrix_lines(report: Report, width: int) -> Iterable[Line]:
    """For each backend the models down and the schemas across: symbol and change in percentage points."""
    long = sum(len(matrix.rows) + 3 for matrix in report.matrices) > MATRIX_LINES
    models = [len(model) for matrix in report.matrices for model, _ in matrix.rows]
    first = min(max(models, default=8), max(12, width // 4))
    for place, matrix in enumerate(report.matrices):
        if place:
            yield Line("")
        yield from _one_matrix(matrix, first, width, long)
    if report.cells:
        yield Line("")
        yield from _legend(report, width)


def _legend(report: Report, width: int) -> Iterable[Line]:
    """What the symbols mean and how often each occurs; which metric each model's changes are of."""
    tallies = (f"{symbol_of(name)} {name} {count}".replace(" ", BOUND) for name, count in report.tallies)
    yield from wrapped("   ".join(tallies), width, "muted", indent=0)
    metrics: dict[tuple[str, str], list[str]] = {}
    for model in report.models:
        lead = common_lead(cell for cell in report.cells if cell.key.model == model)
        if lead:
            metrics.setdefault((shown_as(lead), lead.name), []).append(model)
    for what in dict.fromkeys(what for what, _ in metrics):
        texts = [
            f"{name} ({', '.join(models) if len(models) < 9 else f'{len(models)} models'})"
            for (shown, name), models in metrics.items()
            if shown == what
        ]
        yield from wrapped(f"{what} of {'; '.join(texts)}", width, "muted", indent=0)
    others = {c.lead.name for c in report.cells if c.lead} - {name for _, name in metrics}
    if others:
        yield from wrapped(f"* of {', '.join(sorted(others))}", width, "muted", indent=0)


def _one_matrix(matrix: Matrix, first: int, width: int, long: bool) -> Iterable[Line]:
    rows = [row for row in matrix.rows if not long or any(c and c.outcome != "passed" for c in row[1])]
    prefix = _shared_prefix([column for column in matrix.columns if column != "fp32"])
    heads = [column.removeprefix(prefix) for column in matrix.columns]
    texts = {model: [_entry(cell, common_lead(cells)) for cell in cells] for model, cells in rows}
    sizes = [max([len(head), *(len(texts[model][i]) for model, _ in rows)]) for i, head in enumerate(heads)]
    title = f"{matrix.backend}  {prefix}…" if prefix else matrix.backend
    yield Line(title, "strong")
    for block in _blocks(sizes, width - first):
        yield Line((" " * first + "".join(f"  {heads[i]:{sizes[i]}}" for i in block)).rstrip(), "muted")
        for model, cells in rows:
            name = model if len(model) <= first else "…" + model[len(model) - first + 1 :]
            line = f"{name:{first}}" + "".join(f"  {texts[model][i]:{sizes[i]}}" for i in block)
            yield Line(line.rstrip(), _row_tone([cells[i] for i in block]))
    if len(rows) < len(matrix.rows):
        yield Line(f"{counted(len(matrix.rows) - len(rows), 'model')} more, all passed", "muted")


def _blocks(sizes: Sequence[int], room: int) -> Iterable[list[int]]:
    """Column numbers, as many a block as fit into ``room``; at least one."""
    block: list[int] = []
    left = room
    for column, size in enumerate(sizes):
        if block and left < size + 2:
            yield block
            block, left = [], room
        block.append(column)
        left -= size + 2
    if block:
        yield block


def _shared_prefix(names: Sequence[str]) -> str:
    """What all ``names`` (two or more) begin with, up to and with the last underscore of it."""
    first, last = min(names, default=""), max(names, default="")
    same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), 0)
    return first[: first.rfind("_", 0, same) + 1]


def _entry(cell: CellView | None, lead: MetricView | None) -> str:
    """``cell_text``, with a star when it speaks of another metric than most of its row."""
    other = cell and cell.lead and lead and cell.lead.name != lead.name
    return cell_text(cell) + ("*" if other else "")


def _row_tone(cells: Sequence[CellView | None]) -> str:
    if any(cell.is_red for cell in cells if cell):
        return "bad"
    return "warn" if any(cell.outcome in ("quarantined", "inconclusive") for cell in cells if cell) else "plain"
