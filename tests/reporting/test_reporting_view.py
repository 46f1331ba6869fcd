"""What a report says: counts, causes in order, ages, steps at the right run, nothing for what
was not measured.
"""

import dataclasses
import re
from dataclasses import replace

import pytest
from msgspec import structs
from reporting_histories import (
    BACKENDS,
    MACHINE_RUN,
    MODELS,
    SCHEMAS,
    STEP_RUN,
    edge_histories,
    make_cell,
    make_run,
    nightly_history,
)

from qbench.judging import Cell, GateKind, Outcome
from qbench.number_text import percent, points, signed
from qbench.reporting import (
    MetricView,
    build_report,
    build_reports,
    html_pages,
    markdown_text,
    summary_lines,
)
from qbench.reporting.columns import COLUMNS
from qbench.reporting.format import BELOW, change_text, margin_level, margin_used, value_text
from qbench.reporting.png import matrix_frames
from qbench.reporting.report import TITLES, cause_name
from qbench.reporting.trends import class_difference
from qbench.reporting.view import read_cell
from qbench.tracking import Run, record_of_line
from qbench.tracking.gate_record import GateRecord


@pytest.fixture(scope="module")
def history():
    return nightly_history()


@pytest.fixture(scope="module")
def report(history):
    return build_report(history)


BAD = Cell("nightly", "mobilenet_v2", "ort-cpu", "w8a8_sym_pc")


def metric(hits: int, reference: int, out_of: int = 1000, **more) -> MetricView:
    flips = {"losses": 0, "gains": 0} | more
    return MetricView(
        name="top1", n=out_of, hits=hits, out_of=out_of, reference_hits=reference, **flips
    )


@pytest.mark.slow
def test_every_cell_is_there_once_and_counted(report):
    assert (
        len(report.cells)
        == len(MODELS) * len(BACKENDS) * len(SCHEMAS)
        == len({c.key for c in report.cells})
    )
    assert sum(count for _, count in report.tallies) == len(report.cells)
    assert dict(report.tallies)["unsupported"] == 2 * len(SCHEMAS)
    assert sum(len(keys) for _, keys in report.unsupported) == 2 * len(SCHEMAS)
    assert [matrix.backend for matrix in report.matrices] == sorted(BACKENDS)
    assert report.matrices[1].columns[0] == "fp32"


def test_unsupported_reasons_that_differ_in_the_cell_are_one():
    from types import SimpleNamespace

    from qbench.judging import Cell
    from qbench.reporting.assembly import _unsupported

    def view(model, why):
        key = Cell("tiny", model, "ort-cpu", "w8a8_asym_pc")
        record = SimpleNamespace(outcome="unsupported", headline=f"Running '{key}': {why}", rule="")
        return SimpleNamespace(key=key, record=record)

    found = _unsupported([view("a", "no Einsum"), view("b", "too slow"), view("c", "too slow")])
    assert [(reason[-8:], [key.model for key in keys]) for reason, keys in found] == [
        ("too slow", ["b", "c"]),
        ("o Einsum", ["a"]),
    ]


def test_unsupported_is_never_counted_among_what_ran(report):
    assert f"of {len(report.cells) - 2 * len(SCHEMAS)} cells are red" in report.headline


def test_causes_are_worst_first_and_cells_within_them_too(report):
    assert [cause.name for cause in report.causes] == [
        "error",
        "loss",
        "drifted",
        "stale",
        "missing",
    ]
    loss = next(cause for cause in report.causes if cause.name == "loss")
    assert [c.excess for c in loss.cells] == sorted((c.excess for c in loss.cells), reverse=True)
    assert {c.key.model for c in loss.cells} == {"mobilenet_v2"}
    assert loss.remedies[0].startswith(f"qbench localize {loss.cells[0].key.model}")


def test_the_step_is_found_at_its_run_and_the_machine_change_is_none(report):
    trend = report.trends[BAD][0]
    steps = [step for step in trend.steps if not step.provisional]
    assert [step.position for step in steps] == [STEP_RUN]
    assert points(steps[0].after - steps[0].before, 1) == "−1.2 pp"
    assert [(switch.position, switch.label) for switch in trend.switches] == [
        (MACHINE_RUN, "x64-avx512-vnni, onnxruntime 1.31.1")
    ]
    group = next(g for g in report.step_groups if g.position == STEP_RUN)
    assert group.run == report.runs[STEP_RUN]
    assert {
        key for key, m, _ in group.steps if m.name == "top1" and key.model == "mobilenet_v2"
    } == {
        Cell("nightly", "mobilenet_v2", backend, schema)
        for backend in ("ort-cpu", "ort-cpu-noopt")
        for schema in ("w8a8_sym_pc", "w8a8_sym_pc_pow2")
    }


