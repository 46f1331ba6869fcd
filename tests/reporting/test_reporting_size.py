"""What a page weighs: a budget for sixty models; bytes for a cell, a chart and a night;
nothing that is unused.
"""

import re

import pytest
from reporting_histories import make_cell, make_run, nightly_history, skipped_cell

from qbench.judging import Outcome
from qbench.reporting import build_report, build_reports, html_pages, newest_comparison
from qbench.reporting.chart import flips_svg, trend_svg
from qbench.reporting.html import BUDGET
from qbench.reporting.trimming import trim_page, trim_script, trim_style

pytestmark = pytest.mark.slow


def site(models=2, backends=2, schemas=3, nights=12, loss=lambda night, model: 0.001):
    """The pages of a made-up history, all with the loss that ``loss`` gives a night."""
    runs = [
        make_run(
            [
                make_cell(f"network_{m:02}", f"engine-{b}", f"w8a8_schema_{s}", loss(night, m))
                for m in range(models)
                for b in range(backends)
                for s in range(schemas)
            ],
            night,
        )
        for night in range(nights)
    ]
    return html_pages(build_reports(runs), {"nightly": newest_comparison(runs)})


def weight(pages):
    return sum(len(page.encode()) for page in pages.values())


def test_sixty_models_that_stand_still_but_for_one_cell_in_sixty_stay_within_the_budget():
    pages = site(
        models=60,
        schemas=6,
        nights=4,
        loss=lambda night, model: 0.001 * (1 + (night > 1 and not model)),
    )
    assert weight(pages) <= BUDGET
    assert pages["index.html"].count('<td class="m') == 720


def test_no_page_exceeds_the_budget_where_every_cell_moves_all_the_time():
    pages = site(
        models=60,
        schemas=6,
        nights=6,
        loss=lambda night, model: 0.001 * ((night * 7 + model) % 3 + 1),
    )
    assert max(len(page.encode()) for page in pages.values()) <= BUDGET / 4


def test_a_night_in_which_everything_is_red_stays_within_the_budget():
    cells = [
        make_cell(f"network_{m:02}", b, f"s{s}", 0.05)
        for m in range(60)
        for b in ("a", "b", "c")
        for s in range(6)
    ]
    page = html_pages(build_reports([make_run(cells, 0), make_run(cells, 1)]))["index.html"]
    assert len(page.encode()) <= BUDGET
    assert "1,020 more among" in page


def test_no_page_exceeds_the_budget_where_thousands_of_cells_are_known_for_long_reasons():
    why = "the operator of node /model/encoder/layer_{}/attention/self/MatMul has no kernel; " * 3
    cells = [
        skipped_cell(f"m{i // 200:02}", f"engine-{i % 20}", f"s{i // 20 % 10}", why.format(i, i, i))
        for i in range(4_000)
    ]
    known = [
        skipped_cell(cell["model"], cell["backend"], cell["schema"] + "x", why, outcome=outcome)
        for outcome in (Outcome.MISSING, Outcome.INCONCLUSIVE)
        for cell in cells[outcome is Outcome.MISSING :: 2]
    ]
    report = build_report([make_run([*cells, *known])])
    assert (len(report.cells), len(report.unsupported)) == (8_000, 4_000)
    weights = {path: len(page.encode()) for path, page in html_pages([report]).items()}
    assert max(weights.values()) <= BUDGET, weights


def test_a_cell_that_is_unchanged_takes_little_on_all_pages_together():
    assert (weight(site(schemas=9)) - weight(site(schemas=3))) / (2 * 2 * 6) < 1300


def test_a_chart_grows_with_what_happened_and_not_with_the_nights():
    def drawn(nights, moves):
        changes = set(range(nights // 3, nights, max(nights // 3, 1))[:moves])
        losses, loss = [], 0.001
        for night in range(nights):
            loss += 0.004 * (night in changes)
            losses.append(loss)
        runs = [
            make_run([make_cell("magika", "ort-cpu", "w8a8_sym_pc", x)], n)
            for n, x in enumerate(losses)
        ]
        report = build_report(runs)
        (cell,) = report.cells
        trend = report.trends[cell.key][0]
        return len((trend_svg(trend, cell, report.runs) + flips_svg(trend, nights)).encode())

    assert abs(drawn(96, 1) - drawn(24, 1)) < 60  # the cause next to a step, where it fits
    assert drawn(96, 2) - drawn(96, 1) < 600
    assert drawn(96, 2) < 2600


def test_a_night_takes_a_line_on_the_page_of_the_run_and_a_few_words_on_pages_with_charts():
    def moving(nights):
        return site(
            models=1, backends=1, nights=nights, loss=lambda night, model: 0.001 * (1 + (night > 5))
        )

    more, less = moving(50), moving(20)
    for path, most in {
        "models/network_00.html": 40,
        "run.html": 260,
        "index.html": 8,
        "cells.html": 1,
    }.items():
        assert len(more[path].encode()) - len(less[path].encode()) <= 30 * most, path


SHEET = """
/* a comment */
:root { --ink: #111; --unused: red; }
.seen, .gone { color: var(--ink); } .gone { top: 0; } .seen > b:not(.gone) { margin: 0  1px; }
table td:nth-child(n + 3) { left: 1px; } svg path { top: 1px; }
@media print { .gone { top: 2px; } .seen { top: calc(1px + 2px); } }
@media (max-width: 40rem) { .gone { top: 3px; } }
"""


def test_only_rules_that_can_match_are_kept():
    assert trim_style(SHEET, {"seen", "b", "table", "td"}) == (
        ":root{--ink:#111;}.seen{color:var(--ink)}.seen>b:not(.gone){margin:0 1px}"
        "table td:nth-child(n + 3){left:1px}@media print{.seen{top:calc(1px + 2px)}}"
    )


@pytest.mark.parametrize(
    "body",
    ['<p class="a gone">', '<script>part.classList.add("gone");</script>', '<svg id="gone"></svg>'],
)
def test_what_a_script_adds_counts_as_there(body):
    assert "left" in trim_page(f"<style>.gone, #gone {{ left: 0; }}</style>{body}")


def test_words_that_are_shown_are_no_names():
    assert trim_page("<style>.gone { left: 0; }</style><p>gone</p>") == "<style></style><p>gone</p>"


def test_a_script_loses_its_comments_and_no_code():
    assert trim_script('// why\n  const a = "// no comment";\n\n  go(a); // kept\n') == (
        'const a = "// no comment";\ngo(a); // kept'
    )


def test_the_pages_hold_no_comment_no_indentation_and_every_class_that_is_styled():
    for path, page in html_pages(build_reports(nightly_history(4))).items():
        assert not re.search(r"<!--|/\*|^[ \t]+", page, re.MULTILINE), path
