"""Trends over an exchange of the model: the reference of each time, the step,
and its cause by its side.
"""

import itertools
import re
from dataclasses import replace

import pytest
from reporting_histories import NEW, OLD, make_cell, make_run

from qbench.judging import Cell
from qbench.reporting import build_report, html_pages, markdown_text, remember, write_reports
from qbench.reporting.chart import (
    LETTER,
    RIGHT,
    WIDTH,
    _labels,
    _switch_labels,
    frame_of,
    trend_svg,
)
from qbench.reporting.png import run_labels
from qbench.reporting.trends import Mark, Step, Switch
from qbench.tracking import record_of_line

KEY = Cell("nightly", "network", "ort-cpu", "w8a8_sym_pc")


def exchanged(index: int, hits: int, reference: int, digests: dict[str, str]) -> dict:
    """A cell line of 1,000 samples whose network was exchanged for another in run 12."""
    line = make_cell("network", "ort-cpu", "w8a8_sym_pc", 0.0)
    score = line["metrics"]["top1"] | {
        "hits": hits,
        "reference_hits": reference,
        "out_of": 1000,
        "n": 1000,
    }
    gates = [{"kind": "loss", "metric": "top1", "state": "holds", "limit": (reference - 5) / 1000}]
    return line | {"metrics": {"top1": score}, "gates": gates, "digests": digests}


@pytest.fixture(scope="module")
def history():
    runs = []
    for index in range(20):
        old = index < 12
        digests = {"model": "a" if old else "b", "quantized": "c" if old else "d", "data:x": "e"}
        run = make_run([exchanged(index, 994 if old else 989, 995 if old else 990, digests)], index)
        versions = run.environment["versions"] | {"numpy": "2.3.4" if old else "2.3.5"}
        runs.append(replace(run, environment=run.environment | {"versions": versions}))
    return runs


@pytest.fixture(scope="module")
def report(history):
    return build_report(history)


def test_the_reference_and_the_limit_are_those_of_each_run(report):
    (trend,) = report.trends[KEY]
    assert trend.marks == (
        Mark(first=0, last=11, reference=0.995, limit=0.99, data="e"),
        Mark(first=12, last=19, reference=0.99, limit=0.985, data="e"),
    )
    chart = trend_svg(trend, report.cells[0], report.runs)
    frame = frame_of(trend, 20)
    line = re.search(rf'class="fp32" d="M34 ([\d.]+)H([\d.]+)V([\d.]+)H{WIDTH - RIGHT}"', chart)
    assert line
    assert [float(line[1]), float(line[3])] == pytest.approx(
        [frame.y(0.995), frame.y(0.99)], abs=0.06
    )
    assert frame.x(11) < float(line[2]) < frame.x(12)
    assert chart.count('class="margin"') == 2
    assert ".fp32,.limit{fill:none}" in "".join(
        html_pages([report]).values()
    )  # a line with corners would be filled
    # no value lies above the reference of its time
    assert all(
        frame.y(v) > frame.y(0.995 if p < 12 else 0.99)
        for p, v in enumerate(point.metric.value for point in trend.points)
    )


def test_a_step_names_what_is_new_at_its_run(report):
    (step,) = report.trends[KEY][0].steps
    commit = report.runs[12].commit
    assert (step.position, step.causes) == (
        12,
        ("model changed", "quantized graph changed", "numpy 2.3.4 → 2.3.5", f"commit {commit}"),
    )
    chart = trend_svg(report.trends[KEY][0], report.cells[0], report.runs)
    assert ">−0.50 model changed</text>" in chart
    for text in ("".join(html_pages([report]).values()), markdown_text([report])):
        assert "model changed, quantized graph changed, numpy 2.3.4 → 2.3.5, commit " in text


def test_a_cause_that_is_not_known_is_not_named():
    runs = [
        make_run([exchanged(i, 994 if i < 6 else 980, 995, {"model": "a"} if i < 6 else {})], i)
        for i in range(12)
    ]
    runs = [replace(run, header=run.header | {"commit": None}) for run in runs]
    (step,) = build_report(runs).trends[KEY][0].steps
    assert step.causes == ()


def of_commit(run, place: int, *, dirty: bool = False):
    """``run`` of the commit number ``place``."""
    sha = f"{place:040x}"
    return replace(
        run, header=run.header | {"commit": {"sha": sha, "short": sha[:9], "dirty": dirty}}
    )


