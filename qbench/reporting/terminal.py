"""The report as lines for a terminal."""

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from qbench.judging import CELL_KEYS, CHECKS, COSTS, SPECS, THEN, GateKind
from qbench.reporting.assembly import build_report
from qbench.reporting.carried import measured_reasons
from qbench.reporting.columns import TERMINAL
from qbench.reporting.format import (
    BELOW,
    BELOW_MEANING,
    cell_text,
    common_lead,
    counted,
    red_age,
    shown_as,
    symbol_of,
    tally_lines,
)
from qbench.reporting.report import Cause, Matrix, Report
from qbench.reporting.view import UNJUDGED, CellView, MetricView
from qbench.storage import tells_damage
from qbench.tracking import Run

# Lines for a terminal, each with a tone, and the wrapping of text.

BOUND = "\N{NO-BREAK SPACE}"
"""A blank at which no line is broken; the lines that are returned have plain blanks."""
COMMAND = "command"
"""The tone of a line that is meant to be copied, and so never broken."""

_UNITS = re.compile(r"(?<=\d) (?=(?:%|pp|dB)(?:\W|$))")
_LABEL = re.compile(r"(?:rule|next|note): ")


@dataclass(frozen=True, slots=True)
class Line:
    """One line, at most as wide as the terminal unless its tone is ``command``; tones: see
    ``RICH_STYLES``.
    """

    text: str
    tone: str = "plain"


def wrapped(text: str, width: int, tone: str, indent: int = 2) -> Iterable[Line]:
    """``text`` over as many lines as it needs; further lines begin below the first word after a
    label like ``note: ``.

    Words longer than a line are not broken, and a number keeps its unit.
    """
    label = _LABEL.match(text)
    first, rest = " " * indent, " " * (indent + (label.end() if label else 0))
    for line in textwrap.wrap(
        _UNITS.sub(BOUND, text),
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    ):
        yield Line(line.replace(BOUND, " "), tone)


# The matrix for a terminal: one table per backend, models down and schemas across, and the meaning
# of the symbols.

_STOPPED_NAMED = 3
MATRIX_LINES = 60
"""A longer matrix shows only the models in which something is not green."""


def matrix_lines(report: Report, width: int) -> Iterable[Line]:
    """For each backend the models down and the schemas across: symbol and change in percentage
    points.
    """
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
    """What the symbols mean and how often each occurs; which metric the changes of each model
    are about.
    """
    lines = tally_lines(report.cells, report.tallies)
    tallies = (f"{symbol} {name} {count}".replace(" ", BOUND) for symbol, name, count in lines)
    yield from wrapped("   ".join(tallies), width, "muted", indent=0)
    metrics: dict[tuple[str, str], list[str]] = {}
    for model in report.models:
        lead = common_lead(cell for cell in report.cells if cell.key.model == model)
        if lead:
            metrics.setdefault((shown_as(lead), lead.name), []).append(model)
    for what in dict.fromkeys(what for what, _ in metrics):
        texts = []
        for (shown, name), models in metrics.items():
            if shown == what:
                named = ", ".join(models) if len(models) < 9 else f"{len(models)} models"
                texts.append(f"{name} ({named})")
        yield from wrapped(f"{what} of {'; '.join(texts)}", width, "muted", indent=0)
    if any(symbol == BELOW for symbol, _, _ in lines):
        yield from wrapped(f"{BELOW} {BELOW_MEANING}", width, "muted", indent=0)
    others = {c.lead.name for c in report.cells if c.lead} - {name for _, name in metrics}
    if others:
        yield from wrapped(f"* of {', '.join(sorted(others))}", width, "muted", indent=0)
    stopped = [
        f"{cell.key} {cell.record.stopped.text}"
        for cell in report.cells
        if cell.record.stopped is not None
    ]
    if stopped:
        texts = stopped[:_STOPPED_NAMED]
        if len(stopped) > _STOPPED_NAMED:
            texts.append(f"and {counted(len(stopped) - _STOPPED_NAMED, 'more cell')}")
        yield from wrapped("; ".join(texts), width, "muted", indent=0)


