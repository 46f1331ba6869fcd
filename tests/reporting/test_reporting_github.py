"""Annotations and the job's summary: GitHub's escaping, its limits, errors before warnings."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from reporting_histories import edge_histories, make_cell, make_run, nightly_history

from qbench.reporting import annotations, build_report, build_reports, step_summary
from qbench.reporting.github import GROUPS, SUMMARY_BYTES

COMMAND = re.compile(r"::(error|warning) (?:file=([^,:\r\n]*),)?title=([^,:\r\n]*)::([^\r\n]*)")
CODES = {"%25": "%", "%0D": "\r", "%0A": "\n", "%3A": ":", "%2C": ","}


def read(text: str) -> str:
    """What GitHub's runner reads (actions/runner, ActionCommand.cs): each code once, whatever it gives."""
    return re.sub("|".join(CODES), lambda match: CODES[match[0]], text)


@pytest.fixture(scope="module")
def report():
    return build_report(nightly_history())


def test_one_error_a_cause_with_its_worst_cells_and_the_next_command(report):
    commands = annotations([report], {"nightly": "suites/nightly.qbench.toml"})
    errors = [COMMAND.fullmatch(command) for command in commands if command.startswith("::error")]
    assert [read(match[3]) for match in errors] == [
        f"nightly: {cause.title} ({len(cause.cells)} cell{'s' if len(cause.cells) > 1 else ''})"
        for cause in report.causes
    ]
    assert {match[2] for match in errors} == {"suites/nightly.qbench.toml"}
    loss = read(errors[1][4]).splitlines()
    assert [line.partition(": ")[0] for line in loss[:4]] == [cell.key.name for cell in report.causes[1].cells]
    assert loss[-1] == f"Next: {report.causes[1].remedies[0]}"


def test_at_most_ten_groups_and_errors_first():
    reports = [replace(build_report(nightly_history(4)), suite=f"suite{n}") for n in range(4)]
    commands = annotations(reports)
    assert sum(len(report.causes) for report in reports) > GROUPS
    assert [command.split()[0] for command in commands] == ["::error"] * GROUPS


def test_more_cells_than_are_told_are_counted():
    cells = [make_cell(f"m{n}", "ort-cpu", "w8a8_sym_pc", 0.05) for n in range(9)]
    (command,) = annotations([build_report([make_run(cells)])])
    assert read(command).endswith("\nand 4 more\nNext: qbench localize m0 --backend ort-cpu --schema w8a8_sym_pc")


def test_what_is_not_sure_is_a_warning():
    assert [
        c.split("title=")[1].split("::")[0] for c in annotations([build_report(edge_histories()["incomplete"])])
    ] == ["nightly%3A incomplete"]
    unsure = [make_cell("magika", "ort-cpu", "w8a8_sym_pc", 0.001) | {"outcome": "inconclusive"}]
    (command,) = annotations([build_report([make_run(unsure)])])
    assert command.startswith("::warning title=nightly%3A inconclusive (1 cell)::magika::ort-cpu+w8a8_sym_pc: ")
    runs = [make_run([make_cell("magika", "ort-cpu", "w8a8_sym_pc", 0.0)], n) for n in range(11)]
    runs.append(make_run([make_cell("magika", "ort-cpu", "w8a8_sym_pc", 0.004)], 11))
    (step,) = [c for c in annotations([build_report(runs)]) if "possible step" in c]
    assert step.startswith("::warning")
    assert "magika::ort-cpu+w8a8_sym_pc, top1: −0.38 pp" in step


def test_what_may_have_got_worse_is_told_worst_first_and_distances_never():
    noise = {"n": 1000, "out_of": 1000, "reference_hits": 0, "losses": 0, "gains": 0}
    nature = {"unit": "dB", "proportion": False, "against": "reference", "direction": "higher"}
    losses = {"little": (0.0, 0.004), "much": (0.0, 0.1), "better": (0.1, 0.0), "same": (0.1, 0.1)}

    def night(number):
        late = number == 11
        cells = [make_cell(model, "ort-cpu", "w8a8_sym_pc", loss[late]) for model, loss in losses.items()]
        for cell in cells:
            cell["metrics"]["sqnr"] = {**noise, **nature, "hits": 35_000 - 5_000 * late}
        return make_run(cells, number)

    (step,) = [c for c in annotations([build_report([night(n) for n in range(12)])]) if "possible step" in c]
    told = read(step.split("::", 2)[2]).splitlines()
    sizes = [float(re.search(r": −([0-9.]+) pp", line)[1]) for line in told if "pp" in line]
    assert sizes == sorted(sizes, reverse=True)
    assert {line.partition("::")[0] for line in told if "::" in line} == {"much", "little"}
    assert "sqnr" not in step


def test_a_green_run_says_nothing():
    assert annotations(build_reports(edge_histories()["one run"])) == ()
    assert annotations(build_reports([])) == ()


@given(st.text(st.sampled_from("a:%,\r\n2509ADC"), max_size=20))
def test_what_is_escaped_reads_as_it_was(text):
    cell = make_cell("magika", "ort-cpu", "w8a8_sym_pc", 0.05)
    report = build_report([make_run([cell])])
    cell = report.causes[0].cells[0]
    cell = replace(cell, record=structs.replace(cell.record, headline=text))
    cause = replace(report.causes[0], cells=(cell,), remedies=())
    (command,) = annotations([replace(report, suite=text, causes=(cause,))], {text: text})
    match = COMMAND.fullmatch(command)
    assert read(match[2] or "") == text
    assert read(match[3]) == f"{text}: {cause.title} (1 cell)"
    assert read(match[4]) == f"{cause.cells[0].key.name}: {text}"


def test_the_summary_keeps_within_the_limit_and_says_what_is_missing():
    reports = build_reports(nightly_history(4))
    whole = step_summary(reports)
    assert len(whole.encode()) <= SUMMARY_BYTES
    for limit in (2_000, 2_001, 2_002, len(whole.encode()) - 1):
        cut = step_summary(reports, limit)
        assert len(cut.encode()) <= limit
        kept, note = cut.rsplit("\n\n", 1)
        assert whole.startswith(kept + "\n")
        assert note == "The rest does not fit into a job summary: see the report.\n"
    assert step_summary(reports, len(whole.encode())) == whole
