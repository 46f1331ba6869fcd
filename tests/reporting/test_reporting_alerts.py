"""Alerts of the history in every form of a report: the worst of what is new first,
in the unit of the metric.
"""

import re
from dataclasses import replace

import pytest
from reporting_histories import make_cell, make_run

from qbench.reporting import (
    annotations,
    build_report,
    html_pages,
    markdown_text,
    remember,
    step_summary,
)
from qbench.reporting.github import GROUPS
from qbench.reporting.markdown import ROWS_SHOWN
from qbench.reporting.report import TITLES, alert_rows
from qbench.tracking import Annotation, Ruling

NIGHTS, STEP = 20, 10
PERPLEXITY = {
    "direction": "lower",
    "against": "labels",
    "unit": "nats",
    "proportion": False,
    "least_margin": 0.005,
    "n": 1000,
    "out_of": 10**6,
    "reference_hits": 1_800_000,
    "losses": 0,
    "gains": 0,
}


def history(*losses: float, perplexity: int = 0):
    """A model for each of ``losses``, which it loses from its own night on; another's
    ``perplexity`` rises.
    """
    runs = []
    for night in range(NIGHTS):
        cells = [
            make_cell(
                f"m{place}", "ort-cpu", "w8a8_sym_pc", loss if night >= STEP + place % 5 else 0.0
            )
            for place, loss in enumerate(losses)
        ]
        for cell in cells:
            cell["metrics"] = {"top1": cell["metrics"]["top1"]}
        if perplexity:
            hits = 1_820_000 + (perplexity if night >= STEP + 5 else 0)
            cells.append(make_cell("words", "ort-cpu", "w8a8_sym_pc", 0.0))
            cells[-1]["metrics"] = {"perplexity": {**PERPLEXITY, "hits": hits}}
        runs.append(make_run(cells, night))
    return runs


def reported(runs, *notes):
    return build_report(runs, memory=remember(runs, accepted={}, annotations=notes))


def ruling(run, words="the <b>table</b> of @ann | is mended later"):
    return Annotation(commit=run.commit[:9], state=Ruling.ACKNOWLEDGED, author="ann", reason=words)


def test_what_is_new_comes_first_and_the_worst_of_it_at_the_top():
    runs = history(0.003, 0.004, 0.002, perplexity=5_000)
    rows = alert_rows(reported(runs, ruling(runs[STEP + 1])))
    assert [(row.worst.cell.model, row.is_new, row.state) for row in rows] == [
        ("m0", True, "detected"),
        ("words", True, "detected"),
        ("m2", True, "detected"),
        ("m1", False, "acknowledged"),
    ]
    assert [row.change for row in rows] == ["−0.30 pp", "+0.005 nats", "−0.20 pp", "−0.40 pp"]
    assert (rows[1].before, rows[1].after) == ("1.82 nats", "1.825 nats")
    assert rows[0].title == f"step at {runs[STEP].commit[:9]}"


def test_a_summary_tells_the_alerts_before_its_long_tables():
    runs = history(0.003, 0.004)
    text = markdown_text([reported(runs, ruling(runs[STEP + 1]))])
    section = text.partition("## Alerts")[2].partition("## ")[0]
    assert text.index("## Alerts") < text.index("## Matrix")
    assert "1 of 2 new" in section
    rows = [row.split("|")[1:-1] for row in section.splitlines() if "::" in row]
    assert [row[0].strip() for row in rows] == ["✗ **detected**", "acknowledged"]
    assert rows[0][1].strip() == f"step at {runs[STEP].commit[:9]}"
    assert [field.strip() for field in rows[0][5:]] == ["80.00 %", "79.70 %", "**−0.30 pp**"]
    assert (
        rows[1][4].strip()
        == "the &lt;b&gt;table&lt;/b&gt; of &#64;ann &#124; is mended later (ann)"
    )
    assert "## Alerts" not in markdown_text([build_report(runs)])


def test_a_summary_that_is_cut_keeps_the_worst_alert():
    report = reported(history(*(0.001 * (place % 4 + 2) for place in range(40))))
    text = step_summary([report], 4_000)
    assert len(text.encode()) <= 4_000
    assert "**−0.50 pp**" in text
    assert "does not fit" in text


def test_rows_beyond_the_limit_are_counted():
    report = reported(history(0.003))
    many = replace(report, regressions=report.regressions * (ROWS_SHOWN + 3))
    section = markdown_text([many]).partition("## Alerts")[2].partition("## ")[0]
    assert section.count("| ✗ **detected** |") == ROWS_SHOWN
    assert "and 3 more" in section


def test_new_alerts_are_errors_behind_the_red_cells_and_within_the_limit():
    runs = history(0.003, 0.05, 0.002)
    report = reported(runs, ruling(runs[STEP + 2]))
    commands = annotations([report])
    titles = [re.search("title=(.*?)::", command)[1].replace("%3A", ":") for command in commands]
    assert titles == [
        f"nightly: {TITLES['loss']} (1 cell)",
        f"nightly: step at {runs[STEP + 1].commit[:9]} (1 series worse)",
        f"nightly: step at {runs[STEP].commit[:9]} (1 series worse)",
    ]
    assert {command.split()[0] for command in commands} == {"::error"}
    assert "m0::ort-cpu+w8a8_sym_pc, top1: 80.00 %25 → 79.70 %25 (−0.30 pp), x64-" in commands[2]
    assert commands[2].endswith("%0ANext: qbench history check")
    many = replace(report, regressions=report.regressions * 9)
    assert len(annotations([many])) == GROUPS


@pytest.mark.slow
def test_the_page_shows_the_unit_and_what_was_said():
    runs = history(0.003, perplexity=40_000)
    page = html_pages([reported(runs, ruling(runs[STEP], "kept <i>for now</i>"))])["index.html"]
    table = page.partition('<table class="alerts">')[2].partition("</table>")[0]
    assert re.search(r'<td class="num">1\.82 nats</td><td class="num">1\.86 nats</td>', table)
    assert '<td colspan="8" class="words">kept &lt;i&gt;for now&lt;/i&gt; (ann)</td>' in table
    assert "182.00 %" not in page


@pytest.mark.parametrize("name", ["index.html", "report.md"])
def test_a_change_of_another_unit_is_never_in_points(name):
    report = build_report(history(perplexity=40_000))
    text = html_pages([report])["index.html"] if name == "index.html" else markdown_text([report])
    matrix = text[text.index("Matrix") :]
    assert "+0.06 nats" in matrix
    assert "+0.06 pp" not in matrix
