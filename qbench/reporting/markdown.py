"""The report in GitHub-flavoured Markdown."""

import re
from collections.abc import Iterable, Mapping, Sequence

from qbench.reporting.columns import MARKDOWN, Place, words_instead
from qbench.reporting.findings_view import found_text
from qbench.reporting.format import (
    BELOW,
    BELOW_MEANING,
    NOT_ACCURACY,
    POWER_HEADINGS,
    STATES,
    cell_text,
    change_text,
    common_lead,
    counted,
    is_agreement,
    parts_text,
    power_row,
    symbol_of,
    tally_lines,
    value_text,
)
from qbench.reporting.report import AlertRow, Cause, Matrix, Report, alert_rows
from qbench.reporting.terminal import Step, class_sentence, next_steps
from qbench.reporting.view import CellView
from qbench.storage import visible

ROWS_SHOWN = 30
MATRIX_LEDE = "Change against the stored fp32 result: in percentage points, or in the unit shown."
RUNS_SHOWN = 6
_ESCAPED = re.compile(r"(^[#+\-=:]|[\\`*_\[\]<>|~@&$])")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;", "|": "&#124;"}


def escaped(text: str) -> str:
    """``text`` so that Markdown shows it as it is: one line, no markup, no mention of people,
    no link.
    """
    plain = " ".join(text.split())
    plain = _ESCAPED.sub(lambda match: _ENTITIES.get(match[1], "\\" + match[1]), plain)
    return plain.replace("://", "&#58;//").replace("www.", "www&#46;")


def code(text: str) -> str:
    """``text`` as a code span, whatever backticks it holds (CommonMark 6.1); tables take ``|``
    only escaped.
    """
    plain = " ".join(text.split()).replace("|", "\\|")
    if not plain:
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", plain)), default=0))
    gap = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{gap}{plain}{gap}{fence}"


def markdown_text(
    reports: Sequence[Report], *, charts: Mapping[tuple[str, str], str] | None = None
) -> str:
    """The Markdown page of ``reports``, one per suite, that of the newest run first.

    Args:
        charts: (suite, model) → the chart that was drawn of it, relative to the page; these are
            linked.
    """
    text = "\n\n".join(block for report in reports for block in _blocks(report, charts or {}))
    return visible(text, keep="\n") + "\n"


def _blocks(report: Report, charts: Mapping[tuple[str, str], str]) -> Iterable[str]:
    yield f"# qbench {escaped(report.suite)}".rstrip()
    yield f"**{STATES[report.state]} {escaped(report.headline)}.**"
    if report.run is None:
        yield from _notices(report)
        return
    facts = [report.run.started]
    if report.run.commit:
        facts.append(f"{report.run.release_of or 'commit'} {report.run.commit}")
    facts.append(report.run.processor)
    yield escaped(" · ".join(filter(None, facts)))
    yield "  ".join(
        f"{symbol} {count} {escaped(name)}"
        for symbol, name, count in tally_lines(report.cells, report.tallies)
    )
    if report.carried:
        yield escaped(f"{report.carried}.")
    if report.undecided:
        yield f"> {escaped(report.undecided)}"
    yield from _notices(report)
    if report.causes:
        yield "## Needs attention"
        for cause in report.causes:
            yield from _cause(cause)
    yield from _findings(report)
    yield from _alerts(report)
    if report.matrices:
        yield "## Matrix"
        yield MATRIX_LEDE
        if any(cell.is_below_tolerance for cell in report.cells):
            yield f"{BELOW} {BELOW_MEANING}."
        for matrix in report.matrices:
            yield from _matrix(matrix)
    yield from _costs(report)
    yield from _in_parts(report)
    yield from _powers(report)
    yield from _steps(report)
    yield from _history(
        report, {m: charts[report.suite, m] for m in report.models if (report.suite, m) in charts}
    )
    yield from _known(report)
    versions = ", ".join(
        f"{escaped(name)} {escaped(version)}" for name, version in report.run.versions
    )
    yield "; ".join(filter(None, [f"Run {code(report.run.id)}", versions]))


def _notices(report: Report) -> Iterable[str]:
    if report.notices:
        yield "\n".join(f"> {escaped(notice)}  " for notice in report.notices[:ROWS_SHOWN])
    if report.class_remedy:
        steps = "\n".join(f"- {_step(step)}" for step in next_steps([report.class_remedy]))
        yield f"{escaped(class_sentence(report))}. Next:\n\n{steps}"


def markdown_table(heads: Sequence[str], right: int, rows: Iterable[Sequence[str]]) -> str:
    """A table whose columns from number ``right`` on are aligned to the right; cells are
    Markdown already.
    """
    rules = ["---"] * right + ["---:"] * (len(heads) - right)
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, rules, *rows))