def _one_matrix(matrix: Matrix, first: int, width: int, long: bool) -> Iterable[Line]:
    rows = [
        row
        for row in matrix.rows
        if not long or any(c and c.shown_outcome != "passed" for c in row[1])
    ]
    prefix = _shared_prefix([column for column in matrix.columns if column != "fp32"])
    heads = [column.removeprefix(prefix) for column in matrix.columns]
    texts = {model: [_entry(cell, common_lead(cells)) for cell in cells] for model, cells in rows}
    sizes = [
        max([len(head), *(len(texts[model][i]) for model, _ in rows)])
        for i, head in enumerate(heads)
    ]
    title = f"{matrix.backend}  {prefix}…" if prefix else matrix.backend
    yield Line(title, "strong")
    for block in _blocks(sizes, width - first):
        yield Line(
            (" " * first + "".join(f"  {heads[i]:{sizes[i]}}" for i in block)).rstrip(), "muted"
        )
        for model, cells in rows:
            name = model if len(model) <= first else "…" + model[len(model) - first + 1 :]
            line = f"{name:{first}}" + "".join(f"  {texts[model][i]:{sizes[i]}}" for i in block)
            yield Line(line.rstrip(), _row_tone([cells[i] for i in block]))
    if len(rows) < len(matrix.rows):
        yield Line(f"{counted(len(matrix.rows) - len(rows), 'model')} more, all passed", "muted")


def _blocks(sizes: Sequence[int], room: int) -> Iterable[list[int]]:
    """Column numbers in blocks; a block has all columns that fit into ``room``, at least one."""
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
    """``cell_text``, with a star when it is about another metric than most of its row."""
    other = cell and cell.lead and lead and cell.lead.name != lead.name
    return cell_text(cell) + ("*" if other else "")


def _row_tone(cells: Sequence[CellView | None]) -> str:
    if any(cell.is_red for cell in cells if cell):
        return "bad"
    return (
        "warn"
        if any(
            cell.shown_outcome in ("quarantined", "inconclusive", UNJUDGED)
            for cell in cells
            if cell
        )
        else "plain"
    )


# What to type next, from the remedies of red cells: commands that differ only in their cell become
# one.
#
#     pytest "a" --qbench-accept=changed …
#     pytest "b" --qbench-accept=changed …     →     pytest "a" "b" --qbench-accept=changed …

TOGETHER = 3
"""Cells that one command names; a longer command would not be readable."""

_PYTEST = re.compile(r'pytest (?P<node>"[^"]+") (?P<rest>.*)')
_BISECT = re.compile(r'(?P<rest>qbench bisect commits .*) (?P<node>"[^"]+")')
_TOKEN = re.compile(r'"[^"]*"|\S+')


@dataclass(frozen=True, slots=True)
class Step:
    """A command to type (may be empty), words about it, and how many more cells have a command
    like it.

    ``is_later``: whether another step is to be taken first.
    """

    command: str
    words: str = ""
    more: int = 0
    is_later: bool = False


def next_steps(remedies: Iterable[str]) -> tuple[Step, ...]:
    """``remedies`` as steps, in their order: commands for several cells are joined into one.

    A commit is searched for one cell at a time: of several such commands the first is a step.
    """
    nodes: dict[str, list[str]] = {}
    later: set[str] = set()
    for remedy in remedies:
        for place, part in enumerate(remedy.split(THEN)):
            found = _PYTEST.fullmatch(part) or _BISECT.fullmatch(part)
            if found:
                rest = found["rest"]
                nodes.setdefault(rest, []).append(found["node"])
            else:
                rest = part
                nodes.setdefault(rest, [])
            if place:
                later.add(rest)
    return tuple(_step(rest, cells, is_later=rest in later) for rest, cells in nodes.items())


def _step(rest: str, cells: Sequence[str], *, is_later: bool) -> Step:
    """One step for ``cells``, whose remedies share the words ``rest``."""
    if not cells:
        text, more = rest, 0
    elif rest.startswith("qbench "):
        text, more = f"{rest} {cells[0]}", len(cells) - 1
    else:
        text, more = f"pytest {' '.join(cells[:TOGETHER])} {rest}", max(0, len(cells) - TOGETHER)
    command = _typed(text)
    return Step(command, text[len(command) :].strip(), more, is_later=is_later)


