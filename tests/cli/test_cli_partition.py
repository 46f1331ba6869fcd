"""``qbench partition`` from outside, and a cell on the device of a suite's own file."""

import json
from pathlib import Path

import pytest

DEVICE = 'source = "a data sheet"\narithmetic = "gemmlowp"\noperators = [{operators}]\n'


SUITE = """
[suite]
tolerance = 0.5
agreement = 0.0
backends = ["partitioned-mine"]
schemas = ["w8a8_asym_pc"]

[[model]]
id = "blobs"
data = "blobs_test"
calibration = { data = "blobs_train", count = 32 }
metrics = ["top1", "agreement"]
"""


@pytest.fixture
def quantized(blobs_files, qbench):
    assert qbench("profile", "net.onnx", "--data", "train.npz", "-o", "p.json")[0] == 0
    assert (
        qbench(
            "quantize",
            "net.onnx",
            "--profile",
            "p.json",
            "--schema",
            "w8a8_asym_pc",
            "-o",
            "q.onnx",
        )[0]
        == 0
    )
    Path("mine.toml").write_text(DEVICE.format(operators='"MatMul", "Relu", "Clip"'))
    return blobs_files


def test_islands_borders_and_reasons(quantized, qbench, golden):
    code, out, err = qbench("partition", "q.onnx", "--device", "mine.toml")
    assert (code, err) == (0, "")
    golden("output/partition.txt", out)


def test_the_same_as_facts(quantized, qbench):
    facts = json.loads(qbench("partition", "q.onnx", "--device", "mine.toml", "--json")[1])
    (island,) = facts["islands"]
    assert island["nodes"] == ["first"]
    assert (island["macs"], facts["macs_on"], facts["macs_off"]) == (48, 48, 18)
    assert (sum(island["reads"].values()), sum(island["gives"].values())) == (8, 6)
    assert facts["conversions"] == {"quantize": 1, "dequantize": 1, "requantize": 0}
    assert facts["off"] == {"second": "the device has no Gemm"}


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("net.onnx", "--device", "mine.toml"), "a graph in the form float"),
        (("q.onnx", "--device", "conv-engin"), "Did you mean 'conv-engine'"),
        (("q.onnx", "--device", "conv-engine"), "nothing that it takes"),
        (("q.onnx", "--device", "none.toml"), "Reading 'none.toml'"),
        (("q.onnx", "--device", "wrong.toml"), "Did you mean 'MatMul'"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(quantized, qbench, arguments, said):
    Path("wrong.toml").write_text(DEVICE.format(operators='"Matmul"'))
    code, out, err = qbench("partition", *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_a_cell_runs_the_cut(project, qbench):
    """No fp32 cell, and the digests of the device and its arithmetic beside the result."""
    from qbench.passes import load_device

    Path("suites/devices").mkdir()
    Path("suites/devices/mine.toml").write_text(DEVICE.format(operators='"MatMul", "Relu", "Clip"'))
    Path("suites/mine.qbench.toml").write_text(SUITE)
    code, out, err = qbench("run", "suites/mine.qbench.toml")
    (path,) = Path("reports/history").glob("*.jsonl")
    (cell,) = [
        line for line in map(json.loads, path.read_text().splitlines()) if line["type"] == "cell"
    ]
    assert (cell["backend"], cell["schema"]) == ("partitioned-mine", "w8a8_asym_pc"), out + err
    assert load_device("suites/devices/mine.toml").digests.items() <= cell["digests"].items()
    assert cell["n"] > 0
    assert (code, cell["outcome"]) == (1, "missing")


def test_islands_become_files_that_equal_the_whole(quantized, qbench, golden):
    written = ("partition", "q.onnx", "--device", "mine.toml", "-o", "cut", "--check")
    code, out, err = qbench(*written)
    assert (code, err) == (0, "")
    said, _, runtime = out.partition("plain ONNX Runtime ")
    golden("output/partition-files.txt", said)
    assert runtime.startswith("loads host.onnx")  # how many differ depends on the processor
    assert {path.name for path in Path("cut").iterdir()} == {
        "host.onnx",
        "island_1.onnx",
        "partition.json",
    }
    facts = json.loads(qbench(*written, "--data", "test.npz", "--samples", "5", "--json")[1])
    checked = facts["checked"]
    assert (checked["samples"], checked["elements"], checked["differing"]) == (5, 15, 0)
    assert facts["files"] == ["partition.json", "host.onnx", "island_1.onnx"]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("--check",), "--check without -o"),
        (("-o", "cut", "--data", "test.npz"), "--data without --check"),
        (("-o", "full"), "files of something else"),
        (("-o", "q.onnx"), "a file"),
    ],
)
def test_what_cannot_be_written_is_one_sentence(options, found, quantized, qbench):
    Path("full").mkdir()
    Path("full/mine.txt").write_text("mine")
    code, out, err = qbench("partition", "q.onnx", "--device", "mine.toml", *options)
    assert (code, out) == (2, "")
    assert found in err
    assert err.count("\n") == 1
    assert Path("full/mine.txt").exists()
