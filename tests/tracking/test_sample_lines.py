"""The line of lost and gained samples in a run file: written, read, and damaged."""

import json
from dataclasses import replace

import pytest

from qbench.judging import Cell, ChangedSample, SampleChanges
from qbench.metrics import AnswerPart
from qbench.storage import json_line
from qbench.tracking import (
    History,
    SampleLines,
    kept_keys,
    lines_of_others,
    read_run,
    read_samples,
    samples_line,
)
from qbench.tracking.sample_lines import SAMPLES_START

CELL = Cell("mine", "net", "ort-cpu", "w8a8_asym_pc", "calib32")
ROW = ChangedSample(
    id="a/b.png",
    effect="lost",
    label="cat",
    change=-0.25,
    fp32=(AnswerPart("cat", 0.75), AnswerPart("dog", 0.125)),
    quantized=(AnswerPart("dog"),),
)
CHANGES = SampleChanges(
    metric="top1",
    digest="1f0c" * 16,
    lost=2,
    gained=1,
    changed=5,
    is_probability=True,
    samples=(ROW, replace(ROW, id="c", effect="gained", change=None, values=(0.5, 1234.5))),
)


def line(changes=CHANGES):
    return json_line(samples_line(CELL, {"val": changes})).encode()


def test_what_is_written_is_read():
    assert line().startswith(SAMPLES_START)
    assert read_samples([line()]) == ({CELL: {"val": CHANGES}}, 0)


def test_probabilities_have_four_digits():
    row = replace(ROW, change=-0.123456, fp32=(AnswerPart("cat", 0.987654),))
    found = read_samples([line(replace(CHANGES, samples=(row,)))])[0][CELL]["val"].samples[0]
    assert (found.change, found.fp32[0].probability) == (-0.1235, 0.9877)


def test_a_cell_that_answers_as_fp32_has_no_line():
    assert samples_line(CELL, {"val": SampleChanges(metric="top1", digest="")}) is None
    assert samples_line(CELL, {}) is None


def test_a_line_is_bounded():
    long = replace(ROW, label="x" * 5000)
    many = replace(CHANGES, lost=100, samples=tuple(replace(long, id=str(n)) for n in range(100)))
    assert len(line(many)) < 65_000
    found = read_samples([line(many)])[0][CELL]["val"]
    assert 0 < len(found.samples) < 20
    assert found.samples[0].id == "0"
    assert not found.is_whole
    assert len(found.samples[0].label) == 200


DAMAGED = {
    "not JSON": b'{"type":"samples",',
    "no data": b'{"type":"samples","suite":"s","model":"m","backend":"b","schema":"s"}',
    "axes": line().replace(b'"net"', b"7"),
    "NaN": line().replace(b"-0.25", b"NaN"),
    "infinite": line().replace(b"-0.25", b"1e999"),
    "a text": line().replace(b"-0.25", b'"-0.25"'),
    "rows": json.dumps(json.loads(line()) | {"data": {"val": {"samples": 5}}}).encode(),
    "parts": line().replace(b'[["dog"]]', b"[3]"),
    "a table": line().replace(b'"data":{', b'"data":["', 1),
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_line_is_counted_and_left_out(text):
    assert text != line()
    assert read_samples([text, line()]) == ({CELL: {"val": CHANGES}}, 1)


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_lines_that_are_read_later_are_checked_as_strictly(text):
    reader = SampleLines()
    for _ in range(2):  # the second run has the same lines
        found, unread = reader.read([text, line()])
        assert unread == 1
        assert {cell: dict(data) for cell, data in found.items()} == {CELL: {"val": CHANGES}}
        assert found[CELL].has_samples


def test_unknown_keys_are_ignored():
    table = json.loads(line())
    table["data"]["val"]["later"] = 1
    table["data"]["val"]["samples"][0]["later"] = {}
    assert read_samples([json.dumps(table).encode()]) == read_samples([line()])


def test_a_later_line_of_the_cell_counts():
    assert read_samples([line(), line(replace(CHANGES, lost=9))])[0][CELL]["val"].lost == 9
    assert lines_of_others([line()], {CELL}) == ()
    assert lines_of_others([line()], {replace(CELL, variant="")}) == (line(),)


def test_a_history_hands_lines_on_to_those_that_want_them(tmp_path):
    header = {"type": "run", "format": "qbench-run/1", "id": "r1", "suite": "mine", "started": "x"}
    path = tmp_path / "r1.jsonl"
    path.write_bytes(json_line(header).encode() + line() + json_line({"type": "end"}).encode())
    assert read_run(path).samples == (line(),)
    assert read_run(path, kept_keys("suite")).samples == ()
    history = History(tmp_path)
    keep = kept_keys("suite")
    assert [run.samples for run in history.each(history.heads, keep)] == [()]
    assert [run.samples for run in history.each(history.heads, keep, samples={"r1"})] == [(line(),)]
    assert read_run(path).damaged == 0


LONG = {
    "parts": [["cat", 0.5]] * 40,
    "text": [["c" * 5_000, 0.5]],
    "another part": [["cat", 0.5, "more"]],
    "whole number": [["cat", 1]],
}


@pytest.mark.parametrize("answer", LONG.values(), ids=LONG)
def test_a_line_that_is_read_later_has_the_same_samples(answer):
    line = samples_line(CELL, {"photos": CHANGES})
    rows = line["data"]["photos"]["samples"]
    rows[0] |= {"fp32": answer, "quantized": answer, "label": "l" * 5_000, "change": 1}
    line["data"]["photos"]["samples"] = rows * 400
    text = json_line(line).encode()
    (later,) = SampleLines().read([text])[0].values()
    assert dict(later) == read_samples([text])[0][CELL]
