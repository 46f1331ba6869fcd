"""Annotations on a pull request, and the job summary."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from qbench.reporting.format import change_text, counted
from qbench.reporting.markdown import markdown_text
from qbench.reporting.report import Cause, Report, alert_rows
from qbench.reporting.trends import Step
from qbench.reporting.view import MetricView
from qbench.storage import visible

GROUPS = 10
"""GitHub shows ten errors and ten warnings of a step; a person reads about ten in all."""
CELLS = 5
SUMMARY_BYTES = 900 * 1024

_NEXT = "\nNext: qbench history check"

_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = {**_DATA, ":": "%3A", ",": "%2C"}


def annotations(reports: Sequence[Report], files: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The workflow commands of ``reports``, errors first, at most ``GROUPS``.

    Args:
        files: suite → its file within the repository, where it is known.
    """
    known = files or {}
    errors = [one for report in reports for one in _errors(report, known.get(report.suite, ""))]
    warnings = [one for report in reports for one in _warnings(report, known.get(report.suite, ""))]
    return tuple([*errors, *warnings][:GROUPS])


def step_summary(reports: Sequence[Report], limit: int = SUMMARY_BYTES) -> str:
    """The Markdown page of ``reports`` in at most ``limit`` bytes of UTF-8, cut after a whole line."""
    text = markdown_text(reports)
    if len(text.encode()) <= limit:
        return text
    note = "\n\nThe rest does not fit into a job summary: see the report.\n"
    kept = text.encode()[: limit - len(note.encode())].decode(errors="ignore")
    return kept[: kept.rfind("\n")] + note


def add_step_summary(reports: Sequence[Report], file: str | None) -> None:
    """Add the summary of ``reports`` to ``file``, which GitHub names in ``GITHUB_STEP_SUMMARY``; None: nowhere."""
    if file:
        with Path(file).open("a", encoding="utf-8") as summary:
            summary.write(step_summary(reports))


def _errors(report: Report, file: str) -> Iterator[str]:
    for cause in report.causes:
        yield _command(
            "error", file, f"{report.suite}: {cause.title} ({counted(len(cause.cells), 'cell')})", _cause_text(cause)
        )
    for row in alert_rows(report):
        if row.is_new:
            title = f"{report.suite}: {row.title} ({counted(len(row.lines), 'series', 'series')} worse)"
            yield _command("error", file, title, "\n".join(row.lines[:CELLS]) + _more(len(row.lines)) + _NEXT)


def _warnings(report: Report, file: str) -> Iterator[str]:
    if report.run is not None and not report.run.complete:
        yield _command("warning", file, f"{report.suite}: incomplete", "The run was interrupted before its end.")
    unsure = [cell for cell in report.cells if cell.record.outcome == "inconclusive"]
    if unsure:
        names = "\n".join(f"{cell.key.name}: {cell.record.headline}" for cell in unsure[:CELLS])
        title = f"{report.suite}: inconclusive ({counted(len(unsure), 'cell')})"
        yield _command("warning", file, title, names + _more(len(unsure)))
    for group in report.step_groups:
        losses = (one for one in group.steps if one[2].provisional and _is_loss(one[1], one[2]))
        fresh = sorted(losses, key=lambda one: -_size(one[1], one[2]))
        if fresh:
            lines = [
                f"{key.name}, {metric.name}: {change_text(metric, step.after - step.before)}"
                for key, metric, step in fresh[:CELLS]
            ]
            title = f"{report.suite}: possible step at {group.run.commit or group.run.started}"
            yield _command("warning", file, title, "\n".join(lines) + _more(len(fresh)))


def _is_loss(metric: MetricView, step: Step) -> bool:
    """Whether ``step`` is for the worse; a distance to fp32 is not a score and raises no alert."""
    return not metric.is_distance and (step.after > step.before) is metric.lower_is_better


def _size(metric: MetricView, step: Step) -> float:
    """The size by which steps are ranked: the change of a share, or the relative change of another value."""
    change = abs(step.after - step.before)
    return change if metric.unit == "%" else change / max(abs(step.before), 1e-9)


def _cause_text(cause: Cause) -> str:
    """The worst cells of ``cause`` with their headlines, and what to type next."""
    lines = [
        f"{cell.key.name}: {cell.record.headline}" + (f"\n  {cell.found}" if cell.found else "")
        for cell in cause.cells[:CELLS]
    ]
    text = "\n".join(lines) + _more(len(cause.cells))
    return f"{text}\nNext: {cause.remedies[0]}" if cause.remedies else text


def _more(count: int) -> str:
    return f"\nand {count - CELLS} more" if count > CELLS else ""


def _command(level: str, file: str, title: str, message: str) -> str:
    where = f"file={_escaped(file, _PROPERTY)}," if file else ""
    return f"::{level} {where}title={_escaped(title, _PROPERTY)}::{_escaped(message, _DATA)}"


def _escaped(text: str, table: Mapping[str, str]) -> str:
    # also what other runners take for a command anywhere in a line
    shown = visible(text, keep="\r\n").replace("##", "#\\#")
    return "".join(table.get(letter, letter) for letter in shown)
