"""The report as lines for a terminal: what is red, why, since when, what to type next, then the whole matrix.

Lines carry a tone (a word, no colour); the doors turn tones into colours, or leave them away. A summary never
raises: it comes after hours of measuring.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from qbench.reporting.assembly import build_report
<<<<<<< HEAD
from qbench.reporting.line import COMMAND, Line, wrapped
from qbench.reporting.matrix_lines import matrix_lines
from qbench.reporting.red_lines import red_lines
from qbench.reporting.report import Report
from qbench.reporting.words import counted, symbol_of
=======
from qbench.reporting.report import Cause, Matrix, Report
from qbench.reporting.view import CellView, MetricView
from qbench.reporting.words import (
    cell_text,
    common_lead,
    counted,
    course_text,
    is_distance,
    margin_text,
    red_age,
    shown_as,
    symbol_of,
)
>>>>>>> origin/main
from qbench.tracking import Run

if TYPE_CHECKING:
    from rich.text import Text

ASCII = str.maketrans(
    {
        "✓": "+",
        "⊕": "a",
        "◇": "q",
        "≈": "i",
        "–": "-",
        "✗": "X",
        "≠": "#",
        "↻": "s",
        "◆": "e",
        "·": ".",
        "−": "-",
        "→": ">",
        "…": "~",
        "×": "x",
    }
)
"""Every symbol as one letter, for terminals that have no others."""

PYTEST_MARKUP: Mapping[str, Mapping[str, bool]] = {
    "bad": {"red": True, "bold": True},
    "good": {"green": True},
    "warn": {"yellow": True},
    "strong": {"bold": True},
    "command": {"bold": True},
    "muted": {"light": True},
    "plain": {},
}
"""Tone → keyword arguments of pytest's ``TerminalReporter.write_line``."""

RICH_STYLES = {
    "bad": "bold red",
    "good": "green",
    "warn": "yellow",
    "strong": "bold",
    "command": "bold",
    "muted": "dim",
    "plain": "",
}
"""Tone → style of rich."""


_TONES = {"red": "bad", "incomplete": "warn", "empty": "warn", "green": "good"}


def styled_lines(source: Report | Run | Sequence[Run], width: int = 80, *, unicode: bool = True) -> list[Line]:
    """The summary of a report, of one run, or of a history (oldest → newest), with tones. Never raises.

    Args:
        width: columns; less than 40 counts as 40. unicode: False writes every symbol as an ASCII letter.
    """
    try:
        report = source if isinstance(source, Report) else build_report([source] if isinstance(source, Run) else source)
        lines = list(_lines(report, max(width, 40)))
    except Exception as error:  # a summary that fails must not hide the results it sums up
        lines = [Line(f"qbench: the summary could not be drawn ({type(error).__name__}: {error})", "warn")]
    if unicode:
        return lines
    return [Line(line.text.translate(ASCII).encode("ascii", "replace").decode(), line.tone) for line in lines]


def summary_lines(source: Report | Run | Sequence[Run], width: int = 80, *, unicode: bool = True) -> list[str]:
    """``styled_lines`` without tones."""
    return [line.text for line in styled_lines(source, width, unicode=unicode)]


def summary_text(source: Report | Run | Sequence[Run], width: int = 80, *, unicode: bool = True) -> "Text":
    """``styled_lines`` as one text for a rich console."""
    from rich.text import Text

    lines = styled_lines(source, width, unicode=unicode)
    return Text("\n").join(Text(line.text, style=RICH_STYLES[line.tone]) for line in lines)


def _lines(report: Report, width: int) -> Iterable[Line]:
    matrices = list(matrix_lines(report, width))
    for line in (*matrices, *red_lines(report, width), *_closing(report, width)):
        fits = len(line.text) <= width or line.tone == COMMAND  # a command is there to be copied: the terminal wraps it
        yield line if fits else Line(line.text[: width - 1] + "…", line.tone)


<<<<<<< HEAD
=======
def _causes(report: Report, width: int) -> Iterable[Line]:
    for cause in report.causes:
        yield Line("")
        yield Line(f"{symbol_of(cause.cells[0].outcome)} {cause.title} ({counted(len(cause.cells), 'cell')})", "bad")
        yield from _cause_cells(cause, width)
        rules = list(dict.fromkeys(cell.rule for cell in cause.cells if cell.rule))
        if rules:
            more = f"; and {len(rules) - 1} more" if len(rules) > 1 else ""
            yield from _wrapped(f"rule: {rules[0]}{more}", width, "muted")
        for remedy in cause.remedies[:2]:
            yield Line(f"  next: {remedy}", COMMAND)
        if len(cause.remedies) > 2:
            yield Line(f"  and {len(cause.remedies) - 2} more like these, one a cell", "muted")


