"""``qbench quantize --correct-bias``: samples in, moved biases out,
and every mix-up refused in one line.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from qbench.graph import constant_value, load_model
from qbench.quantization import BiasCorrection, bias_correction_of

SCHEMA = """{flag}
[[rules]]
activation = {{ qtype = "uint8", symmetry = "asymmetric" }}
weight = {{ qtype = "int4", symmetry = "symmetric" }}
"""


@pytest.fixture
def profiled(blobs_files, qbench):
    """A profile of net.onnx, and schemas of four bits with and without the flag."""
    assert qbench("profile", "net.onnx", "--data", "train.npz", "-o", "p.json")[0] == 0
    Path("coarse.toml").write_text(SCHEMA.format(flag=""))
    Path("mended.toml").write_text(SCHEMA.format(flag="bias_correction = true"))
    return blobs_files


def quantize(qbench, schema, *more, output="q.onnx"):
    return qbench(
        "quantize", "net.onnx", "--profile", "p.json", "--schema", schema, "-o", output, *more
    )


def bias(path):
    model = load_model(path)
    gemm = next(node for node in model.graph if node.op_type == "Gemm")
    return constant_value(gemm.inputs[2].producer().inputs[0])


@pytest.mark.slow
def test_the_flag_and_the_schema_do_the_same(profiled, qbench):
    code, plain, err = quantize(qbench, "coarse.toml", output="plain.onnx")
    assert (code, err) == (0, "")
    assert "corrected" not in plain
    code, out, err = quantize(
        qbench, "coarse.toml", "--correct-bias", "--data", "train.npz", output="flag.onnx"
    )
    assert (code, err) == (0, "")
    assert "  1 biases corrected on 48 samples" in out.splitlines()
    more = ("--data", "train.npz", "--json")
    code, out, _ = quantize(qbench, "mended.toml", *more, output="schema.onnx")
    assert code == 0
    assert json.loads(out)["bias_correction"] == "1 biases corrected on 48 samples"
    np.testing.assert_array_equal(bias("flag.onnx"), bias("schema.onnx"))
    assert not np.array_equal(bias("flag.onnx"), bias("plain.onnx"))
    assert bias_correction_of(load_model("flag.onnx")) == BiasCorrection(1, 48)
    _, out, _ = quantize(
        qbench, "coarse.toml", "--correct-bias", "--data", "train.npz", "--count", "7"
    )
    assert "on 7 samples" in out
    assert json.loads(quantize(qbench, "coarse.toml", "--json")[1])["bias_correction"] is None


@pytest.mark.parametrize(
    ("schema", "more", "message"),
    [
        ("coarse.toml", ("--correct-bias",), "found --correct-bias without --calib"),
        ("mended.toml", (), "found a schema that fits weights or corrects biases without --calib"),
        ("coarse.toml", ("--data", "train.npz"), "found --calib that nothing reads"),
        ("coarse.toml", ("--correct-bias", "--data", "nowhere.npz"), "nowhere.npz"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(
    profiled, qbench, schema, more, message
):
    code, _, err = quantize(qbench, schema, *more)
    assert code == 2
    assert message in err
    assert len(err.splitlines()) == 1
    assert not Path("q.onnx").exists()


def test_a_model_that_came_quantized_has_no_means_to_meet(profiled, qbench):
    quantize(qbench, "coarse.toml")
    code, _, err = qbench(
        "quantize", "q.onnx", "--read", "-o", "r.onnx", "--correct-bias", "--data", "train.npz"
    )
    assert code == 2
    assert "found --correct-bias with --read" in err


@pytest.mark.parametrize("flag", ["--calib", "--data"])
def test_without_a_profile_the_ranges_are_those_of_the_samples(profiled, qbench, flag):
    assert (
        qbench(
            "quantize",
            "net.onnx",
            "--profile",
            "p.json",
            "--schema",
            "w8a8_asym_pc",
            "-o",
            "two.onnx",
        )[0]
        == 0
    )
    more = ("--schema", "w8a8_asym_pc", "-o", "one.onnx")
    code, out, err = qbench("quantize", "net.onnx", flag, "train.npz", *more)
    assert (code, err) == (0, "")
    assert out.startswith("one.onnx: ")
    assert Path("one.onnx").read_bytes() == Path("two.onnx").read_bytes()
    assert qbench("quantize", "net.onnx", flag, "train.npz", "--samples", "7", *more)[0] == 0
    assert Path("one.onnx").read_bytes() != Path("two.onnx").read_bytes()


@pytest.mark.slow
def test_ranges_and_biases_are_of_the_same_samples_and_a_schema_of_weights_takes_none(
    words, profiled, qbench
):
    assert quantize(qbench, "mended.toml", "--data", "train.npz", output="two.onnx")[0] == 0
    assert (
        qbench(
            "quantize",
            "net.onnx",
            "--calib",
            "train.npz",
            "--schema",
            "mended.toml",
            "-o",
            "one.onnx",
        )[0]
        == 0
    )
    assert Path("one.onnx").read_bytes() == Path("two.onnx").read_bytes()
    code, _, err = qbench(
        "quantize", "net.onnx", "--calib", "train.npz", "--schema", "w4_sym_b32", "-o", "q.onnx"
    )
    assert code == 0
    words(err)
    code, _, err = qbench("quantize", "net.onnx", "--schema", "w8a8_asym_pc", "-o", "q.onnx")
    assert (code, "Add --calib" in err) == (2, True)
