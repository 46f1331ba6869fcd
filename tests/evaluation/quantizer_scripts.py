"""Small quantizers for tests: a script of plain Python, its TOML file, and a network for it."""

import textwrap
from pathlib import Path

import numpy as np
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from qbench.evaluation import MetricUse, Subject
from qbench.metrics import get_metric
from qbench.subjects import Classification, Dataset, ReadyArray, ZooModel

HEAD = """
import sys
import numpy as np
import onnx
from onnx import helper, numpy_helper

fp32, calibration, out, *more = sys.argv[1:]
"""

QUANTIZES = (
    HEAD
    + """
model = onnx.load(fp32)
graph = model.graph
samples = np.load(calibration)["x"]
name, weight = graph.initializer[0].name, numpy_helper.to_array(graph.initializer[0])
scale = np.float32(np.abs(weight).max() / 127)
codes = np.clip(np.round(weight / scale), -127, 127).astype(np.int8)
low, high = min(float(samples.min()), 0.0), max(float(samples.max()), 0.0)
step = np.float32((high - low) / 255)
zero = np.uint8(round(-low / step))
constants = {"w_q": codes, "w_s": scale, "w_z": np.int8(0), "x_s": step, "x_z": zero}
del graph.initializer[:]
graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items())
pairs = [
    helper.make_node("QuantizeLinear", ["x", "x_s", "x_z"], ["x_q"]),
    helper.make_node("DequantizeLinear", ["x_q", "x_s", "x_z"], ["x_dq"]),
    helper.make_node("DequantizeLinear", ["w_q", "w_s", "w_z"], ["w_dq"]),
]
nodes = list(graph.node)
nodes[0].input[0], nodes[0].input[1] = "x_dq", "w_dq"
del graph.node[:]
graph.node.extend(pairs + nodes)
"""
)
"""Writes nothing: ``model`` is quantized."""
SAVES = "\nonnx.save(model, out)\n"


def write_quantizer(folder: Path, script: str, name: str = "fake", **settings) -> Path:
    """The TOML file of a quantizer that runs ``script`` in the Python of the tests."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}_quantize.py").write_text(textwrap.dedent(script))
    command = ["{python}", f"{{here}}/{name}_quantize.py", "{fp32}", "{calibration}", "{out}"]
    table = {"title": name.title(), "command": command, "timeout_s": 60, **settings}
    lines = [f"{key} = {_toml(value)}" for key, value in table.items()]
    path = folder / f"{name}.toml"
    path.write_text("\n".join(["[quantizer]", *lines, ""]))
    return path


def _toml(value):
    if isinstance(value, list):
        return f"[{', '.join(_toml(one) for one in value)}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_toml(one)}' for key, one in value.items())} }}"
    return f"'{value}'" if isinstance(value, str) else str(value)


def network(seed=0):
    """A classifier of 16 numbers: one product and a Relu."""
    weight = np.random.default_rng(seed).normal(size=(16, 8)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["h"], name="h"),
            helper.make_node("Relu", ["h"], ["y"], name="y"),
        ],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8])],
        [numpy_helper.from_array(weight, "w")],
    )
    return ir.from_proto(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    )


def points(name: str, count: int) -> Dataset:
    """Samples of 16 numbers; their class is that of the largest output of the first network."""
    x = np.random.default_rng(len(name)).normal(size=(count, 16)).astype(np.float32)
    weight = network().graph.initializers["w"].const_value.numpy()
    ids = tuple(f"{name}{i}" for i in range(count))
    return Dataset(
        id=name,
        kind="array",
        sample_ids=ids,
        sources=ids,
        labels=tuple((int(one),) for one in (x @ weight).argmax(axis=1)),
        content=name,
        load=lambda i: x[i],
    )


def subject(seed=0) -> Subject:
    """The network of ``seed`` with 60 scored and 20 calibration samples."""
    model = ZooModel(
        id="net",
        graphs={"model": lambda: network(seed)},
        preprocess=ReadyArray(),
        task=Classification(k=2),
        origin="random numbers",
    )
    scored = points("scored", 60)
    return Subject(
        model=model,
        data={"scored": scored},
        metrics=(MetricUse("top1", get_metric("top1"), "scored"),),
        calibration=points("spare", 20),
    )