def _typed(text: str) -> str:
    """The command that ``text`` begins with, up to the first word that is not an argument; may
    be empty.
    """
    end, options = 0, 0
    before = ""
    for token in _TOKEN.finditer(text):
        word = token[0]
        if not end and word not in ("pytest", "qbench"):
            return ""
        is_value = before.startswith("-") and "=" not in before
        is_argument = word.startswith(("-", '"')) or is_value
        if end and not is_argument and (options or text.startswith("pytest ")):
            break
        options += word.startswith("-")
        before, end = word, token.end()
    return text[:end]


# Where the number of a rule is set: the file and the key, for a reader who wants another number.
#
# tolerance 0.3 % (suite smoke)              →  set in smoke.qbench.toml: [suite] tolerance
# tolerance 1 % (option --qbench-tolerance)  →  set on the command line: --qbench-tolerance
# decision ci (cell m::ort-cpu+w8a8_*)       →  set in smoke.qbench.toml: [[model]] id = "m",
#                                               decision."ort-cpu+w8a8_*"

_KEYS = frozenset(key.name for key in CELL_KEYS) | frozenset(
    name for spec in SPECS.values() for name in spec.model_keys
)
"""The keys of a suite that the gates depend on: most rules begin with theirs."""
_PHRASES = (
    (re.compile(r"equals "), "equal_to"),
    (re.compile(r"close to "), "close_to"),
    (re.compile(r"at most \d+ flips? "), "flips"),
)
"""The rules that begin with other words, each with its key."""
_OWNER = re.compile(r"\((default|suite|model|cell|option)(?: ([^\s():]+)(?:::([^\s()]+))?)?")


_DECISION = re.compile(r", (?=decision (?:ci|strict) \()")


def places_of(rule: str, suite: str) -> tuple[str, ...]:
    """The places of all parts of ``rule``: first the place of its decision, where that is not
    the plain counts.
    """
    parts = reversed(_DECISION.split(rule))
    return tuple(dict.fromkeys(filter(None, (place_of(part, suite) for part in parts))))


def _place_in_test(rule: str) -> str:
    return "'tolerance' of its qbench_check sets another" if rule.startswith("tolerance ") else ""


def _key_of(rule: str) -> str:
    """The key of the suite that sets the number of ``rule``; empty: none does."""
    first = rule.partition(" ")[0]
    if first in _KEYS:
        return first
    return next((key for words, key in _PHRASES if words.match(rule)), "")


def place_of(rule: str, suite: str) -> str:
    """The file and the key that set one part of a rule in ``suite``; empty where nothing sets
    it.
    """
    file = f"{suite}.qbench.toml"
    if suite == CHECKS:
        return _place_in_test(rule)
    if rule.startswith("quarantine "):
        return f"set in {suite}.quarantine.toml"
    if rule.startswith("accepted floor"):
        return f"set by what was accepted: floors in the baselines of {suite}"
    if rule.startswith("identical predictions"):
        return f"the default; flips in {file} admits more"
    key = _key_of(rule)
    owner = _OWNER.search(rule)
    if not key or owner is None:
        return ""
    kind, name, pattern = owner.groups()
    if kind == "option":
        where = "on the command line" if name.startswith("--") else "in the ini file of pytest"
        return f"set {where}: {name}"
    if kind == "default":
        return f"the default; {key} in {file} sets another"
    table = "[suite]" if kind == "suite" else f'[[model]] id = "{name}",'
    return f"set in {file}: {table} {key}" + (f'."{pattern}"' if pattern else "")


# Red cells for a terminal: by cause, worst first, with the rule, the place that sets it, and what
# to type next.

CELLS_SHOWN = 8
"""Red cells listed one by one under a cause; the rest are counted."""
STEPS_SHOWN = 3