def test_runs_of_one_commit_are_one_point_with_its_spread():
    hits = [990, 990, 980, 985, 983, 989, 981, 987, 990]
    commits = [0, 1, 2, 2, 2, 2, 2, 2, 3]
    runs = [of_commit(make_run([exchanged(i, hits[i], 995, {})], i), commits[i]) for i in range(9)]
    report = build_report(runs)
    trend = report.trends[KEY][0]
    assert [point.position for point in trend.points] == [0, 1, 2, 8]
    several = trend.points[2]
    assert len(several.each) == 6
    assert several.metric.value == 0.983
    assert several.spread == (0.980, 0.989)
    assert trend.places == (0, 1, 2, 2, 2, 2, 2, 2, 3)
    chart = trend_svg(trend, report.cells[0], report.runs)
    assert chart.count('class="spread"') == 1
    assert "6 runs, 98.00 % … 98.90 %" in chart
    assert "9 runs of 4 commits" in chart
    page = html_pages((report,))["models/network.html"]
    assert len(re.search(r'data-runs="([^"]*)"', page)[1].split("|")) == 4


@pytest.mark.parametrize("dirty", [True, False])
def test_what_was_not_committed_or_is_of_another_machine_keeps_its_point(dirty):
    runs = [
        make_run([exchanged(i, 990 + i, 995, {}) | {"environment_class": "ab"[i % 2]}], i)
        for i in range(4)
    ]
    trend = build_report([of_commit(run, 1, dirty=dirty) for run in runs]).trends[KEY][0]
    assert [len(point.each) for point in trend.points] == ([1] * 4 if dirty else [2, 2])
    assert trend.by_class[0][-1].environment_class == "b"


