"""Softmax of levels: ONNX Runtime's table by the engine, TFLite's fixed point by scalars,
floats; any axis.
"""

import math
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from qbench.interpreter import Program, counting_means
from qbench.numerics import QParams, QType, get_arithmetic, list_arithmetics, softmax_of_codes

RANDOM = np.random.default_rng(11)


def model_of(
    shape: tuple[int, ...], dtype: str, sx: float, sy: float, zy: int, attributes: str
) -> onnx.ModelProto:
    sizes = ", ".join(map(str, shape))
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> g ({dtype}[{sizes}] q) => '
        f"({dtype}[{sizes}] y)"
        f"<float sx = {{{sx:.9g}}}, {dtype} zx = {{3}}, float sy = {{{sy:.9g}}}, {dtype} zy = "
        f"{{{zy}}}>"
        f"{{ y = com.microsoft.QLinearSoftmax<{attributes}>(q, sx, zx, sy, zy) }}"
    )


def counted(proto: onnx.ModelProto, machine: str, levels: Any) -> Any:
    return Program(ir.from_proto(proto), get_arithmetic(machine)).run({"q": levels})["y"]


def engine(proto: onnx.ModelProto, levels: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"q": levels})[0]


def levels_of(shape: tuple[int, ...], dtype: str) -> Any:
    ends = np.iinfo(dtype)
    wild = RANDOM.integers(ends.min, ends.max + 1, shape)
    calm = np.clip(RANDOM.normal(ends.max // 2, 9, shape), ends.min, ends.max).astype(np.int64)
    return np.where(RANDOM.random(shape[:1] + (1,) * (len(shape) - 1)) < 0.5, wild, calm).astype(
        dtype
    )


@pytest.mark.slow_but(5)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("length", [1, 2, 10, 197, 1001, 4099])
def test_tables_are_onnx_runtimes(dtype: str, length: int) -> None:
    levels = levels_of((max(8, 6000 // length), length), dtype)
    for scale in (0.004, 0.03, 0.2, 1.5):
        for sy, zy in ((1 / 255, 0), (1 / 256, int(np.iinfo(dtype).min)), (0.0078125, 3)):
            proto = model_of(levels.shape, dtype, scale, sy, zy, "axis = -1, opset = 13")
            np.testing.assert_array_equal(counted(proto, "ort-x64", levels), engine(proto, levels))


@pytest.mark.parametrize(
    "attributes",
    [f"axis = {axis}, opset = 13" for axis in (-3, 0, 1, 2)]
    + ["axis = 1, opset = 12", "opset = 12"],
)
def test_any_axis_and_the_rows_of_old(attributes: str) -> None:
    levels = levels_of((6, 5, 7), "uint8")
    proto = model_of(levels.shape, "uint8", 0.05, 1 / 255, 0, attributes)
    np.testing.assert_array_equal(counted(proto, "ort-x64-avx2", levels), engine(proto, levels))


@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 7), ("int8", 7), ("int8", 0), ("int8", -5)])
def test_a_row_of_one_level_overflows_as_the_engine_does(dtype: str, zero: int) -> None:
    proto = model_of((3, 1), dtype, 0.1, 1 / 255, zero, "axis = -1, opset = 13")
    levels = np.array([[-3], [0], [5]]).astype(dtype)
    np.testing.assert_array_equal(counted(proto, "ort-x64", levels), engine(proto, levels))


# TFLite's fixed point, number by number: the sign-dependent nudge and the truncating quotient of
# gemmlowp's own words.


def high(a: int, b: int) -> int:
    product = a * b
    nudge = (1 << 30) if product >= 0 else 1 - (1 << 30)
    total = product + nudge
    return min(abs(total) // (1 << 31) * (1 if total >= 0 else -1), (1 << 31) - 1)


def rounded_shift(value: int, bits: int) -> int:
    low = value & ((1 << bits) - 1)
    return (value >> bits) + (low > (((1 << bits) - 1) >> 1) + (value < 0))


def scalar_exp(a: int) -> int:
    if a == 0:
        return (1 << 31) - 1
    quarter = 1 << 24
    part = (a & (quarter - 1)) - quarter
    x = (part << 5) + (1 << 28)
    square = high(x, x)
    fourth = rounded_shift(high(square, square), 2)
    tail = rounded_shift(high(fourth + high(square, x), 715827883) + square, 1)
    result = 1895147668 + high(1895147668, x + tail)
    multipliers = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
    for place, multiplier in enumerate(multipliers, start=24):
        if (part - a) & (1 << place):
            result = high(result, multiplier)
    return result


def scalar_softmax(row: list[int], scale: float, lowest_level: int) -> list[int]:
    fraction, exponent = math.frexp(min(scale * (1 << 26), 2.0**31 - 1))
    factor = math.floor(fraction * (1 << 31) + 0.5)
    least = -math.floor(31.0 * (1 << 26) / (1 << exponent))
    differences = [level - max(row) for level in row]
    powers = [scalar_exp(high(d << exponent, factor)) if d >= least else None for d in differences]
    total = sum(rounded_shift(power, 12) for power in powers if power is not None)
    headroom = 32 - total.bit_length()
    rest = (total << headroom) - (1 << 31)
    half = (rest + (1 << 31)) // 2
    x = 1515870810 + high(half, -1010580540)
    for _ in range(3):
        x += high(x, (1 << 29) - high(half, x)) << 2
    inverse = min(x << 1, (1 << 31) - 1)
    shift = 12 - headroom + 31 - 8
    shares = [0 if p is None else rounded_shift(high(inverse, p), shift) for p in powers]
    return [min(max(share + lowest_level, lowest_level), lowest_level + 255) for share in shares]


@settings(max_examples=60)
@given(
    row=st.lists(st.integers(-128, 127), min_size=1, max_size=40),
    scale=st.floats(2.0**-20, 40.0),
    signed=st.booleans(),
)
def test_fixed_point_is_tflites_to_the_bit(row: list[int], scale: float, signed: bool) -> None:
    kind, lowest = (QType.parse("int8"), -128) if signed else (QType.parse("uint8"), 0)
    levels = np.array([row]) - (0 if signed else -128)
    x, y = QParams(scale, 0, kind), QParams(1 / 256, lowest, kind)
    found, overflowed = softmax_of_codes(x, y, len(row), get_arithmetic("gemmlowp"))(levels)
    assert found[0].tolist() == scalar_softmax(levels[0].tolist(), float(np.float32(scale)), lowest)
    assert overflowed == 0


def test_a_sum_beyond_twelve_bits_saturates_and_is_counted() -> None:
    levels = np.zeros((2, 5000), np.int8)
    levels[1, 1:] = -128
    proto = model_of((2, 5000), "int8", 1.0, 1 / 256, -128, "axis = -1, opset = 13")
    program = Program(ir.from_proto(proto), get_arithmetic("gemmlowp"), means=counting_means())
    found = program.run({"q": levels})["y"]
    assert sum(one.overflowed for one in program.counters.values()) == 1
    assert set(found[0]) == {-128}
    assert found[1, 0] == 127


@pytest.mark.parametrize("machine", ["gemmlowp", "ideal", "fbgemm", "ort-x64"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_other_grids_are_dequantized(machine: str, axis: int) -> None:
    """A grid that no engine's softmax has: signed and unsigned, or of other steps."""
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (int8[4, 5, 6] q) => (uint8[4, 5, 6] y)'
        "<float sx = {0.07}, int8 zx = {-4}, float sy = {0.00390625}, uint8 zy = {0}>"
        f"{{ x = DequantizeLinear(q, sx, zx) s = Softmax<axis = {axis}>(x) "
        f"y = QuantizeLinear(s, sy, zy) }}"
    )
    levels = levels_of((4, 5, 6), "int8")
    lowered = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21, "qbench.integer" : 1]> g (int8[4, 5, 6] q) => '
        "(uint8[4, 5, 6] y)"
        "<float sx = {0.07}, int8 zx = {-4}, float sy = {0.00390625}, uint8 zy = {0}>"
        f"{{ y = qbench.integer.QLinearSoftmax<axis = {axis}, opset = 13>(q, sx, zx, sy, zy) }}"
    )
    expected = ReferenceEvaluator(proto).run(None, {"q": levels})[0]
    np.testing.assert_array_equal(counted(lowered, machine, levels), expected)


@pytest.mark.parametrize("machine", list_arithmetics())
def test_no_machine_is_far_from_the_truth(machine: str) -> None:
    levels, scale = (
        levels_of((50, 64), "int8"),
        1 / 16 if machine in ("pow2-shift", "tqt") else 0.06,
    )
    proto = model_of(levels.shape, "int8", scale, 1 / 256, -128, "axis = -1, opset = 13")
    real = np.exp(scale * (levels.astype(np.float64) - levels.max(1, keepdims=True)))
    exact = real / real.sum(1, keepdims=True) * 256 - 128
    assert np.abs(counted(proto, machine, levels) - np.clip(exact, -128, 127)).max() <= 1.01


def test_nothing_is_of_no_shares() -> None:
    proto = model_of((0, 4), "uint8", 0.1, 1 / 255, 0, "axis = -1, opset = 13")
    assert counted(proto, "ort-x64", np.zeros((0, 4), np.uint8)).shape == (0, 4)
