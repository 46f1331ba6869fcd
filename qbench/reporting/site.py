"""The report as a folder of HTML pages that link to each other; each is whole by itself and can be mailed alone.

    index.html        what needs attention, the matrix, the steps
    models/M.html     every cell of model M over its runs
    cells.html        every cell in one table
    findings.html     which node of a cell went wrong, and why; findings/C.html: cell C, node by node
    known.html        quarantine, missing and stale baselines, what is unsupported
    compare.html      the newest run beside the one before it
    run.html          where and with what it ran, what took longest, the runs before it

Suites other than that of the newest run have the same pages in ``suites/<suite>/``.
"""

from collections.abc import Iterator, Mapping, Sequence

from qbench.reporting.compared import Comparison
from qbench.reporting.found import Found
from qbench.reporting.html import Page, Renderer
from qbench.reporting.places import TABS, Places
from qbench.reporting.report import Report

BUDGET = 2_000_000
"""Bytes of a whole site of 60 models; and bytes that no page exceeds, whatever the number of models."""


def html_pages(reports: Sequence[Report], comparisons: Mapping[str, Comparison] | None = None) -> dict[str, str]:
    """The pages of ``reports`` (one a suite, that of the newest run first) by their paths.

    Args:
        comparisons: suite → its newest run beside an earlier one.
    """
    places = [Places.of_suite(report.suite, is_first=not number) for number, report in enumerate(reports)]
    suites = tuple((r.suite, r.state, p.page("index")) for r, p in zip(reports, places, strict=True))
    renderer = Renderer()
    pages = {}
    for report, place in zip(reports, places, strict=True):
        found = (comparisons or {}).get(report.suite)
        for template, page in _pages(report, place, suites, found):
            pages[page.path] = renderer.render(template, page)
    return pages


def compare_page(comparison: Comparison, places: Places | None = None, tabs: Sequence[str] = ()) -> str:
    """The compare page of two runs, drawn after the others.

    Args:
        places: where the suite's pages lie. tabs: the names of those that there are; none: the page stands alone.
    """
    places = places or Places()
    report = Report(suite=comparison.new.suite, headline="", is_red=False, run=comparison.new)
    page = Page(
        path=places.page("compare"), report=report, places=places, comparison=comparison, tabs=(*tabs, "compare")
    )
    return Renderer().render("compare", page)


def finding_page(found: Found) -> str:
    """The page of one finding alone, without links to others."""
    report = Report(suite="", headline="", is_red=found.is_red)
    return Renderer().render("finding", Page(path="finding.html", report=report, places=Places(), found=found))


def _pages(
    report: Report, places: Places, suites: tuple[tuple[str, str, str], ...], comparison: Comparison | None
) -> Iterator[tuple[str, Page]]:
    """(template, page) of every page of ``report``."""
    there = {
        "index": True,
        "findings": bool(report.findings),
        "run": report.run is not None,
        "compare": comparison is not None,
    }
    tabs = tuple(name for name in TABS if there.get(name, bool(report.cells)))

    def made(path: str, model: str = "", found: Found | None = None) -> Page:
        return Page(
            path=path,
            report=report,
            places=places,
            suites=suites,
            model=model,
            found=found,
            comparison=comparison,
            tabs=tabs,
        )

    for name in tabs:
        yield "overview" if name == "index" else name, made(places.page(name))
    for model in report.models:
        yield "model", made(places.model(model), model)
    for key, found in report.findings.items():
        yield "finding", made(places.finding(key.model, key.backend, key.column), found=found)
