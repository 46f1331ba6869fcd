"""The last nights on the overview, what is folded, what is never joined, the order of the suite."""

import re
from dataclasses import replace

import pytest
from reporting_histories import make_cell, make_run

from qbench.reporting import build_report, html_pages
from qbench.reporting.chart import trend_svg
from qbench.reporting.courses import courses_of, folded
from qbench.reporting.format import executed_otherwise, integers_text
from qbench.reporting.overlay import MOST, overlay_svg, overlays_of
from qbench.reporting.png import trend_frame

MODEL, SCHEMA = "mobilenet_v2", "w8a8_sym_pc"


def lossy(lost, *, backend="ort-cpu", schema=SCHEMA, samples="a" * 64):
    """The line of a cell that loses so many of 1,000 samples."""
    line = make_cell(MODEL, backend, schema, lost / 1000)
    line["digests"] = {**line["digests"], "data:photos": samples}
    return line


def report_of(nights, **facts):
    """A report on one cell, over nights that lost so many samples, or that have these lines."""
    lines = [[lossy(one)] if isinstance(one, int) else one for one in nights]
    return build_report([make_run(cells, n) for n, cells in enumerate(lines)], **facts)


def only(report):
    (course,) = courses_of(report.cells, report.trends)
    return course


def test_a_course_says_what_changed_last_and_the_lowest_of_the_last_nights():
    course = only(report_of([300, *[1] * 20, 3, *[1] * 12, 2]))
    assert (course.since, course.worst) == pytest.approx((-0.001, 0.738))  # not the 35th night
    assert course.has_moved
    assert not course.slide
    still = only(report_of([1] * 5))
    assert (still.since, still.has_moved) == (0, False)
    assert only(report_of([1])).since is None


def test_of_an_error_rate_the_lowest_is_the_highest():
    lines = [[make_cell("g2p_gru", "ort-cpu", SCHEMA, loss)] for loss in (0.001, 0.003, 0.002)]
    course = only(report_of(lines))
    assert course.worst == max(point.metric.value for point in course.points)


def test_a_slide_within_the_margin_is_on_the_first_page_of_a_green_suite():
    report = report_of([night // 10 for night in range(40)])
    assert not report.is_red
    assert only(report).slide == pytest.approx(0.002)
    page = html_pages([report])["index.html"]
    assert "slides: −0.20 pp over 30 nights" in page
    assert "within its margin" in page


def test_results_of_other_samples_are_neither_joined_nor_compared():
    nights = [[lossy(night < 6 or -40, samples="ab"[night > 5] * 64)] for night in range(12)]
    report = report_of(nights)
    course = only(report)
    assert [point.position for point in course.points] == [*range(6, 12)]
    assert (course.since, course.others) == (0, 6)
    assert "other samples since 2026-01-07" in html_pages([report])["index.html"]
    (cell,) = report.cells
    (trend, *_) = report.trends[cell.key]
    chart = trend_svg(replace(trend, accepted=0.78), cell, report.runs)
    (line,) = re.findall(r'class="line c0" d="([^"]+)"', chart)
    assert line.count("M") == 2
    (accepted,) = re.findall(r'class="approved" d="M([\d.]+)', chart)
    (change,) = re.findall(r'class="switch" d="M([\d.]+)', chart)
    assert float(accepted) >= float(change) - 0.1
    assert ">other samples<" in chart
    assert cell.moved == 0
    frame = trend_frame(report, MODEL)
    assert frame.groupby("data")["run"].max().tolist() == [5, 11]


def test_other_samples_on_another_machine_are_named_too():
    nights = [[lossy(1, samples=letter * 64)] for letter in "aab"]
    nights[2][0]["environment_class"] = "arm64-dot+onnxruntime-1.31.1"
    (cell,) = (report := report_of(nights)).cells
    (switch,) = report.trends[cell.key][0].switches
    assert switch.of_samples
    assert switch.label == "other samples, arm64-dot"


def test_what_is_equal_to_the_digit_on_several_backends_is_one_line_and_one_card():
    def night(third):
        lost = {"ort-cpu": 1, "ort-cpu-precise": 1, "onnx-reference": third}
        return [lossy(count, backend=name) for name, count in lost.items()]

    report = report_of([night(1)] * 3 + [night(2)] + [night(1)] * 3)
    names = [[cell.key.backend for cell in same] for same in folded(report.cells, report.trends)]
    assert names == [["ort-cpu", "ort-cpu-precise"], ["onnx-reference"]]
    pages = html_pages([report])
    assert pages["index.html"].count('<svg class="course') == 2
    moved = [[lossy(n, backend=name) for name in ("ort-cpu", "other")] for n in (1, 3, 1)]
    page = html_pages([report_of(moved)])[f"models/{MODEL}.html"]
    assert page.count('<svg class="trend"') == 1
    assert "ort-cpu, other: equal to the digit" in page
    assert f'id="other--{SCHEMA}"' in page


def test_backends_come_in_the_order_of_the_suite():
    cells = [lossy(1, backend=name) for name in ("b", "c", "a")]
    run = make_run(cells)
    assert [one.backend for one in build_report([run]).matrices] == ["b", "c", "a"]
    named = replace(run, header={**run.header, "backends": ["c", "b", "a"]})
    report = build_report([named])
    assert [one.backend for one in report.matrices] == ["c", "b", "a"]
    assert [cell.key.backend for cell in report.cells] == ["c", "b", "a"]


def test_the_schemas_of_a_model_are_lines_of_one_chart_told_apart_without_colours():
    schemas = [f"w8a8_{n}" for n in range(MOST + 2)]
    nights = [[lossy(n + night, schema=s) for n, s in enumerate(schemas)] for night in range(12)]
    report = report_of(nights)
    (overlay,) = overlays_of(report, MODEL)
    assert len(overlay.lines) == MOST
    chart = overlay_svg(overlay, report.runs)
    marks = re.findall(r'<path class="dot s(\d)" d="M[\d.]+ [\d.]+(.*?)(?:M|")', chart)
    assert len({shape for _, shape in marks}) == len(marks) == MOST


@pytest.mark.parametrize(
    ("planned", "executed", "words", "otherwise"),
    [
        (1.0, 0.00426, "100 % planned, 0.4 % executed", "0.4 % executed of 100 % planned"),
        (1.0, 1.0, "100 % planned and executed", ""),
        (0.986, None, "98.6 % planned", ""),
        (0.0, 0.0, "", ""),
        (
            0.986,
            1.0,
            "98.6 % planned, 100 % executed",
            "100 % executed of 98.6 % planned: an error of qbench",
        ),
    ],
)
def test_the_executed_share_is_shown_where_it_is_another_than_planned(
    planned, executed, words, otherwise
):
    line = lossy(1) | {"integer_macs": planned, "executed_macs": executed}
    report = report_of([[line], [line]])
    (cell,) = report.cells
    assert (integers_text(cell), executed_otherwise(cell)) == (words, otherwise)
    pages = html_pages([report])
    for page in (pages["index.html"], pages[f"models/{MODEL}.html"], pages["cells.html"]):
        assert "% integer" not in page
    if otherwise:
        assert executed_otherwise(cell, short=True) in pages["index.html"]
