"""What LiteRT's kernels count in ways of their own;
the numbers are those that ai-edge-litert 2.3.0 gives.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.errors import InputError
from qbench.numerics import (
    Averaging,
    QParams,
    QType,
    add_quantized,
    averager,
    get_arithmetic,
    hard_swish_in_16_bits,
    real_multiplier,
    requantize,
)
from qbench.numerics.arithmetic import Precision

PICKED = np.array([-128, -100, -61, -33, -30, -27, -5, 0, 3, 9, 40, 77, 127])


def grid(scale: float, zero_point: int) -> QParams:
    return QParams(np.float32(scale), zero_point, QType.parse("int8"))


@pytest.mark.parametrize(
    ("x", "y", "levels"),
    [
        (
            grid(0.05, 3),
            grid(0.05, -20),
            [-20, -20, -20, -27, -27, -28, -23, -21, -20, -17, 10, 54, 104],
        ),
        (grid(0.25, 0), grid(0.5, 1), [1, 1, 1, 1, 1, 1, 0, 1, 2, 5, 21, 39, 64]),
        (grid(0.0117, -5), grid(0.02, 30), [11, 13, 17, 23, 23, 24, 30, 31, 32, 34, 45, 62, 88]),
    ],
)
def test_hard_swish_is_the_engines(x, y, levels):
    assert hard_swish_in_16_bits(PICKED, x, y).tolist() == levels


@settings(max_examples=30)
@given(st.floats(0.003, 1), st.floats(0.3, 4), st.integers(-128, 127))
def test_hard_swish_is_near_the_function(scale, ratio, zero):
    x, y, levels = grid(scale, zero), grid(scale * ratio, 0), np.arange(-128, 128)
    real = (levels - zero) * float(x.scale)
    wanted = real * np.clip(real + 3, 0, 6) / 6 / float(y.scale)
    # three products of 15 bits, and a last rounding that truncation may have pushed over
    assert (
        np.max(np.abs(hard_swish_in_16_bits(levels, x, y) - wanted))
        < 1 + np.max(np.abs(wanted)) * 2.0**-12
    )


def test_hard_swish_has_no_left_shift():
    with pytest.raises(InputError, match="an output scale of at least a 128th of the input's"):
        hard_swish_in_16_bits(PICKED, grid(1, 0), grid(0.005, 0))


@settings(max_examples=50)
@given(*[st.floats(2.0**-12, 4, width=32)] * 3)
def test_a_product_in_float32_is_divided_in_float64(x, w, y):
    product = np.float32(np.float32(x) * np.float32(w))
    found = float(real_multiplier((x, w, y), Precision.PRODUCT))
    exact = Fraction(float(product)) / Fraction(y)
    assert abs(Fraction(found) - exact) <= exact / 2**53


def test_fully_connected_layers_of_the_reference_round_once_and_half_away():
    scales, machine = (0.5, 0.25, 0.5), get_arithmetic("gemmlowp")
    layers = {name: machine.at(name, "") for name in ("Conv", "Gemm", "MatMul")}
    found = {
        name: requantize([-6, -5, 1, 6], scales, 0, "int8", layer).tolist()
        for name, layer in layers.items()
    }
    assert found["Conv"] == [-2, -1, 1, 2]  # a quarter of 1 is 1: gemmlowp's two roundings
    assert found["Gemm"] == found["MatMul"] == [-2, -1, 0, 2]


def test_built_in_adds_round_their_operands_once():
    a, b = grid(0.15342818200588226, 0), grid(0.5051593780517578, 0)
    y = grid(0.3508257567882538, -114)
    machine = get_arithmetic("litert-x64").at("Add", "")
    assert add_quantized([20], [79], a, b, y, machine).tolist() == [8]
    assert add_quantized([20], [79], a, b, y, "gemmlowp").tolist() == [9]
    twice = replace(machine, adding=replace(machine.adding, operands=None))
    assert add_quantized([20], [79], a, b, y, twice).tolist() == [9]


@pytest.mark.parametrize(
    ("sums", "level"), [(-64, 29), (-2, 29), (-1, 30), (0, 30), (126, 30), (127, 31)]
)
def test_a_biased_mean_moves_its_zero_point_by_itself(sums, level):
    # 5 · ½ = 2.5 is rounded to 3 by itself, where the raw sum of 64 zero points, 320 / 128, is
    # rounded with the rest
    x, y = grid(0.25, 5), grid(0.5, 30)
    machine = get_arithmetic("litert-x64").at("GlobalAveragePool", "")
    assert machine.mean is Averaging.BIASED
    mean = averager(machine.mean, x, y, np.array(64), machine)
    halved = (sums + 320 + 1) // 2  # 1 / 128 is 2³⁰ · 2⁻³¹ · 2⁻⁶: half up by 31 bits, then by 6
    expected = (halved + 32) // 64 - 3 + 30
    assert mean(np.array([sums])).tolist() == [expected]
    assert expected == level


@pytest.mark.parametrize("name", ["neon", "litert-x64", "tflite-single"])
def test_tflite_prepares_multipliers_alike_for_all_kernels(name):
    machine = get_arithmetic(name)
    assert machine.scaling.precision is Precision.DOUBLE
    assert machine.multiplying is not None
    assert machine.multiplying.precision is Precision.SINGLE
    leaky = machine.at("LeakyRelu", "").rescaling
    assert leaky is not None
    assert leaky.precision is Precision.SINGLE
    for layer in ("Gemm", "MatMul"):
        assert machine.at(layer, "").scaling.precision is Precision.PRODUCT
        assert machine.at(layer, "").scaling.stages == machine.scaling.stages