def _cause_cells(cause: Cause, width: int) -> Iterable[Line]:
    """One line a cell where it fits (name, now, fp32, change, margin, age), else two."""
    shown = cause.cells[:CELLS_SHOWN]
    names = [cell.key.name for cell in shown]
    pad = max(map(len, names))
    for cell, name in zip(shown, names, strict=True):
        facts = _facts(cell)
        if cell.lead is None:
            yield Line(f"  {name}")
            yield from _wrapped(cell.headline, width, "plain", indent=6)
        elif 2 + pad + 2 + len(facts) <= width:
            yield Line(f"  {name:{pad}}  {facts}")
        else:
            yield Line(f"  {name}")
            yield from _wrapped(facts, width, "plain", indent=6)
    if len(cause.cells) > len(shown):
        yield Line(f"  and {counted(len(cause.cells) - len(shown), 'cell')} more", "muted")


def _facts(cell: CellView) -> str:
    if cell.lead is None:
        return cell.headline
    if cell.is_unequal and cell.equality is not None:
        return ", ".join(filter(None, [cell.equality.detail, red_age(cell)]))
    lead = cell.lead
    parts = [
        course_text(lead),
        margin_text(lead),
        f"{lead.losses} losses, {lead.gains} gains" if (lead.losses or lead.gains) and not is_distance(lead) else "",
        red_age(cell),
    ]
    return ", ".join(part for part in parts if part)


def _wrapped(text: str, width: int, tone: str, indent: int = 2) -> Iterable[Line]:
    """``text`` over as many lines as it needs; words longer than a line are left whole."""
    import textwrap

    first, rest = " " * indent, " " * (indent + 6 if text.startswith("rule: ") else indent)
    for line in textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    ):
        yield Line(line.replace(_BOUND, " "), tone)


def _matrix_lines(report: Report, width: int) -> Iterable[Line]:
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
    tallies = (f"{symbol_of(name)} {name} {count}".replace(" ", _BOUND) for name, count in report.tallies)
    yield from _wrapped("   ".join(tallies), width, "muted", indent=0)
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
        yield from _wrapped(f"{what} of {'; '.join(texts)}", width, "muted", indent=0)
    others = {c.lead.name for c in report.cells if c.lead} - {name for _, name in metrics}
    if others:
        yield from _wrapped(f"* of {', '.join(sorted(others))}", width, "muted", indent=0)


def _one_matrix(matrix: Matrix, first: int, width: int, long: bool) -> Iterable[Line]:
    rows = [row for row in matrix.rows if not long or any(c and c.outcome != "passed" for c in row[1])]
    prefix = _shared_prefix([column for column in matrix.columns if column != "fp32"])
    heads = [column.removeprefix(prefix) for column in matrix.columns]
    texts = {model: [_entry(cell, common_lead(cells)) for cell in cells] for model, cells in rows}
    sizes = [max([len(head), *(len(texts[model][i]) for model, _ in rows)]) for i, head in enumerate(heads)]
    title = f"{matrix.backend}  {prefix}…" if prefix else matrix.backend
    yield Line(title, "strong")
    for block in _blocks(sizes, width - first):
        yield Line(" " * first + "".join(f"  {heads[i]:{sizes[i]}}" for i in block), "muted")
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


>>>>>>> origin/main
def _closing(report: Report, width: int) -> Iterable[Line]:
    """Steps at the newest runs, unsupported reasons, notices, and last the sentence that matters."""
    yield Line("")
    for group in report.step_groups[:2]:
        if group.position >= len(report.runs) - 5:
            kind = "possible step" if all(step.provisional for _, _, step in group.steps) else "step"
            text = (
                f"{kind} of {counted(len(group.steps), 'series', 'series')} at {group.run.commit or group.run.started}"
            )
            yield from wrapped(text, width, "warn", indent=0)
    for reason, keys in report.unsupported[:4]:
        yield from wrapped(
            f"{symbol_of('unsupported')} {counted(len(keys), 'cell')} unsupported: {reason}", width, "muted", indent=0
        )
    for notice in report.notices[:6]:
        yield from wrapped(f"note: {notice}", width, "warn", indent=0)
    if len(report.notices) > 6:
        yield Line(f"and {len(report.notices) - 6} more notices", "muted")
    if report.step_groups or report.unsupported or report.notices:
        yield Line("")
    sentence = f"{report.suite}: {report.headline}" if report.suite else report.headline
    yield from wrapped(sentence, width, _TONES[report.state], indent=0)
