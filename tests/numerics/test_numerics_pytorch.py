"""What PyTorch's engines do and others do not, against scalars: real biases,
chains of scales, one rounding.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.numerics import (
    Accumulator,
    Arithmetic,
    Averaging,
    PairsIn,
    QParams,
    QType,
    Quantizing,
    SumShape,
    add_quantized,
    averager,
    dequantize,
    get_arithmetic,
    quantize,
    requantize,
)
from qbench.numerics.arithmetic import Inverted, MultiplierForm, Scaling, ZeroPoint

U8 = QType.parse("uint8")
f32 = np.float32
SCALES = st.floats(0.001, 0.1).map(f32)


def rounded(value: Fraction) -> np.float32:
    """The float32 next to a rational, by way of the two around its float64."""
    near = f32(float(value))
    others = [np.nextafter(near, f32(-np.inf)), near, np.nextafter(near, f32(np.inf))]
    best = min(abs(Fraction(float(one)) - value) for one in others)
    ties = [one for one in others if abs(Fraction(float(one)) - value) == best]
    return min(ties, key=lambda one: int(one.view(np.int32)) & 1)


def fma(a: np.float32, b: np.float32, c: np.float32) -> np.float32:
    return rounded(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)))


def level(value: np.float32, low: int = 0, high: int = 255) -> int:
    return int(min(max(np.rint(value), low), high))


@settings(max_examples=60)
@given(
    st.integers(-100_000, 100_000),
    st.integers(-5000, 5000),
    SCALES,
    SCALES,
    SCALES,
    st.integers(0, 255),
)
def test_a_bias_that_stays_a_float(acc: int, bias: int, x: f32, w: f32, y: f32, zero: int) -> None:
    scale, multiplier = f32(x * w), f32(f32(x * w) / y)
    real = f32(bias * float(scale))
    ends = (-(1 << 15), (1 << 15) - 1)
    one = level(f32(fma(real, f32(f32(1) / scale), f32(acc)) * multiplier), *ends)
    ours = requantize([acc], (x, w, y), zero, U8, "fbgemm", bias=bias)
    assert int(ours[0]) == min(max(one + zero, 0), 255)
    many = level(f32(f32(f32(acc) + f32(real / scale)) * multiplier), *ends)
    ours = requantize([[acc]], (x, np.array([w]), y), zero, U8, "fbgemm", bias=np.array([bias]))
    assert int(ours[0, 0]) == min(max(many + zero, 0), 255)


@settings(max_examples=60)
@given(
    st.integers(-100_000, 100_000),
    st.integers(-5000, 5000),
    SCALES,
    SCALES,
    SCALES,
    st.integers(0, 255),
)
def test_a_chain_of_scales(acc: int, bias: int, x: f32, w: f32, y: f32, zero: int) -> None:
    def twice(scale: f32) -> f32:
        return f32(f32(1) / f32(f32(1) / scale))

    real = f32(bias * float(f32(x * w)))
    machine = get_arithmetic("onednn")
    for operator, weight in (("Conv", w), ("MatMul", twice(w))):
        value = f32(f32(f32(f32(f32(acc) * twice(x)) * weight) + real) * f32(f32(1) / y))
        ours = requantize([acc], (x, w, y), zero, U8, machine.at(operator, ""), bias=bias)
        assert int(ours[0]) == level(f32(value + f32(zero)))


@settings(max_examples=60)
@given(st.integers(-100_000, 100_000), SCALES, SCALES, SCALES)
def test_the_reciprocal_of_the_output(acc: int, x: f32, w: f32, y: f32) -> None:
    multiplier = f32(f32(x * w) * f32(f32(1) / y))
    assert int(requantize([acc], (x, w, y), 7, U8, "qnnpack")[0]) == level(
        f32(np.rint(f32(f32(acc) * multiplier)) + 7)
    )


@settings(max_examples=60)
@given(st.integers(-300, 300), SCALES, st.integers(0, 255))
def test_quantizing_fuses_where_there_is_one_scale(half: int, scale: f32, zero: int) -> None:
    x, inverse = f32((half + 0.5) * float(scale)), f32(f32(1) / scale)
    fused = level(fma(x, inverse, f32(zero)))
    separate = level(f32(f32(x * inverse) + f32(zero)))
    assert int(quantize([x], QParams(scale, zero, U8), "fbgemm")[0]) == fused
    channels = QParams(np.array([scale]), np.array([zero]), U8, axis=0)
    assert int(quantize([x], channels, "fbgemm")[0]) == separate


@settings(max_examples=60)
@given(st.integers(0, 255), SCALES, st.integers(0, 255))
def test_functions_dequantize_by_one_step(q: int, scale: f32, zero: int) -> None:
    grid, machine = QParams(scale, zero, U8), get_arithmetic("fbgemm")
    fused = fma(f32(q), scale, f32(-f32(scale * f32(zero))))
    assert dequantize([q], grid, machine.at("LeakyRelu", ""))[0] == fused
    assert dequantize([q], grid, machine)[0] == f32(f32(q - zero) * scale)
    other = QParams(f32(0.5), 0, U8)
    ours = int(add_quantized(q, 0, grid, other, QParams(f32(0.25), 3, U8), machine))
    assert ours == min(max(level(f32(fused * f32(4)), -(1 << 20), 1 << 20) + 3, 0), 255)


def test_means_within_a_grid_do_not_look_at_its_scale() -> None:
    grid, sums = QParams(f32(0.037), 9, U8), np.arange(-600, 600)
    machine = get_arithmetic("fbgemm")
    ours = averager(Averaging.WITHIN, grid, grid, np.asarray(6), machine)(sums)
    np.testing.assert_array_equal(ours, np.rint(sums.astype(f32) * f32(1 / 6)).astype(int) + 9)
    wider = QParams(f32(0.074), 9, U8)
    scaled = averager(Averaging.SCALED, grid, wider, np.asarray(6), machine)(sums)
    np.testing.assert_array_equal(
        averager(Averaging.WITHIN, grid, wider, np.asarray(6), machine)(sums), scaled
    )


def test_pairs_are_of_some_sums() -> None:
    shapes = [SumShape(), SumShape(depthwise=True), SumShape(depthwise=True, fast_depthwise=True)]
    found = {
        where: [Accumulator(pair_bits=16, pairs_in=where).pairs(one) for one in shapes]
        for where in PairsIn
    }
    assert found[PairsIn.DENSE] == [16, 0, 0]
    assert found[PairsIn.DEPTHWISE] == [0, 16, 16]
    assert found[PairsIn.FAST_DEPTHWISE] == [0, 0, 16]
    assert found[PairsIn.ALL] == [16, 16, 16]


@pytest.mark.parametrize(
    "settings_",
    [
        {"form": MultiplierForm.FIXED, "bits": 31, "real_bias": True},
        {"form": MultiplierForm.FLOAT64, "real_bias": True},
        {"form": MultiplierForm.FLOAT32, "inverted": Inverted.INPUT},
    ],
)
def test_settings_that_no_machine_has_together(settings_: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"float32|chains"):
        Scaling(**settings_)  # type: ignore[arg-type]


def test_an_override_quantizes_otherwise() -> None:
    before = Quantizing(zero_point=ZeroPoint.BEFORE)
    machine: Arithmetic = replace(get_arithmetic("fbgemm"), quantizing=before)
    assert machine.at("Sigmoid", "").quantizing.zero_point is ZeroPoint.AFTER
    assert machine.at("Conv", "").quantizing == before
