"""Every operator that ONNX Runtime counts in integers, alone: types, ties, extremes, groups,
pads; no bit may differ.

The cases (``operator_cases``) have scales that are powers of two, so that accumulators lie on ties;
biases and depths that carry sums beyond 2²⁴ and around 2³¹; multipliers that underflow, and
products that leave float32.
"""

from collections.abc import Callable, Mapping

import hypothesis.strategies as st
import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from operator_cases.elementwise import (
    binaries,
    clips,
    concatenations,
    dequantizations,
    quantizations,
    unaries,
)
from operator_cases.ground import ENGINE, Case, drawn, one_node
from operator_cases.judges import HERE, counted, engine
from operator_cases.pools import averages, global_averages, largest
from operator_cases.products import convolutions, gemms, matrix_products

from qbench.host import processor_features
from qbench.interpreter import Means, float_gemm
from qbench.numerics import (
    fused_multiply_add,
    rational_sigmoid,
    rational_tanh,
    separate_multiply_add,
)

SLOW = Means(float_gemm, compiled=False)
"""numpy alone."""

FAMILIES: Mapping[str, tuple[st.SearchStrategy[Case], int]] = {
    "convolution": (convolutions(), 80),
    "matrix product": (matrix_products(), 50),
    "gemm": (gemms(), 50),
    "sum or product": (binaries(), 40),
    "function": (unaries(), 60),
    "concatenation": (concatenations(), 40),
    "average": (averages(), 60),
    "global average": (global_averages(), 40),
    "largest": (largest(), 40),
    "quantize": (quantizations(), 70),
    "dequantize": (dequantizations(), 40),
    "clip": (clips(), 20),
}


def differs(case: Case) -> str:
    """Which of the engine's modes gives another array than the interpreter does; empty: none."""
    ours = counted(case.model, case.feeds, HERE)
    modes = {
        "numpy": counted(case.model, case.feeds, HERE, SLOW),
        "as it is": engine(case.model, case.feeds),
        "optimized": engine(case.model, case.feeds, optimized=True),
    }
    same = {name: _same(ours, theirs) for name, theirs in modes.items()}
    return " and ".join(name for name, equal in same.items() if not equal)


def _same(left: np.ndarray, right: np.ndarray) -> bool:
    return (
        left.dtype == right.dtype
        and left.shape == right.shape
        and np.array_equal(left, right, equal_nan=left.dtype.kind == "f")
    )


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_bit_is_the_engines(family: str) -> None:
    strategy, count = FAMILIES[family]

    @settings(max_examples=count)
    @given(strategy)
    def holds(case: Case) -> None:
        assert not differs(case)

    holds()


@pytest.mark.slow
def test_the_cases_are_what_they_are_said_to_be() -> None:
    """Ties, extremes, zero multipliers and wraps are among them, or the test above would show
    less than it says.
    """
    cases = drawn(convolutions(), 200)
    attributes = [{one.name: one for one in case.model.graph.node[0].attribute} for case in cases]
    assert {len(case.feeds["x"].shape) for case in cases} == {3, 4, 5}
    assert {one["auto_pad"].s for one in attributes if "auto_pad" in one} == {
        b"SAME_UPPER",
        b"SAME_LOWER",
        b"VALID",
    }
    assert any(one["group"].i > 1 for one in attributes)
    assert any("pads" in one and len(set(one["pads"].ints)) > 1 for one in attributes)
    wrapping = [case for case in cases if np.abs(_constant(case, "b")).max(initial=0) > 2**30]
    assert len(wrapping) > 5
    ties = [
        case
        for case in cases
        if np.isclose(np.log2(_multiplier(case)) % 1, 0).all() and _multiplier(case).min() > 0
    ]
    assert len(ties) > 25
    assert any(_multiplier(case).max() > 1e20 for case in cases)
    assert any(_multiplier(case).min() < 1e-20 for case in cases)


def _constant(case: Case, name: str) -> np.ndarray:
    from onnx.numpy_helper import to_array

    found = [to_array(one) for one in case.model.graph.initializer if one.name == name]
    return found[0].astype(np.float64) if found else np.zeros(0)


def _multiplier(case: Case) -> np.ndarray:
    return np.asarray(_constant(case, "s") * _constant(case, "t") / _constant(case, "r"))


@pytest.mark.parametrize(
    ("operator", "ours"), [("Sigmoid", rational_sigmoid), ("Tanh", rational_tanh)]
)
def test_functions_of_floats_are_the_engines(
    operator: str, ours: Callable[..., np.ndarray]
) -> None:
    random = np.random.default_rng(0)
    feeds = {
        "x": np.concatenate([random.uniform(-20, 20, 60_000), random.normal(0, 1, 40_000)]).astype(
            np.float32
        )
    }
    step = fused_multiply_add if "fma" in processor_features() else separate_multiply_add
    theirs = engine(one_node(operator, ["x"], feeds, "float32", {}).model, feeds)
    np.testing.assert_array_equal(ours(feeds["x"], step), theirs)


