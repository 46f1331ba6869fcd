"""Findings in run files: written short, read back whole, and by readers that are older than
what was written.
"""

import datetime
import json
from pathlib import Path

import pytest

from qbench.errors import InputError
from qbench.judging import Cause, Cell, Errors, Finding, NodeErrors, Repair, Suspect, Unaligned
from qbench.tracking import History, RunWriter, finding_line, finding_of_line, read_run

NOW = datetime.datetime(2026, 11, 22, 8, tzinfo=datetime.UTC)
CELL = Cell("smoke", "net", "ort-cpu", "w8a8_asym_pc", "calib16")
NODES = tuple(
    NodeErrors(
        node=f"conv{index}",
        operators=("Conv", "Relu"),
        value=f"relu{index}",
        macs=1000 * index,
        elements=64,
        cumulative=Errors(sqnr_db=30.5 - index, relative=0.03, steps=0.5),
        isolated=Errors(sqnr_db=40.25, relative=0.01, steps=0.3125),
        clipped_high=0.25,
        gain_db=None if index else 3.5,
    )
    for index in range(3)
)
FINDING = Finding(
    model="net",
    backend="ort-cpu",
    schema="w8a8_asym_pc",
    samples=64,
    matched="bit for bit",
    nodes=NODES,
    unaligned=(Unaligned(value="odd", reason="fp32 has no value 'odd'"),),
    suspects=(
        Suspect(
            node="conv1",
            cause=Cause.RANGE_OUTLIER,
            evidence="12 × the 99.9th percentile",
            score=7.5,
        ),
    ),
    repair=Repair(
        nodes=("conv1",),
        restores=True,
        smallest=True,
        macs_share=0.125,
        probes=4,
        overrides="[[rules]]\n",
    ),
    notes=("the budget ran out",),
    complete=False,
    seconds=1.5,
)


def through_json(line):
    return json.loads(json.dumps(line, allow_nan=False))


def test_a_line_is_read_back_as_what_it_was():
    assert finding_of_line(through_json(finding_line(CELL, FINDING))) == (CELL, FINDING)


def test_a_finding_without_anything_is_short():
    empty = Finding(model="net", backend="b", schema="s", samples=1)
    line = finding_line(CELL, empty)
    assert line["finding"] == {"model": "net", "backend": "b", "schema": "s", "samples": 1}
    assert finding_of_line(line) == (CELL, empty)


def test_numbers_have_six_digits():
    odd = Finding(model="net", backend="b", schema="s", samples=1, seconds=1 / 3)
    assert finding_line(CELL, odd)["finding"]["seconds"] == 0.333333


def test_what_a_later_qbench_knows_does_not_break_an_older_reader():
    line = through_json(finding_line(CELL, FINDING))
    line["weather"] = "rain"
    line["finding"]["colour"] = {"red": 1}
    line["finding"]["nodes"][0]["cumulative"]["taste"] = 3
    line["finding"]["suspects"].append(
        {"node": "conv2", "cause": "moonlight", "evidence": "it shone", "score": 1.0}
    )
    _, finding = finding_of_line(line)
    assert finding.nodes == FINDING.nodes
    assert finding.suspects == FINDING.suspects
    *others, note = finding.notes
    assert tuple(others) == FINDING.notes
    assert note.startswith("conv2: moonlight (")
    assert note.endswith("; it shone")


@pytest.mark.parametrize(
    "broken",
    [
        {"finding": {"model": "net"}},
        {"finding": "nothing"},
        {"model": 3},
        {"finding": {"model": "net", "backend": "b", "schema": "s", "samples": "many"}},
        {
            "finding": {
                "model": "net",
                "backend": "b",
                "schema": "s",
                "samples": 1,
                "suspects": [{"node": "a"}],
            }
        },
    ],
)
def test_a_line_without_sense_is_named(broken):
    with pytest.raises(InputError, match="Reading the finding of"):
        finding_of_line(finding_line(CELL, FINDING) | broken)


def test_a_run_file_gives_its_findings_back(tmp_path):
    with RunWriter.open(
        tmp_path, {"suite": "smoke"}, started=NOW, commit=None, token="t"
    ) as writer:
        axes = {
            name: getattr(CELL, name) for name in ("suite", "model", "backend", "schema", "variant")
        }
        writer.write({"type": "cell", **axes, "outcome": "failed", "headline": "top1 lost"})
        writer.write(finding_line(CELL, FINDING))
        writer.write({"type": "prophecy", "text": "of a later qbench"})
        writer.write({"type": "finding", "model": "no axes"})
        writer.close(exit_code=1)
    run = read_run(Path(writer.name))
    assert [finding_of_line(line) for line in run.findings] == [(CELL, FINDING)]
    assert (len(run.cells), run.complete, run.damaged) == (1, True, 1)
    assert History(tmp_path).latest().findings == run.findings