def test_a_red_cell_knows_since_when(report):
    cell = next(c for c in report.cells if c.key == BAD)
    assert cell.red_runs == len(report.runs) - STEP_RUN
    assert cell.red_since == report.runs[STEP_RUN].commit
    new = next(c for c in report.cells if c.record.outcome == "drifted")
    assert new.red_runs == 1


def test_a_first_run_does_not_call_its_reds_new():
    report = build_report([make_run([make_cell("magika", "ort-cpu", "w8a8_sym_pc", 0.02)])])
    assert report.is_red
    assert report.cells[0].red_runs == 0


def test_moved_compares_within_one_environment_class():
    history = edge_histories()["two machines by turns"]
    assert build_report(history).cells[0].moved == 0
    assert build_report(history[:1]).cells[0].moved is None
    assert all(
        not trend.steps for trends in build_report(history).trends.values() for trend in trends
    )


def test_other_samples_are_a_line_and_no_step():
    runs = []
    for index in range(12):
        line = make_cell("magika", "ort-cpu", "w8a8_sym_pc", 0.001 if index < 6 else 0.004)
        runs.append(make_run([line | {"digests": {"data:x": "a" if index < 6 else "b"}}], index))
    trend = next(iter(build_report(runs).trends.values()))[0]
    assert trend.steps == ()
    assert [(switch.position, switch.label) for switch in trend.switches] == [(6, "other samples")]


def test_another_calibration_or_schema_is_marked_in_the_chart():
    runs = []
    for index in range(6):
        line = make_cell("magika", "ort-cpu", "w8a8_sym_pc", 0.001)
        made = {
            "calibration": f"{32 if index < 2 else 4} samples of 'c'",
            "schema": "a" if index < 4 else "b",
        }
        runs.append(make_run([line | {"made": made}], index))
    trend = next(iter(build_report(runs).trends.values()))[0]
    marks = [(switch.position, switch.label) for switch in trend.switches]
    assert marks == [(2, "calibration 4 samples of 'c'"), (4, "schema edited")]


def test_a_run_whose_cells_have_no_line_is_not_said_to_pass(words):
    run = selected(make_run([make_cell("a", "ort-cpu", "s1", 0.0)], 0), 3, 3)
    report = build_report([run])
    assert report.state == "incomplete"
    words((report.headline, *report.notices))


def test_an_interrupted_run_of_a_smaller_suite_is_counted_by_itself():
    """What a former suite had is no cell that this run left out."""
    former = make_run([make_cell(model, "ort-cpu", "s1", 0.0) for model in "abcd"], 0)
    cut = make_run([make_cell("a", "ort-cpu", "s1", 0.0)], 1, complete=False)
    for planned, tallies in ((2, {"passed": 1}), (4, {"passed": 1, "absent": 3})):
        now = dataclasses.replace(
            cut, header={**cut.header, "planned": planned, "selected": planned}
        )
        assert dict(build_report([former, now]).tallies) == tallies


def test_a_partial_run_shows_the_rest_as_absent_and_never_as_passed():
    report = build_report(edge_histories()["incomplete"])
    assert dict(report.tallies) == {"passed": 2, "absent": 4}
    assert report.state == "incomplete"
    assert report.headline.startswith("Incomplete run")
    assert "stopped by Ctrl-C" in report.notices


def selected(run, count, planned):
    whole = count == planned
    facts = {"planned": planned, "selected": count, "complete_selection": whole}
    return dataclasses.replace(run, header={**run.header, **facts})


def test_a_run_of_a_part_replaces_only_what_it_measured():
    """The front page stays that of the last whole run, red cells included; nothing is absent."""
    night = selected(make_run([make_cell(model, "ort-cpu", "s1", 0.0) for model in "abc"], 0), 3, 3)
    bad = make_cell("b", "ort-cpu", "s1", 0.0) | {"outcome": "failed"}
    red = selected(
        make_run(
            [make_cell("a", "ort-cpu", "s1", 0.0), bad, make_cell("c", "ort-cpu", "s1", 0.0)], 1
        ),
        3,
        3,
    )
    part = selected(make_run([make_cell("a", "ort-cpu", "s1", 0.001)], 2), 1, 3)
    report = build_report([night, red, part])
    assert dict(report.tallies) == {"passed": 2, "failed": 1}
    assert (report.is_red, report.run.id) == (True, red.id)
    assert report.notices[0].startswith(
        "1 of the 3 cells of the suite was selected in the later run"
    )
    fixed = selected(make_run([make_cell("b", "ort-cpu", "s1", 0.0)], 3), 1, 3)
    assert not build_report([night, red, part, fixed]).is_red
    assert dict(build_report([part]).tallies) == {"passed": 1}, "there is no whole one"
    cut = dataclasses.replace(part, complete=False)
    assert "absent" in dict(build_report([night, red, cut]).tallies), (
        "an interrupted run is said to be so"
    )


