"""Memory of a run: the widest cut of the graph and the taps, not its depth;
and nothing is kept behind.
"""

import tracemalloc
from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from qbench.interpreter import Means, Program, float_gemm
from qbench.numerics import get_arithmetic

SHAPE = (2, 16, 96, 96)
WHOLE = int(np.prod(SHAPE))
"""Bytes of one value."""
SLOW = Means(float_gemm, compiled=False)


def chain(depth: int) -> ir.Model:
    """MaxPools one behind another: y0, y1, …, all of one size."""
    nodes = [
        onnx.helper.make_node(
            "MaxPool",
            [f"y{i - 1}" if i else "x"],
            [f"y{i}"],
            kernel_shape=[3, 3],
            pads=[1, 1, 1, 1],
        )
        for i in range(depth)
    ]
    values = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.UINT8, SHAPE)
        for name in ("x", f"y{depth - 1}")
    ]
    graph = onnx.helper.make_graph(nodes, "chain", values[:1], values[1:])
    return ir.serde.deserialize_model(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    )


def peak(depth: int, taps: Sequence[str] = ()) -> float:
    """The most that one run holds beside its input, in values."""
    program = Program(chain(depth), get_arithmetic("ort-x64"), taps=taps, means=SLOW)
    feeds = {"x": np.random.default_rng(0).integers(0, 256, SHAPE).astype(np.uint8)}
    program.run(feeds)
    tracemalloc.start()
    try:
        results = program.run(feeds)
        most = tracemalloc.get_traced_memory()[1]
        del results
        left = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert left < WHOLE / 4
    return most / WHOLE


def test_depth_costs_no_memory() -> None:
    assert peak(24) == pytest.approx(peak(3), abs=0.5)


def test_a_tap_costs_what_it_keeps() -> None:
    """Twice its size: it is kept with channels last, and given back with channels first."""
    names = [f"y{i}" for i in range(2, 12)]
    assert peak(24, names) - peak(24) == pytest.approx(2 * len(names), abs=2.5)
