"""The one list of columns: keys are unique, tables name known ones, and fields about a metric are neighbours."""

import pytest
from msgspec import structs

from qbench.reporting import columns
from qbench.reporting.view import read_cell
from qbench.tracking import CellRecord, GateRecord, MetricRecord

PAGES = {"CELLS": columns.CELLS, "ATTENTION": columns.ATTENTION, "KNOWN": columns.KNOWN}
TOP1 = MetricRecord(n=1000, hits=774, out_of=1000, reference_hits=778, losses=9, gains=5)
GATE = GateRecord(kind="loss", metric="top1", state="broken", limit=0.7741)
FAILED = CellRecord(model="m", backend="b", schema="s", variant="v", outcome="failed", metrics={"top1": TOP1})
CELL = read_cell(structs.replace(FAILED, gates=(GATE,)))
BARE = read_cell(CellRecord(model="m", backend="b", schema="s", outcome="error", headline="it crashed"))


def test_every_key_is_there_once():
    assert len(columns.COLUMNS) == len(columns._ALL)
    for table in (*PAGES.values(), columns.MARKDOWN, columns.TERMINAL):
        for place in table.places:
            assert {place.key, *place.below} <= columns.COLUMNS.keys()


@pytest.mark.parametrize("name", PAGES)
def test_one_field_can_take_the_place_of_all_columns_about_a_metric(name):
    flags = [place.column.of_metric for place in PAGES[name].places]
    first = flags.index(True)
    assert all(flags[first : first + sum(flags)])
    assert len(PAGES[name].of_metric) == sum(flags)


def test_a_field_is_the_value_of_the_cell_as_it_is_written():
    texts = {key: column.text(CELL) for key, column in columns.COLUMNS.items()}
    assert texts["now_count"] == "77.40 % (774 / 1,000)"
    assert (texts["fp32"], texts["change"], texts["margin_size"]) == ("77.80 %", "−0.40 pp", "0.39 pp")
    assert (texts["flips"], texts["flips_words"]) == ("9 / 5", "9 losses, 5 gains")
    assert columns.words_instead(CELL) is None


def test_a_cell_without_numbers_has_empty_fields_and_words_in_their_place():
    assert not any(column.text(BARE) for column in columns.COLUMNS.values() if column.of_metric)
    assert columns.words_instead(BARE) == "it crashed"
