"""A file exported with a fixed batch, through the commands that feed it."""

import json
from pathlib import Path

import pytest


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("backend", ["ort-cpu", "onnx-reference"])
def test_a_model_exported_with_a_fixed_batch(blobs_files, qbench, batch, backend):
    import onnx_ir as ir

    from qbench import load_model, save_model

    model = load_model("net.onnx")
    for value in [*model.graph.inputs, *(out for node in model.graph for out in node.outputs)]:
        value.shape = ir.Shape([batch, *value.shape[1:]])
    save_model(model, "fixed.onnx")
    arguments = (
        "--data",
        "test.npz",
        "--backend",
        backend,
        "--schema",
        "w8a8_asym_pc",
        "--calib",
        "train.npz",
    )
    facts = {}
    for name in ("net", "fixed"):
        code, out, err = qbench("eval", f"{name}.onnx", *arguments, "--json")
        assert code == 0, err
        facts[name] = json.loads(out)
        assert (
            qbench("profile", f"{name}.onnx", "--data", "train.npz", "-o", f"{name}.json")[0] == 0
        )
    for form in ("fp32", "quantized"):
        assert facts["fixed"][form]["scores"] == facts["net"][form]["scores"]
        assert facts["fixed"][form]["macs"] == facts["net"][form]["macs"]
    profiles = [json.loads(Path(f"{name}.json").read_text()) for name in ("net", "fixed")]
    assert profiles[0]["rows"] == profiles[1]["rows"] == 48
    assert profiles[0]["samples"] == profiles[1]["samples"]
