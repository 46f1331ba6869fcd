"""Writing the reports: which files, in which folder."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from qbench.errors import unknown_name
from qbench.reporting.assembly import NOTHING, Memory, build_reports
from qbench.reporting.github import badge_text, comment_text, comparison_with_main
from qbench.reporting.html import Page, compare_page, listed_pages, render
from qbench.reporting.markdown import markdown_text
from qbench.reporting.page_shares import draw_shares
from qbench.reporting.places import FRONT, KINDS, TABS, Places, file_name, remove_outdated
from qbench.reporting.progress import WINDOW
from qbench.reporting.report import Report
from qbench.reporting.run_comparison import Comparison, newest_comparison
from qbench.storage import write_bytes, write_text, writing_pages
from qbench.tracking import Run
from qbench.working import working


@working("drawing reports")
def write_reports(
    history_runs: Sequence[Run],
    folder: Path,
    kinds: Iterable[str] = KINDS,
    *,
    problems: Sequence[str] = (),
    window: int = WINDOW,
    memory: Memory = NOTHING,
    reports: Sequence[Report] | None = None,
    ran: Collection[str] | None = None,
    previews: Path | None = None,
) -> list[Path]:
    """Draw the history (oldest → newest; may be empty) into ``folder``; gives the files.

    Args:
        kinds: of ``html`` (index.html), ``md`` (report.md), ``png`` (matrix.png and charts/),
            ``badge`` (badge.json), ``comment`` (comment.md, for a pull request). Suites other than
            that of the newest run have their pages in ``suites/<suite>/`` and their PNG files in
            ``charts/<suite>/``. Pages of an earlier report that are not among them are removed.
        problems: problems of the history as a whole, one sentence each; shown among the notices.
        window: how many of the newest runs of a suite are read.
        memory: accepted results and regressions.
        reports: what ``build_reports`` makes of all these, where it is known already.
        ran: the suites that the badge and the comment are about; None: all.
        previews: the folder of reports of the runs, where their samples have previews; None:
            ``folder``.

    Raises:
        InputError: an unknown kind. StoreError: the folder cannot be written.
    """
    chosen = list(dict.fromkeys(kinds))
    for kind in chosen:
        if kind not in FRONT:
            raise unknown_name("Drawing reports", "kind of report", kind, FRONT)
    reports = (
        build_reports(history_runs, window=window, memory=memory) if reports is None else reports
    )
    reports = (replace(reports[0], notices=(*problems, *reports[0].notices)), *reports[1:])
    written: list[Path] = []
    if "html" in chosen:
        comparisons = _comparisons(reports, history_runs)
        written += _write_pages(listed_pages(reports, comparisons, previews or folder), folder)
        remove_outdated(folder, frozenset(written))
    charts: dict[tuple[str, str], str] = {}
    if "png" in chosen:
        for place, report in enumerate(reports):
            below = folder / "charts" / (file_name(report.suite) if place else "")
            drawn = _write_charts(report, below, below if place else folder)
            written.extend(drawn.values())
            charts |= {
                (report.suite, model): path.relative_to(folder).as_posix()
                for model, path in drawn.items()
            }
    if "md" in chosen:
        written.append(folder / FRONT["md"])
        write_text(written[-1], markdown_text(reports, charts=charts))
    chosen_reports = [report for report in reports if ran is None or report.suite in ran]
    if "badge" in chosen:
        written.append(folder / FRONT["badge"])
        write_text(written[-1], badge_text(chosen_reports))
    if "comment" in chosen:
        written.append(folder / FRONT["comment"])
        runs = _runs_by_suite(history_runs)
        pairs = [
            (report, comparison_with_main(runs.get(report.suite, []))) for report in chosen_reports
        ]
        write_text(written[-1], comment_text(pairs))
    return written


def write_comparison(comparison: Comparison, folder: Path, *, first: str) -> Path:
    """Draw ``comparison`` as a page of the site in ``folder``, with links to the other pages
    that exist; its file.

    Args:
        first: the suite whose pages are in ``folder`` itself: that of the newest run.

    Raises:
        StoreError: the folder cannot be written.
    """
    suite = comparison.new.suite
    is_alone = not (folder / Places().page("index")).is_file()
    places = Places.of_suite(suite, is_first=is_alone or suite == first)
    tabs = [name for name in TABS if name != "compare" and (folder / places.page(name)).is_file()]
    path = folder / places.page("compare")
    write_text(path, compare_page(comparison, places, tabs))
    return path


def front_pages(written: Iterable[Path], folder: Path) -> list[Path]:
    """Of the files ``written`` into ``folder`` those that a person opens first."""
    return [path for path in written if path.parent == folder and path.name in FRONT.values()]


def _write_pages(pages: Sequence[tuple[str, Page]], folder: Path) -> list[Path]:
    """Draw ``pages`` into ``folder``, in several processes where there are many; their files."""
    paths = [folder / page.path for _, page in pages]
    with writing_pages(folder) as write:

        def draw(number: int) -> None:
            write(paths[number], render(*pages[number]))

        draw_shares(draw, len(pages))
    return paths


def _comparisons(reports: Sequence[Report], runs: Sequence[Run]) -> dict[str, Comparison]:
    """Suite → its newest run compared with an earlier one, where there are two."""
    named = _runs_by_suite(runs)
    found = {
        report.suite: newest_comparison(
            named.get(report.suite, []),
            {run.id: cells for run, cells in zip(report.runs, report.past, strict=True)},
        )
        for report in reports
    }
    return {suite: comparison for suite, comparison in found.items() if comparison is not None}


def _runs_by_suite(runs: Sequence[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in runs:
        if {"id", "suite"} <= run.header.keys():
            found.setdefault(run.suite, []).append(run)
    return found


def _write_charts(report: Report, charts: Path, folder: Path) -> dict[str, Path]:
    """Draw the matrix (named "") and the trends of every model of ``report``; the files by
    model.
    """
    from qbench.reporting.png import charted_models, matrix_png, model_png

    drawn: dict[str, Path] = {}
    if report.matrices:
        drawn[""] = folder / FRONT["png"]
        write_bytes(drawn[""], matrix_png(report))
    for model in charted_models(report):
        drawn[model] = charts / f"{file_name(model)}.png"
        write_bytes(drawn[model], model_png(report, model))
    return drawn
