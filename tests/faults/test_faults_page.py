"""What ``benchmarks/detection.py`` writes into docs/detection.md: its own sections,
and no others.
"""

import importlib
from dataclasses import replace
from pathlib import Path

import pytest

from qbench.faults import CATALOGUE

ROOT = Path(__file__).parents[2]


@pytest.fixture
def detection(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("detection")


def test_the_table_of_variants_replaces_its_own_section_alone(detection):
    text = (ROOT / "docs" / "detection.md").read_text(encoding="utf-8")
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert len(headings) >= 2  # the page has a section behind the variants
    made = detection.with_section(text, detection.variants_section(["| new | row |"], 5))
    assert [line for line in made.splitlines() if line.startswith("## ")] == headings
    assert "| new | row |" in made
    assert "| free batch |" not in made
    last = text.index(headings[-1])
    assert made.endswith(text[last:])


def test_a_page_without_the_section_gets_it_at_its_end(detection):
    section = detection.variants_section(["| new | row |"], 5)
    assert detection.with_section("# Page\n\nText.\n", section) == f"# Page\n\nText.\n\n{section}"
    once = detection.with_section("# Page\n\n## A\n\nText.\n", section)
    assert detection.with_section(once, section) == once


def test_the_table_of_the_page_reads_back_as_the_trials_that_it_shows(detection):
    text = (ROOT / "docs" / "detection.md").read_text(encoding="utf-8")
    trials = detection.published(text, 2)
    tried = {one.subject for one in trials}
    subjects = [column.name for column in detection.COLUMNS if column.name in tried]
    stories = {name: CATALOGUE[name].story.thread for name in CATALOGUE}
    rows = detection.table(trials, subjects, stories)
    assert len(rows) > 70
    assert all(f"| {' | '.join(row)} |" in text for row in rows)
    rates = [
        line for line in detection.rate_lines(detection.rates_of(trials)) if " of 0 " not in line
    ]
    assert all(line in text for line in rates)


def test_a_fault_that_is_tried_again_replaces_its_own_trials_alone(detection):
    text = (ROOT / "docs" / "detection.md").read_text(encoding="utf-8")
    trials = detection.published(text, 2)
    one = next(trial for trial in trials if trial.fault == "rounded-twice")
    again = replace(one, hit=3)
    both = detection.together(trials, [again])
    assert len(both) == len(trials)
    assert [trial for trial in both if trial not in trials] == [again]
