"""The words of every page and format, whole: one file of ``tests/golden/report`` for each."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from reporting_findings import make_finding, red_run
from reporting_histories import edge_histories, make_cell, make_run, skipped_cell

from qbench.judging import FAILING
from qbench.reporting import (
    EXPORT_FORMATS,
    annotations,
    build_report,
    build_reports,
    compare,
    export_text,
    html_pages,
    markdown_text,
    remember,
    step_summary,
    summary_lines,
)
from qbench.reporting.places import file_name
from qbench.reporting.report import SHORT, TITLES
from qbench.tracking import Annotation, Ruling

BLOCKS = {
    *("p", "h1", "h2", "h3", "li", "dt", "tr", "table", "caption", "summary", "desc", "title"),
    *("section", "nav", "header", "footer", "div", "dialog", "article"),
}
SCHEMA = "w8a8_sym_pc"
COARSE = "tolerance 0.05 % (suite nightly)"


class Words(HTMLParser):
    """The text of a page, a line for each block, with `` | `` between the fields of a row."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text = ""
        self.feed(re.sub(r"(?s)<(style|script)>.*?</\1>", "", page))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.text += (
            "\n"
            if tag in BLOCKS
            else " | "
            if tag in ("td", "th")
            else " "
            if tag in ("br", "small")
            else ""
        )

    def handle_data(self, data: str) -> None:
        self.text += re.sub(r"\s+", " ", data)

    def lines(self) -> str:
        """The lines that are not empty."""
        lines = (" ".join(line.split()).removeprefix("| ") for line in self.text.splitlines())
        return "\n".join(line for line in lines if line.strip("| "))


def gate_of(cell, **more):
    return cell | {"gates": [cell["gates"][0] | more]}


def undecided():
    cell = make_cell("m_undecided", "ort-cpu", SCHEMA, 0.003)
    rule = "tolerance 0.5 % (suite nightly), decision ci (suite nightly)"
    return gate_of(cell, state="inconclusive", rule=rule) | {
        "outcome": "inconclusive",
        "rule": rule,
        "notices": ["top1: 1000 samples do not decide; with 5555 samples like these it would PASS"],
        "remedy": (
            f'pytest "suites/nightly.qbench.toml::m_undecided::ort-cpu+{SCHEMA}" '
            "again with that many"
        ),
    }


def coarse():
    """A margin under one sample: 0.4 of 1,000."""
    cell = make_cell("m_coarse", "ort-cpu", SCHEMA, 0.0)
    return gate_of(cell, state="inconclusive", limit=0.7996, rule=COARSE) | {
        "outcome": "inconclusive",
        "rule": COARSE,
        "notices": ["top1: 1000 samples do not decide; with 8888 samples like these it would PASS"],
    }


def every_state(index):
    """A night in which cells have every outcome, for every kind of cause."""
    strict = "tolerance 0.5 % (default), decision strict (suite nightly)"
    unproven = make_cell("m_strict", "ort-cpu", SCHEMA, 0.006)
    improved = {"outcome": "drifted", "headline": "improved: predictions changed"}
    ended = {
        "outcome": "expired",
        "headline": "the quarantine ended on 2020-01-01: top1 80.00 → 78.00 %",
    }
    healed = {
        "outcome": "expired",
        "headline": "no longer fails: remove the entry; top1 80.00 → 80.00 %",
    }
    unequal = {
        "kind": "equality",
        "state": "broken",
        "detail": "3 of 100 elements differ from ort-cpu-noopt",
    }
    crashed = make_cell("m_error", "ort-cpu", SCHEMA, 0.0)
    del crashed["metrics"]
    quarantined = {
        "outcome": "quarantined",
        "rule": "quarantine m_known::* until 2030-01-01: a known bug (ann)",
    }
    return [
        make_cell("m_loss", "ort-cpu", SCHEMA, 0.05 if index > 2 else 0.001),
        gate_of(unproven, state="broken", rule=strict, detail="INCONCLUSIVE")
        | {"outcome": "failed", "rule": strict},
        gate_of(make_cell("m_floor", "ort-cpu", SCHEMA, 0.02), kind="floor", state="broken")
        | {"outcome": "failed"},
        gate_of(make_cell("m_unequal", "ort-cpu", SCHEMA, 0.0), **unequal) | {"outcome": "failed"},
        make_cell("m_drifted", "ort-cpu", SCHEMA, 0.0) | {"outcome": "drifted"},
        make_cell("m_improved", "ort-cpu", SCHEMA, 0.0) | improved,
        make_cell("m_expired", "ort-cpu", SCHEMA, 0.02) | ended,
        make_cell("m_healed", "ort-cpu", SCHEMA, 0.0) | healed,
        make_cell("m_stale", "ort-cpu", SCHEMA, 0.0) | {"outcome": "stale"},
        make_cell("m_missing", "ort-cpu", SCHEMA, 0.0) | {"outcome": "missing"},
        crashed
        | {
            "outcome": "error",
            "headline": "the session could not be made",
            "remedy": "qbench doctor",
        },
        undecided(),
        make_cell("m_known", "ort-cpu", SCHEMA, 0.05) | quarantined,
        coarse(),
        make_cell("m_passed", "ort-cpu", SCHEMA, 0.001 if index else 0.0),
        make_cell("m_passed", "ort-cpu", "fp32", 0.0),
        skipped_cell("m_skipped", "onnx-reference", SCHEMA, "no integer kernel"),
    ]


