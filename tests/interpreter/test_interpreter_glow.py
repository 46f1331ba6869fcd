"""Glow's two backends, by scalar oracles written from its formulas: where each adds the offset
and how it averages.

rh(v)     half away from zero, of float32 numbers
S(v; M)   the factor and two shifts of quantizeScaleOffset32To8
"""

import math
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from qbench.interpreter import Program
from qbench.numerics import get_arithmetic
from qbench.passes import INTEGER_INTERPRETER, lower_to_qoperator

Array = np.ndarray[Any, Any]
F = np.float32
RANDOM = np.random.default_rng(11)


def counted(text: str, machine: str, **feeds: Array) -> Array:
    model = ir.from_proto(
        onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {text}')
    )
    return Program(lower_to_qoperator(model, INTEGER_INTERPRETER), get_arithmetic(machine)).run(
        feeds
    )["y"]


def rh(value: np.floating[Any]) -> int:
    size = math.floor(abs(float(value)) + 0.5)
    return size if value >= 0 else -size


def short(value: int, scale: float) -> int:
    """S: Glow's loop, step by step, from float32."""
    fraction, exponent = math.frexp(float(F(scale)))
    pre = post = 0
    if fraction == 0.5:
        factor, post = (1 << (exponent - 1), 0) if exponent > 1 else (1, 1 - exponent)
    else:
        real = float(F(scale))
        while real < 0.5 or (real < 256 and post < 15):
            real, post = real * 2, post + 1
        while real < 255 and pre < post // 2:
            real, pre = real * 2, pre + 1
        factor = math.floor(real + 0.5)
    return ((value >> pre) * factor + ((1 << (post - 1)) if post else 0)) >> post


def clip(value: int) -> int:
    return min(max(value, -128), 127)


GRIDS = "float sx = {%r}, int8 zx = {%d}, float sy = {%r}, int8 zy = {%d}"


@pytest.mark.parametrize(
    ("sx", "sw", "sy", "zy"), [(0.25, 0.5, 1.0, 3), (0.0371, 0.05, 0.013, -7), (0.5, 0.5, 0.5, -3)]
)
def test_a_product_of_two_is_rounded_before_its_offset(
    sx: float, sw: float, sy: float, zy: int
) -> None:
    a, b = (
        np.repeat(np.arange(-128, 128), 256).astype(np.int8),
        np.tile(np.arange(-128, 128), 256).astype(np.int8),
    )
    text = (
        f"(int8[N] qa, int8[N] qb) => (int8[N] y) <{GRIDS % (sx, -5, sy, zy)}, float sw = "
        f"{{{sw}}}, int8 zw = {{7}}>"
        "{ a = DequantizeLinear(qa, sx, zx) b = DequantizeLinear(qb, sw, zw)"
        " r = Mul(a, b) y = QuantizeLinear(r, sy, zy) }"
    )
    found = counted(text, "glow-interpreter", qa=a, qb=b)
    scale = F(F(F(sx) * F(sw)) / F(sy))
    wanted = [
        clip(rh(F(F((int(p) + 5) * (int(q) - 7)) * scale)) + zy) for p, q in zip(a, b, strict=True)
    ]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("operator", ["Gemm", "MatMul"])
def test_a_fully_connected_layer_is_rounded_before_its_offset_and_a_matrix_product_behind(
    operator: str,
) -> None:
    """Published: of −1.5 and an offset of 3 FullyConnected makes 1, Conv 2."""
    x, w = (
        RANDOM.integers(-128, 128, (64, 6)).astype(np.int8),
        RANDOM.integers(-20, 20, (6, 5)).astype(np.int8),
    )
    rows = ", ".join(map(str, w.reshape(-1).tolist()))
    bias = ", b" if operator == "Gemm" else ""
    text = (
        f"(int8[64, 6] q) => (int8[64, 5] y) <{GRIDS % (0.25, 4, 1.0, 100)}, float sw = {{0.5}}, "
        f"int8 zw = {{0}},"
        f" int8[6, 5] k = {{{rows}}}, int32[5] i = {{0, -12, 7, 900, 4}}, float sb = {{0.125}}, "
        f"int32 zb = {{0}}>"
        "{ x = DequantizeLinear(q, sx, zx) w = DequantizeLinear(k, sw, zw) b = DequantizeLinear(i, "
        "sb, zb)"
        f" r = {operator}(x, w{bias}) y = QuantizeLinear(r, sy, zy) }}"
    )
    sums = (x.astype(int) - 4) @ w.astype(int) + (np.array([0, -12, 7, 900, 4]) if bias else 0)
    wanted = [
        clip(rh(F(F(one) * F(0.125))) + 100 if bias else rh(F(F(one) * F(0.125) + F(100))))
        for one in sums.reshape(-1)
    ]
    assert (
        (sums % 8 == 4) & (abs(sums) < 200)
    ).any()  # ties below 0 and not below −100: there both rules differ
    np.testing.assert_array_equal(counted(text, "glow-interpreter", q=x).reshape(-1), wanted)


def test_a_sum_along_axes_is_rounded_before_its_offset() -> None:
    levels = RANDOM.integers(-128, 128, (512, 3)).astype(np.int8)
    text = (
        f"(int8[512, 3] q) => (int8[512, 1] y) <{GRIDS % (0.25, 2, 0.5, 3)}, int64[1] axes = {{1}}>"
        "{ x = DequantizeLinear(q, sx, zx) r = ReduceSum(x, axes) y = QuantizeLinear(r, sy, zy) }"
    )
    wanted = [clip(rh(F(int(row.sum()) - 6) * F(0.5)) + 3) for row in levels.astype(int)]
    np.testing.assert_array_equal(counted(text, "glow-interpreter", q=levels).reshape(-1), wanted)


@pytest.mark.parametrize("padding_counts", [0, 1])
def test_an_average_on_the_cpu_is_divided_in_integers_where_padding_does_not_count(
    padding_counts: int,
) -> None:
    levels = RANDOM.integers(-128, 128, (2, 3, 7, 7)).astype(np.int8)
    text = (
        f"(int8[2, 3, 7, 7] q) => (int8[2, 3, 7, 7] y) <{GRIDS % (0.0371, 9, 0.021, -4)}>"
        "{ x = DequantizeLinear(q, sx, zx)"
        " r = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = "
        f"{padding_counts}>(x)"
        " y = QuantizeLinear(r, sy, zy) }"
    )
    found = counted(text, "glow-cpu", q=levels)
    for n, c, i, j in np.ndindex(*levels.shape):
        window = levels[n, c, max(i - 1, 0) : i + 2, max(j - 1, 0) : j + 2].astype(int) - 9
        if padding_counts:
            mean = short(int(window.sum()), F(0.0371) / F(F(0.021) * F(9)))
        else:
            total = short(int(window.sum()), F(0.0371) / F(0.021))
            mean = int(math.copysign((abs(total) + window.size // 2) // window.size, total))
        assert found[n, c, i, j] == clip(mean - 4)
