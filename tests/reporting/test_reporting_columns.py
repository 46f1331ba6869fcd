"""The one list of columns: keys are unique, tables name known ones, fields about a metric are
neighbours, and what columns read is what reports keep.
"""

import dataclasses
from statistics import NormalDist

import msgspec
import pytest
from msgspec import structs

from qbench.judging import FP32, Compared, MetricNoise, QuantizerNote, Repeats, RewriteNote, Stopped
from qbench.metrics import Clusters
from qbench.reporting import columns
from qbench.reporting.chance import data_powers
from qbench.reporting.view import read_cell
from qbench.tracking import Carried, CellKey, CellRecord, GateRecord, MetricRecord

PAGES = {"CELLS": columns.CELLS, "ATTENTION": columns.ATTENTION, "KNOWN": columns.KNOWN}
WER = MetricRecord(
    n=50,
    hits=260,
    out_of=1000,
    reference_hits=250,
    losses=9,
    gains=5,
    direction="lower",
    proportion=False,
    interval=(-0.01, 0.02),
)
WER_GATE = GateRecord(kind="loss", metric="wer", state="shown")
AXES = ("model", "backend", "schema", "variant")
TOP1 = MetricRecord(n=1000, hits=774, out_of=1000, reference_hits=778, losses=9, gains=5)
GATE = GateRecord(kind="loss", metric="top1", state="broken", limit=0.7741)
FAILED = CellRecord(
    model="m", backend="b", schema="s", variant="v", outcome="failed", metrics={"top1": TOP1}
)
CELL = read_cell(structs.replace(FAILED, gates=(GATE,)))
BARE = read_cell(
    CellRecord(model="m", backend="b", schema="s", outcome="error", headline="it crashed")
)


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
    assert (texts["fp32"], texts["change"], texts["margin_size"]) == (
        "77.80 %",
        "−0.40 pp",
        "0.39 pp",
    )
    assert (texts["flips"], texts["flips_words"]) == ("9 / 5", "9 losses, 5 gains")
    assert columns.words_instead(CELL) is None


def test_samples_of_shared_sources_are_named_and_widen_the_interval_of_the_value(words):
    ends = {"interval": (-0.02, 0.01), "shown": (-0.03, 0.02), "p": 0.5, "error": 0.01}
    shared = structs.replace(TOP1, clusters=Clusters(sources=20, effect=5.0, **ends))
    cell = read_cell(structs.replace(FAILED, metrics={"top1": shared}, gates=(GATE,)))
    words(columns.COLUMNS["flips_words"].text(cell))
    assert shared.value_interval == pytest.approx((0.778 - 0.03, 0.778 + 0.02))
    low, high = TOP1.value_interval
    assert 0.748 < low < high < 0.798


def test_a_report_takes_the_strictest_margin_and_the_median_effect_of_a_model():
    def cell(schema, effect, limit):
        ends = {"interval": (-0.02, 0.01), "shown": (-0.03, 0.02), "p": 0.5, "error": 0.01}
        shared = structs.replace(TOP1, clusters=Clusters(sources=20, effect=effect, **ends))
        gate = structs.replace(GATE, limit=limit)
        return read_cell(
            structs.replace(FAILED, schema=schema, metrics={"top1": shared}, gates=(gate,))
        )

    cells = (
        cell("a", 2.0, 0.768),
        cell("b", 9.0, 0.773),
        cell("c", 4.0, 0.758),
        cell(FP32, 1.0, 0.778),
    )
    (power,) = data_powers(cells)
    assert (power.n, power.sources, power.found.effect) == (1000, 20, 4.0)
    assert power.margin == pytest.approx(0.005)
    (rate,) = data_powers(
        [
            read_cell(
                structs.replace(FAILED, metrics={"wer": WER}, gates=(WER_GATE,), tolerance=0.02)
            )
        ]
    )
    assert rate.error == pytest.approx(0.03 / (2 * NormalDist().inv_cdf(0.95)))
    assert rate.margin == pytest.approx(0.02 * 0.25)  # a margin under one sample has no limit


def test_runs_that_differ_are_a_range_of_counts(words):
    assert columns.COLUMNS["runs"].text(CELL) == ""
    repeats = Repeats(
        runs=3,
        differing={"data": 9},
        metrics={CELL.lead.name: MetricNoise(hits=(1774, 1771, 1773), out_of=(2000,) * 3, pairs=9)},
    )
    noisy = dataclasses.replace(CELL, record=structs.replace(CELL.record, repeats=repeats))
    words(columns.COLUMNS["runs"].text(noisy))


