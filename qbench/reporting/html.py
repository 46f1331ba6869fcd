"""The report as HTML pages that work offline."""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from qbench import number_text
from qbench.judging import Cell
from qbench.reporting import columns
from qbench.reporting import format as words
from qbench.reporting.chart import flips_svg, line_names, sparkline_svg, trend_svg
from qbench.reporting.courses import NIGHTS, RecentNights, course_svg, courses_of, folded
from qbench.reporting.distribution_chart import distribution_svgs, facts_of
from qbench.reporting.findings_view import Found, decibels, found_text, node_of
from qbench.reporting.many_models import (
    MOST_COURSES,
    MOST_ROWS,
    by_model,
    drawn_matrices,
    known_cells,
    listed_cells,
    most_telling,
    unsupported_cells,
)
from qbench.reporting.node_chart import heat_map, nodes_svg
from qbench.reporting.overlay import overlay_key, overlay_svg, overlays_of
from qbench.reporting.places import TABS, Places, anchor_of, commit_address, link
from qbench.reporting.proof_rows import (
    ProofTable,
    caught_text,
    how_text,
    interval_text,
    proof_notes,
    remedy_text,
    share_sentence,
)
from qbench.reporting.report import Report, alert_rows
from qbench.reporting.run_comparison import Comparison, run_choice, runs_to_choose
from qbench.reporting.samples_view import DataSamples, SchemaSamples, run_words
from qbench.reporting.sweep_layout import AXES, backend_marks, shape_path, sweep_chart, sweep_svg
from qbench.reporting.sweep_rows import SORTED_BY, SweepTable, bytes_text, sweep_columns
from qbench.reporting.terminal import class_sentence, next_steps
from qbench.reporting.trends import Cost, StepGroup, Trend, is_eventful, places_of
from qbench.reporting.trimming import trim_page, trim_script
from qbench.reporting.view import ABSENT, CellView, MetricView
from qbench.storage import MOST_ON_PAGE, MOST_PAGES, Preview, read_preview, visible
from qbench.tracking import GateRecord

if TYPE_CHECKING:
    from jinja2 import Environment


# The cells of a model whose history is constant: one row each, and the texts of their gates, equal
# ones once.
#
# Most int8 results never change. A chart would take a kilobyte for the facts of a row of eighty
# letters.


