"""Findings in reports: which of them a cell gets, their pages and lines, what is escaped,
and what they weigh.
"""

import json
import posixpath
import re
from dataclasses import replace

import pytest
from reporting_findings import HOSTILE, OVERRIDES, errors, hostile_finding, make_finding, red_run
from reporting_histories import make_cell, make_run, nightly_history
from test_reporting_pages import Page, assert_offline

from qbench.judging import (
    Cause,
    Cell,
    Errors,
    Finding,
    NodeErrors,
    Repair,
    Suspect,
    ValueDistribution,
)
from qbench.number_text import rounded_count, small_percent
from qbench.reporting import (
    Found,
    annotations,
    build_report,
    build_reports,
    finding_page,
    found_text,
    html_pages,
    markdown_text,
    summary_lines,
)
from qbench.reporting.html import BUDGET
from qbench.reporting.node_chart import COLUMNS, heat_map, ranks_of
from qbench.reporting.places import Places
from qbench.tracking import finding_line

PATH = "findings/mobilenet_v2--ort-cpu--w8a8_sym_pc.html"
KEY = Cell("nightly", "mobilenet_v2", "ort-cpu", "w8a8_sym_pc")


@pytest.fixture(scope="module")
def finding() -> Finding:
    return make_finding(suspects=(9, 10, 40))


@pytest.fixture(scope="module")
def pages(finding) -> dict[str, str]:
    return html_pages(build_reports([red_run(finding)]))


def words(text: str) -> str:
    return " ".join(
        "".join(Page(re.sub(r"<(style|script)>.*?</\1>", "", text, flags=re.S)).text).split()
    )


def test_a_finding_has_a_page_that_says_all_of_it(pages, finding):
    text = words(pages[PATH])
    for rank, suspect in enumerate(finding.suspects, start=1):
        for part in (
            f"{rank} {suspect.node}",
            suspect.cause.value,
            suspect.evidence,
            suspect.remedy,
        ):
            assert part in text
    repair = finding.repair
    assert "3.1 % of the multiply-accumulates leave integers" in text
    assert repair.verdict in text
    assert "7 sets of nodes" in text
    assert " ".join(OVERRIDES.split()) in text
    assert finding.matched in text
    assert finding.notes[0] in text
    assert (
        f"{finding.unaligned[0].value} {finding.unaligned[0].reason}".replace(" fp32", "fp32")
        in text
    )
    assert "failed top1 74.10 → 68.70 %" in text
    assert "61.2 s" in text


def test_pages_of_findings_are_well_formed_offline_and_linked_both_ways(pages):
    ids = {
        path: {a["id"] for _, a in Page(text).elements if "id" in a} for path, text in pages.items()
    }
    assert {PATH, "findings.html"} < set(pages)
    leading = set()
    for path, text in pages.items():
        assert_offline(text)
        page = Page(text)
        assert len(page.all("table")) == len(page.all("caption"))
        assert all(head.get("scope") in ("col", "row", "rowgroup") for head in page.all("th"))
        for target in {str(a["href"]) for a in page.all("a")}:
            file, _, anchor = target.partition("#")
            there = (
                posixpath.normpath(posixpath.join(posixpath.dirname(path), file)) if file else path
            )
            assert not anchor or anchor in ids[there], target
            leading |= {path} if there == PATH != path else set()
    assert leading == {"index.html", "cells.html", "findings.html", "models/mobilenet_v2.html"}
    targets = [a["href"] for a in Page(pages[PATH]).all("a")]
    assert "../models/mobilenet_v2.html#ort-cpu--w8a8_sym_pc" in targets
    assert [a["href"] for a in Page(pages["index.html"]).all("a")].count(PATH) == 2


@pytest.mark.slow
def test_without_findings_nothing_speaks_of_them():
    pages = html_pages(build_reports([red_run(make_finding(), with_line=False)]))
    assert not any(
        "inding" in re.sub(r"<style>.*?</style>", "", text, flags=re.S) for text in pages.values()
    )
    assert not any(path.startswith("finding") for path in pages)