def red_lines(report: Report, width: int) -> Iterable[Line]:
    """Every cause with its cells, their rule, and the next steps; the undecided cells last."""
    for cause in (*report.causes, *_undecided(report)):
        yield Line("")
        tone = "bad" if cause.cells[0].is_red else "warn"
        yield from wrapped(
            f"{symbol_of(cause.cells[0].record.outcome)} {cause.title} "
            f"({counted(len(cause.cells), 'cell')})",
            width,
            tone,
            0,
        )
        yield from _cause_cells(cause, width)
        yield from _rule(cause, report.suite, width)
        yield from _next(cause, report, width)


def listed_notices(report: Report) -> frozenset[str]:
    """The notices that ``red_lines`` already shows with its cells."""
    return frozenset(
        cell.wanting for cause in _undecided(report) for cell in cause.cells[:CELLS_SHOWN]
    )


def _undecided(report: Report) -> tuple[Cause, ...]:
    """The cells that are green because a gate is not decided, by the reason; empty without such
    cells.
    """
    cells = sorted(
        (c for c in report.cells if c.record.outcome == "inconclusive"),
        key=lambda cell: (-cell.excess, cell.key),
    )
    groups: dict[str, list[CellView]] = {}
    for cell in cells:
        gate = cell.undecided_gate
        kind = GateKind.LOSS if gate is None else GateKind(gate.kind)
        groups.setdefault(SPECS[kind].undecided_title, []).append(cell)
    return tuple(
        Cause(
            name="undecided",
            title=title,
            cells=tuple(alike),
            remedies=tuple(
                dict.fromkeys(cell.record.remedy for cell in alike if cell.record.remedy)
            ),
        )
        for title, alike in groups.items()
    )


def _rule(cause: Cause, suite: str, width: int) -> Iterable[Line]:
    rules = list(dict.fromkeys(cell.record.rule for cell in cause.cells if cell.record.rule))
    if not rules:
        return
    more = f"; and {len(rules) - 1} more" if len(rules) > 1 else ""
    yield from wrapped(f"rule: {rules[0]}{more}", width, "muted")
    for place in places_of(rules[0], suite):
        yield from wrapped(place, width, "muted", indent=8)


def _next(cause: Cause, report: Report, width: int) -> Iterable[Line]:
    """The commands, each on one line, and the words about them."""
    shown = {_facts(cell) for cell in cause.cells[:CELLS_SHOWN]}
    steps = next_steps(text for text in cause.remedies if not any(text in facts for facts in shown))
    for step in steps[:STEPS_SHOWN]:
        word = "then" if step.is_later else "next"
        if not step.command:
            yield from wrapped(f"{word}: {step.words}", width, "plain")
            continue
        yield Line(f"  {word}: {step.command}", COMMAND)
        if step.words:
            yield from wrapped(step.words, width, "plain", indent=8)
        if step.more:
            yield from wrapped(
                f"and {counted(step.more, 'cell')} more like these", width, "muted", indent=8
            )
            if (
                "--qbench-accept=changed" in step.command
                and report.run is not None
                and report.run.complete
                and report.run.path
            ):
                yield from wrapped(
                    "all of them from this run, without measuring again:", width, "muted", indent=8
                )
                yield Line(
                    f'        qbench accept {report.run.id} --what changed --reason "…"', COMMAND
                )
    if len(steps) > STEPS_SHOWN:
        yield Line(f"  and {counted(len(steps) - STEPS_SHOWN, 'other step')} like these", "muted")


def _cause_cells(cause: Cause, width: int) -> Iterable[Line]:
    """One line per cell where it fits (name, now, fp32, change, margin, age), else two; equal
    facts only once.
    """
    shown = cause.cells[:CELLS_SHOWN]
    pad = max(len(str(cell.key)) for cell in shown)
    for facts, cells in groupby(shown, key=_facts):
        alike = list(cells)
        names = [str(cell.key) for cell in alike]
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
    """The findings on ``cells``, equal ones once; where they differ, each with the axes that
    tell its cells apart.
    """
    found: dict[str, list[CellView]] = {}
    for cell in cells:
        if cell.found:
            found.setdefault(cell.found, []).append(cell)
    axes = [(cell.key.model, cell.key.backend, cell.key.column) for cell in cells]
    apart = [place for place, names in enumerate(zip(*axes, strict=True)) if len(set(names)) > 1]
    label = {
        cell.key: " ".join(names[place] for place in apart)
        for cell, names in zip(cells, axes, strict=True)
    }
    for text, alike in found.items():
        whose = (
            "" if len(alike) == len(cells) else ", ".join(label[cell.key] for cell in alike) + ": "
        )
        yield whose + text


