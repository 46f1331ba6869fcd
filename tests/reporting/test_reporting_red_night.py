"""What the terminal says after a red night: causes apart, worst first, where rules stand, what
samples cannot tell.
"""

import dataclasses

import pytest
from reporting_histories import make_cell, make_run

from qbench.reporting import build_report, summary_lines
from qbench.reporting.chance import coarse_notices
from qbench.reporting.terminal import places_of


def lines_of(cells, width=100, **more):
    run = make_run(cells, **more)
    return summary_lines(run, width)


def expired(schema, headline, loss):
    return make_cell("m", "ort-cpu", schema, loss) | {"outcome": "expired", "headline": headline}


def test_entries_past_their_date_stand_apart_from_those_without_need_and_the_worst_come_first():
    cells = [
        expired("s1", "no longer fails: remove the entry; top1 80.00 → 80.00 %", 0.0),
        expired("s2", "the quarantine ended on 2020-01-01: top1 80.00 → 78.00 %", 0.02),
        expired("s3", "the quarantine ended on 2020-01-01: top1 80.00 → 74.00 %", 0.06),
        make_cell("m", "ort-cpu", "s4", 0.0) | {"outcome": "drifted"},
        make_cell("m", "ort-cpu", "s5", 0.0) | {"outcome": "missing"},
        make_cell("m", "ort-cpu", "s6", 0.0)
        | {"outcome": "drifted", "headline": "improved: predictions changed"},
    ]
    causes = build_report([make_run(cells)]).causes
    assert [(cause.name, [cell.key.schema for cell in cause.cells]) for cause in causes] == [
        ("expired", ["s3", "s2"]),
        ("drifted", ["s4"]),
        ("missing", ["s5"]),
        ("improved", ["s6"]),
        ("fixed", ["s1"]),
    ]
    text = "\n".join(lines_of(cells))
    assert text.index("m::ort-cpu+s3") < text.index("m::ort-cpu+s2") < text.index("m::ort-cpu+s1")


@pytest.mark.parametrize(
    ("rule", "places"),
    [
        (
            "tolerance 0.5 % (suite s), decision strict (model m)",
            (
                'set in s.qbench.toml: [[model]] id = "m", decision',
                "set in s.qbench.toml: [suite] tolerance",
            ),
        ),
        (
            "tolerance 0.5 % (default), decision ci (suite s::w8*)",
            (
                'set in s.qbench.toml: [suite] decision."w8*"',
                "the default; tolerance in s.qbench.toml sets another",
            ),
        ),
        (
            "tolerance 2 % (option --qbench-tolerance)",
            ("set on the command line: --qbench-tolerance",),
        ),
        (
            "tolerance 2 % (option qbench_tolerance)",
            ("set in the ini file of pytest: qbench_tolerance",),
        ),
        ("an accepted cell stays supported", ()),
    ],
)
def test_every_part_of_a_rule_has_its_place(rule, places):
    assert places_of(rule, "s") == places


def undecided(schema):
    cell = make_cell("m", "ort-cpu", schema, 0.003)
    wanting = "top1: 1000 samples do not decide; with 5555 samples like these it would PASS"
    rule = "tolerance 0.5 % (suite nightly), decision ci (suite nightly)"
    gate = cell["gates"][0] | {"state": "inconclusive", "rule": rule}
    remedy = (
        f'pytest "suites/nightly.qbench.toml::m::ort-cpu+{schema}" again '
        "when the suite gives its model that many"
    )
    return cell | {
        "outcome": "inconclusive",
        "rule": rule,
        "gates": [gate],
        "notices": [wanting],
        "remedy": remedy,
    }


@pytest.mark.parametrize("width", [80, 140])
def test_cells_that_their_sample_cannot_tell_of_are_named_with_how_many_it_would_need(width):
    lines = lines_of(
        [make_cell("m", "ort-cpu", "fp32", 0.0), undecided("s1"), undecided("s2")], width
    )
    start = next(
        place
        for place, line in enumerate(lines)
        if line.startswith("≈") and line.endswith("(2 cells)")
    )
    told = " ".join(" ".join(lines[start:]).split())
    assert "m::ort-cpu+s1 m::ort-cpu+s2 top1 80.00 % → 79.70 %" in told
    assert told.count("with 5555 samples like these") == 1
    command = next(line for line in lines if line.startswith("  next: "))
    node = "suites/nightly.qbench.toml::m::ort-cpu"
    assert command.split() == ["next:", "pytest", f'"{node}+s1"', f'"{node}+s2"']


