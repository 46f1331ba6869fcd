"""``qbench localize`` of cells that do not fail: what is clearly wrong is named,
and nothing else.
"""

import json

import numpy as np
import onnx_ir as ir
import pytest

from qbench import save_model
from qbench.cli.program import build_parser
from qbench.subjects import digits_arrays, get_model

PRECISE = ("--backend", "ort-cpu-precise")
"""Without VNNI ONNX Runtime saturates pairs of products outside of its precise mode, which is a
cause of its own.
"""
CUT = """
[[rules]]
names = ["{node}"]
{slot} = {{ qtype = "{qtype}", symmetry = "{symmetry}", range_method = "fixed({low}, {high})" }}
[[rules]]
activation = {{ qtype = "uint8", symmetry = "asymmetric" }}
weight = {{ qtype = "int8", symmetry = "symmetric", granularity = "channel", narrow_range = true }}
"""
WEIGHT, OUTPUT = ("weight", "int8", "symmetric"), ("output", "uint8", "asymmetric")


@pytest.fixture
def little(tmp_path, monkeypatch, digits_model):
    """The network of digits and 48 labelled samples, as files:
    too few to decide a loss of some points.
    """
    monkeypatch.chdir(tmp_path)
    save_model(digits_model, "net.onnx")
    for name, test, count in (("val", True, 48), ("train", False, 64)):
        pictures, labels = digits_arrays(test=test)
        np.savez(
            f"{name}.npz",
            x=pictures[:count].reshape(-1, 1, 8, 8).astype(np.float32) / 16,
            y=labels[:count],
        )
    return tmp_path


@pytest.fixture(scope="module")
def digits_model() -> ir.Model:
    return get_model("digits_cnn").graphs["model"]()


@pytest.mark.parametrize(
    ("node", "slot", "low", "high"),
    [
        ("conv1", WEIGHT, -1.1, 1.1),
        pytest.param("conv2", WEIGHT, -0.25, 0.25, marks=pytest.mark.slow),
        pytest.param("conv2", OUTPUT, 0.0, 1.0, marks=pytest.mark.slow),
        pytest.param("dense1", OUTPUT, -400.0, 400.0, marks=pytest.mark.slow),
    ],
)
def test_a_spoilt_node_is_named_in_a_cell_that_is_not_decided(
    little, qbench, node, slot, low, high
):
    word, qtype, symmetry = slot
    text = CUT.format(node=node, slot=word, qtype=qtype, symmetry=symmetry, low=low, high=high)
    (little / "cut.toml").write_text(text)
    call = (
        "localize",
        "net.onnx",
        "--data",
        "val.npz",
        "--calib",
        "train.npz",
        "--schema",
        "cut.toml",
    )
    code, out, err = qbench(*call, *PRECISE, "--tolerance", "0.9", "--samples", "16", "--json")
    found = json.loads(out)
    assert code == 0, err
    assert found["verdict"]["outcome"] != "failed"
    assert [one["node"] for one in found["finding"]["suspects"]] == [node]
    (row,) = (one for one in found["finding"]["nodes"] if one["node"] == node)
    if slot is WEIGHT:
        assert found["finding"]["suspects"][0]["cause"] == "clipping"
        assert row["clipped_weights"] > 0.1
        assert f"{row['clipped_weights']:.1%}" in found["finding"]["suspects"][0]["evidence"]
    if (slot, high) == (OUTPUT, 1.0):
        assert row["clipped_high"] > 0.1


@pytest.mark.slow
def test_a_healthy_network_has_no_culprit(little, qbench):
    call = (
        "localize",
        "net.onnx",
        "--data",
        "val.npz",
        "--calib",
        "train.npz",
        "--schema",
        "w8a8_asym_pc",
    )
    _, out, _ = qbench(*call, *PRECISE, "--samples", "16", "--json")
    found = json.loads(out)["finding"]
    assert found["suspects"] == []
    assert {one["clipped_weights"] for one in found["nodes"]} == {0.0}


@pytest.mark.parametrize("verb", ["profile", "lint", "optimizers", "quantize", "rewrite"])
@pytest.mark.parametrize("word", ["--samples", "--count", "--calib-count"])
def test_one_number_of_samples_has_the_same_names_in_every_command(verb, word):
    needed = {"profile": ("-o", "p.json", "--data", "d.npz"), "rewrite": ("-o", "o.onnx")}.get(
        verb, ()
    )
    parsed = build_parser().parse_args([verb, "net.onnx", *needed, word, "5"])
    assert parsed.count == 5


@pytest.mark.parametrize("verb", ["localize", "diff"])
@pytest.mark.parametrize("word", ["--samples", "--count"])
@pytest.mark.parametrize("calibration", ["--calib-samples", "--calib-count"])
def test_commands_with_two_numbers_of_samples_have_a_name_for_each(verb, word, calibration):
    needed = {"localize": ("--schema", "s"), "diff": ("--right", "schema=s")}[verb]
    line = [verb, "net.onnx", "--data", "d.npz", *needed, word, "5", calibration, "7"]
    parsed = build_parser().parse_args(line)
    assert (parsed.samples, parsed.calib_count) == (5, 7)