_MOVED = (GateKind.CALIBRATION, GateKind.EXECUTED_DRIFT, GateKind.DRIFT)
"""The gates that say in what a drifted cell is not as accepted."""


def _facts(cell: CellView) -> str:
    if cell.lead is None or cell.is_retrained:
        return cell.record.headline
    undecided = cell.undecided_gate
    if undecided is not None and undecided.kind in COSTS:
        return undecided.detail.partition(";")[0]
    if cell.told_by_gate is not None:
        return ", ".join(filter(None, [cell.told_by_gate.detail, red_age(cell)]))
    if cell.is_unequal and cell.equality is not None:
        return ", ".join(filter(None, [cell.equality.detail, red_age(cell)]))
    moved = (gate for gate in cell.record.gates if gate.kind in _MOVED and gate.state == "broken")
    first = next(moved, None)
    if first is not None and cell.record.outcome == "drifted":
        return ", ".join(filter(None, [first.detail, red_age(cell)]))
    parts = [
        *(place.column.text(cell) for place in TERMINAL.places),
        cell.wanting.partition(": ")[2],
        red_age(cell),
    ]
    return ", ".join(part for part in parts if part)


# The whole summary: the matrix, then what is red, why, since when, and what to type next.
#
# Lines have a tone (a word); pytest and the command line turn tones into colours, or ignore them. A
# summary never raises an error: it comes after hours of measuring.

