"""What the verbs of the command line do with a quantizer of other people."""

import json

import numpy as np
import pytest
from quantizer_scripts import QUANTIZES, SAVES, network, write_quantizer

from qbench.cli import main
from qbench.graph import save_model


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = network()
    save_model(model, tmp_path / "net.onnx")
    (value,) = model.graph.inputs
    sizes = [size if isinstance(size, int) else 24 for size in value.shape]
    rng = np.random.default_rng(4)
    for name in ("x.npz", "c.npz"):
        np.savez(name, x=rng.standard_normal([24, *sizes[1:]]).astype(np.float32))
    return write_quantizer(tmp_path, QUANTIZES + SAVES)


@pytest.mark.parametrize(
    "words",
    [
        ("quantize", "net.onnx", "-o", "q.onnx"),
        ("lint", "net.onnx"),
        ("fit", "net.onnx", "--calib", "c.npz", "--method", "lsq", "-o", "q.onnx"),
    ],
)
def test_what_plans_by_rules_refuses_it(here, capsys, words):
    assert main([*words, "--schema", str(here)]) == 2
    assert "which another quantizer makes" in capsys.readouterr().err
    assert not (here.parent / "q.onnx").exists()


def test_sweep_measures_it_and_measures_again_when_its_script_changes(here, capsys):
    words = ["sweep", "net.onnx", "--data", "x.npz", "--calib", "c.npz", "--backend", "ort-cpu"]
    words += ["--schema", f"w8a8_asym_pc,{here}", "--metrics", "cosine", "--results", "found.jsonl"]
    assert main([*words, "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert {one["schema"] for one in cells} >= {"w8a8_asym_pc", "by-fake"}
    assert main([*words, "--resume", "--json"]) == 0
    assert "of which 3 finished cells are taken" in capsys.readouterr().err
    script = here.with_name("fake_quantize.py")
    script.write_text(script.read_text() + "\n# another version\n")
    assert main([*words, "--resume", "--json"]) == 0
    assert "of which 2 finished cells are taken" in capsys.readouterr().err


def test_localize_looks_inside_what_it_wrote(here, capsys):
    words = ["localize", "net.onnx", "--data", "x.npz", "--calib", "c.npz", "--metrics", "cosine"]
    assert main([*words, "--backend", "integer-ideal", "--schema", str(here)]) == 0
    assert "MatMul Relu" in capsys.readouterr().out
