"""``qbench localize`` on the digits: the layer that was spoilt is named, and the file that
repairs it repairs it.
"""

import json
import re

import numpy as np
import onnx_ir as ir
import pytest

from qbench import save_model
from qbench.cli.localize import _row
from qbench.judging import NodeErrors
from qbench.subjects import digits_arrays

SPOILT = """
[[rules]]
names = ["{layer}"]
weight = {{ qtype = "int8", symmetry = "symmetric", range_method = "percentile(50)" }}

[[rules]]
activation = {{ qtype = "uint8", symmetry = "asymmetric" }}
weight = {{ qtype = "int8", symmetry = "symmetric", granularity = "channel", narrow_range = true }}
"""
DATA = ("--data", "digits_test", "--calib", "digits_train", "--calib-count", "64")
CELL = ("digits_cnn", "--backend", "ort-cpu-precise", *DATA)
FEW = ("--samples", "8")


@pytest.fixture
def spoil(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(layer, name="bad"):
        (tmp_path / f"{name}.toml").write_text(SPOILT.format(layer=layer))
        return f"{name}.toml"

    return write


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["conv2", "dense1"])
def test_the_spoilt_layer_is_named_and_its_return_to_float_repairs(spoil, qbench, tmp_path, layer):
    code, out, err = qbench(
        "localize", *CELL, *FEW, "--schema", spoil(layer), "--overrides", "mended.toml", "--json"
    )
    assert code == 1, err
    found = json.loads(out)
    finding = found["finding"]
    assert found["verdict"]["outcome"] == "failed"
    assert finding["suspects"][0]["node"] == layer
    assert finding["suspects"][0]["cause"] == "clipping"
    assert finding["suspects"][0]["remedy"]
    assert finding["repair"]["nodes"] == [layer]
    assert finding["repair"]["smallest"]
    assert finding["repair"]["macs_share"] > 0.05
    assert "bit for bit" in finding["matched"]
    assert finding["complete"]
    assert (tmp_path / "mended.toml").read_text() == finding["repair"]["overrides"]
    code, out, err = qbench("eval", *CELL, "--schema", "mended.toml", "--metrics", "top1", "--json")
    assert code == 0, err
    (top1,) = json.loads(out)["quantized"]["scores"]
    assert top1["reference_hits"] - top1["hits"] <= 0.005 * top1["reference_hits"]


def test_for_people(spoil, qbench, tmp_path):
    files = ("--overrides", "mended.toml", "--html", "why.html")
    code, out, err = qbench(
        "localize", *CELL, *FEW, "--schema", spoil("conv2"), *files, "--top", "2"
    )
    assert code == 1
    page = (tmp_path / "why.html").read_text()
    assert "<title>Finding: digits_cnn::ort-cpu-precise+bad</title>" in page
    assert 'class="suspect worst"' in page
    assert "conv2: clipping" in out
    assert re.search(r"repaired by 1 operator in float.*: conv2", out)
    assert "; 1 set tried" in out
    assert "tolerance 0.5 % (default)" in out
    assert "wrote mended.toml" in out
    assert "0.289" in out
    table = out.split("steps rms")[1].splitlines()
    assert table[1].startswith("conv2")
    assert table[3].startswith("steps:")
    assert "qbench: looking for a repair" in err


def test_shares_are_plain_numbers():
    node = NodeErrors(
        node="n", operators=("Add",), value="v", clipped_low=0.25, clipped_high=0.75, ties=0.0021
    )
    assert _row(node)[5:7] == ("100 %", "0.21 %")


@pytest.mark.slow
def test_a_cell_that_holds_ends_with_0_and_nothing_to_repair(spoil, qbench, tmp_path):
    arguments = ("--schema", "w8a8_asym_pc", "--overrides", "mended.toml", "--json")
    code, out, err = qbench("localize", *CELL, *FEW, *arguments)
    assert code == 0, out + err
    found = json.loads(out)["finding"]
    assert (found["suspects"], found["repair"], found["complete"]) == ([], None, True)
    assert len(found["nodes"]) > 5
    assert not (tmp_path / "mended.toml").exists()