@dataclass(frozen=True, slots=True, kw_only=True)
class UnchangedRow:
    """One cell: its metrics in the order of the columns, and the 95 % interval of its lead, in
    fractions, if known.

    ``same``: it and the cells of other backends that are equal to the digit. ``runs`` is the
    number of runs that measured it.
    """

    cell: CellView
    same: tuple[CellView, ...]
    metrics: tuple[MetricView | None, ...]
    interval: tuple[float, float] | None
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GateTexts:
    """The texts of one kind of gate (None: notices), each with the cells that have it: (names
    of the cells, text).
    """

    gate: GateRecord | None
    lines: tuple[tuple[tuple[str, ...], str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnchangedCells:
    """The rows, backend by backend; ``metrics`` are the columns; ``texts``: gates first, then
    notices.
    """

    metrics: tuple[str, ...]
    rows: tuple[UnchangedRow, ...]
    texts: tuple[GateTexts, ...]

    @property
    def cells(self) -> tuple[CellView, ...]:
        """All cells that it shows."""
        return tuple(cell for row in self.rows for cell in row.same)

    @property
    def by_backends(self) -> tuple[tuple[tuple[str, ...], tuple[UnchangedRow, ...]], ...]:
        """(backends, rows), those together whose cells are equal on the same backends."""
        found: dict[tuple[str, ...], list[UnchangedRow]] = {}
        for row in self.rows:
            found.setdefault(tuple(cell.key.backend for cell in row.same), []).append(row)
        return tuple((backends, tuple(rows)) for backends, rows in found.items())


def is_unchanged(cell: CellView, trends: Sequence[Trend]) -> bool:
    """Whether a row shows as much of ``cell`` as a chart: its lead has one value, one reference
    and one limit.
    """
    if cell.lead is None or cell.record.remedy or not trends or is_eventful(cell, trends):
        return False
    lead = trends[0]
    values = {(metric.value, metric.losses, metric.gains) for metric in lead.metrics}
    return len(values) == 1 and len(lead.marks) == 1 and lead.accepted in (None, cell.lead.value)


def unchanged_cells(report: Report, model: str) -> UnchangedCells:
    """The table of the cells of ``model`` that never changed."""
    cells = (cell for cell in report.cells if cell.key.model == model)
    found = [cell for cell in cells if is_unchanged(cell, report.trends.get(cell.key, ()))]
    names = tuple(
        dict.fromkeys(
            metric.name for cell in found for metric in (cell.lead, *cell.metrics) if metric
        )
    )
    rows = (_row(same, report, names) for same in folded(found, report.trends))
    return UnchangedCells(metrics=names, rows=tuple(rows), texts=_texts(found))


def _row(same: tuple[CellView, ...], report: Report, names: Sequence[str]) -> UnchangedRow:
    cell = same[0]
    metrics = {metric.name: metric for metric in cell.metrics}
    lead = report.trends[cell.key][0]
    return UnchangedRow(
        cell=cell,
        same=same,
        metrics=tuple(metrics.get(name) for name in names),
        interval=lead.points[-1].interval if lead.has_intervals else None,
        runs=sum(len(point.each) for point in lead.points),
    )


def _texts(cells: Sequence[CellView]) -> tuple[GateTexts, ...]:
    """Gates of one kind, state and rule together; below each, the cells with the same text
    together.
    """
    groups: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    notices: dict[str, list[str]] = {}
    for cell in cells:
        for gate in cell.record.gates:
            words = groups.setdefault((gate.kind, gate.state, gate.rule), {}).setdefault(
                gate.detail, []
            )
            words.append(f"{cell.key.backend} {cell.key.column}")
        texts = [*cell.record.notices, *cell.record.refusals]
        more = cell.record.refusal_count - len(cell.record.refusals)
        if more > 0:
            texts.append(f"and {more} more nodes left in float")
        for text in texts:
            notices.setdefault(text, []).append(f"{cell.key.backend} {cell.key.column}")
    of_gates = [
        GateTexts(
            gate=GateRecord(kind=kind, metric="", state=state, detail="", rule=rule),
            lines=_lines(words),
        )
        for (kind, state, rule), words in groups.items()
    ]
    if notices:
        of_gates.append(GateTexts(gate=None, lines=_lines(notices)))
    return tuple(of_gates)


def _lines(words: dict[str, list[str]]) -> tuple[tuple[tuple[str, ...], str], ...]:
    return tuple((tuple(dict.fromkeys(names)), text) for text, names in words.items())


# One page of a report as HTML that works offline: style, script and charts are in it, and it
# requests nothing.

_WORDS = (
    words.symbol_of,
    words.symbol_of_cell,
    words.is_agreement,
    words.tally_lines,
    words.value_text,
    words.change_text,
    words.count_text,
    words.parts_text,
    words.margin_text,
    words.margin_level,
    words.counted,
    words.red_age,
    words.common_lead,
    words.executed_otherwise,
    words.integers_text,
    columns.words_instead,
    decibels,
    found_text,
    node_of,
    run_words,
    number_text.percent,
    number_text.points,
    number_text.rounded_count,
    number_text.small_percent,
    number_text.thousands,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The data of one template: its own path, the report of its suite, and the paths of each
    suite's pages.

    ``model`` is set for the page of a model, ``found`` for the page of a finding, ``samples`` for
    the page of lost and gained samples, ``comparison`` for the compare page, ``sweep`` for that of
    a sweep, ``proof`` for that of a proof. ``previews`` is the folder with what samples look like.
    ``tabs`` are the names of the suite's pages that exist, for the links on each page: see
    ``places.TABS``.
    """

    path: str
    report: Report
    places: Places
    suites: tuple[tuple[str, str, str], ...] = ()
    """(suite, state, path of its overview) of every suite, for the links at the top."""
    model: str = ""
    neighbours: tuple[str, str] = ("", "")
    """The models before and after ``model``; empty at the ends."""
    models: frozenset[str] | None = None
    """Those that have a page; None: all."""
    found: Found | None = None
    samples: SchemaSamples | None = None
    previews: Path | None = None
    sampled: frozenset[tuple[str, str]] = frozenset()
    """(model, schema with variant) of every page of samples."""
    comparison: Comparison | None = None
    sweep: SweepTable | None = None
    proof: ProofTable | None = None
    tabs: tuple[str, ...] = ()

    def to(self, name: str) -> str:
        """A link to the page ``name`` of this suite."""
        return link(self.places.page(name), self.path)

    def to_model(self, model: str) -> str:
        """A link to the page of ``model``, or to all cells where it has none."""
        if self.models is not None and model not in self.models:
            return self.to("cells")
        return link(self.places.model(model), self.path)

    def to_finding(self, key: Cell) -> str:
        """A link to the page of the finding on ``key``."""
        return link(self.places.finding(key.model, key.backend, key.column), self.path)

    def to_samples(self, key: Cell) -> str:
        """A link to the page of the samples that ``key`` lost and gained; empty: it has none."""
        if (key.model, key.column) not in self.sampled:
            return ""
        return link(self.places.samples(key.model, key.column), self.path)

    def preview(self, data: DataSamples, sample: str) -> Preview | None:
        """What ``sample`` looks like; None: it may not be shown, or is not known here."""
        if self.previews is None or data.private:
            return None
        return read_preview(self.previews, data.digest, sample)

    def across(self, target: str) -> str:
        """A link to the page at the path ``target``."""
        return link(target, self.path)


def render(template: str, page: Page) -> str:
    """The page that ``template`` (``overview``, ``model``, …) makes of ``page``; style and script
    are put together from the parts that it names.
    """
    text = _environment().get_template(f"{template}.html.j2").render(page=page, report=page.report)
    return visible(trim_page(text.lstrip()), keep="\n\t")


@functools.cache  # compiling the templates takes longer than drawing the pages of a small suite
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
        _asset,
        _bound,
        commit_address,
        _breakable,
        _node_name,
        _plain_field,
        _glossary,
        _has_charts,
        _linked,
        unchanged_cells,
        _runs_data,
        run_choice,
        runs_to_choose,
        _cells_of,
        _backends_of,
        _without_cells,
        drawn_matrices,
        listed_cells,
        _folded_cards,
        overlays_of,
        _card_columns,
        _costs_of,
        _courses_of,
        _nights_of,
        bytes_text,
        _model_state,
        _steps_of,
        _slowest_cells,
        known_cells,
        unsupported_cells,
        alert_rows,
        class_sentence,
        facts_of,
        heat_map,
        line_names,
        next_steps,
        course_svg,  # these nine escape what is in them: templates mark them as safe
        distribution_svgs,
        flips_svg,
        overlay_key,
        overlay_svg,
        nodes_svg,
        sparkline_svg,
        sweep_svg,
        trend_svg,
        backend_marks,
        shape_path,
        sweep_chart,
        sweep_columns,
        caught_text,
        how_text,
        interval_text,
        proof_notes,
        remedy_text,
        share_sentence,
    )
    for function in (*_WORDS, *own):
        made.globals[function.__name__.lstrip("_")] = function
    made.filters["breakable"] = _breakable
    made.filters["tojson_text"] = _in_script
    made.globals |= {
        "BELOW": words.BELOW,
        "BELOW_MEANING": words.BELOW_MEANING,
        "NOT_ACCURACY": words.NOT_ACCURACY,
    }
    made.globals |= {"POWER_HEADINGS": words.POWER_HEADINGS, "power_row": words.power_row}
    made.globals |= {
        "MEANINGS": words.MEANINGS,
        "MOST_ON_PAGE": MOST_ON_PAGE,
        "MOST_ROWS": MOST_ROWS,
        "MOST_COURSES": MOST_COURSES,
        "STATES": words.STATES,
        "TABS": TABS,
        "columns": columns.COLUMNS,
    }
    made.globals |= {"SWEEP_AXES": AXES, "SORTED_BY": SORTED_BY}
    made.globals |= {"ATTENTION": columns.ATTENTION, "CELLS": columns.CELLS, "KNOWN": columns.KNOWN}
    return made


@functools.cache
def _asset(name: str) -> str:
    """The style or script ``name`` of this package: ours, hence not escaped."""
    from markupsafe import Markup

    text = (resources.files("qbench.reporting") / "templates" / name).read_text(encoding="utf-8")
    return Markup(trim_script(text) if name.endswith(".js") else text)


def _breakable(name: object) -> str:
    """``name``, escaped, that may break after a sign between its parts: a narrow column would
    break it anywhere.
    """
    return _broken(str(name))


@functools.lru_cache(maxsize=1 << 14)  # names of models, backends and schemas, on every page
def _broken(name: str) -> str:
    from markupsafe import Markup, escape

    text = str(escape(name))
    for joint in ("_", "+", "@", "::"):
        text = text.replace(joint, f"{joint}<wbr>")
    return Markup(text)


def _plain_field(table: columns.Table, place: columns.Place, cell: CellView) -> str:
    """The field of ``cell`` in a column that is not special: its text, and the lines below it."""
    from markupsafe import Markup, escape

    column = place.column
    mark = ""
    if column.is_number and not table.sorts:
        mark = f' class="num{" strong" if place.style == "strong" else ""}"'
    if table.sorts and (key := column.sort_key(cell)):
        mark += f' data-key="{escape(key)}"'
    text = str(escape(column.text(cell)))
    if place.style == "b":
        text = f"<b>{text}</b>"
    below = "".join([f"<small>{escape(line)}</small>" for line in place.lines_below(cell)])
    return Markup(f"<td{mark}>{text}{below}</td>")  # its parts are escaped


def _node_name(name: str) -> str:
    """``name`` of a node, escaped, that may also break where exporters join the names of
    modules.
    """
    from markupsafe import Markup

    text = _breakable(name)
    return Markup(text.replace(".", Markup(".<wbr>")).replace("/", Markup("/<wbr>")))


_COMMIT = re.compile(r"\b[0-9a-f]{7,40}\b")
_SHOWN = 9
"""Digits of a commit in a report, where git does not give a longer name."""


def _linked(text: object, report: Report) -> str:
    """``text``, escaped, whose commits lead to the repository, where that is known."""
    from markupsafe import Markup, escape

    words = str(text)
    if not report.repository:
        return escape(words)
    known = {run.commit.split(" ")[0]: run.sha for run in report.runs if run.commit}
    parts, end = [], 0
    for found in _COMMIT.finditer(words):
        commit = known.get(found[0], found[0] if len(found[0]) == _SHOWN else "")
        if address := commit_address(report.repository, commit):
            parts += [
                escape(words[end : found.start()]),
                Markup('<a href="{}">{}</a>').format(address, found[0]),
            ]
            end = found.end()
    return Markup("").join([*parts, escape(words[end:])])


def _glossary(report: Report, model: str = "") -> list[tuple[str, str]]:
    """(name, one line) of the schemas and metrics of the cells (of ``model``), and of a
    variant, where known.
    """
    cells = [cell for cell in report.cells if model in ("", cell.key.model)]
    names = [cell.key.schema for cell in cells] + [
        metric.name.partition("@")[0] for cell in cells for metric in cell.metrics
    ]
    found = [
        (name, report.meanings[name]) for name in dict.fromkeys(names) if name in report.meanings
    ]
    variants = dict.fromkeys(cell.key.variant for cell in cells if cell.key.variant)
    return [
        *found,
        *((name, f"with the settings of the variant '{name}' in the suite") for name in variants),
    ]


def _in_script(text: str) -> str:
    """JSON as a value in a script: no name in it can end the script."""
    from markupsafe import Markup

    for letter in "<>&'":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)


def _bound(words: str) -> str:
    """``words`` on one line."""
    return words.replace(" ", "\N{NO-BREAK SPACE}")


def _runs_data(report: Report) -> str:
    """The time and commit of each place of the charts; a word equal to that of the place before
    is empty.
    """
    firsts = dict(zip(reversed(places_of(report.runs)), reversed(report.runs), strict=True))
    runs = [firsts[place] for place in sorted(firsts)]
    lines = [
        f"{run.started} · {run.commit}" if run.commit else run.started or run.id for run in runs
    ]
    texts = []
    before: list[str] = []
    for line in lines:
        named = line.replace("|", " ").split()
        texts.append(
            " ".join(
                "" if word in before[place : place + 1] else word
                for place, word in enumerate(named)
            )
        )
        before = named
    return "|".join(texts)


def _cells_of(report: Report, model: str, backend: str | None = None) -> list[CellView]:
    return [c for c in report.cells if c.key.model == model and backend in (None, c.key.backend)]


def _without_cells(cells: Sequence[CellView], others: Sequence[CellView]) -> list[CellView]:
    """``cells`` that are not among ``others``."""
    keys = {cell.key for cell in others}
    return [cell for cell in cells if cell.key not in keys]


def _backends_of(report: Report, model: str) -> list[str]:
    return list(dict.fromkeys(c.key.backend for c in _cells_of(report, model)))


def _folded_cards(
    cells: Sequence[CellView], report: Report
) -> dict[str, tuple[list[tuple[CellView, ...]], list[tuple[CellView, CellView]]]]:
    """Backend → the cards of its section, each for the cells that are equal to the digit, and
    (cell, the cell that its card is shown with) of cells that other sections show.
    """
    found: dict[str, tuple[list[tuple[CellView, ...]], list[tuple[CellView, CellView]]]] = {
        cell.key.backend: ([], []) for cell in cells
    }
    for same in folded(cells, report.trends):
        found[same[0].key.backend][0].append(same)
        for cell in same[1:]:
            found[cell.key.backend][1].append((cell, same[0]))
    return found


def _has_charts(report: Report, model: str) -> bool:
    """Whether a cell of ``model`` has more to show than a row."""
    several = ((cell, report.trends.get(cell.key, ())) for cell in _cells_of(report, model))
    return any(trends and not is_unchanged(cell, trends) for cell, trends in several)


def _card_columns(count: int) -> int:
    """Three or four cards in a row, so that the last row is as full as possible."""
    return min(count, 4 if count % 4 == 0 or -count % 4 <= -count % 3 else 3)


def _model_state(report: Report, model: str) -> str:
    """``3 red, 1 in quarantine`` or ``all pass``: the state of a model in a few words."""
    cells = _cells_of(report, model)
    parts = [
        (sum(c.is_red for c in cells), "red"),
        (sum(c.record.outcome == "quarantined" for c in cells), "in quarantine"),
        (sum(c.record.outcome == "unsupported" for c in cells), "unsupported"),
    ]
    passed = sum(c.shown_outcome in ("passed", "accepted") for c in cells)
    return ", ".join([f"{passed} pass", *(f"{count} {word}" for count, word in parts if count)])


def _steps_of(report: Report, model: str) -> list[StepGroup]:
    """The groups of steps, each with those of ``model`` alone."""
    groups = ((g, tuple(s for s in g.steps if s[0].model == model)) for g in report.step_groups)
    return [StepGroup(position=g.position, run=g.run, steps=steps) for g, steps in groups if steps]


def _costs_of(report: Report, model: str) -> list[tuple[Cell, Cost]]:
    """The time and size of each cell of ``model``, the slowest first."""
    found = [(key, cost) for key, cost in report.costs.items() if key.model == model]
    return sorted(found, key=lambda one: (-one[1].times[-1], one[0]))


def _courses_of(report: Report) -> tuple[list[RecentNights], list[RecentNights]]:
    """The courses that moved in the last nights, and the others."""
    courses = courses_of(report.cells, report.trends)
    moved = [course for course in courses if course.has_moved]
    return moved, [course for course in courses if not course.has_moved]


def _nights_of(report: Report) -> int:
    """How many nights the courses show."""
    return min(NIGHTS, places_of(report.runs)[-1] + 1) if report.runs else 0


def _slowest_cells(report: Report, count: int = 12) -> list[CellView]:
    """The cells that took longest in the newest run."""
    timed = [c for c in report.cells if c.seconds and c.record.outcome != ABSENT]
    return sorted(timed, key=lambda c: (-(c.seconds or 0.0), c.key))[:count]


# The report as a folder of HTML pages that link to each other; each needs no other file and can be
# mailed alone.
#
#     index.html        what needs attention, the matrix, the steps
#     models/M.html     every cell of model M over its runs
#     cells.html        every cell in one table
#     samples/M--S.html samples that model M lost and gained under schema S
#     findings.html     which node of a cell went wrong, and why; findings/C.html: cell C, node by
#                       node
#     known.html        quarantine, missing and stale baselines, what is unsupported
#     compare.html      the newest run compared with the last green one, or where it is green with
#                       the one before it
#     run.html          where and with what it ran, what took longest, the runs before it
#
# Suites other than that of the newest run have the same pages in ``suites/<suite>/``.

BUDGET = 2_000_000
"""Bytes of a whole site of 60 models; and what a page of a larger suite is meant to stay within,
whatever the number of models.
"""


def html_pages(
    reports: Sequence[Report],
    comparisons: Mapping[str, Comparison] | None = None,
    previews: Path | None = None,
) -> dict[str, str]:
    """The pages of ``reports`` (one per suite, that of the newest run first) by their paths.

    Args:
        comparisons: suite → its newest run compared with an earlier one.
        previews: the folder with what samples look like; None: there is none.
    """
    return {
        page.path: render(template, page)
        for template, page in listed_pages(reports, comparisons, previews)
    }


def listed_pages(
    reports: Sequence[Report],
    comparisons: Mapping[str, Comparison] | None = None,
    previews: Path | None = None,
) -> list[tuple[str, Page]]:
    """(template, page) of ``html_pages``, not drawn yet; of each suite the large ones first.

    Args:
        comparisons, previews: as there.
    """
    places = [
        Places.of_suite(report.suite, is_first=not number) for number, report in enumerate(reports)
    ]
    suites = tuple(
        (r.suite, r.state, p.page("index")) for r, p in zip(reports, places, strict=True)
    )
    return [
        (template, replace(page, previews=previews))
        for report, place in zip(reports, places, strict=True)
        for template, page in _pages(report, place, suites, (comparisons or {}).get(report.suite))
    ]


def compare_page(
    comparison: Comparison, places: Places | None = None, tabs: Sequence[str] = ()
) -> str:
    """The compare page of two runs, drawn after the others.

    Args:
        places: the paths of the suite's pages.
        tabs: the names of those that exist; empty: the page has no links.
    """
    places = places or Places()
    report = Report(suite=comparison.new.suite, headline="", is_red=False, run=comparison.new)
    page = Page(
        path=places.page("compare"),
        report=report,
        places=places,
        comparison=comparison,
        tabs=(*tabs, "compare"),
    )
    return render("compare", page)


def finding_page(found: Found) -> str:
    """The page of one finding alone, without links to others."""
    report = Report(suite="", headline="", is_red=found.is_red)
    return render("finding", Page(path="finding.html", report=report, places=Places(), found=found))


def sweep_page(table: SweepTable) -> str:
    """The page of one sweep, alone."""
    report = Report(suite="", headline="", is_red=False)
    return render("sweep", Page(path="sweep.html", report=report, places=Places(), sweep=table))


def proof_page(table: ProofTable) -> str:
    """The page of one proof, alone."""
    report = Report(suite=table.suite, headline="", is_red=table.is_below)
    return render("proof", Page(path="index.html", report=report, places=Places(), proof=table))


def _pages(
    report: Report,
    places: Places,
    suites: tuple[tuple[str, str, str], ...],
    comparison: Comparison | None,
) -> Iterator[tuple[str, Page]]:
    """(template, page) of every page of ``report``."""
    every, report = report.models, most_telling(report)
    shown = report.models
    paged = None if len(shown) == len(every) else frozenset(shown)
    there = {
        "index": True,
        "findings": bool(report.findings),
        "run": report.run is not None,
        "compare": comparison is not None,
    }
    tabs = tuple(name for name in TABS if there.get(name, bool(report.cells)))

    sampled = _sampled(report)

    def made(path: str, found: Found | None = None) -> Page:
        return Page(
            path=path,
            report=report,
            places=places,
            suites=suites,
            models=paged,
            found=found,
            sampled=sampled,
            comparison=comparison,
            tabs=tabs,
        )

    for name in tabs:
        yield "overview" if name == "index" else name, made(places.page(name))
    around = ("", *shown, "")
    for place, (model, part) in enumerate(by_model(report)):
        page = replace(made(places.model(model)), report=part, model=model)
        yield "model", replace(page, neighbours=(around[place], around[place + 2]))
    for key, found in report.findings.items():
        yield "finding", made(places.finding(key.model, key.backend, key.column), found)
    for axes in sampled:
        page = made(places.samples(*axes))
        yield "samples", replace(page, samples=report.samples[axes], model=axes[0])


def _sampled(report: Report) -> frozenset[tuple[str, str]]:
    """The pages of samples of ``report``; of too many, those of red cells first."""
    shown = frozenset(report.models)
    red = {(cell.key.model, cell.key.column) for cell in report.cells if cell.is_red}
    axes = sorted(
        (one for one in report.samples if one[0] in shown), key=lambda one: one not in red
    )
    return frozenset(axes[:MOST_PAGES])