@pytest.fixture(scope="module")
def history():
    runs = [make_run(every_state(index), index) for index in range(6)]
    with_finding = red_run(make_finding(), 5)
    last = replace(
        runs[-1], cells=(*runs[-1].cells, *with_finding.cells), findings=with_finding.findings
    )
    return [*runs[:-1], last]


@pytest.fixture(scope="module")
def reports(history):
    note = Annotation(
        commit=history[3].commit[:9],
        state=Ruling.ACKNOWLEDGED,
        author="ann",
        reason="is being fixed",
    )
    return build_reports(history, memory=remember(history, accepted={}, annotations=[note]))


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    "page", ["index", "cells", "findings", "known", "compare", "run", "model", "finding"]
)
def test_page(golden, reports, history, page):
    name = {
        "model": "models/m_loss.html",
        "finding": f"findings/mobilenet_v2--ort-cpu--{SCHEMA}.html",
    }
    text = html_pages(reports, {"nightly": compare(*history[-2:])})[name.get(page, f"{page}.html")]
    golden(f"report/{page}.html.txt", Words(text).lines())


def test_terminal(golden, reports):
    golden("report/terminal.txt", "\n".join(summary_lines(reports[0], 100)))


def test_terminal_of_special_runs(golden):
    """Runs without cells, cut short, damaged, of a part of the suite, and the like."""
    one = [make_cell("m", "ort-cpu", schema, 0.0) for schema in ("s1", "s2")]
    part = make_run(one[:1], 1, whole=False)
    limited = make_run(one[:1], whole=False)
    histories = {
        **{
            name: runs
            for name, runs in edge_histories().items()
            if name not in ("hostile", "rubbish")
        },
        "a part": [
            make_run(one, 0),
            replace(part, header={**part.header, "planned": 2, "selected": 1}),
        ],
        "few samples": [
            replace(limited, header={**limited.header, "planned": 1, "selected": 1, "limited": 40})
        ],
    }
    texts = (
        f"--- {name} ---\n" + "\n".join(summary_lines(runs, 100))
        for name, runs in histories.items()
    )
    golden("report/terminal-special.txt", "\n\n".join(texts))


def test_markdown(golden, reports):
    golden("report/report.md", markdown_text(reports))


def test_github(golden, reports):
    commands = "\n".join(annotations(reports)).replace("%0A", "\n    ").replace("%3A", ":")
    golden("report/github.txt", commands + "\n\n" + step_summary(reports, 4_000)[-600:])


@pytest.mark.parametrize("name", EXPORT_FORMATS)
def test_export(golden, name):
    run = make_run(
        [
            cell
            for cell in every_state(0)
            if cell["model"] in ("m_loss", "m_stale", "m_skipped", "m_error")
        ]
    )
    golden(f"report/export.{name}.txt", export_text([run], name).replace("\r\n", "\n"))


def test_no_runs(golden):
    golden("report/empty.html.txt", Words(html_pages([build_report(())])["index.html"]).lines())


@pytest.mark.parametrize("letter", ["m", "-", ".", "M", "é", "日", "/"])
def test_names_of_any_length_become_different_names_of_files(letter):
    names = [letter * 400, letter * 401, f"{letter * 400}a", f"{letter * 400}b"]
    files = [file_name(name) for name in names]
    assert len(set(files)) == 4
    assert all(
        len(name.encode()) <= 100 and "/" not in name and not name.startswith(".") for name in files
    )


def test_every_gate_that_fails_a_cell_has_a_heading_of_its_own():
    """A red cell whose kind of gate has none would be in no group, and the sentence on top
    would not count it.
    """
    for kind in FAILING:
        assert TITLES[kind.value]
        assert SHORT[kind.value]