@pytest.mark.slow
def test_a_loss_of_few_samples_is_decided_by_what_they_show(spoil, qbench, tmp_path):
    for name, test in (("few", True), ("others", False)):
        pictures, labels = digits_arrays(test=test)
        x = pictures.reshape(-1, 1, 8, 8).astype(np.float32) / 16
        np.savez(tmp_path / f"{name}.npz", x=x[:120], y=labels[:120])
    data = ("--data", "few.npz", "--calib", "others.npz", "--metrics", "top1")
    few = ("digits_cnn", "--backend", "ort-cpu-precise", *data)
    code, out, err = qbench("localize", *few, *FEW, "--schema", spoil("conv2"), "--json")
    assert code == 1, err
    found = json.loads(out)
    assert found["verdict"]["outcome"] == "failed"
    assert found["verdict"]["rule"].endswith("proven by the paired test")
    assert found["finding"]["suspects"][0]["node"] == "conv2"


@pytest.mark.slow
def test_what_was_tried_is_not_tried_again(spoil, qbench, tmp_path):
    arguments = ("--schema", spoil("dense1"), "--replay", "tries.jsonl", "--json")
    first = json.loads(qbench("localize", *CELL, *FEW, *arguments)[1])["finding"]["repair"]
    kept = (tmp_path / "tries.jsonl").read_text()
    assert len(kept.splitlines()) == 1 + first["probes"]
    assert json.loads(qbench("localize", *CELL, *FEW, *arguments)[1])["finding"]["repair"] == first
    assert (tmp_path / "tries.jsonl").read_text() == kept
    code, _, err = qbench(
        "localize", *CELL, *FEW, "--schema", spoil("conv2", "other"), "--replay", "tries.jsonl"
    )
    assert code == 2
    assert "another schema" in err


@pytest.mark.slow
def test_a_budget_that_is_too_short_is_said_so(spoil, qbench):
    code, out, err = qbench(
        "localize", *CELL, *FEW, "--schema", spoil("conv2"), "--budget", "0.001", "--json"
    )
    found = json.loads(out)["finding"]
    assert code == 4, err  # the cell fails: that much is known, and not why
    assert not found["complete"]
    assert found["notes"][0].startswith("the budget ran out")
    first = found["suspects"][0]
    assert (first["node"], first["cause"], first["remedy"]) == ("conv2", "coarse grid", "")
    assert re.fullmatch(r"[\d.]+ dB alone; .+", first["evidence"])
    code, out, err = qbench("localize", *CELL, *FEW, "--schema", "bad.toml", "--budget", "0.001")
    assert code == 4
    assert "the budget ran out" in out.split("examined on")[0]
    code, out, err = qbench(
        "localize", *CELL, *FEW, "--schema", "w8a8_asym_pc", "--budget", "0.001"
    )
    assert code == 4, err
    assert "no node is suspected so far" in out


def test_another_search_is_refused_before_anything_is_run(spoil, qbench, tmp_path):
    (tmp_path / "tries.jsonl").write_text(
        '{"type": "replay", "format": "qbench-replay/1", "identity": {"model": "another"}}\n'
    )
    code, _, err = qbench(
        "localize", *CELL, *FEW, "--schema", spoil("conv2"), "--replay", "tries.jsonl"
    )
    assert code == 2
    assert "another model" in " ".join(err.split())
    assert "running" not in err
    assert "examining" not in err


@pytest.mark.slow
def test_a_cell_that_holds_says_what_was_not_written(spoil, qbench, tmp_path):
    files = ("--overrides", "mended.toml", "--replay", "tries.jsonl")
    code, out, err = qbench("localize", *CELL, *FEW, "--schema", "w8a8_asym_pc", *files)
    assert code == 0, err
    for flag in ("--overrides", "--replay"):
        assert f"note: {flag}: nothing was written" in out
    assert not list(tmp_path.glob("*.toml"))
    assert not list(tmp_path.glob("*.jsonl"))


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("flag", ["--overrides", "--html", "--replay"])
def test_a_folder_that_is_not_there_is_made_as_every_command_makes_it(
    spoil, qbench, tmp_path, flag
):
    path = tmp_path / "made" / "x.toml"
    code, out, err = qbench("localize", *CELL, *FEW, "--schema", "w8a8_asym_pc", flag, path)
    assert code == 0, err
    assert path.is_file() or f"note: {flag}: nothing was written" in out


@pytest.mark.parametrize("flag", ["--overrides", "--html", "--replay"])
def test_a_folder_that_cannot_be_made_is_refused_before_anything_runs(
    spoil, qbench, tmp_path, flag
):
    (tmp_path / "file").touch()
    code, _, err = qbench(
        "localize", *CELL, *FEW, "--schema", "w8a8_asym_pc", flag, tmp_path / "file" / "x.toml"
    )
    assert code == 2
    assert "running" not in err


