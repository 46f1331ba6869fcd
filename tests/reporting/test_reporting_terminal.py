"""The terminal summary: within its width, readable without colours, and never an exception."""

import hashlib

import pytest
from reporting_histories import (
    MODELS,
    SCHEMAS,
    edge_histories,
    make_cell,
    make_run,
    nightly_history,
)

from qbench.errors import DamagedError
from qbench.judging import Outcome
from qbench.reporting import PYTEST_MARKUP, RICH_STYLES, build_report, styled_lines, summary_lines
from qbench.reporting.report import TITLES
from qbench.storage import place_of
from qbench.storage.shared_entries import SharedEntries


@pytest.fixture(scope="module")
def history():
    return nightly_history()


@pytest.fixture(scope="module")
def report(history):
    return build_report(history)


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("width", [40, 80, 120])
def test_lines_fit_except_commands_which_are_whole(report, width):
    lines = styled_lines(report, width)
    assert max(len(line.text) for line in lines if line.tone != "command") <= width
    commands = [
        line.text.removeprefix("  next: ")
        for line in lines
        if line.text.startswith("  next: qbench")
    ]
    remedies = [remedy for cause in report.causes for remedy in cause.remedies]
    assert commands
    assert all(any(remedy.startswith(command) for remedy in remedies) for command in commands)


def test_the_reds_are_named_with_numbers_rule_age_and_next(report):
    text = "\n".join(summary_lines(report, 120))
    worst = [text.index(TITLES[name]) for name in ("error", "loss", "missing")]
    assert worst == sorted(worst)
    assert "74.10 % → 72.60 % (−1.50 pp), may lose 0.37 pp, 18 losses, 3 gains" in text
    assert "red for 13 runs" in text
    assert "rule: tolerance 0.5 % (suite nightly)" in text
    assert "next: qbench localize mobilenet_v2 --backend ort-cpu --schema w8a8_sym_pc_pow2" in text
    assert text.rstrip().splitlines()[-1].strip()


def test_the_matrix_has_a_line_a_model_and_backend(words, report):
    lines = summary_lines(report, 100)
    row = next(line for line in lines if line.startswith("mobilenet_v2") and "✗" in line)
    words(" ".join(row.split()))
    assert sum(line.startswith(tuple(MODELS)) for line in lines) >= 4 * len(MODELS)


def test_a_long_matrix_shows_only_what_is_not_green():
    cells = [make_cell(f"model_{i:03}", "ort-cpu", s, 0.0) for i in range(80) for s in SCHEMAS[:2]]
    cells[7] = make_cell("model_003", "ort-cpu", SCHEMAS[1], 0.05)
    lines = summary_lines(make_run(cells), 80)
    assert "79 models more, all passed" in lines
    assert len(lines) < 30


def test_ascii_terminals_get_ascii(report):
    assert all(line.isascii() for line in summary_lines(report, 80, unicode=False))


@pytest.mark.parametrize("name", list(edge_histories()))
@pytest.mark.parametrize("width", [10, 80])
def test_every_edge_case_is_drawn(name, width):
    runs = edge_histories()[name]
    assert "could not be drawn" not in "".join(summary_lines(runs, width))
    for run in runs:
        assert "could not be drawn" not in "".join(summary_lines(run, width))


def test_a_fault_of_ours_becomes_a_line():
    assert "could not be drawn" in summary_lines(object())[0]  # type: ignore[arg-type]


def test_every_tone_is_known_to_both_doors(report):
    tones = {line.tone for line in styled_lines(report, 80)}
    assert tones <= set(PYTEST_MARKUP) == set(RICH_STYLES)


def test_another_metric_than_its_rows_is_marked():
    odd = make_cell("magika", "ort-cpu", SCHEMAS[1], 0.001)
    odd["gates"] = [
        {"kind": "floor", "metric": "agreement@photo_crops", "state": "holds", "limit": 0.9}
    ]
    cells = [make_cell("magika", "ort-cpu", s, 0.001) for s in (SCHEMAS[0], *SCHEMAS[2:])]
    lines = summary_lines(build_report([make_run([*cells, odd])]), 80)
    assert sum("*" in line for line in lines) == 2
    assert "* of agreement@photo_crops" in lines


def test_names_that_are_too_long_keep_their_ends():
    names = [f"op.conv.asymmetric.padded.and.strided.{types}" for types in ("u8.pc", "s8.pt")]
    cells = [make_cell(name, "ort-cpu", SCHEMAS[0], 0.05) for name in names]
    text = "\n".join(summary_lines(make_run(cells), 60))
    rows = [line for line in text.splitlines() if line.startswith("…")]
    assert len({row.split()[0] for row in rows}) == 2
    assert {row.split()[0][-5:] for row in rows} == {"u8.pc", "s8.pt"}


def test_a_brief_summary_names_what_was_damaged_in_a_cache(tmp_path):
    folder = tmp_path / "shared"
    folder.mkdir()
    entries = SharedEntries(place_of(folder.as_uri()))
    (tmp_path / "entry").write_bytes(b"made")
    entries.store("profiles", "key", tmp_path / "entry", {"": hashlib.sha256(b"made").hexdigest()})
    (stored,) = (folder / "objects").glob("*")
    stored.write_bytes(b"other")
    with pytest.raises(DamagedError) as caught:
        entries.fetch("profiles", "key", tmp_path / "fetched")
    cell = make_cell("other_net", "ort-cpu", "w8a8_asym_pc", 0.0)
    cell["notices"] = ["another notice", str(caught.value)]
    text = " ".join(line.text for line in styled_lines(make_run([cell]), 400, brief=True))
    assert f"note: {caught.value}" in text
    assert "another notice" not in text


def test_a_brief_summary_names_what_was_not_measured():
    carried = make_cell("mobilenet_v2", "ort-cpu", "w8a8_asym_pc", 0.0)
    carried |= {"carried": {"run": "some-run", "measured": "2026-11-20T01:02:03.004+00:00"}}
    unsupported = make_cell("left_out", "ort-cpu", "w8a8_asym_pc", 0.0, outcome=Outcome.UNSUPPORTED)
    measured = make_cell("other_net", "ort-cpu", "w8a8_asym_pc", 0.0)
    run = make_run([carried, unsupported, measured])
    text = " ".join(line.text for line in styled_lines(run, 200, brief=True))
    assert "1 of 3 cells is carried over from 2026-11-20" in text
    assert "1 cell unsupported, of left_out (1): " in text
    all_measured = styled_lines(make_run([measured]), 200, brief=True)
    assert not any("unsupported" in line.text or "carried" in line.text for line in all_measured)
