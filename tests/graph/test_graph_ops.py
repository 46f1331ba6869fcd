"""A new operator is its row in ``graph/ops.py`` and, where none fits yet, its kernel:
nothing else names it.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import qbench
from qbench.graph import INTEGER_FORMS, OPERATORS, QLINEAR, Output, float_name

PACKAGE = Path(qbench.__file__).parent
CORE = ("backends", "calibration", "graph", "interpreter", "numerics", "passes", "quantization")
"""All that a model goes through until a backend has computed it."""

ROW = '_function("Selu", data=(0,)),'
NEW_ROW = '_function("Swish", data=(0,)),'
"""Swish came with opset 24, and no row of ours has it."""

SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import numpy as np, onnx, onnx.parser, onnx_ir as ir
from qbench import calibrate, get_backend, make_plan, quantize_model
from qbench.passes import INTEGER_INTERPRETER, lower_to_qoperator

random = np.random.default_rng(0)
graph = onnx.parser.parse_graph(
    "net (float[N,8] x) => (float[N,8] y) { a = MatMul(x, w)  b = Swish(a)  y = MatMul(b, w) }"
)
weight = random.standard_normal((8, 8)).astype(np.float32)
graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
imports = [onnx.helper.make_opsetid("", 24)]
model = ir.from_proto(onnx.helper.make_model(graph, ir_version=10, opset_imports=imports))
x = random.standard_normal((64, 8)).astype(np.float32)
with get_backend("onnx-reference").prepare(model, taps=["a", "b"]) as executor:
    profile = calibrate(model, [{"x": x}], executor=executor)
quantized = quantize_model(model, make_plan(model, profile, "w8a8_asym_pc"))
results = []
for name in ("onnx-reference", "integer-ideal"):
    with get_backend(name).prepare(quantized) as executor:
        results.append(executor.run({"x": x})["y"])
print(json.dumps({
    "operators": [
        node.op_type for node in lower_to_qoperator(quantized, INTEGER_INTERPRETER).graph
    ],
    "difference": float(np.abs(results[0] - results[1]).max()),
}))
"""


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    """File → its text, of the packages that a model goes through; what hands operators to an
    engine has its names, and what reads a newer opset has those whose types it widened.
    """
    handed = {"tflite_writer", "torch_kernels", "another_python"}
    files = (
        file
        for package in CORE
        for file in (PACKAGE / package).rglob("*.py")
        if file.stem not in handed
    )
    return {str(file.relative_to(PACKAGE)): file.read_text(encoding="utf-8") for file in files}


@pytest.mark.parametrize(
    "name",
    [
        "Celu",
        "DepthToSpace",
        "Gelu",
        "HardSwish",
        "Mish",
        "ReduceMax",
        "ReduceMean",
        "Selu",
        "ThresholdedRelu",
    ],
)
def test_an_operator_is_named_in_its_row_alone(name, sources):
    names = (f'"{name}"', f'"{QLINEAR}{name}"')
    assert [file for file, text in sources.items() if any(one in text for one in names)] == [
        "graph/ops.py"
    ]


@pytest.mark.slow
def test_one_line_makes_an_operator_count_in_integers(tmp_path):
    """By a copy of the package with one row more; without it the operator stays float, as every
    unknown one does.
    """
    assert "Swish" not in OPERATORS
    copy = tmp_path / "changed"
    shutil.copytree(PACKAGE, copy / "qbench", ignore=shutil.ignore_patterns("__pycache__"))
    ops = copy / "qbench" / "graph" / "ops.py"
    text = ops.read_text(encoding="utf-8")
    assert text.count(ROW) == 1
    ops.write_text(text.replace(ROW, f"{ROW}\n    {NEW_ROW}"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(copy)], capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
    found = json.loads(done.stdout)
    assert found["operators"] == [
        "QuantizeLinear",
        "QLinearMatMul",
        "QLinearSwish",
        "MatMulIntegerToFloat",
    ]
    assert found["difference"] < 1e-5


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_the_parts_of_a_row_agree(name):
    row = OPERATORS[name]
    assert row.name == name
    assert not row.table or row.pointwise
    assert not (row.pointwise and row.is_mover)
    assert not row.is_mover or row.output is Output.SHARED
    assert not row.dynamic or ("", row.dynamic) in INTEGER_FORMS
    assert (row.axes is not None) == (row.weight is not None or row.name in {"GRU", "LSTM", "RNN"})
    assert all(float_name(form.name) == name for form in row.forms)
    assert not row.lowering or row.forms or row.kernel
