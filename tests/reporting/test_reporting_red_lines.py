"""What stands under a cause: one command for several cells, words apart from it, the file and
the key of the rule.
"""

from dataclasses import replace

import pytest
from reporting_findings import make_finding
from reporting_histories import make_cell, make_run

from qbench.judging import THEN
from qbench.reporting import build_report, styled_lines
from qbench.reporting.terminal import Step, next_steps, place_of, wrapped
from qbench.tracking import cell_of_line, finding_line

ACCEPT = '--qbench-accept=changed --qbench-reason "…"'


def command(number):
    return f'pytest "suites/s.qbench.toml::m::b+s{number}" {ACCEPT}'


@pytest.mark.parametrize(
    ("remedies", "steps"),
    [
        ([command(1)], [Step(command(1))]),
        (
            [command(1), command(2)],
            [
                Step(
                    'pytest "suites/s.qbench.toml::m::b+s1" '
                    f'"suites/s.qbench.toml::m::b+s2" {ACCEPT}'
                )
            ],
        ),
        (
            [f"{command(1)} records them, but this stays red"],
            [Step(command(1), "records them, but this stays red")],
        ),
        (
            ['pytest "s::m::c" --qbench-accept=changed lowers the floor'],
            [Step('pytest "s::m::c" --qbench-accept=changed', "lowers the floor")],
        ),
        (
            ["qbench localize mobilenet_v2 --backend ort-cpu --schema w8a8 and look"],
            [Step("qbench localize mobilenet_v2 --backend ort-cpu --schema w8a8", "and look")],
        ),
        (
            ["find the cause; if it is meant, take it out"],
            [Step("", "find the cause; if it is meant, take it out")],
        ),
        ([], []),
    ],
)
def test_steps(remedies, steps):
    assert list(next_steps(remedies)) == steps


def test_a_command_names_a_few_cells_and_counts_the_others():
    (step,) = next_steps(command(number) for number in range(10))
    assert step.command.count("::m::") == 3
    assert step.more == 7


@pytest.mark.parametrize(
    ("rule", "place"),
    [
        ("tolerance 0.3 % (suite s)", "set in s.qbench.toml: [suite] tolerance"),
        ("tolerance 2 % (model m)", 'set in s.qbench.toml: [[model]] id = "m", tolerance'),
        (
            "tolerance 3 % (cell m::ort-cpu+w8_* (saturates))",
            'set in s.qbench.toml: [[model]] id = "m", tolerance."ort-cpu+w8_*"',
        ),
        ("tolerance 0.5 % (default)", "the default; tolerance in s.qbench.toml sets another"),
        ("at most 3 flips (suite s::integer-*)", 'set in s.qbench.toml: [suite] flips."integer-*"'),
        ("equals ort-cpu (suite s)", "set in s.qbench.toml: [suite] equal_to"),
        (
            "max_file_bytes 1.1 of the accepted file (suite s)",
            "set in s.qbench.toml: [suite] max_file_bytes",
        ),
        (
            "max_latency_ratio 0.8 of fp32 (model m::ort-*)",
            'set in s.qbench.toml: [[model]] id = "m", max_latency_ratio."ort-*"',
        ),
        ("recovery 98 % (suite s)", "set in s.qbench.toml: [suite] recovery"),
        ("quarantine 'm::*' until 2026-01-01 (ann)", "set in s.quarantine.toml"),
        ("accepted floor (baseline)", "set by what was accepted: floors in the baselines of s"),
        ("an accepted cell stays supported", ""),
        ("", ""),
    ],
)
def test_places(rule, place):
    assert place_of(rule, "s") == place


@pytest.mark.parametrize("rule", ["max_latency_ratio 0.8 of fp32", "max_file_bytes 4,000,000"])
def test_a_cell_that_is_red_by_time_or_size_shows_where_its_limit_is_set(rule):
    cell = make_cell("m", "ort-cpu", "s1", 0.0)
    cell.update(outcome="failed", headline="too much", rule=f"{rule} (suite nightly)")
    text = [line.text.strip() for line in styled_lines(make_run([cell]), 120)]
    key = rule.partition(" ")[0]
    assert f"set in nightly.qbench.toml: [suite] {key}" in text


def test_lines_hang_under_their_first_word_and_numbers_keep_their_unit(words):
    text = "note: aaaa bbbb cccc (Benjamini-Hochberg 5 %, for information)"
    lines = [line.text for line in wrapped(text, 44, "warn", indent=0)]
    words(lines)


def test_one_fault_of_many_cells_is_said_once():
    cells = [make_cell("m", "ort-cpu", f"s{i}", 0.0) for i in range(3)]
    for cell in cells:
        del cell["metrics"]
        cell.update(outcome="error", headline="TypeError: no such thing", gates=[])
    text = [line.text for line in styled_lines(make_run(cells), 80)]
    assert sum("no such thing" in line for line in text) == 1
    assert [line for line in text if line.startswith("  m::")] == [
        f"  m::ort-cpu+s{i}" for i in range(3)
    ]


def test_of_cells_that_lose_alike_each_finding_says_whose_it_is():
    lines = [
        make_cell("mobilenet_v2", backend, "s1", 0.02)
        for backend in ("ort-cpu", "ort-noopt", "engine")
    ]
    found = make_finding(12, (9,))
    findings = (found, found, replace(found, suspects=(), repair=None))
    told = [
        finding_line(cell_of_line(line), replace(one, backend=line["backend"], schema="s1"))
        for line, one in zip(lines, findings, strict=True)
    ]

    def said(count: int) -> list[str]:
        run = replace(make_run(lines[:count]), findings=tuple(told[:count]))
        shown = [line.text.strip() for line in styled_lines(build_report([run]), 300)]
        return [text for text in shown if "worst: " in text or "no node is suspected" in text]

    (alike,) = said(2)
    assert alike.startswith("worst: ")
    assert sorted(said(3)) == ["engine: no node is suspected", f"ort-cpu, ort-noopt: {alike}"]


def drifted(number):
    node = f'"suites/s.qbench.toml::m::b+s{number}"'
    bisect = f"qbench bisect commits --good last-green {node}"
    return THEN.join(
        ["qbench compare last-green latest", bisect, f"pytest {node} --qbench-accept=changed if so"]
    )


def test_the_steps_of_a_remedy_stay_in_their_order_and_a_commit_is_searched_for_one_cell():
    look, bisect, accept = next_steps(map(drifted, range(2)))
    assert look == Step("qbench compare last-green latest")
    assert bisect == Step(
        'qbench bisect commits --good last-green "suites/s.qbench.toml::m::b+s0"',
        more=1,
        is_later=True,
    )
    both = '"suites/s.qbench.toml::m::b+s0" "suites/s.qbench.toml::m::b+s1"'
    assert accept == Step(f"pytest {both} --qbench-accept=changed", "if so", is_later=True)