@pytest.mark.slow
def test_markdown_links_the_charts_that_were_written_and_shows_what_moved(history, tmp_path):
    still = {"digests": {"model": "a"}, "model": "still"}
    runs = [
        replace(r, cells=(*r.cells, record_of_line(exchanged(0, 990, 995, {}) | still)))
        for r in history[:14]
    ]
    write_reports(runs, tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "[network](charts/network.png), [still](charts/still.png)" in text
    assert (tmp_path / "charts" / "network.png").is_file()
    section = text[text.index("## History") :]
    assert "| 99.40 % | 99.40 % | 99.40 % | 99.40 % | 98.90 % | 98.90 % |" in section
    assert "`still::" not in section
    write_reports(runs, tmp_path / "text", ["md"])
    assert "charts/" not in (tmp_path / "text" / "report.md").read_text(encoding="utf-8")


def test_runs_are_named_by_day_time_or_commit(report):
    assert run_labels(report.runs)[:2] == ["01-01", "01-02"]
    same = [replace(report.runs[0], started=f"2026-01-01 0{hour}:15 UTC") for hour in (3, 4)]
    assert run_labels(same) == ["03:15", "04:15"]
    assert run_labels([replace(report.runs[0], started="")]) == [report.runs[0].commit[:7]]


def by_turns(nights: int, worse_from: int) -> list:
    """Two machines by turns; from one night on both lose forty samples of a thousand."""
    runs = []
    for night in range(nights):
        machine = NEW if night % 2 else OLD
        line = make_cell(
            "network", "ort-cpu", "w8a8_sym_pc", 0.044 if night >= worse_from else 0.004
        )
        runs.append(
            make_run([line | {"environment_class": str(machine)}], night, environment=machine)
        )
    return runs


@pytest.mark.slow
def test_one_change_seen_by_two_machines_is_one_group_at_the_first_run_that_had_it():
    runs = by_turns(40, 21)
    report = build_report(runs)
    (group,) = report.step_groups
    assert group.position == 21
    assert {step.position for _, _, step in group.steps} == {21, 22}
    commits = {step.position: step.causes[-1] for _, _, step in group.steps}
    short = [run.commit for run in report.runs]
    assert commits == {
        21: f"commits {short[20]} … {short[21]}",
        22: f"commits {short[21]} … {short[22]}",
    }
    page = html_pages(
        [replace(report, regressions=remember(runs, accepted={}).regressions["nightly"])]
    )["index.html"]
    assert f"<b>1 new alert.</b> Step at {short[21]}: " in page


def test_labels_of_steps_that_stand_close_do_not_cover_each_other():
    report = build_report(by_turns(60, 31))
    chart = trend_svg(report.trends[KEY][0], report.cells[0], report.runs)
    assert chart.count('<g class="step worse">') == 2
    sides = re.findall(r'<text x="([\d.]+)" y="12" text-anchor="(\w+)">−4\.00', chart)
    assert [anchor for _, anchor in sides] == ["end", "start"]
    assert float(sides[1][0]) - float(sides[0][0]) > 12  # one on either side of both marks


@pytest.mark.parametrize(
    "places", [(10, 14, 17, 29, 32, 35), (0, 1, 2, 3), (19, 20, 21), (36, 38, 39)]
)
def test_labels_of_many_steps_cover_neither_labels_nor_marks(places):
    runs = [
        make_run([make_cell("network", "ort-cpu", "w8a8_sym_pc", 0.001)], night)
        for night in range(40)
    ]
    report = build_report(runs)
    trend = report.trends[KEY][0]
    steps = tuple(
        Step(position=place, before=0.8, after=0.8 - 0.001 * (place % 7 + 1)) for place in places
    )
    trend = replace(trend, steps=steps)
    frame = frame_of(trend, len(runs))
    labels = _labels(trend, frame)
    assert max(steps, key=lambda step: step.before - step.after) in labels
    chart = trend_svg(trend, report.cells[0], report.runs)
    drawn = re.findall(r'<text x="([\d.]+)" y="(12|3)" text-anchor="(\w+)">(−[\d.]+)<', chart)
    assert len(drawn) == len(labels)
    boxes = [(frame.x(step.position) - 4, frame.x(step.position) + 4, "12") for step in steps]
    for at, height, anchor, text in drawn:
        left = float(at) - LETTER * len(text) * (anchor == "end")
        box = (left, left + LETTER * len(text), height)
        assert 0 <= box[0] < box[1] <= WIDTH - RIGHT + 4
        assert all(
            box[2] != other[2] or box[1] <= other[0] or other[1] <= box[0] for other in boxes
        )
        boxes.append(box)


def test_labels_of_machines_stand_between_their_neighbours():
    labels = [
        "x64-avx2",
        "arm64-dotprod-with-a-long-name, onnxruntime 1.31.1",
        "onnxruntime 1.32.0",
    ]
    switches = [
        Switch(position=place, label=label) for place, label in zip((4, 5, 19), labels, strict=True)
    ]
    places = [46.0, 58.0, 224.0]
    ends = []
    for (x, text, anchor), label in zip(_switch_labels(switches, places), labels, strict=True):
        assert label.startswith(text.rstrip("…"))
        wide = LETTER * len(text)
        ends.append((x - 3 - wide, x) if anchor == "end" else (x, x + 3 + wide))
    assert all(one[1] <= after[0] for one, after in itertools.pairwise(ends))
    assert ends[0][0] >= 0
    assert ends[-1][1] <= WIDTH


def test_time_and_size_of_a_cell_are_followed_over_the_runs_of_one_class():
    def cell(night: int):
        more = {
            "seconds": {"inference": float(night)},
            "constant_bytes": 4_000_000 if night < 4 else 1_000_000,
        }
        line = make_cell("m", "a", "s", 0.0, environment=OLD if night == 2 else NEW)
        return line | (more if night else {"seconds": {}})

    runs = [make_run([cell(night)], night) for night in range(6)]
    report = build_report(runs)
    (cost,) = report.costs.values()
    assert cost.times == (1.0, 3.0, 4.0, 5.0)
    assert cost.usual == 3.0
    assert (cost.size, cost.before) == (1_000_000, 4_000_000)
    assert cost.resized is not None
    assert cost.resized.sha == runs[4].commit
    assert len(cost.line) == 4
    page = html_pages((report,))["models/m.html"]
    assert "1.00 MB" in page
    assert cost.line in page
    unknown = [
        make_run([make_cell("m", "a", "s", 0.0) | {"seconds": {}}], night) for night in range(2)
    ]
    assert build_report(unknown).costs == {}


def test_a_long_course_is_a_short_line():
    runs = [
        make_run([make_cell("m", "a", "s", 0.0) | {"seconds": {"inference": 1.0 + n}}], n)
        for n in range(40)
    ]
    (cost,) = build_report(runs).costs.values()
    assert len(cost.times) == 40
    assert (len(cost.line), cost.line[0], cost.line[-1]) == (12, "▁", "█")