def _cause(cause: Cause) -> Iterable[str]:
    yield (
        f"### {symbol_of(cause.cells[0].record.outcome)} {cause.title} "
        f"({counted(len(cause.cells), 'cell')})"
    )
    yield markdown_table(
        MARKDOWN.headings, 3, (tuple(_cell_row(cell)) for cell in cause.cells[:ROWS_SHOWN])
    )
    if len(cause.cells) > ROWS_SHOWN:
        yield f"and {len(cause.cells) - ROWS_SHOWN} more"
    rules = dict.fromkeys(cell.record.rule for cell in cause.cells if cell.record.rule)
    if rules:
        yield f"Rule: {escaped('; '.join(list(rules)[:3]))}"
    if cause.remedies:
        yield "Next:\n\n" + "\n".join(f"- {_step(step)}" for step in next_steps(cause.remedies)[:3])


def _cell_row(cell: CellView) -> Iterable[str]:
    """The fields of ``cell``; words in place of its numbers are in the first field about its
    metric.
    """
    words = words_instead(cell)
    for place in MARKDOWN.places:
        if words is not None and place.column.of_metric:
            yield escaped(words) if place.key == MARKDOWN.of_metric[0] else ""
            continue
        yield "<br>".join([_field(place, cell), *map(escaped, place.lines_below(cell))])


def _field(place: Place, cell: CellView) -> str:
    text = place.column.text(cell)
    if place.key == "cell":
        text = code(text)
    elif not place.column.is_number:
        text = escaped(text)
    return f"**{text}**" if place.style == "strong" else text


def _powers(report: Report) -> Iterable[str]:
    """What the data can tell from chance, model by model."""
    if report.powers:
        yield "## What the data can tell"
        yield markdown_table(
            POWER_HEADINGS, 5, (tuple(map(escaped, power_row(one))) for one in report.powers)
        )


def _step(step: Step) -> str:
    """The command as code, and the words about it."""
    more = f"(and {counted(step.more, 'cell')} more like these)" if step.more else ""
    return " ".join(filter(None, (code(step.command), escaped(step.words), more)))


def _findings(report: Report) -> Iterable[str]:
    """One line per localised cell."""
    if report.findings:
        yield "## Findings"
        found = list(report.findings.values())
        lines = [
            f"- {code(str(one.key))} {escaped(found_text(one.finding))}"
            for one in found[:ROWS_SHOWN]
        ]
        yield "\n".join(lines) + (
            f"\n- and {len(found) - ROWS_SHOWN} more" if len(found) > ROWS_SHOWN else ""
        )


def _alerts(report: Report) -> Iterable[str]:
    """The alerts; before the long tables, so that a summary that is cut still has them."""
    rows = alert_rows(report)
    if not rows:
        return
    fresh = sum(row.is_new for row in rows)
    yield "## Alerts"
    yield (
        f"Results that got worse and stayed worse, the worst first; {fresh or 'none'} of "
        f"{len(rows)} new."
    )
    table = [_alert_row(row) for row in rows[:ROWS_SHOWN]]
    yield markdown_table(
        ["State", "What", "Worst cell", "Metric", "Why", "From", "To", "Change"], 5, table
    )
    if len(rows) > ROWS_SHOWN:
        yield f"and {len(rows) - ROWS_SHOWN} more"


def _alert_row(row: AlertRow) -> list[str]:
    """The fields of one alert."""
    state, what, cell = row.state, escaped(row.title), code(str(row.worst.cell))
    if row.is_new:
        state = f"{STATES['red']} **{row.state}**"
    if row.among > 2:
        what += f"<br>one of {row.among}"
    if len(row.lines) > 1:
        cell += f"<br>and {len(row.lines) - 1} more series"
    where = escaped(f"{row.worst.metric}, {row.worst.environment_class}")
    return [state, what, cell, where, escaped(row.why), row.before, row.after, f"**{row.change}**"]


def _matrix_row(model: str, cells: Sequence[CellView | None]) -> list[str]:
    """The model with the metric that most of its cells show, then its cells; another metric is
    named in its cell.
    """
    lead = common_lead(cells)
    if lead is None:
        return [escaped(model), *map(cell_text, cells)]
    name = f"{escaped(model)}<br>{escaped(lead.name)}"
    if is_agreement(lead):
        name += f"<br>{NOT_ACCURACY}"
    row = [name]
    for cell in cells:
        text = cell_text(cell)
        if cell and cell.lead and cell.lead.name != lead.name:
            text += f"<br>{escaped(cell.lead.name)}"
        row.append(text)
    return row


def _matrix(matrix: Matrix) -> Iterable[str]:
    yield f"### {escaped(matrix.backend)}"
    rows = [_matrix_row(model, cells) for model, cells in matrix.rows]
    yield markdown_table(["Model", *map(escaped, matrix.columns)], 1, rows)


