"""``qbench samples``: out of the history, of two runs, and measured now."""

import json
from pathlib import Path

import pytest

from qbench.cli import main
from qbench.judging import Cell, ChangedSample, SampleChanges
from qbench.metrics import AnswerPart
from qbench.storage import json_line
from qbench.suite import check_name
from qbench.tracking import samples_line

CELL = "net::ort-cpu+w4"


def run_file(folder, index, best, *, model="net", **more):
    sample = ChangedSample(
        id="s1",
        effect="lost",
        label="cat",
        change=-0.5,
        fp32=(AnswerPart("cat", 0.9),),
        quantized=(AnswerPart(best, 0.6),),
    )
    changes = SampleChanges(
        **{"metric": "top1", "digest": "1f", "lost": 3, "changed": 4, "samples": (sample,), **more}
    )
    axes = {"suite": "mine", "model": model, "backend": "ort-cpu", "schema": "w4", "variant": ""}
    counts = {"n": 9, "hits": 5, "out_of": 9, "reference_hits": 8, "losses": 3, "gains": 0}
    lines = [
        {
            "type": "run",
            "format": "qbench-run/1",
            "id": f"2026010{index}T000000Z-abc",
            "suite": "mine",
            "started": f"2026-01-0{index}T00:00:00Z",
        },
        {"type": "cell", **axes, "outcome": "passed", "metrics": {"top1": counts}},
        samples_line(Cell(**axes), {"val": changes}),
        {"type": "end", "cells": 1, "exit_code": 0},
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{index}.jsonl").write_text("".join(map(json_line, lines)))


@pytest.fixture
def history(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "reports" / "history"
    run_file(folder, 1, "cow")
    run_file(folder, 2, "dog\x1b[31m")
    return folder


def test_the_newest_run_is_shown(history, capsys):
    assert main(["samples", CELL]) == 0
    text = capsys.readouterr().out
    assert "on val, run 20260102T000000Z-abc: 3 lost, 0 gained by top1; 4 other answers" in text
    assert "lost s1, label cat, −50.0 pp" in text
    assert "cat 90.0 %" in text
    assert "and 2 more" in text
    assert "\x1b" not in text


def test_without_labels_the_rest_is_counted_too(history, capsys):
    moved = ChangedSample(id="s1", effect="changed")
    run_file(history, 3, "dog", lost=0, changed=4, samples=(moved,))
    assert main(["samples", CELL]) == 0
    assert "  and 3 more\n" in capsys.readouterr().out


def test_a_line_that_cannot_be_read_is_not_among_the_facts(history, capsys):
    path = history / "2.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    damaged = '{"type":"samples","data":5}\n'
    path.write_text("".join([*lines[:-1], damaged, lines[-1]]))
    assert main(["samples", CELL, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)[0]["data"]["val"]["lost"] == 3
    assert "1 line of samples of run 20260102T000000Z-abc could not be read" in err


def test_a_sample_without_a_preview_is_not_among_the_facts(history, capsys, monkeypatch):
    def gone(*_):
        raise FileNotFoundError("no file 7.png")

    monkeypatch.setattr("qbench.evaluation.sample_previews.preview_of", gone)
    words = ["--data", "digits_test", "--calib", "digits_train", "--schema", "w4a4_asym_pt"]
    assert main(["samples", "digits_cnn", *words, "--most", "2", "--json"]) == 0
    out, err = capsys.readouterr()
    assert [one["preview"] for one in json.loads(out)[0]["data"]["digits_test"]["samples"]] == [
        None,
        None,
    ]
    assert "found FileNotFoundError: no file 7.png" in err


def test_two_runs_are_next_to_each_other(history, capsys):
    assert main(["samples", "net::*", "--run", "previous", "--with", "latest", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert (one["cell"], one["run"]) == (CELL, "run 20260101T000000Z-abc")
    assert one["data"]["val"]["samples"][0]["quantized"][0]["text"] == "cow"
    assert one["other_data"]["val"]["samples"][0]["quantized"][0]["text"].startswith("dog")
    assert main(["samples", CELL, "--with", "previous"]) == 0
    assert "run 20260101T000000Z-abc: cow 60.0 %" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["net::ort-cpu+w5"], "unknown cell 'net::ort-cpu+w5'"),
        (["net"], "the name of no cell, and no --data"),
        ([CELL, "--run", "20270101"], "no such run"),
        (["digits_cnn", "--data", "digits_test"], "--data without --schema or --fp32"),
        (["digits_cnn", "--data", "digits_test", "--with", "latest"], "--with with --data"),
        ([CELL, "--schema", "w8a8_asym_pc"], "--schema without --data"),
    ],
)
def test_what_is_not_there_is_one_sentence(history, capsys, arguments, found):
    assert main(["samples", *arguments]) == 2
    said = capsys.readouterr().err
    assert found in said
    assert said.count("\n") == 1


def test_a_test_is_named_by_its_node_id(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    name = check_name("tests/test_net.py::test_int8[Big]")
    run_file(Path("reports/history"), 1, "dog", model=name)
    assert main(["samples", "tests/test_net.py::test_int8[Big]"]) == 0
    assert capsys.readouterr().out.startswith(f"{name}::ort-cpu+w4 on val")
    assert main(["samples", "tests/test_net.py::test_int4"]) == 2
    assert "unknown cell 'tests/test_net.py::test_int4'" in capsys.readouterr().err


def test_private_data_has_ids_alone(history, capsys):
    hidden = ChangedSample(id="s1", effect="lost")
    run_file(history, 3, "dog", private=True, samples=(hidden,))
    assert main(["samples", CELL]) == 0
    text = capsys.readouterr().out
    assert "private: samples have ids alone" in text
    assert "lost s1" in text
    assert "cat" not in text


def test_a_model_is_measured_now(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--data", "digits_test", "--calib", "digits_train", "--schema", "w4a4_asym_pt"]
    assert main(["samples", "digits_cnn", *words, "--most", "2", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    found = one["data"]["digits_test"]
    assert found["lost"] + found["gained"] > 2 == len(found["samples"])
    assert found["samples"][0]["preview"] == "8 × 8 pixels"
    assert len(found["samples"][0]["fp32"]) == 5


def test_several_backends_are_refused_by_their_number(blobs_files, qbench):
    code, out, err = qbench(
        *("samples", "net.onnx", "--data", "test.npz", "--calib", "train.npz"),
        *("--schema", "w8a8_asym_pc", "--backend", "ort-cpu,ort-cpu-noopt"),
    )
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "found the 2 names 'ort-cpu,ort-cpu-noopt'; expected one" in err