def test_a_whole_run_without_a_cell_has_dropped_it():
    whole = [make_cell("magika", "ort-cpu", s, 0.001) for s in SCHEMAS]
    assert len(build_report([make_run(whole, 0), make_run(whole[:2], 1)]).cells) == 2


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("empty", "empty"),
        ("one run", "green"),
        ("nothing measured", "empty"),
        ("no cells", "empty"),
        ("incomplete", "incomplete"),
        ("damaged", "green"),
        ("hostile", "red"),
    ],
)
def test_states(name, state):
    assert build_report(edge_histories()[name]).state == state


def test_rubbish_is_read_as_nothing_and_an_unknown_outcome_is_red():
    report = build_report(edge_histories()["rubbish"][:1])
    assert {c.key.model: c.is_red for c in report.cells if c.record.outcome == "purple"} == {
        "?": True
    }
    assert all(cell.lead is None for cell in report.cells)


def test_one_report_a_suite_the_newest_first():
    assert [report.suite for report in build_reports(edge_histories()["two suites"])] == [
        "smoke",
        "nightly",
    ]
    assert [report.suite for report in build_reports([])] == [""]


def test_the_lead_metric_is_the_one_a_gate_decides_on():
    line = make_cell("magika", "ort-cpu", "w8a8_sym_pc", 0.001)
    gates = [
        {"kind": "loss", "metric": "top1", "state": "shown"},
        {"kind": "floor", "metric": "agreement@photo_crops", "state": "holds", "limit": 0.9},
    ]
    cell = build_report([make_run([line | {"gates": gates}])]).cells[0]
    assert (cell.lead.name, cell.lead.limit) == ("agreement@photo_crops", 0.9)
    broken = [{"kind": "loss", "metric": "top5", "state": "broken", "limit": 0.95}, *gates]
    assert build_report([make_run([line | {"gates": broken}])]).cells[0].lead.name == "top5"


def test_a_cell_measured_twice_counts_with_its_later_line():
    lines = [make_cell("magika", "ort-cpu", "w8a8_sym_pc", loss) for loss in (0.05, 0.001)]
    assert build_report([make_run(lines)]).state == "green"


def test_worse_and_change_follow_the_direction():
    fell, rose = metric(700, 720), metric(90, 80, direction="lower")
    assert (change_text(fell), fell.worse) == ("−2.00 pp", pytest.approx(0.02))
    assert (change_text(rose), rose.worse) == ("+1.00 pp", pytest.approx(0.01))
    assert value_text(fell) == "70.00 %"


def test_margin_used_and_its_shades():
    levels = [
        margin_level(metric(hits, 800, limit=0.79))
        for hits in (801, 800, 796, 795, 790, 785, 780, 779)
    ]
    assert levels == [-1, 0, 1, 1, 2, 3, 3, 4]
    assert margin_used(metric(798, 800)) == pytest.approx(0.5)
    assert margin_used(metric(0, 0)) == 0


def test_signs_are_typographic_and_zero_has_none():
    assert [signed(x) for x in (-1.234, 0.5, 0.0, -0.001)] == ["−1.23", "+0.50", "0.00", "0.00"]
    assert percent(0.77136) == "77.14 %"


def test_a_failed_cell_is_grouped_by_its_broken_gate():
    cell = build_report([make_run([make_cell("magika", "ort-cpu", "w8a8_sym_pc", 0.02)])]).cells[0]
    assert cause_name(cell) == "loss"
    bare = structs.replace(cell.record, gates=())
    assert cause_name(replace(cell, record=bare)) == "failed"
    others = [
        replace(cell, record=structs.replace(bare, outcome=o.value)) for o in Outcome if o.is_red
    ]
    assert set(map(cause_name, others)) >= {"error", "stale"}


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        (GateKind.CALIBRATION, "calibration"),
        (GateKind.LATENCY_DRIFT, "latency_drift"),
        (GateKind.FILE_SIZE_DRIFT, "file_size_drift"),
        (GateKind.EXECUTED_DRIFT, "executed_drift"),
        (GateKind.DRIFT, "drifted"),
        (GateKind.LOSS, "drifted"),  # a gate that fails a cell is not why it drifted
    ],
)
def test_a_drifted_cell_is_grouped_by_its_gate_where_that_has_a_heading(kind, cause):
    cell = build_report([make_run([make_cell("magika", "ort-cpu", "w8a8_sym_pc", 0.02)])]).cells[0]
    gate = GateRecord(kind=kind, state="broken", detail="as told", rule="as told")
    record = structs.replace(cell.record, outcome="drifted", headline="as told", gates=(gate,))
    assert cause_name(replace(cell, record=record)) == cause
    assert TITLES[cause]