def _costs(report: Report) -> Iterable[str]:
    """The times and sizes that the suite judges, those beyond a limit first."""
    judged = [(cell, cost) for cell in report.cells for cost in cell.record.costs]
    if not judged:
        return
    yield "## Time and size"
    judged.sort(key=lambda one: (one[1].state == "holds", one[1].state, one[0].key))
    rows = [
        [code(str(cell.key)), cost.name, cost.state, cost.text, cost.limit_text]
        for cell, cost in judged[:ROWS_SHOWN]
    ]
    yield markdown_table(["Cell", "What", "Gate", "Now", "Limit"], 3, rows)
    if len(judged) > ROWS_SHOWN:
        yield f"and {len(judged) - ROWS_SHOWN} more"


def _in_parts(report: Report) -> Iterable[str]:
    """Every change whose parts are known, the largest part of counting first."""
    known = [
        (cell, cell.lead, cell.parts)
        for cell in report.cells
        if cell.parts and cell.lead and parts_text(cell)
    ]
    if not known:
        return
    yield "## Loss in two parts"
    yield (
        "What the schema costs in exact arithmetic (integer-ideal), and what the backend adds "
        "(counting)."
    )
    known.sort(key=lambda one: (-abs(one[2].counting.change), one[0].key))
    rows = [
        [
            code(str(cell.key)),
            escaped(lead.name),
            change_text(lead),
            change_text(lead, parts.schema.change),
            change_text(lead, parts.counting.change),
        ]
        for cell, lead, parts in known[:ROWS_SHOWN]
    ]
    yield markdown_table(["Cell", "Metric", "Change", "Schema", "Counting"], 2, rows)
    if len(known) > ROWS_SHOWN:
        yield f"and {len(known) - ROWS_SHOWN} more"


def _steps(report: Report) -> Iterable[str]:
    if not report.step_groups:
        return
    yield "## Steps"
    for group in report.step_groups[:3]:
        yield f"### {escaped(group.run.commit or group.run.id)}, {escaped(group.run.started)}"
        rows = [
            [
                code(str(key)),
                escaped(metric.name),
                value_text(metric, step.before),
                value_text(metric, step.after),
                change_text(metric, step.after - step.before)
                + (" (too new to be sure)" if step.provisional else ""),
                escaped(", ".join(step.causes)),
            ]
            for key, metric, step in group.steps[:10]
        ]
        yield markdown_table(
            ["Cell", "Metric", "Before", "After", "Step", "New at that run"], 2, rows
        )
        if len(group.steps) > 10:
            yield f"and {len(group.steps) - 10} smaller ones"


def _history(report: Report, charts: Mapping[str, str]) -> Iterable[str]:
    """Links to the ``charts`` (model → path), and the last runs of the cells that moved in them."""
    first = max(len(report.runs) - RUNS_SHOWN, 0)
    rows = []
    for key, trends in report.trends.items():
        lead = trends[0]
        values = {
            point.position: point.metric.value
            for spot in lead.points
            for point in spot.each
            if point.position >= first
        }
        if len(set(values.values())) > 1:
            places = range(first, len(report.runs))
            texts = [value_text(lead.metric, values[p]) if p in values else "" for p in places]
            rows.append([code(str(key)), escaped(lead.metric.name), *texts])
    if not rows and not charts:
        return
    yield "## History"
    if charts:
        yield "Charts: " + ", ".join(
            f"[{escaped(model)}]({path})" for model, path in charts.items()
        )
    if not rows:
        return
    yield (
        f"Cells that moved in the last {counted(len(report.runs) - first, 'run')}, the newest on "
        "the right."
    )
    heads = [
        escaped(f"{run.started[:10]} {run.commit[:7]}".strip() or run.id)
        for run in report.runs[first:]
    ]
    yield markdown_table(["Cell", "Metric", *heads], 2, rows[:ROWS_SHOWN])
    if len(rows) > ROWS_SHOWN:
        yield f"and {len(rows) - ROWS_SHOWN} more"


def _known(report: Report) -> Iterable[str]:
    undecided = [cell for cell in report.cells if cell.record.outcome == "inconclusive"]
    if undecided:
        yield "## Not decided"
        lines = [
            f"- {code(str(cell.key))} {escaped(cell.wanting or cell.record.headline)}"
            for cell in undecided[:ROWS_SHOWN]
        ]
        yield "\n".join(lines)
        if len(undecided) > ROWS_SHOWN:
            yield f"and {len(undecided) - ROWS_SHOWN} more"
    if report.quarantined:
        yield "## In quarantine"
        facts = (
            (
                code(str(cell.key)),
                change_text(cell.lead) if cell.lead else "",
                escaped(cell.record.rule),
            )
            for cell in report.quarantined
        )
        yield "\n".join(f"- {name} {change} {rule}".rstrip() for name, change, rule in facts)
    if report.unsupported:
        yield "## Unsupported"
        yield "\n".join(
            f"- {counted(len(keys), 'cell')}: {escaped(reason)}"
            for reason, keys in report.unsupported
        )