ASCII = str.maketrans(
    {
        "✓": "+",
        "⊕": "a",
        "◇": "q",
        "≈": "i",
        "▽": "v",
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


NOTICES = 6
"""The notices that are shown; the others are counted."""
_MODELS_NAMED = 4
"""Models with unsupported cells that a brief summary names."""
_COUNT = re.compile(r" \([\d,]+ cells\)$")
_TONES = {"red": "bad", "incomplete": "warn", "empty": "warn", "green": "good"}


def styled_lines(
    source: Report | Run | Sequence[Run],
    width: int = 80,
    *,
    unicode: bool = True,
    brief: bool = False,
) -> list[Line]:
    """The summary of a report, of one run, or of a history, with tones. Never raises.

    Args:
        width: columns; less than 40 counts as 40.
        unicode: False writes every symbol as an ASCII letter.
        brief: only what is red, what was not measured, what was damaged in a cache, and the last
            sentence.
    """
    try:
        lines = list(_lines(_reported(source), max(width, 40), brief=brief))
    except Exception as error:  # a summary that fails must not hide the results it sums up
        lines = [
            Line(
                f"qbench: the summary could not be drawn ({type(error).__name__}: {error})", "warn"
            )
        ]
    if unicode:
        return lines
    return [
        Line(line.text.translate(ASCII).encode("ascii", "replace").decode(), line.tone)
        for line in lines
    ]


def _reported(source: Report | Run | Sequence[Run]) -> Report:
    if isinstance(source, Report):
        return source
    if isinstance(source, Run):
        return build_report([source])
    return build_report(source)


def summary_lines(
    source: Report | Run | Sequence[Run], width: int = 80, *, unicode: bool = True
) -> list[str]:
    """``styled_lines`` without tones."""
    return [line.text for line in styled_lines(source, width, unicode=unicode)]


def _lines(report: Report, width: int, *, brief: bool) -> Iterable[Line]:
    red = red_lines(report, width)
    if brief:
        found = (*_not_measured(report, width), *_damage(report, width))
        lines = [*red, Line(""), *found, *_sentence(report, width)]
    else:
        lines = [
            *_open_margins(report, width),
            *matrix_lines(report, width),
            *_carried(report, width),
            *red,
            *_closing(report, width),
        ]
    for line in lines:
        # a command is there to be copied: the terminal wraps it
        fits = len(line.text) <= width or line.tone == COMMAND
        yield line if fits else Line(line.text[: width - 1] + "…", line.tone)


def _open_margins(report: Report, width: int) -> Iterable[Line]:
    if report.undecided:
        yield from wrapped(report.undecided, width, "warn", indent=0)
        yield Line("")


def _carried(report: Report, width: int) -> Iterable[Line]:
    """How many cells were carried over, and why the others were measured."""
    if report.carried:
        yield from wrapped(report.carried, width, "muted", indent=0)
    if reasons := measured_reasons(cell.record for cell in report.cells):
        yield from wrapped(reasons, width, "muted", indent=0)


def _not_measured(report: Report, width: int) -> Iterable[Line]:
    """Which cells of a run were carried over or are unsupported: a line each, since a green
    sentence does not tell them from cells that passed.
    """
    if report.carried:
        yield from wrapped(report.carried, width, "muted", indent=0)
    models = Counter(key.model for _, keys in report.unsupported for key in keys)
    if not models:
        return
    named = [f"{name} ({count})" for name, count in models.most_common(_MODELS_NAMED)]
    if len(models) > _MODELS_NAMED:
        named.append(f"{counted(len(models) - _MODELS_NAMED, 'other model')}")
    first, *others = [reason for reason, _ in report.unsupported]
    more = f"; and {counted(len(others), 'other reason')}" if others else ""
    text = (
        f"{symbol_of('unsupported')} {counted(models.total(), 'cell')} unsupported, of "
        f"{', '.join(named)}: {first}{more}"
    )
    yield from wrapped(text, width, "muted", indent=0)


def _damage(report: Report, width: int) -> Iterable[Line]:
    """What was damaged in a cache: the first notice of it, and how many others there are."""
    found = [text for text in report.notices if tells_damage(text)]
    if found:
        more = f"; and {counted(len(found) - 1, 'more damaged entry', 'more damaged entries')}"
        yield from wrapped(f"note: {found[0]}{more * (len(found) > 1)}", width, "warn", indent=0)


def class_sentence(report: Report) -> str:
    """What the new classes of ``report`` mean."""
    return (
        f"nothing is accepted for {', '.join(report.new_classes)} yet, so drift does not gate there"
    )


def _closing(report: Report, width: int) -> Iterable[Line]:
    """Steps at the newest runs, unsupported reasons, notices, and last the sentence that
    matters.
    """
    yield Line("")
    for group in report.step_groups[:2]:
        if group.position >= len(report.runs) - 5:
            kind = (
                "possible step" if all(step.provisional for _, _, step in group.steps) else "step"
            )
            text = (
                f"{kind} of {counted(len(group.steps), 'series', 'series')} at "
                f"{group.run.commit or group.run.started}"
            )
            yield from wrapped(text, width, "warn", indent=0)
    for reason, keys in report.unsupported[:4]:
        yield from wrapped(
            f"{symbol_of('unsupported')} {counted(len(keys), 'cell')} unsupported: {reason}",
            width,
            "muted",
            indent=0,
        )
    listed = listed_notices(report)
    notices = [
        text for text in report.notices if text not in listed and _COUNT.sub("", text) not in listed
    ]
    for notice in notices[:NOTICES]:
        yield from wrapped(f"note: {notice}", width, "warn", indent=0)
    if len(notices) > NOTICES:
        yield Line(f"and {counted(len(notices) - NOTICES, 'more notice')}", "muted")
    if report.class_remedy:
        yield from wrapped(
            "to see what differs in the new class, and to accept its results:",
            width,
            "muted",
            indent=0,
        )
        for step in next_steps([report.class_remedy]):
            word = "then" if step.is_later else "next"
            yield Line(f"  {word}: {step.command}", COMMAND)
    if report.step_groups or report.unsupported or notices:
        yield Line("")
    yield from _sentence(report, width)


def _sentence(report: Report, width: int) -> Iterable[Line]:
    sentence = f"{report.suite}: {report.headline}" if report.suite else report.headline
    yield from wrapped(sentence, width, _TONES[report.state], indent=0)