def test_a_cell_without_numbers_has_empty_fields_and_words_in_their_place():
    assert not any(column.text(BARE) for column in columns.COLUMNS.values() if column.of_metric)
    assert columns.words_instead(BARE) == "it crashed"


WHOLE = structs.replace(
    FAILED,
    gates=(GATE,),
    **dict.fromkeys(("suite", "headline", "rule", "remedy", "environment_class"), "some words"),
    **dict.fromkeys(
        ("n", "fp32_correct", "correct", "losses", "gains", "macs", "refusal_count"), 7
    ),
    **dict.fromkeys(("notices", "refusals", "idle_rules"), ("some words",)),
    changed_count={"data": 7},
    ties={"data": 7},
    digests={"data": "f" * 8},
    key=CellKey(parts={"model": "#f"}),
    carried=Carried(run="some words", measured="2026-11-20T01:02:03.004+00:00"),
    kept={"data": "f" * 8},
    **dict.fromkeys(("integer_macs", "weight_macs"), 0.5),
    remembered={"latency": 0.7},
    remembered_range={"latency": (0.6, 0.8)},
    made={"schema": "a1b2"},
    executed_macs=0.25,
    tolerance=0.02,
    constant_bytes=5,
    changed={"data": ("1",)},
    compared=Compared(backend="b", elements=9, differing=1),
    rewritten=RewriteNote(policy="fast", nodes=1),
    quantizer=QuantizerNote(title="some words", versions={"package": "1.2"}, left=1),
    calibrated={"key": "k"},
    seconds={"run": 1.5},
    repeats=Repeats(
        runs=2,
        differing={"data": 9},
        metrics={"top1": MetricNoise(hits=(774, 771), out_of=(1000, 1000), pairs=9)},
    ),
    stopped=Stopped(samples={"data": 7}, of={"data": 9}),
    test="tests/test_net.py::test_int8",
    resumed_from="20261120T010203004Z-abc1234-aa",
    unfetched=True,
    ungated=True,
    simulated=("float4e2m1",),
)
"""A cell with a value for every field but ``excused``, which would make it green,
and ``left_out``.
"""


def test_the_whole_cell_has_a_value_of_its_own_for_every_field():
    plain = CellRecord()
    same = {
        name
        for name in CellRecord.__struct_fields__
        if getattr(WHOLE, name) == getattr(plain, name)
    }
    assert same == {"excused", "left_out"}


def test_a_cell_of_another_quantizer_shows_its_version_and_effort():
    note = QuantizerNote(
        title="NNCF", versions={"nncf": "3.4.0"}, arguments=("--fast",), seconds=12.3, peak_mb=340
    )
    cell = read_cell(structs.replace(FAILED, gates=(GATE,), quantizer=note))
    words = "NNCF 3.4.0 --fast: 12.3 s, 340 MB"
    for table in (columns.CELLS, columns.ATTENTION, columns.MARKDOWN):
        assert words in [line for place in table.places for line in place.lines_below(cell)]
    assert not columns.COLUMNS["quantizer"].text(CELL)


def test_a_cell_of_floats_shows_that_they_are_simulated_and_its_share_of_weights():
    types = {"simulated": ("float8e4m3fn",), "weight_macs": 0.986, "integer_macs": 0.0}
    cell = read_cell(structs.replace(FAILED, gates=(GATE,), **types))
    words = "simulated float8e4m3fn"
    for table in (columns.CELLS, columns.ATTENTION, columns.MARKDOWN):
        assert words in [line for place in table.places for line in place.lines_below(cell)]
    assert words in [place.column.text(cell) for place in columns.TERMINAL.places]
    assert columns.COLUMNS["planned"].text(cell) == "98.6 % by weights"
    assert not columns.COLUMNS["simulated"].text(CELL)


@pytest.mark.parametrize(
    "outcome", ["", "passed"]
)  # of some fields a column reads more where the cell passes
@pytest.mark.parametrize("key", columns.COLUMNS)
def test_a_column_names_every_field_that_it_reads(key, outcome):
    column = columns.COLUMNS[key]
    whole = msgspec.structs.replace(WHOLE, outcome=outcome) if outcome else WHOLE
    kept = CellRecord(**{name: getattr(whole, name) for name in (*AXES, *column.reads)})
    assert column.text(read_cell(kept)) == column.text(read_cell(whole))
    assert {*column.reads} <= {*columns.READ}
