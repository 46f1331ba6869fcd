"""The report as one HTML file that works offline: style, script and charts inside, nothing requested from anywhere.

A page has a budget of 2 MB. When everything does not fit, charts of cells in which nothing happened go first.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

from qbench.reporting import words
from qbench.reporting.chart import sparkline_svg, trend_svg
from qbench.reporting.view import CellView, Report, Trend

if TYPE_CHECKING:
    from jinja2 import Environment

BUDGET = 2_000_000
"""Bytes; small enough for a mail, and for a browser to open at once."""


@dataclass(frozen=True, slots=True)
class Detail:
    """Which charts a page holds: ``quiet`` those of cells in which nothing happened, ``sparks`` the small ones."""

    quiet: bool = True
    sparks: bool = True
    rows: bool = True


LEVELS = (
    Detail(),
    Detail(quiet=False),
    Detail(quiet=False, sparks=False),
    Detail(quiet=False, sparks=False, rows=False),
)


_WORDS = (
    words.symbol_of,
    words.value_text,
    words.change_text,
    words.count_text,
    words.parts_text,
    words.margin_text,
    words.margin_level,
    words.counted,
    words.red_age,
    words.thousands,
    words.percent,
    words.common_lead,
)


def html_page(reports: Sequence[Report]) -> str:
    """The page of ``reports`` (one a suite, that of the newest run first), at most ``BUDGET`` bytes when it can be."""
    page = ""
    for detail in LEVELS:
        page = _render(reports, detail)
        if len(page.encode()) <= BUDGET:
            break
    return page


def anchor_of(*names: str) -> str:
    """An id for the page: readable letters of ``names`` and, where letters were lost, a short digest."""
    text = "--".join(names)
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "-" for c in text)
    return plain if plain == text else f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def is_eventful(cell: CellView, trends: Sequence[Trend]) -> bool:
    """Whether something is to be seen in the history of ``cell``: red, in quarantine, or with a step."""
    return cell.is_red or cell.outcome == "quarantined" or any(trend.steps for trend in trends)


def _render(reports: Sequence[Report], detail: Detail) -> str:
    from markupsafe import Markup

    folder = resources.files("qbench.reporting") / "templates"
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            reports=reports,
            detail=detail,
            style=Markup((folder / "style.css").read_text(encoding="utf-8")),  # ours, not escaped
            script=Markup((folder / "page.js").read_text(encoding="utf-8")),
        )
        .lstrip()
    )


def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("qbench.reporting", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    own = (
        anchor_of,
        is_eventful,
        _breakable,
        _chart,
        _spark,
        _runs_data,
        _model_state,
        _backends_of,
        _cells_of,
        _card_columns,
        _opens,
    )
    for function in (*_WORDS, *own):
        made.globals[function.__name__.lstrip("_")] = function
    made.globals |= {"MEANINGS": words.MEANINGS, "STATES": words.STATES}
    return made


def _breakable(name: str) -> str:
    """``name``, escaped, with leave to break after what joins its parts: else a narrow column cuts it anywhere."""
    from markupsafe import Markup, escape

    text = str(escape(name))
    for joint in ("_", "+", "@"):
        text = text.replace(joint, f"{joint}<wbr>")
    return Markup(text)


def _chart(trend: Trend, cell: CellView, report: Report) -> str:
    from markupsafe import Markup

    return Markup(trend_svg(trend, cell, report.runs))  # escaped where it was made


def _spark(trend: Trend, cell: CellView, report: Report) -> str:
    from markupsafe import Markup

    return Markup(sparkline_svg(trend, cell, len(report.runs)))


def _runs_data(report: Report) -> list[str]:
    """One line a run for the pointer's label: when, and at which commit."""
    return [f"{run.started} · {run.commit}" if run.commit else run.started or run.id for run in report.runs]


def _cells_of(report: Report, model: str, backend: str | None = None) -> list[CellView]:
    return [c for c in report.cells if c.key.model == model and backend in (None, c.key.backend)]


def _backends_of(report: Report, model: str) -> list[str]:
    return list(dict.fromkeys(c.key.backend for c in _cells_of(report, model)))


def _opens(report: Report, model: str) -> bool:
    """Whether the section of ``model`` starts unfolded: few models, or something to be seen."""
    cells = _cells_of(report, model)
    return len(report.models) <= 3 or any(is_eventful(c, report.trends.get(c.key, ())) for c in cells)


def _card_columns(count: int) -> int:
    """Three or four cards in a row, whichever leaves the fuller last row."""
    return min(count, 4 if count % 4 == 0 or -count % 4 <= -count % 3 else 3)


def _model_state(report: Report, model: str) -> str:
    """``3 red, 1 in quarantine`` or ``all pass``: the state of a model in a few words."""
    cells = _cells_of(report, model)
    parts = [
        (sum(c.is_red for c in cells), "red"),
        (sum(c.outcome == "quarantined" for c in cells), "in quarantine"),
        (sum(c.outcome == "unsupported" for c in cells), "unsupported"),
    ]
    passed = sum(c.outcome in ("passed", "accepted") for c in cells)
    return ", ".join([f"{passed} pass", *(f"{count} {word}" for count, word in parts if count)])
