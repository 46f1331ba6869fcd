"""One page of a report as HTML that works offline: style, script and charts inside, nothing requested from anywhere."""

from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

from qbench.reporting import words
from qbench.reporting.alert_table import alert_rows
from qbench.reporting.chart import line_names, sparkline_svg, trend_svg
from qbench.reporting.compared import Comparison
from qbench.reporting.flips import flips_svg
from qbench.reporting.found import Found
from qbench.reporting.found_words import decibels, found_text, node_of, rounded_count, share
from qbench.reporting.heat_map import heat_map
from qbench.reporting.next_steps import next_steps
from qbench.reporting.node_chart import nodes_svg
from qbench.reporting.places import TABS, Places, anchor_of, link
from qbench.reporting.report import Report
from qbench.reporting.still import stands_still, still_cells
from qbench.reporting.timeline import StepGroup, Trend
from qbench.reporting.trimming import trim_page, trim_script
from qbench.reporting.view import ABSENT, CellKey, CellView
from qbench.storage import visible

if TYPE_CHECKING:
    from jinja2 import Environment

_WORDS = (
    words.symbol_of,
    words.value_text,
    words.is_distance,
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
    decibels,
    found_text,
    node_of,
    rounded_count,
    share,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What one template needs: its own path, the suite it is about, and where each suite's pages lie.

    ``model`` is that of a model's page, ``found`` what the page of a finding shows; ``comparison`` what the compare
    page shows, where there is one; ``tabs`` the names of the suite's pages that there are, for the links on each of
    them: see ``places.TABS``.
    """

    path: str
    report: Report
    places: Places
    suites: tuple[tuple[str, str, str], ...] = ()
    """(suite, state, path of its overview) of every suite, for the links at the top."""
    model: str = ""
    found: Found | None = None
    comparison: Comparison | None = None
    tabs: tuple[str, ...] = ()

    def to(self, name: str) -> str:
        """A link to the page ``name`` of this suite."""
        return link(self.places.page(name), self.path)

    def to_model(self, model: str) -> str:
        """A link to the page of ``model``."""
        return link(self.places.model(model), self.path)

    def to_finding(self, key: CellKey) -> str:
        """A link to the page of the finding on ``key``."""
        return link(self.places.finding(key.model, key.backend, key.column), self.path)

    def across(self, target: str) -> str:
        """A link to the page at the path ``target``."""
        return link(target, self.path)


class Renderer:
    """The templates, loaded once; style and script of a page are put together from the parts it names."""

    def __init__(self) -> None:
        self._environment = _environment()

    def render(self, template: str, page: Page) -> str:
        """The page that ``template`` (``overview``, ``model``, …) makes of ``page``."""
        text = self._environment.get_template(f"{template}.html.j2").render(page=page, report=page.report)
        return visible(trim_page(text.lstrip()), keep="\n\t")


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
        _breakable,
        _node_name,
        _chart,
        _spark,
        _has_charts,
        still_cells,
        _flips,
        _runs_data,
        _cells_of,
        _backends_of,
        _card_columns,
        _model_state,
        _steps_of,
        _slowest_cells,
        _neighbours,
        _with_outcome,
        alert_rows,
        heat_map,
        line_names,
        next_steps,
        _nodes_chart,
    )
    for function in (*_WORDS, *own):
        made.globals[function.__name__.lstrip("_")] = function
    made.globals |= {"MEANINGS": words.MEANINGS, "STATES": words.STATES, "TABS": TABS}
    return made


def _asset(name: str) -> str:
    """The style or script ``name`` of this package: ours, hence not escaped."""
    from markupsafe import Markup

    text = (resources.files("qbench.reporting") / "templates" / name).read_text(encoding="utf-8")
    return Markup(trim_script(text) if name.endswith(".js") else text)


def _breakable(name: object) -> str:
    """``name``, escaped, with leave to break after what joins its parts: else a narrow column cuts it anywhere."""
    from markupsafe import Markup, escape

    text = str(escape(str(name)))
    for joint in ("_", "+", "@", "::"):
        text = text.replace(joint, f"{joint}<wbr>")
    return Markup(text)


def _node_name(name: str) -> str:
    """``name`` of a node, escaped, with leave to break where exporters join the names of modules, too."""
    from markupsafe import Markup

    text = _breakable(name)
    return Markup(text.replace(".", Markup(".<wbr>")).replace("/", Markup("/<wbr>")))


def _bound(words: str) -> str:
    """``words`` on one line."""
    return words.replace(" ", "\N{NO-BREAK SPACE}")


def _chart(trend: Trend, cell: CellView, report: Report) -> str:
    from markupsafe import Markup

    return Markup(trend_svg(trend, cell, report.runs))  # escaped where it was made


def _spark(trend: Trend, cell: CellView, report: Report) -> str:
    from markupsafe import Markup

    return Markup(sparkline_svg(trend, cell, len(report.runs)))


def _nodes_chart(found: Found) -> str:
    from markupsafe import Markup

    return Markup(nodes_svg(found.finding))


def _flips(trend: Trend, report: Report) -> str:
    from markupsafe import Markup

    return Markup(flips_svg(trend, len(report.runs)))


def _runs_data(report: Report) -> str:
    """When and at which commit each run was, for the pointer's label; empty are the words of the run before."""
    lines = [f"{run.started} · {run.commit}" if run.commit else run.started or run.id for run in report.runs]
    told = []
    before: list[str] = []
    for line in lines:
        named = line.replace("|", " ").split()
        told.append(" ".join("" if word in before[place : place + 1] else word for place, word in enumerate(named)))
        before = named
    return "|".join(told)


def _cells_of(report: Report, model: str, backend: str | None = None) -> list[CellView]:
    return [c for c in report.cells if c.key.model == model and backend in (None, c.key.backend)]


def _backends_of(report: Report, model: str) -> list[str]:
    return list(dict.fromkeys(c.key.backend for c in _cells_of(report, model)))


def _has_charts(report: Report, model: str) -> bool:
    """Whether a cell of ``model`` has more to show than a row."""
    several = ((cell, report.trends.get(cell.key, ())) for cell in _cells_of(report, model))
    return any(trends and not stands_still(cell, trends) for cell, trends in several)


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


def _steps_of(report: Report, model: str) -> list[StepGroup]:
    """The groups of steps, each with those of ``model`` alone."""
    groups = ((g, tuple(s for s in g.steps if s[0].model == model)) for g in report.step_groups)
    return [StepGroup(position=g.position, run=g.run, steps=steps) for g, steps in groups if steps]


def _slowest_cells(report: Report, model: str = "", count: int = 12) -> list[CellView]:
    """The cells (of ``model``) that took longest in the newest run."""
    timed = [c for c in report.cells if c.seconds and c.outcome != ABSENT and model in ("", c.key.model)]
    return sorted(timed, key=lambda c: (-(c.seconds or 0.0), c.key))[:count]


def _neighbours(report: Report, model: str) -> tuple[str, str]:
    """The models before and after ``model``; empty at the ends."""
    models = report.models
    place = models.index(model)
    return (models[place - 1] if place else ""), (models[place + 1] if place + 1 < len(models) else "")


def _with_outcome(report: Report, *outcomes: str) -> list[CellView]:
    return [cell for cell in report.cells if cell.outcome in outcomes]
