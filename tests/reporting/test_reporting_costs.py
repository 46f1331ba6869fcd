"""Times and sizes where they are judged: in the Markdown page, the comment, on a terminal, and
between two runs.
"""

import pytest
from reporting_histories import make_cell, make_run

from qbench.reporting import build_report, comment_text, markdown_text, summary_lines
from qbench.reporting.github import comparison_with_main
from qbench.tracking import cost_changes, record_of_line


def cost_gate(kind, metric, value, limit, state="holds", detail="the numbers"):
    facts = {"kind": kind, "metric": metric, "value": value, "limit": limit, "state": state}
    return facts | {"detail": detail, "rule": "a rule"}


def costly(ratio, size, *, state="holds", **how):
    line = make_cell("magika", "ort-cpu", "w8a8_asym_pc", 0.001, **how)
    line["gates"] += [
        cost_gate("latency", "latency", ratio, 0.8, state),
        cost_gate("file_size", "file_bytes", size, 40_000.0),
        cost_gate("file_size_drift", "file_bytes", size, 31_500.0),
    ]
    return line


def night(number, line):
    return make_run([line], number)


def test_a_record_has_the_least_limit_and_the_worst_state_of_each():
    record = record_of_line(costly(0.712, 30_000.0, state="broken"))
    time, size = record.costs
    assert (time.name, time.state, time.text, time.limit_text) == (
        *("latency", "broken"),
        *("0.712 × fp32", "at most 0.8 × fp32"),
    )
    assert (size.name, size.state, size.text, size.limit) == (
        *("file_bytes", "holds", "30,000 bytes"),
        31_500.0,
    )
    assert record_of_line(make_cell("magika", "ort-cpu", "w8a8_asym_pc", 0.0)).costs == ()


def test_the_markdown_page_has_a_table_of_them():
    text = markdown_text([build_report([night(1, costly(0.712, 30_000.0))])])
    assert "## Time and size" in text
    row = next(line for line in text.splitlines() if "| latency |" in line)
    assert row.endswith("| holds | 0.712 × fp32 | at most 0.8 × fp32 |")
    assert "| file\\_bytes |" in text or "| file_bytes |" in text
    assert "30,000 bytes | at most 31,500 bytes" in text
    plain = make_cell("magika", "ort-cpu", "w8a8_asym_pc", 0.001)
    assert "Time and size" not in markdown_text([build_report([night(1, plain)])])


def test_the_comment_has_those_that_changed_before_and_now():
    runs = [night(1, costly(0.70, 30_000.0)), night(2, costly(0.712, 31_000.0))]
    text = comment_text([(build_report(runs), comparison_with_main(runs))])
    assert "Time and size: 1 number as before and within its limit, 1 not." in text
    assert "| holds | 30,000 bytes | 31,000 bytes | at most 31,500 bytes |" in text
    assert "0.712" not in text  # two times always differ


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        (costly(0.70, 3e4), costly(0.72, 3e4), [False, False]),
        (costly(0.70, 3e4), costly(0.72, 31e3), [False, True]),
        (costly(0.70, 3e4), costly(0.9, 3e4, state="broken"), [True, False]),
    ],
)
def test_a_change_is_another_size_or_another_state(old, new, changed):
    rows = cost_changes(record_of_line(old), record_of_line(new))
    assert [row.is_changed for row in rows] == changed
    assert rows[0].text.startswith("latency 0.7 × fp32 → ")


def test_a_time_that_is_not_decided_is_under_a_heading_of_its_own():
    """It was listed as one with too few samples, with the numbers of another gate."""
    line = costly(0.85, 3e4, state="inconclusive")
    line |= {"outcome": "inconclusive", "headline": "latency 0.85", "notices": ["latency 0.85: x"]}
    line["gates"][1]["detail"] = "latency 0.85: x; 3 turns"
    text = "\n".join(summary_lines(build_report([night(1, line)])))
    assert "The noise of the time is wider than the margin to its limit (1 cell)" in text
    assert "latency 0.85: x" in text
    assert "Too few samples or runs" not in text
