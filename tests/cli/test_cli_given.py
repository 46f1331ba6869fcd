"""Files that are quantized already, at the command line: read, written anew, and judged against
their float file.
"""

import json

import numpy as np
import onnx_ir as ir
import pytest
from onnxruntime import quantization

FORMATS = ("QDQ", "QOperator")


@pytest.fixture
def int8_files(blobs_files):
    """net.onnx beside it, quantized by ONNX Runtime in both forms."""
    x = np.load("train.npz")["x"]
    for form in FORMATS:

        class Reader(quantization.CalibrationDataReader):
            batches = iter([{"x": x}])

            def get_next(self):
                return next(self.batches, None)

        quantization.quantize_static(
            "net.onnx",
            f"{form}.onnx",
            Reader(),
            quant_format=quantization.QuantFormat[form],
            per_channel=True,
        )


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_is_judged_against_its_float_file(int8_files, qbench, form):
    code, out, err = qbench(
        "eval",
        f"{form}.onnx",
        "--fp32",
        "net.onnx",
        "--data",
        "test.npz",
        "--backend",
        "ort-cpu-noopt",
        "--json",
    )
    assert (code, err) == (0, "")
    facts = json.loads(out)
    float_alone = json.loads(
        qbench("eval", "net.onnx", "--data", "test.npz", "--backend", "ort-cpu-noopt", "--json")[1]
    )
    assert facts["fp32"]["scores"] == float_alone["fp32"]["scores"]
    top1 = facts["quantized"]["scores"][0]
    from qbench import get_backend

    answers = {}
    x, y = (np.load("test.npz")[name] for name in "xy")
    for name in (f"{form}.onnx", "net.onnx"):
        with get_backend("ort-cpu-noopt").prepare(name) as executor:
            answers[name] = executor.run({"x": x})["scores"].argmax(axis=1) == y
    was, now = answers["net.onnx"], answers[f"{form}.onnx"]
    assert (top1["hits"], top1["losses"], top1["gains"]) == (
        now.sum(),
        (was & ~now).sum(),
        (now & ~was).sum(),
    )
    assert facts["quantized"]["integer_macs"] == 1.0
    assert facts["quantized"]["digests"]["model"] == facts["fp32"]["digests"]["model"]


def test_it_is_told_to_people(int8_files, qbench):
    code, out, _ = qbench("eval", "QDQ.onnx", "--fp32", "net.onnx", "--data", "test.npz")
    assert code == 0
    assert "fp32     net.onnx" in out
    assert "100.0 % of the multiply-accumulates are in integers" in out
    assert "losses  gains" in out


def test_without_its_float_file_it_is_scored_and_compared_with_nothing(int8_files, qbench):
    code, out, err = qbench("eval", "QDQ.onnx", "--data", "test.npz")
    assert code == 0, err
    assert "top1" in out
    assert "losses" not in out


def test_what_cannot_be_compared_is_refused(int8_files, qbench):
    code, _, err = qbench("eval", "net.onnx", "--fp32", "net.onnx", "--data", "test.npz")
    assert code == 2
    assert "found a float model" in err
    code, _, err = qbench("eval", "QDQ.onnx", "--fp32", "QOperator.onnx", "--data", "test.npz")
    assert code == 2
    assert "quantized already (qoperator)" in err
    arguments = ("--schema", "w8a8_asym_pc", "--calib", "train.npz")
    code, _, err = qbench(
        "eval", "QDQ.onnx", "--fp32", "net.onnx", "--data", "test.npz", *arguments
    )
    assert code == 2
    assert "found --fp32 with --schema" in err


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_is_read_and_written_anew(int8_files, qbench, form):
    code, out, _ = qbench("quantize", f"{form}.onnx", "--read", "--why", "-o", "again.onnx")
    assert code == 0
    first, *rest = out.splitlines()
    assert first.startswith("again.onnx: given: ")
    assert "100.0% of 66 multiply-accumulates planned in integers" in first
    assert any("weight[1]" in line and "given by the DequantizeLinear" in line for line in rest)
    from qbench import get_backend
    from qbench.graph import check_convention

    assert check_convention(ir.load("again.onnx")) == ()
    x = np.load("test.npz")["x"]
    results = []
    for name in (f"{form}.onnx", "again.onnx"):
        with get_backend("ort-cpu-noopt").prepare(name) as executor:
            results.append(executor.run({"x": x})["scores"])
    assert np.array_equal(*results)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("net.onnx", "--read"), "found a float model"),
        (("QDQ.onnx", "--read", "--schema", "w8a8_asym_pc"), "found --schema with --read"),
        (("net.onnx",), "found no --profile"),
        (("net.onnx", "--profile", "p.json", "--schema", "w8a8_asym_pc"), "found no --output"),
    ],
)
def test_what_cannot_be_read_or_planned_is_one_sentence(int8_files, qbench, arguments, said):
    code, out, err = qbench("quantize", *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") <= 1
