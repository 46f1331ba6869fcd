"""The record of a cell: written and read again as the same bytes,
and read from lines of other versions.
"""

import dataclasses
import json
from pathlib import Path

import msgspec
import pytest
from tracked_results import line, measured, top1

from qbench.judging import (
    Compared,
    FirstNode,
    MetricNoise,
    Outcome,
    PassNote,
    Repeats,
    RewriteNote,
    Verdict,
)
from qbench.metrics import Clusters
from qbench.storage import json_line
from qbench.tracking.baseline_file import load_baseline, save_baseline
from qbench.tracking.record import CellRecord, known_record, record_of_line

HERE = Path(__file__).parents[2]
RUN_FILES = sorted((HERE / "reports" / "history" / "shipped").glob("*.jsonl"))
BASELINES = sorted((HERE / "baselines").glob("*/*.json"))
FULL = {
    "compared": Compared(
        backend="ort-cpu", elements=9, differing=1, first=FirstNode(origin="conv")
    ),
    "rewritten": RewriteNote(
        policy="exact", nodes=4, passes=(PassNote(name="p", effect="exact", removed=1),)
    ),
    "weight_macs": 0.5,
    "constant_bytes": 4096,
    "idle_rules": ("rule 3 matches nothing",),
}


def test_there_are_shipped_files():
    assert RUN_FILES
    assert BASELINES


@pytest.mark.parametrize("path", RUN_FILES, ids=lambda path: path.stem)
def test_a_shipped_run_file_is_written_again_byte_for_byte(path):
    cells = [
        text
        for text in path.read_bytes().splitlines(keepends=True)
        if text.startswith(b'{"type":"cell"')
    ]
    assert len(cells) > 100
    for text in cells:
        record = known_record(text)
        assert json_line(record.line()).encode() == text
        assert record_of_line(json.loads(text)) == record
        assert record_of_line({**json.loads(text), "of a newer qbench": [1]}) == record
        assert record.is_measured == ("metrics" in json.loads(text))


@pytest.mark.parametrize("path", BASELINES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_shipped_baseline_is_written_again_byte_for_byte(path, tmp_path):
    save_baseline(tmp_path / path.name, load_baseline(path))
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_a_line_is_the_measurement_again():
    alone = dataclasses.replace(
        top1(700, metric="map@photos"), proportion=False, never_resampled=True
    )
    for measurement in (
        measured(),
        measured(**FULL),
        measured(weight_macs=0.0),
        measured(top1(758), alone),
    ):
        text = json_line(line(measurement)).encode()
        assert known_record(text).measurement() == measurement
        assert record_of_line(json.loads(text)).measurement() == measurement


@pytest.mark.parametrize(
    ("change", "left_out", "rest"),
    [
        ({"notices": [1, "a"]}, ("notices",), {"notices": ("a",)}),
        ({"gates": [None, {"kind": "loss", "detail": 5, "new": 1}]}, ("gates",), {}),
        ({"headline": 3}, ("headline",), {"headline": ""}),
        ({"metrics": {"a": None}}, ("metrics",), {"metrics": {}}),
        (
            {"digests": {"model": 1, "quantized": "q"}},
            ("digests",),
            {"digests": {"quantized": "q"}},
        ),
        ({"seconds": None}, ("seconds",), {"seconds": {}}),
        ({"macs": 2**63}, ("macs",), {"macs": 0}),
        ({"metrics": {"a": {**line(measured())["metrics"]["per@words"], "new": 1}}}, (), {}),
    ],
)
def test_what_has_another_type_is_left_out_and_named(change, left_out, rest):
    record = record_of_line({**json.loads(json_line(line(measured()))), **change})
    assert record.left_out == left_out
    assert {name: getattr(record, name) for name in rest} == rest
    assert record.cell == measured().cell
    counts = (0 if "metrics" in change else 3, 1 if "gates" in change else 0)
    if "metrics" in change and not rest:
        counts = (1, 0)
    assert (len(record.metrics), len(record.gates)) == counts


def test_nothing_of_another_type_is_written():
    with pytest.raises(ValueError, match="not finite"):
        line(measured(seconds={"inference": float("nan")}))
    with pytest.raises(TypeError, match="mobilenet_v2::ort-cpu"):
        CellRecord.of(
            measured().cell,
            Verdict(outcome=Outcome.PASSED, headline="h", rule="r"),
            measured(ties={"photos": 0.5}),
        )


def test_a_record_is_frozen():
    with pytest.raises(AttributeError):
        record_of_line({}).outcome = "passed"
    assert msgspec.structs.replace(record_of_line({}), outcome="passed").outcome == "passed"


def test_what_sources_prove_is_read_again():
    clusters = Clusters(
        sources=20, effect=3.5, interval=(-0.02, 0.01), shown=(-0.03, 0.02), p=0.4, error=0.008
    )
    measurement = measured(dataclasses.replace(top1(758), clusters=clusters))
    assert known_record(json_line(line(measurement)).encode()).measurement() == measurement


def test_repeats_are_part_of_a_line_only_where_a_cell_ran_again():
    counts = MetricNoise(hits=(350, 352), out_of=(400, 400), pairs=4, flips=5)
    noisy = Repeats(
        runs=2, differing={"words": 6}, flips={"words": 5}, metrics={"per@words": counts}
    )
    for repeats in (noisy, Repeats(runs=2)):
        measurement = measured(repeats=repeats)
        text = json_line(line(measurement)).encode()
        assert known_record(text).measurement() == measurement
        assert record_of_line(json.loads(text)).repeats == repeats
    assert "repeats" not in line(measured())
    broken = line(measured(repeats=noisy)) | {"repeats": {"runs": 1}}
    assert record_of_line(broken).left_out == ("repeats",)
