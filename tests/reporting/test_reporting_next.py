"""What to do next on the pages: only what is to be typed is code, what is said about it stands
beside it as words.
"""

import re
from dataclasses import replace
from html import unescape

import pytest
from reporting_histories import NEW, OLD, make_cell, make_run

from qbench.judging import THEN, Outcome
from qbench.reporting import build_reports, html_pages, markdown_text, summary_lines

COMMAND = 'pytest "suites/nightly.qbench.toml::magika::ort-cpu+w8a8_sym_pc" --qbench-accept=changed'
WORDS = "records the new numbers, but this stays red: find the cause"


def reports(remedy, outcome=Outcome.FAILED):
    cell = make_cell("magika", "ort-cpu", "w8a8_sym_pc", 0.05, outcome=outcome)
    return build_reports([make_run([cell | {"remedy": remedy}])])


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(("remedy", "typed"), [(f"{COMMAND} {WORDS}", [COMMAND]), (WORDS, [])])
def test_only_what_is_to_be_typed_is_code(remedy, typed):
    pages = html_pages(reports(remedy)) | {
        "known": html_pages(reports(remedy, Outcome.MISSING))["known.html"]
    }
    for name in ("index.html", "models/magika.html", "known"):
        page = pages[name]
        assert [unescape(text) for text in re.findall(r"<code[^>]*>(.*?)</code>", page)] == typed, (
            name
        )
        assert f">{WORDS}</span>" in page, name
    text = markdown_text(reports(remedy))
    assert (f"- `{COMMAND}` {WORDS}" if typed else f"- {WORDS}") in text


def night(number, environment, detail=""):
    cell = make_cell("magika", "ort-cpu", "w8a8_sym_pc", 0.001, environment=environment)
    gate = {
        "kind": "drift",
        "metric": "predictions",
        "state": "incomparable" if detail else "holds",
        "detail": detail,
    }
    run = make_run([cell | {"gates": [gate]}], number)
    return replace(run, path=f"reports/history/{run.id}.jsonl")


def test_a_new_environment_class_says_what_to_type():
    new = f"nothing accepted for {NEW} (accepted: {OLD})"
    runs = [night(0, OLD), night(1, NEW, new), night(2, NEW, new)]
    (report,) = build_reports(runs)
    steps = [
        f"qbench compare {runs[0].id} {runs[2].id} --across",
        f"qbench accept {runs[2].id} --what new",
    ]
    assert report.new_classes == (str(NEW),)
    assert report.class_remedy.split(THEN) == steps
    page = html_pages([report])["index.html"]
    text = markdown_text([report])
    shown = [
        line.split(": ", 1)[1]
        for line in summary_lines(report)
        if line.startswith(("  next: ", "  then: "))
    ]
    assert shown == steps
    for step in steps:
        assert f">{step}</code>" in page
        assert f"- `{step}`" in text
    (alone,) = build_reports(runs[1:2])
    assert alone.class_remedy.startswith(f"qbench compare previous {runs[1].id} --across")


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("change", ["path", "cut", "accepted", "few"])
def test_what_cannot_be_accepted_is_not_proposed(change):
    run = night(1, NEW, f"nothing accepted for {NEW} (accepted: {OLD})")
    if change == "path":  # no run file was kept
        run = replace(run, path="")
    elif change == "cut":
        run = replace(run, complete=False)
    elif change == "few":
        run = replace(run, header={**run.header, "limited": 20})
    else:
        run = night(1, OLD)
    (report,) = build_reports([night(0, OLD), run])
    assert report.class_remedy == ""
    assert "new-class" not in html_pages([report])["index.html"]


def test_what_a_retrained_model_lost_is_on_every_page_and_in_the_summary():
    headline = (
        "the baseline is of another model; fp32 top1 98.00 → 97.50 %, drop 0.50 pp beyond its "
        "margin of 0.49 pp"
    )
    gate = {
        "kind": "fp32",
        "metric": "top1",
        "state": "broken",
        "detail": "390/400 against 392/400",
        "rule": "20 %",
    }
    cell = make_cell("magika", "ort-cpu", "w8a8_sym_pc", 0.0, outcome=Outcome.STALE)
    (report,) = build_reports([make_run([cell | {"headline": headline, "gates": [gate]}])])
    pages = html_pages([report])
    for name in ("index.html", "models/magika.html", "known.html"):
        assert headline in unescape(pages[name]), name
    assert gate["detail"] in pages["models/magika.html"]
    assert headline in markdown_text([report]).replace("\\", "")
    assert headline in " ".join(" ".join(summary_lines(report)).split())