def session(case: Case, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    data = case.model.SerializeToString()
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


_HALF = {
    "s": np.float32(0.5),
    "z": np.uint8(3),
    "t": np.float32(0.5),
    "v": np.uint8(1),
    "r": np.float32(1),
    "q": np.uint8(129),
}
PLACES = {
    "QuantizeLinear": (["x", "s", "z"], ("x",), np.float32, ""),
    "QLinearAdd": (["x", "s", "z", "b", "t", "v", "r", "q"], ("x", "b"), np.uint8, ENGINE),
    "QLinearMul": (["x", "s", "z", "b", "t", "v", "r", "q"], ("x", "b"), np.uint8, ENGINE),
    "QLinearSigmoid": (["x", "s", "z", "t", "v"], ("x",), np.uint8, ENGINE),
    "QLinearLeakyRelu": (["x", "s", "z", "t", "v"], ("x",), np.uint8, ENGINE),
}


@pytest.mark.parametrize("operator", PLACES)
def test_no_bit_depends_on_the_place_of_an_element_or_on_threads(operator: str) -> None:
    """Ties everywhere: what a vector's body,
    its rest and other threads round must be one thing, and is.
    """
    names, fed, kind, domain = PLACES[operator]
    random = np.random.default_rng(0)
    feeds = {
        name: (random.integers(0, 256, 70_001) * (0.25 if kind is np.float32 else 1)).astype(kind)
        for name in fed
    }
    constants = {name: value for name, value in _HALF.items() if name in names}
    case = one_node(operator, names, feeds, "uint8", constants, domain=domain)
    ours = counted(case.model, feeds, HERE)
    for threads in (1, 2, 3):
        assert _same(session(case, threads).run(None, feeds)[0], ours), threads
    alone = session(case, 1)
    for start, count in [*((0, n) for n in range(1, 70)), *((n, 65) for n in range(1, 17))]:
        piece = {name: array[start : start + count] for name, array in feeds.items()}
        assert _same(alone.run(None, piece)[0], ours[start : start + count]), (start, count)


def test_threads_change_no_sum() -> None:
    random = np.random.default_rng(0)
    constants = {
        "s": np.float32(1),
        "z": np.uint8(9),
        "t": np.float32(1),
        "v": np.int8(0),
        "r": np.float32(512),
        "q": np.uint8(128),
    }
    constants["w"] = random.integers(-64, 64, (24, 8, 3, 3)).astype(np.int8)
    feeds = {"x": random.integers(0, 256, (2, 8, 61, 59)).astype(np.uint8)}
    case = one_node(
        "QLinearConv", ["x", "s", "z", "w", "t", "v", "r", "q"], feeds, "uint8", constants
    )
    ours = counted(case.model, feeds, HERE)
    for threads in (1, 2, 3):
        assert _same(session(case, threads).run(None, feeds)[0], ours)


def pooled(operator: str, size: int, **attributes: object) -> tuple[list[int], list[int]]:
    """The levels 0, 10, 20, …, pooled by the engine and by us;
    the scale is one and the zero point zero.
    """
    names, domain = (["x"], "") if operator == "MaxPool" else (["x", "s", "z", "s", "z"], ENGINE)
    constants = {} if operator == "MaxPool" else {"s": np.float32(1), "z": np.uint8(0)}
    feeds = {"x": (10 * np.arange(size, dtype=np.uint8)).reshape(1, 1, size)}
    case = one_node(operator, names, feeds, "uint8", constants, domain=domain, **attributes)
    return engine(case.model, feeds).reshape(-1).tolist(), counted(case.model, feeds, HERE).reshape(
        -1
    ).tolist()


def test_where_the_engine_is_wrong_we_are_not() -> None:
    """ONNX Runtime 1.31. Its float AveragePool divides as we do;
    its pools with SAME pads know no dilation.
    """
    beyond = {
        "kernel_shape": [3],
        "strides": [2],
        "pads": [1, 1],
        "ceil_mode": 1,
        "count_include_pad": 1,
    }
    assert pooled("QLinearAveragePool", 6, **beyond) == ([3, 20, 40, 17], [3, 20, 40, 25])
    same = {"kernel_shape": [2], "strides": [1], "dilations": [2], "auto_pad": "SAME_UPPER"}
    assert pooled("MaxPool", 6, **same) == ([20, 30, 40, 50, 40], [10, 20, 30, 40, 50, 40])


def test_same_pads_of_a_pool_can_be_negative_there() -> None:
    """A window shorter than its stride: the engine's pads may leave out what comes first; ours
    are never below zero.
    """
    short = {"kernel_shape": [1], "strides": [3], "auto_pad": "SAME_UPPER"}
    assert pooled("MaxPool", 9, **short) == ([10, 40, 70], [0, 30, 60])
