"""Quantizers that take a torch module or a TFLite file: run as a manifest says."""

from importlib.util import find_spec
from pathlib import Path

import pytest

import qbench_engines
from qbench.backends import get_backend
from qbench.evaluation import SubjectArtifacts, build_subject, environment_here, measure_cell
from qbench.quantization import schema_in_file
from qbench.storage import Cache

pytestmark = pytest.mark.oracle
SHIPPED = Path(qbench_engines.__file__).parent / "quantizers"
OF_A_MODULE = """
import sys
import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from qbench_engines.torch_import import torch_module

fp32, calibration, out = sys.argv[1:]
module, samples = torch_module(fp32), np.load(calibration)["x"]
model = onnx.load(fp32)
last = next(node for node in model.graph.node if node.output[0] == model.graph.output[0].name)
answers = [module(torch.from_numpy(samples[i : i + 1])).detach() for i in range(len(samples))]
largest = float(torch.cat(answers).abs().max())
weight = next(one for one in model.graph.initializer if one.name == last.input[1])
array = numpy_helper.to_array(weight)
scale = np.float32(np.abs(array).max() / 127)
codes = np.round(array / scale).astype(np.int8)
step = np.float32(largest / 127)
constants = {"q": codes, "s": scale, "y_s": step, "y_z": np.int8(0)}
model.graph.initializer.extend(
    numpy_helper.from_array(np.asarray(a), f"own_{n}") for n, a in constants.items()
)
dequantize = helper.make_node("DequantizeLinear", ["own_q", "own_s"], ["own_w"])
pair = [
    helper.make_node("QuantizeLinear", ["own_y", "own_y_s", "own_y_z"], ["own_y_q"]),
    helper.make_node("DequantizeLinear", ["own_y_q", "own_y_s", "own_y_z"], [last.output[0]]),
]
last.input[1], last.output[0] = "own_w", "own_y"
model.graph.initializer.remove(weight)
model.graph.node.insert(0, dequantize)
model.graph.node.extend(pair)
onnx.save(model, out)
"""


def measured(folder, manifest, backend):
    """The cell of digits under the quantizer ``manifest``, in the Python of the tests."""
    own = get_backend("ort-cpu")
    subject = build_subject("digits_cnn", "digits_test", "digits_train", ["agreement"], 32)
    shared = SubjectArtifacts(subject, Cache(folder / "cache"), own, str(environment_here(own)))
    return measure_cell(shared, backend, schema_in_file(manifest))


def test_a_script_makes_a_module_of_the_graph_that_it_receives(tmp_path, torch):
    (tmp_path / "own_quantize.py").write_text(OF_A_MODULE)
    manifest = tmp_path / "own.toml"
    manifest.write_text(
        "[quantizer]\ntitle = 'Own'\ntakes = 'module'\n"
        "command = ['{python}', '{here}/own_quantize.py', '{fp32}', '{calibration}', '{out}']\n"
    )
    found = measured(tmp_path, manifest, "ort-cpu")
    assert found.score("agreement").value > 0.95
    assert found.quantizer.samples == 32
    assert found.quantizer.near == found.quantizer.weights > 1


@pytest.mark.skipif(
    find_spec("litert_quantizer") is None,
    reason="litert-quantizer is not installed; `make test-oracles` installs it",
)
def test_a_tflite_file_goes_to_a_quantizer_and_comes_back(tmp_path, litert):
    text = (SHIPPED / "litert.toml").read_text().replace('lock = "litert.txt"\n', "")
    manifest = tmp_path / "litert.toml"
    manifest.write_text(text.replace("{here}", str(SHIPPED)))
    found = measured(tmp_path, manifest, "litert-xnnpack")
    assert found.cell.schema == "by-litert"
    assert found.integer_macs == 1.0
    assert found.score("agreement").value > 0.95
