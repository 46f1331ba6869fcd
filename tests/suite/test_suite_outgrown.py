"""A pattern of the quarantine file is outgrown when all
its cells were run and none of them fails.
"""

from pathlib import Path

import pytest

from qbench.judging import Cell, QuarantineEntry
from qbench.suite import Suite, SuiteTable
from qbench.suite.stale import unneeded_entry_errors
from qbench.tracking import record_of_line

CELLS = [Cell("s", model, "b", schema) for model in ("net", "web") for schema in ("one", "two")]


def entry(pattern, when=None):
    return QuarantineEntry(
        cell=pattern, measured="bad", reason="r", owner="o", expires="2020-01-01", when=when
    )


def suite(*entries):
    return Suite(
        name="s",
        path=Path("suites/s.qbench.toml"),
        table=SuiteTable(),
        models=(),
        quarantine=entries,
        lines={},
    )


def line(cell, outcome="passed", processor="x64"):
    found = {
        "suite": "s",
        "model": cell.model,
        "backend": "b",
        "schema": cell.schema,
        "outcome": outcome,
    }
    return found | (
        {} if outcome in ("unsupported", "error") else {"environment_class": f"{processor}+ort-1.0"}
    )


def errors(lines, *entries):
    return unneeded_entry_errors(suite(*entries), CELLS, map(record_of_line, lines))


def test_all_of_its_cells_pass(words):
    (sentence,) = errors([line(cell) for cell in CELLS], entry("net::*"))
    words(sentence)


@pytest.mark.parametrize(
    "outcome", ["quarantined", "failed", "expired", "error", "missing", "stale"]
)
def test_one_that_fails_or_cannot_be_judged_keeps_it(outcome):
    assert errors([line(CELLS[0]), line(CELLS[1], outcome)], entry("net::*")) == ()


def test_one_that_was_not_run_keeps_it_and_one_that_nothing_runs_does_not():
    assert errors([line(CELLS[0])], entry("net::*")) == ()
    assert len(errors([line(CELLS[0]), line(CELLS[1], "unsupported")], entry("net::*"))) == 1
    assert errors([line(cell, "unsupported") for cell in CELLS], entry("net::*")) == ()


def test_it_is_asked_only_of_cells_that_it_is_the_first_to_cover_here():
    lines = [line(CELLS[0]), line(CELLS[1], "quarantined"), line(CELLS[2]), line(CELLS[3])]
    assert len(errors(lines, entry("net::b+two"), entry("net::*"))) == 1
    assert errors(lines, entry("web::*", when="arm64")) == ()
    assert len(errors(lines, entry("web::*", when="x64"))) == 1


def test_an_entry_of_one_cell_is_told_of_by_that_cell():
    assert errors([line(cell) for cell in CELLS], entry("net::b+one")) == ()
