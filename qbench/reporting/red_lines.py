"""What is red, for a terminal: by cause, worst first, with the rule, where it was set, and what to type next."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from qbench.reporting.line import COMMAND, Line, wrapped
from qbench.reporting.next_steps import next_steps
from qbench.reporting.report import Cause, Report
from qbench.reporting.rule_places import places_of
from qbench.reporting.view import CellView
from qbench.reporting.words import counted, course_text, is_distance, margin_text, red_age, symbol_of

CELLS_SHOWN = 8
"""Red cells listed one by one under a cause; the rest are counted."""
STEPS_SHOWN = 2


def red_lines(report: Report, width: int) -> Iterable[Line]:
    """Every cause with its cells, their rule, and the next steps; last the cells of which a sample cannot tell."""
    for cause in (*report.causes, *_undecided(report)):
        yield Line("")
        tone = "bad" if cause.cells[0].is_red else "warn"
        yield from wrapped(
            f"{symbol_of(cause.cells[0].outcome)} {cause.title} ({counted(len(cause.cells), 'cell')})", width, tone, 0
        )
        yield from _cause_cells(cause, width)
        yield from _rule(cause, report.suite, width)
        yield from _next(cause, report, width)


def told_notices(report: Report) -> frozenset[str]:
    """The notices that ``red_lines`` has in the lines of its cells."""
    return frozenset(_wanting(cell) for cause in _undecided(report) for cell in cause.cells[:CELLS_SHOWN])


def _undecided(report: Report) -> tuple[Cause, ...]:
    """The cells that are green because their sample is too small to tell, as a cause; none where there are none."""
    cells = sorted((c for c in report.cells if c.outcome == "inconclusive"), key=lambda cell: (-cell.excess, cell.key))
    remedies = tuple(dict.fromkeys(cell.remedy for cell in cells if cell.remedy))
    title = "Too few samples to tell whether it loses more than it may"
    return (Cause(name="undecided", title=title, cells=tuple(cells), remedies=remedies),) if cells else ()


def _wanting(cell: CellView) -> str:
    """The notice of how many samples the margin of an undecided ``cell`` needs; empty where there is none."""
    start = f"{cell.lead.name}: " if cell.lead else "?"
    return next((text for text in cell.notices if text.startswith(start)), "")


def _rule(cause: Cause, suite: str, width: int) -> Iterable[Line]:
    rules = list(dict.fromkeys(cell.rule for cell in cause.cells if cell.rule))
    if not rules:
        return
    more = f"; and {len(rules) - 1} more" if len(rules) > 1 else ""
    yield from wrapped(f"rule: {rules[0]}{more}", width, "muted")
    for place in places_of(rules[0], suite):
        yield from wrapped(place, width, "muted", indent=8)


def _next(cause: Cause, report: Report, width: int) -> Iterable[Line]:
    """The commands, each whole on its line, and what is to be said about them."""
    told = {_facts(cell) for cell in cause.cells[:CELLS_SHOWN]}
    steps = next_steps(text for text in cause.remedies if not any(text in facts for facts in told))
    for step in steps[:STEPS_SHOWN]:
        if not step.command:
            yield from wrapped(f"next: {step.words}", width, "plain")
            continue
        yield Line(f"  next: {step.command}", COMMAND)
        if step.words:
            yield from wrapped(step.words, width, "plain", indent=8)
        if step.more:
            yield from wrapped(f"and {counted(step.more, 'cell')} more like these", width, "muted", indent=8)
            if "--qbench-accept=changed" in step.command and report.run is not None and report.run.complete:
                yield from wrapped("all of them from this run, without measuring again:", width, "muted", indent=8)
                yield Line(f'        qbench accept {report.run.id} --what changed --reason "…"', COMMAND)
    if len(steps) > STEPS_SHOWN:
        yield Line(f"  and {counted(len(steps) - STEPS_SHOWN, 'other step')} like these", "muted")


def _cause_cells(cause: Cause, width: int) -> Iterable[Line]:
    """One line a cell where it fits (name, now, fp32, change, margin, age), else two; what several say is said once."""
    shown = cause.cells[:CELLS_SHOWN]
    pad = max(len(cell.key.name) for cell in shown)
    for facts, cells in groupby(shown, key=_facts):
        alike = list(cells)
        names = [cell.key.name for cell in alike]
        if len(names) == 1 and 2 + pad + 2 + len(facts) <= width:
            yield Line(f"  {names[0]:{pad}}  {facts}")
        else:
            yield from (Line(f"  {name}") for name in names)
            yield from wrapped(facts, width, "plain", indent=6)
        for text in _findings(alike):
            yield from wrapped(text, width, "warn", indent=6)
    if len(cause.cells) > len(shown):
        yield Line(f"  and {counted(len(cause.cells) - len(shown), 'cell')} more", "muted")


def _findings(cells: Sequence[CellView]) -> Iterator[str]:
    """What localisation says of ``cells``, which is told by what sets them apart where it says several things."""
    found: dict[str, list[CellView]] = {}
    for cell in cells:
        if cell.found:
            found.setdefault(cell.found, []).append(cell)
    axes = [(cell.key.model, cell.key.backend, cell.key.column) for cell in cells]
    apart = [place for place, names in enumerate(zip(*axes, strict=True)) if len(set(names)) > 1]
    label = {cell.key: " ".join(names[place] for place in apart) for cell, names in zip(cells, axes, strict=True)}
    for text, alike in found.items():
        whose = "" if len(alike) == len(cells) else ", ".join(label[cell.key] for cell in alike) + ": "
        yield whose + text


def _facts(cell: CellView) -> str:
    if cell.lead is None:
        return cell.headline
    if cell.is_unequal and cell.equality is not None:
        return ", ".join(filter(None, [cell.equality.detail, red_age(cell)]))
    moved = (gate for gate in cell.gates if gate.kind in ("calibration", "drift") and gate.state == "broken")
    first = next(moved, None)
    if first is not None and cell.outcome == "drifted":
        return ", ".join(filter(None, [first.detail, red_age(cell)]))
    lead = cell.lead
    parts = [
        course_text(lead),
        margin_text(lead),
        f"{counted(lead.losses, 'loss', 'losses')}, {counted(lead.gains, 'gain')}"
        if (lead.losses or lead.gains) and not is_distance(lead)
        else "",
        _wanting(cell).partition(": ")[2] if cell.outcome == "inconclusive" else "",
        red_age(cell),
    ]
    return ", ".join(part for part in parts if part)