@pytest.mark.slow
def test_a_finding_stands_as_long_as_its_cell_is_red():
    old, new = make_finding(12, (3,)), make_finding(12, (5,))
    runs = [red_run(old, 0), red_run(new, 1), red_run(new, 2, with_line=False)]
    report = build_report(runs)
    (found,) = report.findings.values()
    assert (found.worst.node, found.earlier.id) == (new.suspects[0].node, runs[1].id)
    assert report.cells[1].found == found_text(new)
    page = html_pages([report])[PATH]
    assert "Of an earlier run." in page
    assert f"at {runs[1].commit[:9]}" in page
    assert build_report([*runs, red_run(old, 3)]).findings[KEY].earlier is None
    green = make_run([make_cell(*("mobilenet_v2", "ort-cpu", "w8a8_sym_pc"), 0.001)], 2)
    assert build_report([*runs[:2], green]).findings == {}
    assert build_report([*runs[:2], green, red_run(new, 3, with_line=False)]).findings == {}
    unmeasured = make_run([make_cell("digits_cnn", "ort-cpu", "w8a8_sym_pc", 0.001)], 2)
    assert KEY in build_report([*runs[:2], unmeasured, red_run(new, 3, with_line=False)]).findings


@pytest.mark.parametrize(
    "damage",
    [
        {"finding": None},
        {"model": 3},
        {"finding": {"model": "m"}},
        {
            "finding": {
                "model": "m",
                "backend": "b",
                "schema": "s",
                "samples": 1,
                "seconds": float("nan"),
            }
        },
    ],
    ids=["none", "no name", "parts missing", "not a number"],
)
def test_a_line_that_cannot_be_read_is_counted_and_passed_over(finding, damage):
    run = red_run(finding)
    report = build_report([replace(run, findings=({**run.findings[0], **damage}, *run.findings))])
    assert [notice[:9] for notice in report.notices if "finding" in notice] == ["1 finding"]
    assert list(report.findings) == [KEY]


def test_a_finding_in_one_line(words, finding):
    node = "features.3.expand.conv"
    worst, repaired = found_text(finding).split("; ")
    assert worst.split(", ") == [
        f"worst: {node}",
        "isolated SQNR 9.8 dB",
        "clipped 31 %",
        "cause: range outlier",
    ]
    assert repaired.endswith(f"1 node in float ({node}), 3.1 % of MACs")
    many = Repair(nodes=tuple("abcd"), restores=True, macs_share=0.5)
    assert found_text(replace(finding, repair=many)).endswith("4 nodes in float, 50 % of MACs")
    vain = Repair(nodes=(), restores=False, probes=12)
    assert found_text(replace(finding, repair=vain)).endswith("12 sets of nodes in float")
    healthy = replace(finding, suspects=(), repair=None)
    assert found_text(healthy) == "no node is suspected"
    broken = replace(healthy, complete=False, notes=("no time",))
    assert found_text(broken) == "no time"
    assert found_text(replace(broken, repair=vain)) == found_text(broken)
    crashed = Suspect(node="gone", cause=Cause.CRASH, evidence="it ends")
    words(found_text(replace(healthy, suspects=(crashed,))))
    both = found_text(replace(finding, suspects=(*finding.suspects, crashed)))
    assert "; gone: engine crash; " in both


def test_every_other_report_has_the_line(finding):
    reports = build_reports([red_run(finding)])
    text = markdown_text(reports)
    assert f"## Findings\n\n- `{KEY}` worst: features.3.expand.conv" in text
    assert any("%0A  worst: features.3.expand.conv" in command for command in annotations(reports))
    assert "worst: features.3.expand.conv" in " ".join(
        line.strip() for line in summary_lines(reports[0])
    )


