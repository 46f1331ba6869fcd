"""Annotations on a pull request, the comment about it, the job summary, and a badge."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from qbench.errors import IncomparableError
from qbench.reporting.format import STATES, change_text, counted, symbol_of
from qbench.reporting.markdown import code, escaped, markdown_table, markdown_text
from qbench.reporting.report import Cause, Report, alert_rows
from qbench.reporting.run_comparison import ComparedCell, ComparedMetric, Comparison, compare
from qbench.reporting.trends import Step
from qbench.reporting.view import ABSENT, MetricView, RunView, read_run
from qbench.storage import neutral_json, visible
from qbench.tracking import Relation, Run, change_size

GROUPS = 10
"""GitHub shows ten errors and ten warnings of a step; a person reads about ten in all."""
CELLS = 5
SUMMARY_BYTES = 900 * 1024

_NEXT = "\nNext: qbench history check"

_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = {**_DATA, ":": "%3A", ",": "%2C"}


def annotations(
    reports: Sequence[Report], files: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """The workflow commands of ``reports``, errors first, at most ``GROUPS``.

    Args:
        files: suite → its file within the repository, where it is known.
    """
    known = files or {}
    errors = [one for report in reports for one in _errors(report, known.get(report.suite, ""))]
    warnings = [one for report in reports for one in _warnings(report, known.get(report.suite, ""))]
    return tuple([*errors, *warnings][:GROUPS])


def step_summary(reports: Sequence[Report], limit: int = SUMMARY_BYTES) -> str:
    """The Markdown page of ``reports``: up to ``limit`` bytes of UTF-8, cut after a whole line."""
    text = markdown_text(reports)
    if len(text.encode()) <= limit:
        return text
    note = "\n\nThe rest does not fit into a job summary: see the report.\n"
    kept = text.encode()[: limit - len(note.encode())].decode(errors="ignore")
    return kept[: kept.rfind("\n")] + note


def add_step_summary(reports: Sequence[Report], file: str | None) -> None:
    """Add the summary of ``reports`` to ``file``, which GitHub names in
    ``GITHUB_STEP_SUMMARY``; None: nowhere.
    """
    if file:
        with Path(file).open("a", encoding="utf-8") as summary:
            summary.write(step_summary(reports))


def _errors(report: Report, file: str) -> Iterator[str]:
    for cause in report.causes:
        yield _command(
            "error",
            file,
            f"{report.suite}: {cause.title} ({counted(len(cause.cells), 'cell')})",
            _cause_text(cause),
        )
    for row in alert_rows(report):
        if row.is_new:
            title = (
                f"{report.suite}: {row.title} ({counted(len(row.lines), 'series', 'series')} worse)"
            )
            yield _command(
                "error", file, title, "\n".join(row.lines[:CELLS]) + _more(len(row.lines)) + _NEXT
            )


def _warnings(report: Report, file: str) -> Iterator[str]:
    run = report.run
    if run is not None and not run.complete:
        early = next((note for note in run.notes if note.startswith("ended early")), "")
        absent = (
            f"{run.absent} of {counted(run.selected, 'selected cell')} have no line."
            if run.absent
            else ""
        )
        words = early or absent or "The run was interrupted before its end."
        yield _command("warning", file, f"{report.suite}: incomplete", words)
    unsure = [cell for cell in report.cells if cell.record.outcome == "inconclusive"]
    if unsure:
        names = "\n".join(f"{cell.key}: {cell.record.headline}" for cell in unsure[:CELLS])
        title = f"{report.suite}: inconclusive ({counted(len(unsure), 'cell')})"
        yield _command("warning", file, title, names + _more(len(unsure)))
    for group in report.step_groups:
        losses = (one for one in group.steps if one[2].provisional and _is_loss(one[1], one[2]))
        fresh = sorted(
            losses, key=lambda one: -change_size(one[2].before, one[2].after, one[1].unit)
        )
        if fresh:
            lines = [
                f"{key}, {metric.name}: {change_text(metric, step.after - step.before)}"
                for key, metric, step in fresh[:CELLS]
            ]
            title = f"{report.suite}: possible step at {group.run.commit or group.run.started}"
            yield _command("warning", file, title, "\n".join(lines) + _more(len(fresh)))


def _is_loss(metric: MetricView, step: Step) -> bool:
    """Whether ``step`` is for the worse; a distance to fp32 is not a score and raises no alert."""
    return not metric.is_distance and (step.after > step.before) is metric.lower_is_better


def _cause_text(cause: Cause) -> str:
    """The worst cells of ``cause`` with their headlines, and what to type next."""
    lines = []
    for cell in cause.cells[:CELLS]:
        lines.append(f"{cell.key}: {cell.record.headline}")
        if cell.found:
            lines.append(f"  {cell.found}")
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


# The comment on a pull request: for each suite the cells that differ from the newest run of the
# main branch, and what is red. It is changed by every push, so that a pull request has one; the
# mark at its beginning shows which it is.

COMMENT_MARK = "<!-- qbench -->"
"""The workflow looks for the comment that begins with it; a reader does not see it."""
COMMENT_LENGTH = 60_000
"""GitHub refuses a comment of more than 65,536 characters."""
CELLS_IN_COMMENT = 30


def comparison_with_main(runs: Sequence[Run]) -> Comparison | None:
    """The newest of ``runs`` (of one suite, oldest → newest) compared with the newest whole one
    of its class before it.

    Machines of continuous integration take turns; where none was of this class, it is the newest
    whole one, and results of different classes are compared.
    """
    before = [run for run in runs[:-1] if run.complete]
    if not before:
        return None
    classes = _classes(runs[-1])
    main = next((run for run in reversed(before) if _classes(run) & classes), before[-1])
    for across in (False, True):
        try:
            return compare(main, runs[-1], across=across)
        except IncomparableError as error:
            problem = str(error)
    return Comparison(old=read_run(main), new=read_run(runs[-1]), problem=problem)


def comment_text(
    pairs: Iterable[tuple[Report, Comparison | None]], limit: int = COMMENT_LENGTH
) -> str:
    """The comment about suites and their comparisons (None: nothing to compare with), at most
    ``limit`` characters.
    """
    text = (
        visible(
            "\n\n".join([COMMENT_MARK, *(part for pair in pairs for part in _suite_parts(*pair))]),
            keep="\n",
        )
        + "\n"
    )
    note = "\n\nThe rest does not fit into a comment: see the artifact.\n"
    if len(text) <= limit:
        return text
    kept = text[: limit - len(note)]
    return kept[: kept.rfind("\n")] + note


def _suite_parts(report: Report, found: Comparison | None) -> Iterator[str]:
    yield f"### {STATES[report.state]} {escaped(report.suite)}: {escaped(report.headline)}"
    if found is None:
        yield "The history has no earlier run of this suite to compare with."
    elif found.problem:
        yield f"Nothing of {_run_words(found.old)} can be compared: {escaped(found.problem)}"
    else:
        yield _tally(found)
        if found.across:
            what = ", ".join(what for what, _ in found.differs)
            yield (
                "No earlier run is of this environment class, so that a change may come from: "
                f"{escaped(what)}."
            )
        news = found.news
        if news:
            rows = [_compared_row(cell) for cell in news[:CELLS_IN_COMMENT]]
            yield markdown_table(["Cell", "Outcome", "Metric", "Before", "Now", "Change"], 3, rows)
        if len(news) > CELLS_IN_COMMENT:
            yield f"and {counted(len(news) - CELLS_IN_COMMENT, 'cell')} more"
        yield from _costs(found)
    for cause in report.causes:
        yield _cause_line(cause, found)


def _costs(found: Comparison) -> Iterator[str]:
    """The times and sizes that changed or do not hold, and how many are judged."""
    judged = [(cell, cost) for cell in found.cells for cost in cell.costs if cost.new is not None]
    if not judged:
        return
    news = [one for one in judged if one[1].is_changed or one[1].one.state != "holds"]
    rest = len(judged) - len(news)
    yield (
        f"Time and size: {counted(rest, 'number')} as before and within "
        f"{'its limit' if rest == 1 else 'their limits'}, {len(news)} not."
    )
    rows = [
        [
            code(str(cell.key)),
            cost.one.name,
            cost.one.state,
            "" if cost.old is None else cost.old.text,
            cost.one.text,
            cost.one.limit_text,
        ]
        for cell, cost in news[:CELLS_IN_COMMENT]
    ]
    if rows:
        yield markdown_table(["Cell", "What", "Gate", "Before", "Now", "Limit"], 3, rows)
    if len(news) > CELLS_IN_COMMENT:
        yield f"and {counted(len(news) - CELLS_IN_COMMENT, 'number')} more"


def _run_words(run: RunView) -> str:
    commit = f"commit {code(run.commit)}" if run.commit else "the run"
    return f"{commit} ({escaped(run.started)})"


def _tally(found: Comparison) -> str:
    """How many cells differ, and from which run."""
    count = len(found.news)
    return (
        f"{count or 'None'} of {counted(len(found.cells), 'cell')} "
        f"{'differs' if count == 1 else 'differ'} from {_run_words(found.old)}."
    )


def _cause_line(cause: Cause, found: Comparison | None) -> str:
    """One cause with the number of its cells, of these how many are as before, and what to type
    next.
    """
    count = counted(len(cause.cells), "cell")
    if found is not None and not found.problem:
        changed = {cell.key for cell in found.news}
        old = sum(cell.key not in changed for cell in cause.cells)
        if old:
            count += f", {old} of them as before"
    line = f"{symbol_of(cause.cells[0].record.outcome)} {cause.title} ({count})."
    return f"{line} Next: {code(cause.remedies[0])}" if cause.remedies else line


def _compared_row(cell: ComparedCell) -> Sequence[str]:
    outcomes = dict.fromkeys(side.record.outcome for side in (cell.old, cell.new) if side)
    outcome = " → ".join(f"{symbol_of(one)} {escaped(one)}" for one in outcomes)
    metric = next(iter(cell.shown), ComparedMetric("", "", "", ""))
    change = ""
    if metric.moved:
        change = f"**{metric.moved}**"
    elif cell.relation not in (Relation.CHANGED, Relation.SAME):
        change = escaped(cell.why or cell.relation.value)
    return code(str(cell.key)), outcome, escaped(metric.name), metric.before, metric.now, change


# A badge: the endpoint file of shields.io (https://shields.io/badges/endpoint-badge).

_COLOURS = {"red": "red", "incomplete": "yellow", "empty": "lightgrey", "green": "brightgreen"}
"""State of the reports → colour; the first of them that any suite is in counts."""


def badge_text(reports: Sequence[Report]) -> str:
    """The badge of ``reports`` as JSON: how many cells there are, or how many of them are red."""
    states = {report.state for report in reports}
    state = next((one for one in _COLOURS if one in states), "empty")
    cells = sum(
        cell.record.outcome not in (ABSENT, "unsupported")
        for report in reports
        for cell in report.cells
    )
    red = sum(len(cause.cells) for report in reports for cause in report.causes)
    words = {
        "red": f"{red} of {counted(cells, 'cell')} red",
        "green": f"{counted(cells, 'cell')} green",
    }
    return neutral_json(
        {
            "schemaVersion": 1,
            "label": "qbench",
            "message": words.get(state, state),
            "color": _COLOURS[state],
        }
    )


def _classes(run: Run) -> set[str]:
    return {record.environment_class for record in run.cells if record.environment_class}
