"""What counting exactly costs: our integer machines beside ONNX Runtime's own int8 time, one
thread, one process.

    ratio = time of integer-<machine> / time of the engine that counts the same, on the same QDQ
    model

All machines are held against ``ort-cpu``, the engine as it is. On processors that saturate pairs it
does not count as exact machines do: those are held against ``ort-cpu-precise`` there, which has
exact sums on every processor. Times are the least of interleaved runs. For scale, onnx's own
evaluator takes one picture of one network.

    python benchmarks/integer_speed.py [--quick | --scale] [MACHINE …]
"""

import os
import sys
import time
from collections.abc import Mapping

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when numpy is first loaded

import numpy as np
import onnx_ir as ir
from resnet50_shape import resnet50_shape

from qbench.backends import Executor, get_backend
from qbench.calibration import calibrate
from qbench.host import DotProduct, probe_dot_product, processor_class, processor_name
from qbench.numerics import get_arithmetic
from qbench.quantization import make_plan, quantize_model
from qbench.subjects import get_model

SCHEMA = "w8a8_asym_pc"
MACHINES = ("ort-x64", "gemmlowp", "xnnpack", "ort-x64-avx2")
ROUNDS = 7
SCALE = ("integer-ort-x64", "ort-cpu-precise", "onnx-reference")
"""Compared on MobileNetV2."""


def subjects() -> Mapping[str, ir.Model]:
    """Name → float graph, pictures of 224 × 224."""
    named = {
        name: next(iter(get_model(name).graphs.values()))()
        for name in ("mobilenet_v2", "efficientnet_lite0")
    }
    return {"ResNet-50 shape": resnet50_shape(), **named}


def seconds(executors: Mapping[str, Executor], feeds: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The least time of each over interleaved runs, after one that is not counted."""
    best = dict.fromkeys(executors, float("inf"))
    for turn in range(ROUNDS + 1):
        for name, executor in executors.items():
            start = time.process_time()
            executor.run(feeds)
            if turn:
                best[name] = min(best[name], time.process_time() - start)
    return best


def engine_of(machine: str) -> str:
    """The engine to hold ``machine`` against on this processor."""
    exact = not get_arithmetic(machine).accumulator.pair_bits
    return (
        "ort-cpu-precise" if exact and probe_dot_product() is DotProduct.SATURATING else "ort-cpu"
    )


def quantized(model: ir.Model, x: np.ndarray) -> tuple[ir.Model, str]:
    """``model`` quantized over two samples of noise, and what its input is called."""
    (source,) = model.graph.inputs
    name = source.name or ""
    return quantize_model(model, make_plan(model, calibrate(model, [{name: x[:2]}]), SCHEMA)), name


def print_scale() -> None:
    """One picture on onnx's evaluator, in times of ours and of the engine."""
    x = np.random.default_rng(0).normal(0, 1, (2, 3, 224, 224)).astype(np.float32)
    model, source = quantized(next(iter(get_model("mobilenet_v2").graphs.values()))(), x)
    found = seconds({one: get_backend(one).prepare(model) for one in SCALE}, {source: x[:1]})
    ours, engine, theirs = (1e3 * found[one] for one in SCALE)
    print(
        f"mobilenet_v2, for scale: {SCALE[2]} {theirs:.0f} ms: "
        f"{theirs / ours:.0f} × {SCALE[0]} ({ours:.1f} ms), "
        f"{theirs / engine:.0f} × {SCALE[1]} ({engine:.1f} ms)"
    )


def main() -> None:
    """Print the table."""
    if {"-h", "--help"} & set(sys.argv):
        print(__doc__)
        return
    if "--scale" in sys.argv:
        print_scale()
        return
    batches = (1,) if "--quick" in sys.argv else (1, 8)
    engines = {
        machine: engine_of(machine) for machine in sys.argv[1:] if not machine.startswith("--")
    }
    engines = engines or {machine: engine_of(machine) for machine in MACHINES}
    print(f"{processor_name()} ({processor_class()})")
    print(f"{'network':<20}{'batch':>6}  {'machine':<18}{'ms':>9}{'engine':>9}{'ratio':>8}")
    for name, model in subjects().items():
        random = np.random.default_rng(0)
        (source,) = model.graph.inputs
        shape = (8, *(dim if isinstance(dim, int) else 224 for dim in source.shape[1:]))
        x = random.normal(0, 1, shape).astype(np.float32)
        prepared, _ = quantized(model, x)
        names = dict.fromkeys((*(f"integer-{machine}" for machine in engines), *engines.values()))
        executors = {backend: get_backend(backend).prepare(prepared) for backend in names}
        for batch in batches:
            found = seconds(executors, {source.name: x[:batch]})
            for machine, engine in engines.items():
                ours, theirs = 1e3 * found[f"integer-{machine}"], 1e3 * found[engine]
                print(
                    f"{name:<20}{batch:>6}  "
                    f"{machine:<18}{ours:>9.1f}{theirs:>9.1f}{ours / theirs:>8.2f}  {engine}"
                )
        for executor in executors.values():
            executor.close()
    print_scale()


if __name__ == "__main__":
    main()