def test_the_page_stands_alone(finding):
    page = finding_page(
        Found(key=KEY, finding=finding, outcome="failed", is_red=True, judged="top1 fell")
    )
    assert_offline(page)
    assert {str(a["href"]).partition("#")[0] for a in Page(page).all("a")} == {""}
    assert words(page).count("top1 fell") == 1


@pytest.mark.parametrize(
    "finding",
    [
        Finding(
            model="m",
            backend="b",
            schema="s",
            samples=0,
            complete=False,
            notes=("could not be localised: x",),
        ),
        replace(make_finding(1, ()), repair=None),
        replace(
            make_finding(3, ()),
            suspects=(Suspect(node="gone", cause=Cause.CRASH, evidence="it ends"),),
        ),
        replace(make_finding(2, (0,)), repair=Repair(nodes=(), restores=False, probes=3)),
        Finding(
            model="m",
            backend="b",
            schema="s",
            samples=1,
            nodes=(NodeErrors(node="n", operators=(), value="v"),),
        ),
    ],
    ids=["nothing", "one node", "crash", "no repair", "no numbers"],
)
def test_odd_findings_are_drawn(finding):
    page = finding_page(Found(key=KEY, finding=finding))
    assert len(Page(page).all("h1")) == 1
    for suspect in finding.suspects:
        assert suspect.node in page


@pytest.mark.slow
def test_names_stay_text():
    hostile = hostile_finding()
    run = red_run(replace(hostile, model=KEY.model))
    reports = build_reports([replace(run, findings=(json.loads(json.dumps(run.findings[0])),))])
    pages = html_pages(reports)
    odd = Cell.as_written("nightly", "<b>net</b>", HOSTILE, HOSTILE)
    for text in (
        *pages.values(),
        finding_page(Found(key=odd, finding=hostile, outcome=HOSTILE, judged=HOSTILE)),
    ):
        assert HOSTILE not in text
        assert "<b>net" not in text
        Page(text)
    assert words(pages[PATH]).count(HOSTILE) > 30
    assert "<script>" not in markdown_text(reports)


def test_the_heat_map_has_the_nodes_in_order_and_a_scale_a_column(finding):
    table = heat_map(finding)
    assert [row.place for row in table.rows] == list(range(1, 67))
    assert [row.rank for row in table.rows if row.rank] == [1, 2, 3]
    worst = dict(zip([column.name for column in table.columns], table.rows[9].fields, strict=True))
    assert {name: (field.text, field.level, field.is_worst) for name, field in worst.items()} == {
        "In the run": ("26.3", 2, False),
        "Alone": ("9.8", 4, True),
        "Explained": (worst["Explained"].text, 1, False),
        "Excess": (worst["Excess"].text, 4, worst["Excess"].is_worst),
        "Gain": ("+12.50", 4, True),
        "Steps": ("6.125", 4, True),
        "Clipped low": ("0 %", 0, False),
        "Clipped high": ("31 %", 4, True),
        "Ties": ("0.2 %", 0, False),
        "Differ": ("0 %", 0, False),
        "Not as claimed": ("25 %", 4, True),
    }
    assert float(worst["Excess"].text) == pytest.approx(
        float(worst["Explained"].text) - 9.8, abs=0.11
    )
    assert [field.text for field in table.rows[0].fields][2:5] == ["", "", ""]


def test_columns_without_numbers_are_left_out():
    plain = make_finding(4, ())
    bare = tuple(replace(node, gain_db=None, claimed=None, explained=None) for node in plain.nodes)
    names = [column.name for column in heat_map(replace(plain, nodes=bare)).columns]
    assert names == [
        "In the run",
        "Alone",
        "Steps",
        "Clipped low",
        "Clipped high",
        "Ties",
        "Differ",
    ]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_shades_deepen_from_limit_to_limit(column):
    low_is_bad = column.limits[0] > column.limits[-1]
    beyond = [limit + (-1e-6 if low_is_bad else 1e-6) for limit in column.limits]
    assert [column.level(limit) for limit in column.limits] == [0, 1, 2, 3]
    assert [column.level(value) for value in beyond] == [1, 2, 3, 4]
    assert len(set(column.scale)) == 4
    assert all(text.startswith("<" if low_is_bad else ">") for text in column.scale)


