"""There and back: ONNX → TFLite → litert-quantizer → the engine, and what its calibrator does."""

import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from qbench.backends import get_backend
from qbench.cli import main
from qbench.evaluation import build_subject, measure_cell
from qbench.graph import save_model
from qbench.storage import Cache
from qbench.subjects import get_dataset, get_model, prepare_samples
from qbench_engines import load_tflite

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.usefixtures("litert"),
    pytest.mark.skipif(
        find_spec("litert_quantizer") is None,
        reason="litert-quantizer is not installed; `make test-oracles` installs it",
    ),
]

QUANTIZE = """
import sys
import numpy as np
from litert_quantizer import calibrator, quantizer, recipe
from litert_quantizer.utils import qsv_utils

name, how, source, samples, target = sys.argv[1:]
tool = quantizer.Quantizer(source)
tool.load_quantization_recipe(getattr(recipe, name)())
ranges = None
if name.startswith("static"):
    data = {"serving_default": [{"x": one[None]} for one in np.load(samples)["x"]]}
    if how == "averaged":
        ranges = tool.calibrate(data)
    else:
        own = calibrator.Calibrator(
            source, num_threads=1, qsv_update_func=qsv_utils.min_max_update
        )
        own.calibrate(data, tool._recipe_manager)
        ranges = own.get_model_qsvs()
tool.quantize(ranges).export_model(target, overwrite=True)
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Digits in float as ONNX and TFLite, and its samples of calibration and test."""
    folder = tmp_path_factory.mktemp("quantizer")
    model = get_model("digits_cnn")
    save_model(model.graphs["model"](), folder / "float.onnx")
    assert main(["export", str(folder / "float.onnx"), "-o", str(folder / "float.tflite")]) == 0
    for name, count in (("digits_train", 64), ("digits_test", 360)):
        data = get_dataset(name)
        (feeds,) = prepare_samples(data, model.preprocess, Cache.default()).batches(len(data))
        labels = np.array([label[0] for label in data.labels])
        np.savez(folder / f"{name}.npz", x=feeds["x"][:count], y=labels[:count])
    (folder / "quantize.py").write_text(QUANTIZE, encoding="utf-8")
    return folder


def quantized(files, recipe, how="averaged"):
    """The file that the tool makes, in a process of its own."""
    target = files / f"{recipe}-{how}.tflite"
    given = (files / "float.tflite", files / "digits_train.npz", target)
    subprocess.run(
        [sys.executable, files / "quantize.py", recipe, how, *given],
        check=True,
        capture_output=True,
        timeout=600,
    )
    return target


def measured(files, target, *metrics):
    data = str(files / "digits_test.npz")
    subject = build_subject(
        str(files / "float.onnx"), data, None, list(metrics), None, given=str(target)
    )
    return measure_cell(subject, "litert-xnnpack", None)


def test_names_of_tensors_are_unique_and_a_signature_names_the_ends(files):
    from ai_edge_litert import schema_py_generated as schema

    file = schema.ModelT.InitFromPackedBuf((files / "float.tflite").read_bytes())
    names = [tensor.name for tensor in file.subgraphs[0].tensors]
    assert all(names)
    assert len(set(names)) == len(names)
    (signature,) = file.signatureDefs
    assert signature.signatureKey == b"serving_default"
    assert [one.name for one in signature.inputs] == [b"x"]
    assert [one.name for one in signature.outputs] == [b"logits"]


@pytest.mark.parametrize(
    "recipe", ["static_wi8_ai8", "static_wi8_ai16", "dynamic_wi8_afp32", "weight_only_wi4_afp32"]
)
def test_a_float_file_goes_through_the_tool_to_the_engine(files, recipe):
    found = measured(files, quantized(files, recipe), "agreement")
    assert found.score("agreement").value > 0.95
    assert found.integer_macs == (1.0 if recipe.startswith("static") else 0.0)


def test_a_calibrator_that_averages_extremes_cuts_off_what_samples_have(files):
    """docs/findings/averaged-extremes.md: only the rule of the extremes is another."""
    data = files / "digits_test.npz"
    float_answers, averaged, whole = (
        run(files, target, data)
        for target in (
            files / "float.tflite",
            quantized(files, "static_wi8_ai8", "averaged"),
            quantized(files, "static_wi8_ai8", "whole"),
        )
    )
    assert sqnr(float_answers, whole) > sqnr(float_answers, averaged) + 6


def run(files, target, data):
    with get_backend("litert-xnnpack").prepare(load_tflite(target)) as executor:
        (answers,) = executor.run({"x": np.load(data)["x"]}).values()
    return answers


def sqnr(right, found):
    """In dB."""
    return 10 * np.log10((right**2).sum() / ((found - right) ** 2).sum())
