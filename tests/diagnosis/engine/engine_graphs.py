"""A small network under a schema, as a target, and engines that break;
importable by a child process.
"""

import functools
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from qbench import calibrate, make_plan, quantize_model
from qbench.backends import Closing, IntegerBackend, get_backend
from qbench.diagnosis.target import Target, watched_backend
from qbench.graph import Capabilities

NETWORK = """<ir_version: 10, opset_import: ["" : 21]>
net (float[n, 3, 8, 8] x, float[6, 3, 3, 3] wide_w, float[6] wide_b, float[6, 1, 3, 3] deep_w,
     float[6] deep_b, float[5, 6] dense_w, float[5] dense_b) => (float[n, 5] y)
{
    [wide] a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, wide_w, wide_b)
    [relu] b = Relu (a)
    [deep] c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], group = 6> (b, deep_w, deep_b)
    [sum] d = Add (b, c)
    [pool] e = GlobalAveragePool (d)
    [flat] f = Flatten (e)
    [dense] y = Gemm <transB = 1> (f, dense_w, dense_b)
}"""


def network() -> ir.Model:
    """Convolutions, dense and depthwise, a sum of branches, a mean and a dense layer; its
    weights are drawn.
    """
    rng = np.random.default_rng(11)
    model = ir.from_onnx_text(NETWORK)
    for value in list(model.graph.inputs)[1:]:
        assert value.shape is not None
        value.const_value = ir.tensor(
            rng.normal(size=value.shape.numpy()).astype(np.float32), name=value.name
        )
        model.graph.inputs.remove(value)
        model.graph.register_initializer(value)
    return model


def batches(seed: int = 5, count: int = 2, size: int = 4) -> list[dict[str, np.ndarray]]:
    """``count`` batches of ``size`` samples."""
    rng = np.random.default_rng(seed)
    return [{"x": rng.normal(size=(size, 3, 8, 8)).astype(np.float32)} for _ in range(count)]


@functools.cache
def quantized(schema: str = "w8a8_asym_pc") -> tuple[ir.Model, ir.Model]:
    """The float network, and the same under ``schema``."""
    model = network()
    plan = make_plan(model, calibrate(model, batches(seed=3)), schema)
    return model, quantize_model(model, plan)


def target(backend: Any, schema: str = "w8a8_asym_pc", **more: Any) -> Target:
    """The network on ``backend``, a name or a value."""
    engine = get_backend(backend) if isinstance(backend, str) else backend
    original, written = quantized(schema)
    watched = more.pop("watched", None) or watched_backend(engine) or engine
    return Target(
        model="net", original=original, quantized=written, backend=engine, watched=watched, **more
    )


def machine(name: str) -> IntegerBackend:
    """The integer machine of that arithmetic."""
    backend = get_backend(f"integer-{name}")
    assert isinstance(backend, IntegerBackend)
    return backend


_LEAST = 12
"""Nodes of a graph that is no piece."""


@dataclass(frozen=True)
class Broken:
    """ONNX Runtime in precise mode that fails on pieces with an operator: it ends, hangs,
    raises, answers at random.
    """

    operator: str
    how: str
    name: str = "broken"
    capabilities: Capabilities = field(default_factory=Capabilities)
    packages: tuple[str, ...] = ()

    def prepare(self, model: ir.Model, *, taps: Sequence[str] = (), threads: int = 1) -> "Breaking":
        is_piece = len(model.graph.inputs) == 1 and len(model.graph) < _LEAST
        fails = is_piece and any(node.op_type == self.operator for node in model.graph)
        executor = get_backend("ort-cpu-precise").prepare(model, taps=taps, threads=threads)
        return Breaking(executor, self.how if fails else "")


SIGMOID = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft": 1]>
sigmoid (uint8[N] x) => (uint8[N] y) <float s = {0.1}, uint8 z = {3}, float t = {0.00390625}>
{ y = com.microsoft.QLinearSigmoid (x, s, z, t) }"""
"""ONNX Runtime 1.31.1 aborts on it: the zero point of the result is left out."""


def real_abort() -> None:
    """What ONNX Runtime itself does to its process."""
    with get_backend("ort-cpu").prepare(ir.from_onnx_text(SIGMOID)) as executor:
        executor.run({"x": np.arange(4, dtype=np.uint8)})


class Breaking(Closing):
    def __init__(self, executor: Any, how: str) -> None:
        self.executor, self.how, self.runs = executor, how, 0

    def run(self, feeds: Any) -> dict[str, np.ndarray]:
        if self.how == "abort":
            os.abort()
        if self.how == "exit":
            os._exit(3)
        if self.how == "sigmoid":
            real_abort()
        while self.how == "hang":
            time.sleep(60)
        if self.how == "widen":
            return {
                name: array.astype(np.longdouble)
                for name, array in self.executor.run(feeds).items()
            }
        if self.how == "raise":
            raise ArithmeticError("no such window")
        outputs = self.executor.run(feeds)
        self.runs += 1
        if self.how == "drift" and self.runs % 2 == 0:
            for name, array in outputs.items():
                outputs[name] = array ^ np.array(1, array.dtype)
        return outputs

    def close(self) -> None:
        self.executor.close()
