"""Machines against the numbers that were measured on their originals, scalar oracles,
and ONNX Runtime itself.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.errors import InputError
from qbench.numerics import (
    QParams,
    QType,
    Rounding,
    add_quantized,
    get_arithmetic,
    list_arithmetics,
    load_arithmetic,
    quantize,
    requantize,
)
from qbench.numerics.arithmetic import MultiplierForm, Scaling, Stage, ZeroPoint
from qbench.numerics.requantization import scaler
from qbench.numerics.rounding import round_reals, shift_right

INT8, UINT8, INT32 = (QType.parse(name) for name in ("int8", "uint8", "int32"))
ALL = np.arange(-128, 128)

MACHINES = ("gemmlowp", "tflite-single", "neon", "tvm-tonearest", "ort-x64", "glow-cpu")
WORKED = [  # acc, M, and what each of MACHINES made of it when its own code was run
    (1, 0.5, (1, 1, 1, 1, 0, 1)),
    (-1, 0.5, (0, 0, 0, -1, 0, 0)),
    (-3, 0.5, (-1, -1, -1, -2, -2, -1)),
    (5, 0.5, (3, 3, 3, 3, 2, 3)),
    (1, 0.25, (1, 0, 1, 0, 0, 0)),
    (-2, 0.25, (-1, 0, 0, -1, 0, 0)),
    (-3, 0.25, (-1, -1, 0, -1, -1, -1)),
    (5, 0.25, (2, 1, 2, 1, 1, 1)),
    (-6, 0.25, (-2, -1, -1, -2, -2, -1)),
    (-10, 0.25, (-3, -2, -2, -3, -2, -2)),
    (3, 0.125, (1, 0, 1, 0, 0, 0)),
    (20, 0.125, (3, 3, 3, 3, 2, 3)),
    (-6, 0.75, (-4, -4, -4, -5, -4, -4)),
    (5, 0.1, (1, 0, 1, 0, 0, 1)),
    (-15, 0.1, (-2, -1, -1, -1, -2, -2)),
    (5, 0.3, (2, 2, 2, 2, 2, 1)),
    (50, 0.41, (21, 20, 21, 20, 20, 21)),
    (-50, 0.41, (-21, -20, -20, -20, -20, -21)),
    (500, 0.001, (1, 1, 1, 1, 0, 0)),
    (16908289, 2.0**-18, (65, 65, 65, 65, 64, 65)),
    (-16908289, 2.0**-18, (-65, -65, -64, -65, -64, -65)),
    (2**24, 0.01, (167772, 167772, 167772, 167772, 167772, 36864)),
    (-11545342, 1.0177264378190185e-05, (-118, -117, -117, -117, -118, -118)),
]


@pytest.mark.parametrize(("acc", "multiplier", "expected"), WORKED)
def test_worked_examples(acc: int, multiplier: float, expected: tuple[int, ...]) -> None:
    found = tuple(
        int(requantize([acc], (multiplier, 1.0, 1.0), 0, INT32, name)[0]) for name in MACHINES
    )
    assert found == expected


def test_names_and_files() -> None:
    assert set(list_arithmetics()) >= {
        "ideal", "ort-x64", "ort-x64-avx2", "gemmlowp", "tflite-single", "neon", "xnnpack",
        "fbgemm", "fbgemm-depthwise", "qnnpack", "onednn", "tvm-upward", "tvm-tonearest",
        "tvm-relay", "glow-interpreter", "glow-cpu", "nvdla", "pow2-shift", "tqt",
    }  # fmt: skip
    for name in list_arithmetics():
        assert get_arithmetic(name).name == name
        assert get_arithmetic(name).source
    with pytest.raises(InputError, match="Did you mean 'gemmlowp'"):
        get_arithmetic("gemlowp")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('name = "x"\nsource = "y"\nscaling = { form = "fixd" }', "fixd"),
        (
            'name = "x"\nsource = "y"\nscaling = { form = "fixed" }',
            "'bits' is of fixed multipliers",
        ),
        (
            'name = "x"\nsource = "y"\nscaling = { form = "power", zero_point = "before" }',
            "the multiplier is no float",
        ),
        ('name = "x"\nsource = "y"\nscalling = { form = "exact" }', "Did you mean 'scaling'"),
        (
            'name = "x"\nsource = "y"\nscaling = { form = "exact", stages = [] }',
            "every stage but the last",
        ),
    ],
)
def test_a_machine_that_makes_no_sense_is_one_sentence(text: str, words: str, tmp_path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        load_arithmetic(path)


def test_a_machine_of_ones_own(tmp_path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "mine"\nsource = "here"\n'
        'scaling = { form = "exact", stages = [{ rounding = "floor" }] }'
    )
    assert requantize([-3, 3], (0.5, 1.0, 1.0), 0, INT8, load_arithmetic(path)).tolist() == [-2, 1]


def test_a_multiplier_beyond_every_shift_is_one_sentence() -> None:
    with pytest.raises(InputError, match="shifts within 64 bits"):
        requantize([1], (2.0**70, 1.0, 1.0), 0, INT8, "tflite-single")


@pytest.mark.parametrize(
    "machine", ["gemmlowp", "tflite-single", "litert-x64", "neon", "tvm-upward"]
)
@pytest.mark.parametrize("multiplier", [2.0**-32 - 2.0**-60, 2.0**-33, 1e-10, 2.0**-70, 1e-30])
def test_a_multiplier_below_every_shift_is_zero_as_in_tflite(
    machine: str, multiplier: float
) -> None:
    """QuantizeMultiplier (kernels/internal/quantization_util.cc):
    a shift below −31 makes the multiplier 0.
    """
    ends = [2**31 - 1, -(2**31), 1, -1]
    assert requantize(ends, (multiplier, 1.0, 1.0), 3, INT8, machine).tolist() == [3, 3, 3, 3]


def test_a_multiplier_below_every_shift_is_refused_where_a_stage_rounds_down() -> None:
    scaling = Scaling(form=MultiplierForm.FIXED, bits=31, stages=(Stage(Rounding.FLOOR),))
    floor = replace(get_arithmetic("gemmlowp"), overrides=(), scaling=scaling)
    with pytest.raises(InputError, match="shifts within 64 bits"):
        requantize([-1], (2.0**-70, 1.0, 1.0), 0, INT8, floor)


def test_shifting_machines_take_powers_of_two_only() -> None:
    assert requantize([5, -5], (0.5, 1.0, 1.0), 0, INT8, "pow2-shift").tolist() == [3, -2]
    assert requantize([5, -5], (0.5, 1.0, 1.0), 0, INT8, "tqt").tolist() == [2, -2]
    with pytest.raises(InputError, match="a power of two"):
        requantize([5], (0.3, 1.0, 1.0), 0, INT8, "pow2-shift")


def oracle_round(value: Fraction, rounding: Rounding) -> int:
    low = value.numerator // value.denominator
    ties = {
        Rounding.FLOOR: low,
        Rounding.TRUNCATE: low if value >= 0 or low == value else low + 1,
        Rounding.HALF_UP: (value + Fraction(1, 2)).__floor__(),
        Rounding.HALF_AWAY: (abs(value) + Fraction(1, 2)).__floor__() * (1 if value >= 0 else -1),
        Rounding.HALF_EVEN: round(value),
    }
    return ties[rounding]


@given(st.integers(-(2**60), 2**60), st.integers(0, 61), st.sampled_from(Rounding))
def test_shifting_is_dividing_and_rounding(value: int, shift: int, rounding: Rounding) -> None:
    found = shift_right(np.array([value], np.int64), shift, rounding)
    assert int(found[0]) == oracle_round(Fraction(value, 1 << shift), rounding)


@given(st.floats(-1e6, 1e6, width=32), st.sampled_from(Rounding))
def test_rounding_reals(value: float, rounding: Rounding) -> None:
    assert int(round_reals(np.array([value], np.float32), rounding)[0]) == oracle_round(
        Fraction(value), rounding
    )


@given(st.integers(-(2**31), 2**31 - 1), st.floats(2.0**-30, 1.0, width=32), st.integers(-128, 127))
@settings(max_examples=300)
def test_ideal_is_the_rational_rounded_once(acc: int, multiplier: float, zero_point: int) -> None:
    expected = max(-128, min(127, round(acc * Fraction(multiplier)) + zero_point))
    assert int(requantize([acc], (multiplier, 1.0, 1.0), zero_point, INT8, "ideal")[0]) == expected


WHOLE_RATIOS = ((1.0, 2.0), (3.0, 4.0), (1.0, 3.0), (5.0, 1.0), (7.0, 6.0))


@given(
    st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(-12, 12), min_size=1, max_size=8),
    st.sampled_from(WHOLE_RATIOS)
    | st.tuples(st.floats(2.0**-30, 2.0), st.floats(2.0**-6, 2.0))
    | st.tuples(st.floats(2.0**-30, 2.0, width=32), st.just(1.0)),
    st.integers(-128, 127),
    st.sampled_from(Rounding),
    st.sampled_from((ZeroPoint.BEFORE, ZeroPoint.AFTER)),
)
@settings(max_examples=300)
def test_exact_codes_are_rationals_rounded_once(sums, ratio, zero_point, rounding, place) -> None:
    """Also at ties, and just beside them, of one multiplier and of one for each channel."""
    (x, y), offset = ratio, zero_point if place is ZeroPoint.BEFORE else 0
    scaling = Scaling(form=MultiplierForm.EXACT, stages=(Stage(rounding),), zero_point=place)
    weights = np.array([1.0, 0.5])
    found = scaler((x, weights, y), scaling, zero_point)(np.array([sums, sums]).T)
    for row, one in zip(found, sums, strict=True):
        reals = [one * Fraction(x) * Fraction(w) / Fraction(y) + offset for w in weights.tolist()]
        kept = [max(-(2**40), min(2**40, oracle_round(real, rounding))) for real in reals]
        assert (row - (zero_point - offset)).tolist() == kept
    alone = scaler((x, 1.0, y), scaling, zero_point)(np.array(sums))
    assert alone.tolist() == found[:, 0].tolist()


@given(st.integers(-(2**31), 2**31 - 1), st.floats(2.0**-20, 1 - 2.0**-10, width=32))
@settings(max_examples=300)
def test_gemmlowp_rounds_twice(acc: int, multiplier: float) -> None:
    fraction, exponent = np.frexp(np.float64(multiplier))
    factor = oracle_round(Fraction(float(fraction)) * 2**31, Rounding.HALF_AWAY)
    if factor == 2**31:
        factor, exponent = factor // 2, exponent + 1
    high = oracle_round(Fraction(acc * factor, 2**31), Rounding.HALF_UP)
    expected = oracle_round(Fraction(high, 2 ** int(-exponent)), Rounding.HALF_AWAY)
    assert int(requantize([acc], (multiplier, 1.0, 1.0), 0, INT32, "gemmlowp")[0]) == expected


def test_per_channel_is_channel_by_channel() -> None:
    acc = np.random.default_rng(0).integers(-40000, 40000, (3, 4, 5))
    weight = np.array([0.01, 0.02, 0.03, 0.04], np.float32)
    bias = np.array([5, -7, 11, 0])
    for name in list_arithmetics():
        if name in {"pow2-shift", "tqt"}:
            continue
        whole = requantize(
            acc, (0.02, weight, 0.05), 3, INT8, name, bias=bias, axis=1, limits=(-100, 100)
        )
        for channel in range(4):
            one = requantize(
                acc[:, channel],
                (0.02, weight[channel], 0.05),
                3,
                INT8,
                name,
                bias=bias[channel],
                limits=(-100, 100),
            )
            np.testing.assert_array_equal(whole[:, channel], one)


def grid(scale: float, zero_point: int, qtype: QType = INT8) -> QParams:
    return QParams(scale, zero_point, qtype)


def pairs(a: QParams, b: QParams, out: QParams, machine: str) -> np.ndarray:
    levels = np.arange(a.qmin, a.qmax + 1)
    return add_quantized(levels[:, None], levels[None, :], a, b, out, machine).astype(int)


@pytest.mark.parametrize(
    ("a", "b", "out", "differing"),
    [
        ((0.03, -12), (0.02, 7), (0.05, -3), 15706),
        ((0.25, 0), (0.25, 0), (0.5, 0), 32895),
        ((0.1, 0), (0.1, 0), (0.2, 0), 32691),
        ((0.5, 0), (0.5, 0), (0.5, 0), 0),
    ],
)
def test_glows_two_backends_differ_as_they_were_measured_to(a, b, out, differing: int) -> None:
    grids = (grid(*a), grid(*b), grid(*out))
    gap = pairs(*grids, "glow-interpreter") - pairs(*grids, "glow-cpu")
    assert np.count_nonzero(gap) == differing
    assert np.abs(gap).max() <= 1


def test_one_rounding_or_two_in_an_add_of_equal_scales() -> None:
    grids = (grid(0.05, 0), grid(0.05, 0), grid(0.1, 0))
    assert np.count_nonzero(pairs(*grids, "gemmlowp") != pairs(*grids, "tflite-single")) == 16512


@pytest.mark.slow
@given(
    st.tuples(*[st.floats(2.0**-10, 0.1875, width=32)] * 3),
    st.tuples(*[st.integers(-128, 127)] * 3),
    st.integers(-128, 127),
    st.integers(-128, 127),
)
@settings(max_examples=200)
def test_an_ideal_sum_is_the_rational_rounded_once(scales, points, left: int, right: int) -> None:
    a, b, out = (grid(s, z) for s, z in zip(scales, points, strict=True))
    real = Fraction(float(a.scale)) * (left - points[0]) + Fraction(float(b.scale)) * (
        right - points[1]
    )
    expected = max(-128, min(127, round(real / Fraction(float(out.scale))) + points[2]))
    assert int(add_quantized(left, right, a, b, out, "ideal")) == expected
    for name in ("gemmlowp", "ort-x64", "xnnpack", "qnnpack", "fbgemm", "tvm-upward"):
        found = int(add_quantized(left, right, a, b, out, name))
        assert abs(found - expected) <= 1, name


ADD = """
<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
agraph (uint8[65536] a, uint8[65536] b) => (uint8[65536] y)
<float sa = {%s}, uint8 za = {%d}, float sb = {%s}, uint8 zb = {%d},
 float sy = {%s}, uint8 zy = {%d}>
{ y = com.microsoft.QLinearAdd(a, sa, za, b, sb, zb, sy, zy) }
"""


@pytest.mark.parametrize("seed", range(8))
def test_onnx_runtime_adds_as_its_machine_says(seed: int) -> None:
    import onnxruntime

    random = np.random.default_rng(seed)
    tidy = seed % 2  # powers of two and odd zero points make ties
    scales = 2.0 ** random.integers(-6, 0, 3) if tidy else random.uniform(0.005, 0.2, 3)
    points = random.integers(0, 128, 3) * 2 + 1
    a, b, out = (
        grid(float(np.float32(s)), int(z), UINT8) for s, z in zip(scales, points, strict=True)
    )
    parts = [part for g in (a, b, out) for part in (repr(float(g.scale)), int(g.zero_point))]
    model = onnx.parser.parse_model(ADD % tuple(parts))
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    left, right = (
        levels.reshape(-1).astype(np.uint8)
        for levels in np.meshgrid(np.arange(256), np.arange(256))
    )
    (theirs,) = session.run(None, {"a": left, "b": right})
    np.testing.assert_array_equal(add_quantized(left, right, a, b, out, "ort-x64"), theirs)


CONV = """
<ir_version: 8, opset_import: ["" : 17]>
agraph (uint8[1, 1, 64, 64] x) => (uint8[1, 1, 64, 64] y)
<float sx = {%s}, uint8 zx = {0}, uint8[1,1,1,1] w = {%d}, float sw = {%s}, uint8 zw = {%d},
 float sy = {%s}, uint8 zy = {%d}>
{ y = QLinearConv(x, sx, zx, w, sw, zw, sy, zy) }
"""


@pytest.mark.parametrize("seed", range(8))
def test_onnx_runtime_requantizes_as_its_machine_says(seed: int) -> None:
    import onnxruntime

    random = np.random.default_rng(seed)
    sx, sw, sy = 2.0 ** random.integers(-5, 0, 3) if seed % 2 else random.uniform(0.005, 0.2, 3)
    sx, sw, sy = (float(np.float32(s)) for s in (sx, sw, sy))
    weight, zw, zy = (int(v) for v in random.integers(0, 256, 3))
    model = onnx.parser.parse_model(CONV % (repr(sx), weight, repr(sw), zw, repr(sy), zy))
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    x = random.integers(0, 256, (1, 1, 64, 64)).astype(np.uint8)
    (theirs,) = session.run(None, {"x": x})
    ours = requantize(x.astype(np.int64) * (weight - zw), (sx, sw, sy), zy, UINT8, "ort-x64")
    np.testing.assert_array_equal(ours, theirs)


def test_where_the_zero_point_enters_a_quantization() -> None:
    """s = 1, z = 1: half to even behind the zero point or before it, half away."""
    one = QParams(1.0, 1, INT8)
    x = [-0.5, 0.5, -1.5, -2.5]
    assert quantize(x, one, "gemmlowp").tolist() == [0, 2, -1, -2]
    assert quantize(x, one, "ort-x64").tolist() == [1, 1, -1, -1]
    assert quantize(x, one, "glow-cpu").tolist() == [0, 2, 0, -2]
    with pytest.raises(InputError, match="abacus"):
        quantize(x, one, "abacus")


def test_a_reciprocal_is_no_division() -> None:
    scale = QParams(np.float32(0.00214854861), 0, UINT8)
    x = np.float32(0.273939937)
    assert int(quantize(x, scale, "fbgemm")) == 128
    assert int(quantize(x, scale)) == 127


@pytest.mark.slow
@given(st.floats(-10, 10, width=32), st.floats(2.0**-7, 1, width=32), st.integers(-128, 127))
def test_every_machine_quantizes_to_a_neighbour(x: float, scale: float, zero_point: int) -> None:
    qparams = QParams(scale, zero_point, INT8)
    plain = int(quantize(x, qparams))
    for name in list_arithmetics():
        assert abs(int(quantize(x, qparams, name)) - plain) <= 1