def test_class_difference_names_what_is_new():
    assert (
        class_difference("x64-avx2+onnxruntime-1.30.2", "x64-avx2+onnxruntime-1.31.1")
        == "onnxruntime 1.31.1"
    )
    assert class_difference("x64-avx2+a-1", "arm64-dotprod+a-1") == "arm64-dotprod"
    assert class_difference("x64+a-1", "x64") == "x64"


def test_the_window_keeps_the_newest_runs():
    runs = [make_run([make_cell("magika", "ort-cpu", "fp32", 0.0)], index) for index in range(130)]
    report = build_report(runs)
    assert len(report.runs) == 120
    assert report.runs[-1].id == runs[-1].id


def test_a_run_without_any_header_is_read(history):
    assert build_report([Run(header={}), *history[-1:]], "?").suite == "?"


FLOOR = "agreement@photo_crops"


def accepted_cell(schema: str, loss: float, tolerance: float | None = 0.02, **more):
    """A cell whose first gate is an accepted floor of agreement that it meets; ``loss`` × 3 of
    its samples differ.
    """
    gate = {
        "kind": "floor",
        "metric": FLOOR,
        "state": "holds",
        "limit": 0.5,
        "rule": "accepted floor (baseline)",
    }
    cell = make_cell("m", "ort-cpu", schema, loss, outcome=Outcome.PASSED)
    return (
        cell
        | {
            "gates": [gate | {"detail": "met"}],
            "rule": "tolerance 2 % (model m)",
            "tolerance": tolerance,
        }
        | more
    )


def test_a_cell_that_passes_by_its_floor_alone_has_another_symbol_on_every_surface(words):
    low, high = accepted_cell("low", 0.02), accepted_cell("high", 0.002)
    wide, alone = (
        accepted_cell("wide", 0.02, tolerance=0.1),
        accepted_cell("alone", 0.02, tolerance=None),
    )
    failed = accepted_cell("failed", 0.02, outcome="failed")
    reports = build_reports([make_run([low, high, wide, alone, failed])])
    (report,) = reports
    assert [cell.key.schema for cell in report.cells if cell.is_below_tolerance] == ["low"]
    matrix = html_pages(reports)["index.html"].partition("<tbody>")[2]
    assert matrix.count(f"<i>{BELOW}</i>") == 1
    assert f"{BELOW} −6.05" in markdown_text(reports)
    assert any(f"{BELOW} −6.05" in line for line in summary_lines(report, 100))
    texts = matrix_frames(report.matrices[0])[1]
    assert texts.loc["m", "low"].startswith(BELOW)
    assert texts.loc["m", "high"].startswith("✓")
    green = build_report([make_run([low, high])])
    assert not green.is_red
    words(green.headline)


def test_a_score_against_labels_that_holds_is_never_below_its_tolerance(report):
    assert not any(cell.is_below_tolerance for cell in report.cells)


def test_the_table_of_quarantine_has_the_reason_and_the_entry():
    cell = make_cell("m", "ort-cpu", "s", 0.05, outcome=Outcome.QUARANTINED)
    cell |= {"rule": "quarantine 'm::*' until 2030-01-01 (ann)"}
    cell |= {
        "notices": [
            "another",
            "'m::*' is listed as top1 75 %: its kernel saturates (ann, 2030-01-01)",
        ]
    }
    (known,) = build_report([make_run([cell])]).quarantined
    text = COLUMNS["why"].text(known)
    assert "its kernel saturates" in text
    assert cell["rule"] in text


@pytest.mark.slow
def test_the_newest_step_is_open_on_the_overview():
    losses = [0.0] * 4 + [0.04] * 4 + [0.05] * 4
    runs = [make_run([make_cell("m", "a", "s", loss)], night) for night, loss in enumerate(losses)]
    page = html_pages(build_reports(runs))["index.html"]
    found = re.findall(r'<details class="stepgroup"( open)?>', page)
    assert found == [" open", ""]


def test_a_line_whose_axes_are_not_names_is_shown_and_sorted_among_the_others():
    whole = record_of_line(make_cell("net", "ort-cpu", "w8a8_sym_pc", 0.0))
    odd = structs.replace(whole, model="<b>a\nnet", backend="", variant="A B")
    views = sorted(map(read_cell, (whole, odd)), key=lambda view: view.key)
    assert [str(view.key) for view in views] == [
        "<b>a net::?+w8a8_sym_pc+A B",
        "net::ort-cpu+w8a8_sym_pc",
    ]
    assert views[1].key is whole.cell  # one type, and one value, from the suite to the page
