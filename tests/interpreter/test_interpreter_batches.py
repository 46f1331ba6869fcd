"""Batches that a graph cannot compute are refused in words that name the node; other mistakes
are not dressed up.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.backends.integer import IntegerBackend
from qbench.errors import InputError
from qbench.interpreter import BatchError, Means, best_means, counting_means
from qbench.interpreter.arrays import broadcast
from qbench.numerics import get_arithmetic

CONSTANTS: Mapping[str, Any] = {
    "s": np.float32(1),
    "z": np.uint8(0),
    "v": np.int8(0),
    "w": np.ones((4, 3), np.int8),
    "f": np.ones((6, 2, 3, 3), np.int8),
    "d": np.ones((4, 1, 3, 3), np.int8),
}


def executor_of(text: str, means: Means | None = None, **more: Any) -> Any:
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1, "qbench.integer" : 1]>\n'
        f"{text}"
    )
    for name, array in {**CONSTANTS, **more}.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    return IntegerBackend(arithmetic=get_arithmetic("ort-x64"), means=means).prepare(
        ir.from_proto(proto)
    )


PRODUCT = "g (uint8[M, K] a) => (uint8[M, 3] y) { y = QLinearMatMul(a, s, z, w, s, v, s, z) }"
COMPUTED = (
    "g (uint8[M, K] a, uint8[L, N] b) => (uint8[M, N] y) "
    "{ y = QLinearMatMul(a, s, z, b, s, z, s, z) }"
)
CONV = (
    "g (uint8[N, C, H, W] a) => (uint8[N, 6, I, J] y) "
    "{ y = QLinearConv<group = 2>(a, s, z, f, s, v, s, z) }"
)
DEPTHWISE = (
    "g (uint8[N, C, H, W] a) => (uint8[N, 4, I, J] y) "
    "{ y = QLinearConv<group = 4>(a, s, z, d, s, v, s, z) }"
)
SUM = (
    "g (uint8[M, N] a, uint8[K, L] b) => (uint8[M, N] y) "
    "{ y = com.microsoft.QLinearAdd(a, s, z, b, s, z, s, z) }"
)
JOINED = (
    "g (uint8[M, N] a, uint8[K, L] b) => (uint8[I, J] y)"
    "{ y = com.microsoft.QLinearConcat<axis = 0>(s, z, a, s, z, b, s, z) }"
)
LARGEST = (
    "g (uint8[M, N] a, uint8[K, L] b) => (uint8[M, N] y) "
    "{ y = qbench.integer.QLinearMax(a, s, z, b, s, z, s, z) }"
)
POOL = (
    "g (uint8[N, C, H, W] a) => (uint8[N, C, I, J] y)"
    "{ x = QLinearConv<group = 4>(a, s, z, d, s, v, s, z) y = MaxPool<kernel_shape = [3, 3]>(x) }"
)
RANGES = "g (float[N] a) => (uint8[N] y, float t, uint8 p) { y, t, p = DynamicQuantizeLinear(a) }"
FLOATS = "g (uint8[N] a) => (float[M] y) { r = DequantizeLinear(a, s, z) y = Reshape(r, n) }"


@pytest.mark.parametrize("means", [best_means(), counting_means()])
@pytest.mark.parametrize(
    ("text", "shapes", "says"),
    [
        (PRODUCT, [(2, 5)], "5 values per row where the weight has 4"),
        (COMPUTED, [(2, 5), (4, 3)], "5 values per row and 4 per column"),
        (CONV, [(1, 5, 8, 8)], "5 channels where the filters have 4"),
        (CONV, [(1, 4, 2, 8)], r"no window of \(3, 3\) in \(2, 8\)"),
        (DEPTHWISE, [(1, 5, 8, 8)], "5 channels where the filters have 4"),
        (DEPTHWISE, [(1, 3, 8, 8)], "3 channels where the filters have 4"),
        (SUM, [(2, 3), (3, 2)], "operands of 2×3 and 3×2"),
        (JOINED, [(2, 3), (3, 2)], r"parts of \(2, 3\) and \(3, 2\) along axis 0"),
        (LARGEST, [(2, 3), (3, 2)], "operands of 2×3 and 3×2"),
        (POOL, [(1, 4, 4, 4)], r"no window of \(3, 3\) in \(2, 2\)"),
        (FLOATS, [(5,)], "reshape"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    text: str, shapes: list[tuple[int, ...]], says: str, means: Means
) -> None:
    feeds = {name: np.zeros(shape, np.uint8) for name, shape in zip("ab", shapes, strict=False)}
    executor = executor_of(text, means, n=np.array([2, 2]))
    with pytest.raises(InputError, match=says) as caught:
        executor.run(feeds)
    assert caught.value.found.endswith("at 'y'")


def test_a_range_beyond_float32_is_refused() -> None:
    wide = np.array([-3e38, 3e38], np.float32)
    with pytest.raises(InputError, match="has no scale in float32"):
        executor_of(RANGES).run({"a": wide})


def test_a_mistake_of_a_kernel_is_not_taken_for_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = executor_of(PRODUCT)

    def mistaken(*_: Any) -> Any:
        raise ValueError("levels of uint8 lie in 0 … 255")

    program = executor._held
    monkeypatch.setattr(program, "_steps", [type(program._steps[0])("y", mistaken, (), (), ())])
    with pytest.raises(ValueError, match="levels of uint8"):
        executor.run({"a": np.zeros((2, 4), np.uint8)})


SHAPES = st.lists(st.lists(st.integers(0, 3), max_size=4).map(tuple), min_size=1, max_size=3)


@given(SHAPES)
def test_what_broadcasts_is_what_numpy_broadcasts(shapes: list[tuple[int, ...]]) -> None:
    try:
        expected = np.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(BatchError):
            broadcast(*shapes)
    else:
        assert broadcast(*shapes) == expected
