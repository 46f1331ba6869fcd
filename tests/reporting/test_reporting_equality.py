"""Cells that are not what another backend is: every report says how much differs and where,
not their metrics.
"""

from typing import Any

import pytest
from reporting_histories import make_cell, make_run

from qbench.reporting import build_report, html_pages, markdown_text, summary_lines
from qbench.reporting.report import Report

UNEQUAL = (
    "12 of 4000 elements differ from ort-cpu, by at most 1 step; "
    "first in 5 integers of node 'conv3'"
)
EQUAL = "all 4000 elements equal those of ort-cpu"


def line(model: str, detail: str, *, broken: bool) -> dict[str, Any]:
    cell = make_cell(model, "integer-ort-x64", "w8a8_sym_pc", 0.0)
    gate = {
        "kind": "equality",
        "metric": "ort-cpu",
        "state": "broken" if broken else "holds",
        "detail": detail,
    }
    return {
        **cell,
        "outcome": "failed" if broken else "passed",
        "gates": [*cell["gates"], {**gate, "rule": "r"}],
    }


@pytest.fixture
def report() -> Report:
    return build_report(
        [
            make_run(
                [line("magika", UNEQUAL, broken=True), line("mobilenet_v2", EQUAL, broken=False)]
            )
        ]
    )


def test_they_are_a_cause_of_their_own(words, report: Report) -> None:
    (cause,) = report.causes
    assert (cause.name, [cell.key.model for cell in cause.cells]) == ("equality", ["magika"])
    words(report.headline)
    assert [cell.is_unequal for cell in report.cells] == [True, False]


def test_every_report_says_how_much_differs_and_where(report: Report) -> None:
    pages = (
        "\n".join(summary_lines(report, 200)),
        markdown_text([report]),
        "".join(html_pages([report]).values()),
    )
    for page in pages:
        assert "Differs from another backend" in page
        flat = page.replace("&#39;", "'")
        assert UNEQUAL in flat
    assert EQUAL in pages[-1]
    assert EQUAL not in pages[0]
