"""The reports as files: ``index.html``, ``report.md``, ``matrix.png`` and ``charts/<model>.png`` in one folder."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from qbench.errors import unknown_name
from qbench.reporting.assembly import build_reports
from qbench.reporting.html import html_page
from qbench.reporting.markdown import markdown_text
from qbench.reporting.view import Report
from qbench.storage import write_bytes, write_text
from qbench.tracking import Run

KINDS = ("html", "md", "png")


def write_reports(
    history_runs: Sequence[Run], folder: Path, kinds: Iterable[str] = KINDS, *, problems: Sequence[str] = ()
) -> list[Path]:
    """Draw the history (oldest → newest; may be empty) into ``folder`` and return the files written.

    Args:
        kinds: of ``html`` (index.html), ``md`` (report.md), ``png`` (matrix.png and charts/). Suites other than that
            of the newest run share the first two, and have their PNG files in ``charts/<suite>/``.
        problems: what was found wrong with the history as a whole, one sentence each; shown among the notices.

    Raises:
        InputError: an unknown kind. StoreError: the folder cannot be written.
    """
    chosen = list(dict.fromkeys(kinds))
    for kind in chosen:
        if kind not in KINDS:
            raise unknown_name("Drawing reports", "kind of report", kind, KINDS)
    reports = build_reports(history_runs)
    reports = (replace(reports[0], notices=(*problems, *reports[0].notices)), *reports[1:])
    written: list[Path] = []
    if "html" in chosen:
        written.append(folder / "index.html")
        write_text(written[-1], html_page(reports))
    charts: dict[tuple[str, str], str] = {}
    if "png" in chosen:
        for place, report in enumerate(reports):
            below = folder / "charts" / (file_name(report.suite) if place else "")
            drawn = _write_charts(report, below, below if place else folder)
            written.extend(drawn.values())
            charts |= {(report.suite, model): path.relative_to(folder).as_posix() for model, path in drawn.items()}
    if "md" in chosen:
        written.append(folder / "report.md")
        write_text(written[-1], markdown_text(reports, charts=charts))
    return written


def file_name(text: str) -> str:
    """``text`` as the name of a file: letters, digits, ``_``, ``.`` and ``-``; what lost letters gets a digest."""
    plain = re.sub(r"[^a-z0-9_.-]", "-", text).lstrip(".")[:80]
    return plain if plain == text != "" else f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def _write_charts(report: Report, charts: Path, folder: Path) -> dict[str, Path]:
    """Draw the matrix (named "") and the trends of every model of ``report``; the files by model."""
    from qbench.reporting.png import charted_models, matrix_png, model_png

    drawn: dict[str, Path] = {}
    if report.matrices:
        drawn[""] = folder / "matrix.png"
        write_bytes(drawn[""], matrix_png(report))
    for model in charted_models(report):
        drawn[model] = charts / f"{file_name(model)}.png"
        write_bytes(drawn[model], model_png(report, model))
    return drawn