def test_a_model_with_nothing_to_quantize(qbench, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> net (float[n,4] x) => (float[n,4] y) '
        "{ y = Erf(x) }"
    )
    save_model(ir.from_onnx_text(text), tmp_path / "erf.onnx")
    for name, seed in (("test", 0), ("train", 1)):
        x = np.random.default_rng(seed).normal(size=(16, 4)).astype(np.float32)
        np.savez(tmp_path / f"{name}.npz", x=x)
    files = ("--data", "test.npz", "--calib", "train.npz")
    code, out, err = qbench("localize", "erf.onnx", *files, "--schema", "w8a8_asym_pc")
    assert code == 2, out
    assert "erf.onnx" in err
    assert "schema 'w8a8_asym_pc'" in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--schema", "w8a8_asym_pc", "--budget", "never"), "--budget"),
        (("--schema", "w8a8_asym_pc", "--tolerance", "2"), "--tolerance"),
        (("--schema", "no_such_schema"), "no_such_schema"),
        ((), "--schema"),
    ],
)
def test_usage(spoil, qbench, arguments, sentence):
    code, _, err = qbench("localize", *CELL, *FEW, *arguments)
    assert code == 2
    assert sentence in err
    assert "running" not in err


def test_without_calibration_samples(spoil, qbench):
    code, _, err = qbench(
        "localize", "digits_cnn", "--data", "digits_test", "--schema", "w8a8_asym_pc"
    )
    assert code == 2
    assert "--schema without --calib" in err


@pytest.mark.slow
def test_a_suspect_of_a_cell_that_passes_is_no_failure(spoil, qbench, tmp_path):
    """A pass broke its promise, or an arithmetic saturates: reported, while the exit code is
    that of the verdict.
    """
    arguments = ("--schema", "w8a8_asym_pc", "--tolerance", "0.5", "--json")
    code, out, err = qbench(
        "localize", "digits_cnn", "--backend", "integer-ort-x64-avx2", *DATA, *FEW, *arguments
    )
    found = json.loads(out)
    assert (code, found["verdict"]["outcome"]) == (0, "passed"), err
    assert {one["cause"] for one in found["finding"]["suspects"]} == {"pair saturation"}


@pytest.mark.slow
def test_a_network_whose_weights_alone_are_quantized_has_a_row_per_product(spoil, qbench):
    arguments = (*DATA, *FEW, "--schema", "w4_sym_b32")
    code, out, err = qbench(
        "localize", "digits_cnn", "--backend", "ort-cpu-precise", *arguments, "--json"
    )
    found = json.loads(out)["finding"]
    assert code == 1, err
    assert [one["node"] for one in found["nodes"]] == ["conv1", "conv2", "dense1", "dense2"]
    assert all(
        one["explained"] is not None and one["gain_db"] is not None for one in found["nodes"]
    )
    assert found["suspects"][0]["cause"] == "coarse grid"
    assert "weights have 4 bits" in found["suspects"][0]["evidence"]
    code, out, err = qbench("localize", "digits_cnn", "--backend", "ort-cpu-precise", *arguments)
    assert "have weights of full precision again" in out
    assert "leave integers" not in out


@pytest.mark.slow
def test_a_repair_of_what_is_not_run_in_integers_takes_nothing_out_of_them(spoil, qbench):
    arguments = (*DATA, *FEW, "--schema", "w4a8_sym_pc")
    code, out, err = qbench("localize", "digits_cnn", "--backend", "ort-cpu", *arguments)
    assert code == 1, err
    assert "repaired by" in out
    assert "ort-cpu runs the multiply-accumulates in float already" in out


@pytest.mark.slow
def test_grids_that_are_computed_at_run_time_are_no_crash(qbench, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = (
        "--data",
        "digits_test",
        "--schema",
        "w8a8_asym_pc_dyn",
        "--samples",
        "4",
        "--json",
    )
    code, out, err = qbench("localize", "digits_cnn", "--backend", "ort-cpu-precise", *arguments)
    assert code in (0, 1), err
    finding = json.loads(out)["finding"]
    assert finding["nodes"]
    assert not [note for note in finding["notes"] if "could not" in note]
