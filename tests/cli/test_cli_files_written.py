"""What ``qbench profile`` and ``qbench quantize`` write: all of it or nothing,
and never over what they read.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from qbench import load_model
from qbench.backends import get_backend
from qbench.backends.ort import ORT_BACKENDS
from qbench.calibration import Profile
from qbench.graph import Form, form_of

QUANTIZE = ("quantize", "net.onnx", "--profile", "p.json", "--schema", "w8a8_asym_pc")
PROFILE = ("profile", "net.onnx", "--data", "train.npz")


@pytest.fixture
def profiled(blobs_files, qbench):
    assert qbench(*PROFILE, "-o", "p.json")[0] == 0
    return blobs_files


def refused(result, *words):
    code, out, err = result
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    for word in words:
        assert word in err


@pytest.mark.parametrize("target", ["/proc/p.json", "folder", "net.onnx/p.json"])
def test_nothing_is_half_written(profiled, qbench, target):
    Path("folder").mkdir()
    before = sorted(Path().rglob("*"))
    refused(qbench(*QUANTIZE, "--save-plan", target, "-o", "half.onnx"), "Writing '", target)
    refused(qbench(*PROFILE, "-o", target), "Writing '", target)
    if target.startswith("/"):
        refused(qbench(*PROFILE, "-o", "a.json", "--bins", "/proc/x.csv"), "/proc/x.csv")
    assert sorted(Path().rglob("*")) == before


def test_new_folders_are_made_only_when_there_is_something_to_put_there(profiled, qbench):
    code, _, err = qbench(*QUANTIZE, "--save-plan", "new/deep/plan.json", "-o", "new/q.onnx")
    assert (code, err) == (0, "")
    assert Path("new/deep/plan.json").is_file()


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("command", "word"),
    [
        ((*QUANTIZE, "-o", "./net.onnx"), "which is read here"),
        ((*QUANTIZE, "-o", "p.json"), "which is read here"),
        (
            (*QUANTIZE, "-o", "q.onnx", "--save-plan", "p.json"),
            "--save-plan 'p.json', which is read here",
        ),
        ((*QUANTIZE, "-o", "q.onnx", "--save-plan", "./q.onnx"), "which --output writes"),
        (("quantize", "net.onnx", "--plan", "plan.json", "-o", "plan.json"), "which is read here"),
        ((*PROFILE, "-o", "net.onnx"), "which is read here"),
        ((*PROFILE, "-o", "train.npz"), "which is read here"),
        ((*PROFILE, "-o", "p.json", "--add", "p.json"), "which is read here"),
        ((*PROFILE, "-o", "x.json", "--bins", "x.json"), "--bins 'x.json', which --output writes"),
    ],
)
def test_no_file_is_both_read_and_written_or_written_twice(profiled, qbench, command, word):
    qbench(*QUANTIZE, "--save-plan", "plan.json")
    before = {path: path.read_bytes() for path in Path().glob("*.*")}
    refused(qbench(*command), word)
    assert {path: path.read_bytes() for path in Path().glob("*.*")} == before


def test_a_constant_that_is_nan_is_named(blobs_files, qbench):
    net = onnx.load("net.onnx")
    (weight,) = (tensor for tensor in net.graph.initializer if tensor.name == "w2")
    array = onnx.numpy_helper.to_array(weight).copy()
    array[0, 0] = np.nan
    weight.CopyFrom(onnx.numpy_helper.from_array(array, "w2"))
    onnx.save(net, "nan.onnx")
    refused(
        qbench("profile", "nan.onnx", "--data", "train.npz", "-o", "n.json"),
        "found NaN in its constant 'w2'",
    )
    array[0, 0] = -np.inf
    weight.CopyFrom(onnx.numpy_helper.from_array(array, "w2"))
    onnx.save(net, "mask.onnx")
    _, _, err = qbench("profile", "mask.onnx", "--data", "train.npz", "-o", "n.json")
    assert "constant" not in err


@pytest.mark.slow
def test_samples_of_one_content_under_two_names_are_counted(profiled, qbench):
    x = np.load("train.npz")["x"]
    np.savez("other.npz", x=x[:3])
    code, out, _ = qbench(
        "profile", "net.onnx", "--data", "other.npz", "-o", "q.json", "--add", "p.json"
    )
    assert code == 0
    assert "over 51 samples, 3 of them repeated" in out
    assert Profile.load("q.json").repeated == 3
    _, out, _ = qbench(*PROFILE, "-o", "r.json", "--add", "p.json", "--json")
    assert json.loads(out)["repeated"] == 48
    np.savez("one.npz", x=x[:1])
    _, out, _ = qbench("profile", "net.onnx", "--data", "one.npz", "-o", "one.json")
    assert out.endswith("over 1 sample\n")


def test_a_model_of_the_zoo_is_quantized_by_name(profiled, qbench):
    code, _, err = qbench("quantize", "blobs", *QUANTIZE[2:], "-o", "q.onnx")
    assert (code, err) == (0, "")
    assert form_of(load_model("q.onnx")) is Form.QDQ
    assert qbench("quantize", "blobs", *QUANTIZE[2:], "--save-plan", "plan.json")[0] == 0
    assert qbench("quantize", "blobs", "--plan", "plan.json", "-o", "again.onnx")[0] == 0
    refused(
        qbench("quantize", "blub", *QUANTIZE[2:], "-o", "q.onnx"), "unknown model 'blub'", "'blobs'"
    )


@pytest.mark.parametrize("schema", ["w8_sym_pc", "w8a8_asym_pc_dyn"])
def test_weights_and_parameters_of_run_time_need_no_profile(profiled, qbench, schema):
    code, _, err = qbench("quantize", "net.onnx", "--schema", schema, "-o", "bare.onnx")
    assert (code, err) == (0, "")
    assert (
        qbench(
            "quantize", "net.onnx", "--schema", schema, "--profile", "p.json", "-o", "with.onnx"
        )[0]
        == 0
    )
    bare, with_it = (load_model(name) for name in ("bare.onnx", "with.onnx"))
    assert [n.op_type for n in bare.graph] == [n.op_type for n in with_it.graph]
    assert form_of(bare) is Form.QDQ


def test_a_file_of_quantized_weights_alone_is_evaluated_as_a_quantized_one(profiled, qbench):
    words = ("quantize", "net.onnx", "--schema", "w8_sym_pc", "-o", "w.onnx")
    assert qbench(*words)[0] == 0
    for name, quantized in (("w.onnx", True), ("net.onnx", False)):
        code, out, err = qbench("eval", name, "--data", "test.npz", "--json")
        assert code == 0, err
        found = json.loads(out)
        assert [found["quantized"] is not None, found["fp32"] is not None] == [
            quantized,
            not quantized,
        ]


def test_samples_that_a_schema_does_not_need_are_taken_and_said(profiled, qbench):
    words = ("quantize", "net.onnx", "--schema", "w8_sym_pc", "-o", "w.onnx")
    code, _, err = qbench(*words, "--calib", "train.npz")
    assert code == 0
    assert "--calib is not needed" in err


def test_others_need_one(profiled, qbench):
    refused(
        qbench("quantize", "net.onnx", "--schema", "w8a8_asym_pc", "-o", "q.onnx"),
        "found no --profile",
    )


def test_a_plan_that_quantizes_nothing_is_not_written(profiled, qbench, monkeypatch):
    engine = get_backend("ort-cpu")
    static = replace(engine, capabilities=replace(engine.capabilities, dynamic=False))
    monkeypatch.setitem(ORT_BACKENDS, "ort-cpu", static)
    result = qbench("quantize", "net.onnx", "--profile", "p.json", "--schema", "w8a8_asym_pc_dyn",
                    "--backend", "ort-cpu", "-o", "q.onnx")  # fmt: skip
    refused(result, "nothing is quantized: ", "because the backend")
    assert not Path("q.onnx").exists()
    code, out, _ = qbench("quantize", "net.onnx", "--profile", "p.json",
                          "--schema", "w8a8_asym_pc_dyn", "--backend", "ort-cpu",
                          "-o", "q.onnx", "--why")  # fmt: skip
    assert code == 2
    assert "second: " in out


@pytest.mark.filterwarnings("default")
def test_a_warning_of_ours_is_a_note_of_one_line(profiled, qbench):
    rule = (
        '[[rules]]\nactivation = { qtype = "uint8", symmetry = "asymmetric", range_method = '
        '"entropy(bins=10)" }\n'
    )
    Path("few.toml").write_text(rule)
    code, _, err = qbench(
        "quantize", "net.onnx", "--profile", "p.json", "--schema", "few.toml", "-o", "q.onnx"
    )
    assert code == 0
    lines = err.splitlines()
    assert lines
    assert all(line.startswith("qbench: note: Choosing a range by 'entropy") for line in lines)


def test_integer_machines_are_told_apart(project, qbench):
    _, out, _ = qbench("list", "backends", "--json")
    told = {
        row["name"]: row["what"] for row in json.loads(out) if row["name"].startswith("integer-")
    }
    assert "counts as FBGEMM QuantUtils" in told["integer-fbgemm"]
    assert len(set(told.values())) == len(told) > 10


@pytest.mark.slow
def test_eval_of_weights_alone_takes_no_calibration_samples(blobs_files, qbench):
    eval_ = ("eval", "net.onnx", "--data", "test.npz", "--schema")
    code, bare, err = qbench(*eval_, "w8_sym_pc", "--json")
    assert (code, err) == (0, "")
    assert json.loads(bare)["quantized"]["scores"]
    _, given, _ = qbench(*eval_, "w8_sym_pc", "--calib", "train.npz", "--json")
    assert json.loads(bare)["quantized"]["scores"] == json.loads(given)["quantized"]["scores"]
    assert "calib" not in qbench(*eval_, "w8_sym_pc")[1]
    refused(qbench(*eval_, "w8a8_asym_pc"), "found --schema without --calib")