def test_what_a_cell_says_is_not_said_again_as_its_next_step():
    sentence = "Reading 'val.npz': found no file; expected one. Write it."
    cell = make_cell("m", "ort-cpu", "s1", 0.0) | {
        "outcome": "error",
        "headline": sentence,
        "remedy": "Write it.",
    }
    del cell["metrics"]
    assert sum("Write it." in line for line in lines_of([cell])) == 1


def test_a_part_of_a_suite_promises_the_others_only_where_they_are_shown(words):
    whole = make_run([make_cell("m", "ort-cpu", schema, 0.0) for schema in ("s1", "s2")], 0)
    part = make_run([make_cell("m", "ort-cpu", "s1", 0.0)], 1, whole=False)
    part = dataclasses.replace(part, header={**part.header, "planned": 2, "selected": 1})
    (alone,), (both,) = build_report([part]).notices, build_report([whole, part]).notices
    words((alone, both))
    assert both.startswith(alone.rstrip("."))
    assert both != alone


def test_a_run_over_few_samples_is_no_part_of_the_suite(words):
    run = make_run([make_cell("m", "ort-cpu", "s1", 0.0)], whole=False)
    run = dataclasses.replace(
        run, header={**run.header, "planned": 1, "selected": 1, "limited": 40}
    )
    words(build_report([run]).notices)


def test_a_margin_under_one_sample_is_told_once(words):
    cells = []
    for model in ("m1", "m2"):
        for schema in ("s1", "s2"):
            cell = make_cell(model, "ort-cpu", schema, 0.0)
            cell["gates"] = [
                cell["gates"][0]
                | {"state": "inconclusive", "limit": 0.7996, "rule": "tolerance 0.05 % (suite s)"}
            ]
            cells.append(cell)
    report = build_report([make_run(cells)])
    (notice,) = coarse_notices(report.cells)
    words(notice)
    assert report.notices == (notice,)
    assert (
        coarse_notices(build_report([make_run([make_cell("m", "ort-cpu", "s1", 0.0)])]).cells) == ()
    )


def test_one_of_one_is_a_hundred_per_cent(words):
    cell = make_cell("m", "ort-cpu", "s1", 0.0)
    cell["gates"] = [
        cell["gates"][0]
        | {"state": "inconclusive", "limit": 0.9995, "rule": "tolerance 0.05 % (suite s)"}
    ]
    for counts in cell["metrics"].values():
        counts |= {"n": 1, "out_of": 1, "hits": 1, "reference_hits": 1, "losses": 0, "gains": 0}
    words(coarse_notices(build_report([make_run([cell])]).cells))


def test_two_metrics_that_are_not_decided_are_several(words):
    cell = make_cell("m", "ort-cpu", "s1", 0.0)
    gate = cell["gates"][0] | {
        "state": "inconclusive",
        "limit": 0.7996,
        "rule": "tolerance 0.05 % (suite s)",
    }
    cell["metrics"]["top5"] = cell["metrics"]["top1"]
    cell["gates"] = [gate, gate | {"metric": "top5"}]
    words(coarse_notices(build_report([make_run([cell])]).cells))


def test_a_margin_under_one_error_is_told_like_one_under_a_sample(words):
    cell = make_cell("g2p_gru", "ort-cpu", "s1", 0.0)
    reference = cell["metrics"]["phoneme_error_rate"]["reference_hits"] / 12_000
    cell["gates"] = [
        cell["gates"][0]
        | {
            "state": "inconclusive",
            "limit": reference + 0.00005,
            "rule": "tolerance 0.06 % (suite s)",
        }
    ]
    words(coarse_notices(build_report([make_run([cell])]).cells))


def test_the_report_says_once_how_many_samples_would_decide(words):
    report = build_report([make_run([undecided("s1"), undecided("s2")], 0)])
    assert not [notice for notice in report.notices if "with 5555 samples like these" in notice]
    words(report.undecided)
    assert [power.metric for power in report.powers] == ["top1"]
