"""Annotations and the job's summary: GitHub's escaping, its limits, errors before warnings."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from reporting_histories import edge_histories, make_cell, make_run, nightly_history

from qbench.reporting import (
    annotations,
    badge_text,
    build_report,
    build_reports,
    comment_text,
    comparison_with_main,
    step_summary,
)
from qbench.reporting.github import COMMENT_LENGTH, COMMENT_MARK, GROUPS, SUMMARY_BYTES

COMMAND = re.compile(r"::(error|warning) (?:file=([^,:\r\n]*),)?title=([^,:\r\n]*)::([^\r\n]*)")
CODES = {"%25": "%", "%0D": "\r", "%0A": "\n", "%3A": ":", "%2C": ","}


def read(text: str) -> str:
    """What GitHub's runner reads (actions/runner, ActionCommand.cs): each code once,
    whatever it gives.
    """
    return re.sub("|".join(CODES), lambda match: CODES[match[0]], text)


@pytest.fixture(scope="module")
def report():
    return build_report(nightly_history())


@pytest.mark.slow
def test_one_error_a_cause_with_its_worst_cells_and_the_next_command(report):
    commands = annotations([report], {"nightly": "suites/nightly.qbench.toml"})
    errors = [COMMAND.fullmatch(command) for command in commands if command.startswith("::error")]
    assert [read(match[3]) for match in errors] == [
        f"nightly: {cause.title} ({len(cause.cells)} cell{'s' if len(cause.cells) > 1 else ''})"
        for cause in report.causes
    ]
    assert {match[2] for match in errors} == {"suites/nightly.qbench.toml"}
    loss = read(errors[1][4]).splitlines()
    assert [line.partition(": ")[0] for line in loss[:4]] == [
        str(cell.key) for cell in report.causes[1].cells
    ]
    assert loss[-1] == f"Next: {report.causes[1].remedies[0]}"


@pytest.mark.slow
def test_at_most_ten_groups_and_errors_first():
    reports = [replace(build_report(nightly_history(4)), suite=f"suite{n}") for n in range(4)]
    commands = annotations(reports)
    assert sum(len(report.causes) for report in reports) > GROUPS
    assert [command.split()[0] for command in commands] == ["::error"] * GROUPS


def test_more_cells_than_are_told_are_counted():
    cells = [make_cell(f"m{n}", "ort-cpu", "w8a8_sym_pc", 0.05) for n in range(9)]
    (command,) = annotations([build_report([make_run(cells)])])
    assert read(command).endswith(
        "\nand 4 more\nNext: qbench localize m0 --backend ort-cpu --schema w8a8_sym_pc"
    )


def test_what_is_not_sure_is_a_warning():
    assert [
        c.split("title=")[1].split("::")[0]
        for c in annotations([build_report(edge_histories()["incomplete"])])
    ] == ["nightly%3A incomplete"]
    unsure = [make_cell("magika", "ort-cpu", "w8a8_sym_pc", 0.001) | {"outcome": "inconclusive"}]
    (command,) = annotations([build_report([make_run(unsure)])])
    assert command.startswith(
        "::warning title=nightly%3A inconclusive (1 cell)::magika::ort-cpu+w8a8_sym_pc: "
    )
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
        cells = [
            make_cell(model, "ort-cpu", "w8a8_sym_pc", loss[late]) for model, loss in losses.items()
        ]
        for cell in cells:
            cell["metrics"]["sqnr"] = {**noise, **nature, "hits": 35_000 - 5_000 * late}
        return make_run(cells, number)

    (step,) = [
        c
        for c in annotations([build_report([night(n) for n in range(12)])])
        if "possible step" in c
    ]
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
    assert read(match[4]) == f"{cause.cells[0].key}: {text}"


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


def night(loss, number, **how):
    models = {"magika": 0.0, "mobilenet_v2": loss}
    return make_run(
        [make_cell(name, "ort-cpu", "w8a8_sym_pc", lost) for name, lost in models.items()],
        number,
        **how,
    )


def commented(runs, limit=COMMENT_LENGTH):
    return comment_text([(build_report(runs), comparison_with_main(runs))], limit)


def test_a_comment_has_the_cells_that_changed_and_no_other():
    text = commented([night(0.0, 0), night(0.05, 1)])
    assert text.startswith(f"{COMMENT_MARK}\n")
    (row,) = [line for line in text.splitlines() if line.startswith("| `")]
    assert row.startswith("| `mobilenet_v2::ort-cpu+w8a8_sym_pc` | ")
    assert "worse" in row
    assert "1 of 2 cells differs" in text
    assert "None of 2 cells differ" in commented([night(0.0, 0), night(0.0, 1)])
    assert "no earlier run" in commented([night(0.0, 0)])


def test_a_comment_says_what_was_red_before(words):
    text = commented([night(0.05, 0), night(0.05, 1)])
    words(line for line in text.splitlines() if "as before" in line)


def test_a_comment_compares_with_the_newest_whole_run_of_the_same_class():
    def of_class(run, name):
        return replace(
            run, cells=tuple(structs.replace(cell, environment_class=name) for cell in run.cells)
        )

    ours, other = of_class(night(0.0, 0), "a"), of_class(night(0.0, 1), "b")
    half = replace(night(0.0, 2), complete=False)
    new = of_class(night(0.0, 3), "a")
    assert comparison_with_main([ours, other, half, new]).old.id == ours.id
    assert not comparison_with_main([ours, other, half, new]).across


def test_a_comment_on_a_machine_without_an_earlier_run_compares_classes_and_says_so():
    def of_class(run, name):
        return replace(
            run, cells=tuple(structs.replace(cell, environment_class=name) for cell in run.cells)
        )

    other, new = (
        of_class(night(0.0, 0), "x64-a+onnxruntime-1"),
        of_class(night(0.05, 1), "x64-b+onnxruntime-1"),
    )
    assert comparison_with_main([other, new]).across
    text = commented([other, new])
    (row,) = [line for line in text.splitlines() if line.startswith("| `")]
    assert row.startswith("| `mobilenet_v2::")
    (said,) = [
        line
        for line in text.splitlines()
        if line.startswith("No earlier run is of this environment class")
    ]
    assert "x64" in said

    def on_data(run, digest):
        return replace(
            run, cells=tuple(structs.replace(c, digests={"data:points": digest}) for c in run.cells)
        )

    nothing = commented([on_data(other, "1"), on_data(new, "2")])
    assert "Nothing of commit" in nothing
    assert "| `" not in nothing


@pytest.mark.slow
def test_a_comment_keeps_within_what_github_takes():
    models = [f"net{number}" for number in range(400)]
    runs = [
        make_run([make_cell(name, "ort-cpu", "w8a8_sym_pc", loss) for name in models], number)
        for number, loss in enumerate((0.0, 0.05))
    ]
    whole = commented(runs)
    assert len(whole) <= COMMENT_LENGTH
    assert len([line for line in whole.splitlines() if line.startswith("| `")]) == 30
    assert "and 370 cells more" in whole
    for limit in (1_000, 1_001, 1_002):
        cut = commented(runs, limit)
        assert len(cut) <= limit
        assert cut.startswith(COMMENT_MARK)
        assert whole.startswith(cut[: cut.rfind("\n\n")])


def test_a_badge_counts_the_cells_and_has_the_colour_of_the_worst_suite(words):
    green, red = build_report([night(0.0, 0)]), build_report([night(0.05, 0)])
    half = replace(green, run=replace(green.run, complete=False))
    badges = {
        name: json.loads(badge_text(reports))
        for name, reports in {
            "green": [green],
            "red": [green, red],
            "half": [green, half],
            "none": [],
        }.items()
    }
    assert all(
        badge["schemaVersion"] == 1 and badge["label"] == "qbench" for badge in badges.values()
    )
    assert {name: badge["color"] for name, badge in badges.items()} == {
        "green": "brightgreen",
        "red": "red",
        "half": "yellow",
        "none": "lightgrey",
    }
    assert badges["green"]["message"] == "2 cells green"
    words(badges["red"]["message"])
