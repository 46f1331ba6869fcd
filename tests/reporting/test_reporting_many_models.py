"""A site of too many models to read: what needs attention is shown,
and every link leads somewhere.
"""

import posixpath
import re

import pytest
from reporting_histories import make_cell, make_run, skipped_cell

from qbench.judging import Outcome
from qbench.reporting import build_report, html_pages
from qbench.reporting.many_models import (
    by_model,
    drawn_matrices,
    known_cells,
    listed_cells,
    most_telling,
    unsupported_cells,
)
from qbench.reporting.png import matrix_png
from qbench.storage import visible

RED = "network_17"


@pytest.fixture
def report():
    cells = [
        make_cell(f"network_{m:02}", backend, "s0", 0.05 if f"network_{m:02}" == RED else 0.0)
        for m in range(20)
        for backend in ("a", "b")
    ]
    return build_report([make_run(cells, 0)])


def test_all_models_are_shown_up_to_the_most(report):
    assert most_telling(report, 20) is report


def test_of_more_models_those_that_need_attention_come_first_and_the_rest_is_said(report):
    shown = most_telling(report, 3)
    assert shown.models == ("network_00", "network_01", RED)
    assert shown.notices[0].startswith("3 of 20 models")
    assert {row[0] for matrix in shown.matrices for row in matrix.rows} == set(shown.models)
    assert (shown.causes, shown.tallies, shown.headline) == (
        report.causes,
        report.tallies,
        report.headline,
    )


def test_a_table_of_more_cells_has_those_that_need_attention_and_says_how_many(report, monkeypatch):
    assert listed_cells(report, 40) is report.cells
    listed = listed_cells(report, 6)
    assert [cell.key.model for cell in listed[:4]] == ["network_00", "network_00"] + [
        "network_01"
    ] * 2
    assert {cell.key for cell in report.cells if cell.is_red} <= {cell.key for cell in listed}
    assert [*listed] == [cell for cell in report.cells if cell in listed]
    monkeypatch.setattr(listed_cells, "__defaults__", (6,))
    page = html_pages([report])["cells.html"]
    assert page.count("<tr>") == 1 + 6
    assert "6 of 40 cells" in page


def test_the_page_of_known_cells_lists_a_share_of_each_outcome_and_says_how_many_more(monkeypatch):
    cells = [
        *(make_cell(f"m{i}", "a", "s0", 0.0, outcome=Outcome.MISSING) for i in range(5)),
        *(make_cell(f"m{i}", "a", "s1", 0.0, outcome=Outcome.STALE) for i in range(2)),
        *(skipped_cell(f"m{i}", "b", "s0", "no kernel") for i in range(6)),
        *(skipped_cell(f"m{i}", "c", "s0", "no room") for i in range(3)),
    ]
    report = build_report([make_run(cells, 0)])
    names = ("missing", "stale", "expired")
    whole = known_cells(report, names, 7)
    assert {name: (len(shown), more) for name, (shown, more) in whole.items()} == {
        "missing": (5, 0),
        "stale": (2, 0),
        "expired": (0, 0),
    }
    listed = known_cells(report, names, 6)
    assert [(len(shown), more) for shown, more in listed.values()] == [(3, 2), (2, 0), (0, 0)]
    assert listed["missing"][0] == whole["missing"][0][:3]
    assert [(len(keys), more) for _, keys, more in unsupported_cells(report, 9)] == [(6, 0), (3, 0)]
    assert [(len(keys), more) for _, keys, more in unsupported_cells(report, 4)] == [(2, 4), (2, 1)]
    monkeypatch.setattr(known_cells, "__defaults__", (6,))
    monkeypatch.setattr(unsupported_cells, "__defaults__", (4,))
    page = html_pages([report])["known.html"]
    assert page.count("<tr>") == 2 + 3 + 2
    assert "and 2 more; 'qbench export" in page
    assert "and 4 more</p>" in page


def test_a_matrix_of_more_cells_links_to_the_other_models(report, monkeypatch):
    assert drawn_matrices(report, 40) == (report.matrices, ())
    matrices, others = drawn_matrices(report, 6)
    assert [len(matrix.rows) for matrix in matrices] == [3, 3]
    assert len(others) == 17
    assert RED not in others
    monkeypatch.setattr(drawn_matrices, "__defaults__", (6,))
    page = html_pages([report])["index.html"]
    assert all(f'href="models/{model}.html"' in page for model in others)


def test_every_link_of_such_a_site_leads_to_a_page(report, monkeypatch):
    monkeypatch.setattr("qbench.reporting.html.most_telling", lambda one: most_telling(one, 3))
    pages = html_pages([report])
    assert sum(path.startswith("models/") for path in pages) == 3
    for path, page in pages.items():
        for target in re.findall(r'href="([^"#]+)[#"]', page):
            if not target.startswith(("http", "data:")):
                assert (
                    posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) in pages
                ), (path, target)


def test_the_part_of_a_model_has_its_cells_and_all_parts_have_all(report):
    parts = dict(by_model(report))
    assert tuple(parts) == report.models
    assert tuple(cell for part in parts.values() for cell in part.cells) == report.cells


@pytest.mark.parametrize("keep", ["", "\n\t", "]^-\\"])
def test_characters_are_escaped_as_one_by_one(keep):
    signs = [
        chr(code)
        for code in (
            *range(0x300),
            *range(0x1FF0, 0x2070),
            0xD800,
            0xFEFF,
            0xFFFE,
            0x1FFFF,
            0x1F600,
        )
    ]
    for text in ("".join(signs), *signs):
        assert visible(text, keep) == "".join(one if one in keep else visible(one) for one in text)


def test_a_backend_none_of_whose_models_is_shown_has_no_chart(monkeypatch):
    """A matrix without a row was drawn: matplotlib takes no numbers of dtype object."""
    own = [make_cell(f"other_{m:02}", "c", "s1", 0.0) for m in range(4)]
    shared = [make_cell(f"network_{m:02}", "a", "s0", 0.05) for m in range(4)]
    report = build_report([make_run([*own, *shared], 0)])
    assert [matrix.backend for matrix in most_telling(report, 4).matrices] == ["a"]
    monkeypatch.setattr("qbench.reporting.png.most_telling", lambda one, _: most_telling(one, 4))
    assert matrix_png(report).startswith(b"\x89PNG")
