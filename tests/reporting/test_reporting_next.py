"""What to do next on the pages: only what is to be typed is code, what is said about it stands beside it as words."""

import re
from html import unescape

import pytest
from reporting_histories import make_cell, make_run

from qbench.judging import Outcome
from qbench.reporting import build_reports, html_pages, markdown_text

COMMAND = 'pytest "suites/nightly.qbench.toml::magika::ort-cpu+w8a8_sym_pc" --qbench-accept=changed'
WORDS = "records the new numbers, but this stays red: find the cause"


def reports(remedy, outcome=Outcome.FAILED):
    cell = make_cell("magika", "ort-cpu", "w8a8_sym_pc", 0.05, outcome=outcome)
    return build_reports([make_run([cell | {"remedy": remedy}])])


@pytest.mark.parametrize(("remedy", "typed"), [(f"{COMMAND} {WORDS}", [COMMAND]), (WORDS, [])])
def test_only_what_is_to_be_typed_is_code(remedy, typed):
    pages = html_pages(reports(remedy)) | {"known": html_pages(reports(remedy, Outcome.MISSING))["known.html"]}
    for name in ("index.html", "models/magika.html", "known"):
        page = pages[name]
        assert [unescape(text) for text in re.findall(r"<code[^>]*>(.*?)</code>", page)] == typed, name
        assert f">{WORDS}</span>" in page, name
    text = markdown_text(reports(remedy))
    assert (f"- `{COMMAND}` {WORDS}" if typed else f"- {WORDS}") in text
