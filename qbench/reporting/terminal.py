"""The report as lines for a terminal: what is red, why, since when, what to type next, then the whole matrix.

Lines carry a tone (a word, no colour); the doors turn tones into colours, or leave them away. A summary never
raises: it comes after hours of measuring.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from qbench.reporting.assembly import build_report
from qbench.reporting.line import COMMAND, Line, wrapped
from qbench.reporting.matrix_lines import matrix_lines
from qbench.reporting.red_lines import red_lines, told_notices
from qbench.reporting.report import Report
from qbench.reporting.words import counted, symbol_of
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


NOTICES = 6
"""So many notices are shown; the others are counted."""
_COUNT = re.compile(r" \([\d,]+ cells\)$")
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
    told = told_notices(report)
    notices = [text for text in report.notices if text not in told and _COUNT.sub("", text) not in told]
    for notice in notices[:NOTICES]:
        yield from wrapped(f"note: {notice}", width, "warn", indent=0)
    if len(notices) > NOTICES:
        yield Line(f"and {counted(len(notices) - NOTICES, 'more notice')}", "muted")
    if report.step_groups or report.unsupported or notices:
        yield Line("")
    sentence = f"{report.suite}: {report.headline}" if report.suite else report.headline
    yield from wrapped(sentence, width, _TONES[report.state], indent=0)
