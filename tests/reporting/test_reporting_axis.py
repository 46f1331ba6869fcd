"""Below a chart stands when its runs were; lines have the names of machines; a new firmware is
marked among turns.
"""

import re
from dataclasses import replace

import pytest
from reporting_histories import NEW, OLD, make_cell, make_run

from qbench.judging import Cell
from qbench.reporting import build_report, html_pages
from qbench.reporting.chart import Frame, line_names, marked_switches, run_axis, trend_svg

KEY = Cell("nightly", "network", "ort-cpu", "w8a8_sym_pc")


def by_turns(machines, nights=20):
    """The report of a cell on machines that take turns; ``machines`` of a night are its
    environment classes.
    """
    runs = []
    for night in range(nights):
        named = machines(night)
        line = make_cell(
            "network", "ort-cpu", "w8a8_sym_pc", 0.002 if named.endswith("2") else 0.004
        )
        runs.append(
            make_run(
                [line | {"environment_class": named}], night, environment=NEW if night % 2 else OLD
            )
        )
    return build_report(runs)


def upgraded(night):
    return "board-b+fw-1" if night % 2 else f"board-a+fw-{1 + (night >= 12)}"


def test_a_machine_that_comes_under_a_new_name_is_marked_among_turns():
    trend = by_turns(upgraded).trends[KEY][0]
    assert len(trend.switches) == 19
    assert [(switch.position, switch.label) for switch in marked_switches(trend)] == [(12, "fw 2")]
    assert marked_switches(by_turns(lambda night: f"board-{night % 2}").trends[KEY][0]) == ()


@pytest.mark.slow
def test_every_line_has_the_name_of_its_machine_beside_its_stroke():
    report = by_turns(upgraded)
    names = line_names(report.trends[KEY][0])
    assert names == [(0, "board-b+fw-1"), (1, "board-a+fw-2"), (2, "board-a+fw-1")]
    page = html_pages([report])["models/network.html"]
    told = re.search(r'<p class="lines">(.*?)</p>', page, re.DOTALL)[1].replace("<wbr>", "")
    assert re.findall(r'class="line c(\d)"[^>]*></svg>([^<]*)<', told) == [
        (str(n), name) for n, name in names
    ]
    assert all(
        name in trend_svg(report.trends[KEY][0], report.cells[0], report.runs) for _, name in names
    )


@pytest.mark.parametrize(
    ("started", "names"),
    [
        (
            ["2026-01-03 02:00 UTC", "2026-02-03 02:00 UTC", "2026-12-26 02:00 UTC"],
            "2026-01-03 2026-12-26 2026-02-03",
        ),
        (
            ["2026-01-03 02:00 UTC", "2026-01-03 03:15 UTC", "2026-01-03 04:00 UTC"],
            "02:00 04:00 03:15",
        ),
        (["", "", ""], "c0ffee0 c0ffee2 c0ffee1"),
        (["2026-01-03 02:00 UTC"], "2026-01-03"),
    ],
)
def test_the_axis_names_days_times_or_commits(started, names):
    run = by_turns(upgraded, 2).runs[0]
    runs = [
        replace(run, started=text, commit=f"c0ffee{place}") for place, text in enumerate(started)
    ]
    assert (
        re.findall(r"<tspan[^>]*>([^<]*)<", run_axis(runs, Frame(0.0, 1.0, len(runs))))
        == names.split()
    )
    assert run_axis([], Frame(0.0, 1.0, 0)) == ""


def test_levels_are_written_as_finely_as_the_metric_counts():
    report = by_turns(lambda _: "board-a")
    chart = trend_svg(report.trends[KEY][0], report.cells[0], report.runs)
    assert re.search(r">fp32 \d\d\.\d\d<", chart)