def test_a_suspect_that_makes_two_values_is_marked_once():
    node = NodeErrors(
        node="split", operators=("Split",), value="a", isolated=Errors(sqnr_db=9.0, relative=0.3)
    )
    twice = Finding(
        model="m",
        backend="b",
        schema="s",
        samples=1,
        nodes=(node, replace(node, value="b", isolated=errors(30.0))),
        suspects=(Suspect(node="split", cause=Cause.COARSE, evidence="e"),),
    )
    assert ranks_of(twice) == {1: 1}


def test_numbers_in_few_letters():
    assert [rounded_count(n) for n in (7, 999, 1000, 34_700, 999_999, 1_234_567, 10**9)] == [
        *("7", "999", "1.00 k", "34.7 k", "1.00 M", "1.23 M", "1.00 G")
    ]
    assert [small_percent(x) for x in (0.0, 1e-6, 0.00044, 0.031, 0.31, 1.0)] == [
        *("0 %", "< 0.01 %", "0.044 %", "3.1 %", "31 %", "100 %")
    ]


def test_no_two_cells_share_a_page():
    names = [
        ("a--b", "c", "s"),
        ("a", "b--c", "s"),
        ("a", "b", "c--s"),
        ("a", "b", "s"),
        ("A", "b", "s"),
    ]
    assert len({Places().finding(*one) for one in names}) == len(names)


@pytest.mark.slow
def test_pages_of_findings_weigh_little_and_the_overview_hardly_more():
    def weight(nodes):
        return len(finding_page(Found(key=KEY, finding=make_finding(nodes, (9, 10, 60)))).encode())

    assert weight(66) < 65_000
    assert (weight(300) - weight(66)) / 234 < 620
    runs = nightly_history(2)
    one = make_finding()
    named = [(record.cell, one) for record in runs[-1].cells if record.outcome == "failed"]
    lines = tuple(finding_line(cell, replace(found, model=cell.model)) for cell, found in named)
    before, after = (
        html_pages(build_reports([*runs[:-1], replace(runs[-1], findings=f)])) for f in ((), lines)
    )
    assert len(lines) == 3
    assert len(after["index.html"].encode()) - len(before["index.html"].encode()) < 700 * len(lines)
    assert max(len(page.encode()) for page in after.values()) < BUDGET / 7


def test_values_of_suspects_are_drawn_and_linked_from_the_model(finding, pages):
    distribution = ValueDistribution(
        value="<b>v</b>",
        place="conv.output[0]",
        count=10,
        low=0.0,
        high=4.0,
        left=0.0,
        right=4.0,
        bins=(5, 3, 1, 1),
        qtype="uint8",
        qparams="uint8 scale 0.01 zero point 0",
        range_low=0.0,
        range_high=2.55,
        clipped_low=0,
        clipped_high=1,
        codes=(5, 0, 5),
        code_count=3,
        used=2,
    )
    drawn = replace(finding, distributions=(distribution,))
    found = html_pages(build_reports([red_run(drawn)]))
    page = found[PATH]
    section = page.partition('id="values"')[2].partition("</section>")[0]
    assert section.count('class="dist"') == 2
    assert "10 %: 0 below, 1 above" in section
    assert "2 of 3 occur" in section
    assert "<b>v" not in page
    assert_offline(page)
    link = f'href="../{PATH}#values"'
    assert link in found["models/mobilenet_v2.html"]
    assert link not in pages["models/mobilenet_v2.html"]
    assert 'id="values"' not in pages[PATH]
