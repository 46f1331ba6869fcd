"""The vector kernels against scalar specifications in exact arithmetic, and against engines."""

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from qbench.errors import InputError
from qbench.numerics import QParams, QType, choose_qparams, dequantize, fake_quantize, quantize

NAMES = [
    "int8",
    "uint8",
    "int4",
    "uint4",
    "int2",
    "uint2",
    "int16",
    "uint16",
    "int6",
    "uint12",
    "int32",
]
FAMILIES = ["asymmetric", "symmetric", "symmetric_unsigned"]
ends = st.floats(-(2.0**100), 2.0**100, width=32).filter(lambda v: v == 0 or abs(v) > 1e-25)
qtypes = st.sampled_from(NAMES).map(QType.parse)


def oracle_span(low: float, high: float, q: QType, family: str, narrow: bool) -> Fraction:
    """The smallest covering scale, exactly."""
    lo, hi = min(Fraction(low), Fraction(0)), max(Fraction(high), Fraction(0))
    qmin, qmax = q.qmin + narrow, q.qmax
    if family == "asymmetric" or (family == "symmetric_unsigned" and lo == 0):
        return (hi - lo) / (qmax - qmin)
    return max(lo / (qmin - q.middle), hi / (qmax - q.middle))


def oracle_quantize(x: float, scale: float, point: int, qmin: int, qmax: int) -> int:
    ratio = float(np.float32(np.float32(x) / np.float32(scale)))
    return max(qmin, min(qmax, round(Fraction(ratio)) + point))


@given(low=ends, high=ends, qtype=qtypes, family=st.sampled_from(FAMILIES), narrow=st.booleans())
@settings(max_examples=300)
def test_the_scale_is_the_smallest_that_covers(
    low: float, high: float, qtype: QType, family: Any, narrow: bool
) -> None:
    low, high = min(low, high), max(low, high)
    chosen = choose_qparams(low, high, qtype, symmetry=family, narrow_range=narrow)
    span = oracle_span(low, high, qtype, family, narrow)
    if span == 0:
        assert float(chosen.scale) == 1.0
    else:
        assert abs(Fraction(float(chosen.scale)) / span - 1) <= Fraction(1, 2**23)
    point = int(chosen.zero_point)
    assert qtype.qmin + narrow <= point <= qtype.qmax
    if family == "symmetric":
        assert point == qtype.middle
    if family == "symmetric_unsigned":
        assert point == (qtype.qmin + narrow if low >= 0 else qtype.middle)
    assert float(fake_quantize(0.0, chosen)) == 0.0


@given(low=ends, high=ends, qtype=qtypes, family=st.sampled_from(FAMILIES))
@settings(max_examples=300)
def test_a_power_of_two_scale_is_the_next_one_up(
    low: float, high: float, qtype: QType, family: Any
) -> None:
    low, high = min(low, high), max(low, high)
    chosen = choose_qparams(low, high, qtype, symmetry=family, scale_kind="pow2")
    scale, span = Fraction(float(chosen.scale)), oracle_span(low, high, qtype, family, narrow=False)
    assert np.frexp(float(scale))[0] == 0.5
    if span == 0:
        assert scale == 1
    else:
        assert scale * (1 + Fraction(1, 2**50)) >= span > scale / 2 * (1 - Fraction(1, 2**50))


@pytest.mark.parametrize("exponent", [-20, -1, 0, 1, 30])
def test_an_exact_power_of_two_stays(exponent: int) -> None:
    top = 127 * 2.0**exponent
    chosen = choose_qparams(-top, top, QType.parse("int8"), symmetry="symmetric", scale_kind="pow2")
    assert float(chosen.scale) == 2.0**exponent


@pytest.mark.parametrize(
    ("low", "high", "qtype", "family", "scale", "point"),
    [
        (-1.0, 2.0, "uint8", "asymmetric", 3 / 255, 85),
        (0.0, 6.0, "uint8", "asymmetric", 6 / 255, 0),
        (2.0, 6.0, "uint8", "asymmetric", 6 / 255, 0),
        (-6.0, -2.0, "uint8", "asymmetric", 6 / 255, 255),
        (0.0, 6.0, "int8", "asymmetric", 6 / 255, -128),
        (-128.0, 100.0, "int8", "symmetric", 1.0, 0),
        (-100.0, 127.0, "int8", "symmetric", 1.0, 0),
        (2.0, 5.0, "int8", "symmetric_unsigned", 5 / 255, -128),
        (-8.0, -2.0, "int8", "symmetric_unsigned", 8 / 128, 0),
        (0.0, 5.0, "uint8", "symmetric_unsigned", 5 / 255, 0),
        (-1.0, 12.7, "uint8", "symmetric_unsigned", 0.1, 128),
        (0.0, 255 / 256, "uint8", "asymmetric", 1 / 256, 0),
        (-1.0, 127 / 128, "uint8", "asymmetric", 1 / 128, 128),
        (0.0, 0.0, "uint8", "asymmetric", 1.0, 0),
        (0.0, 0.0, "int8", "asymmetric", 1.0, -128),
        (0.0, 0.0, "int8", "symmetric", 1.0, 0),
        (0.0, 1e-40, "uint8", "asymmetric", 1.0, 0),
    ],
)
def test_known_ranges(
    low: float, high: float, qtype: str, family: Any, scale: float, point: int
) -> None:
    chosen = choose_qparams(low, high, QType.parse(qtype), symmetry=family)
    assert chosen == QParams(scale, point, QType.parse(qtype))


def test_narrow_symmetric_grid_is_absmax_over_127() -> None:
    chosen = choose_qparams(
        -12.7, 3.0, QType.parse("int8"), symmetry="symmetric", narrow_range=True
    )
    assert chosen == QParams(0.1, 0, QType.parse("int8"), narrow_range=True)
    assert quantize([-99.0, 99.0], chosen).tolist() == [-127, 127]


def test_arrays_give_what_their_elements_give() -> None:
    rng = np.random.default_rng(0)
    low, high = np.sort(rng.normal(size=(2, 7)), axis=0)
    low[3] = high[3] = 0
    for family in FAMILIES:
        many = choose_qparams(low, high, QType.parse("uint8"), symmetry=family, axis=2)  # type: ignore[arg-type]
        assert many.axis == 2
        for i in range(7):
            one = choose_qparams(low[i], high[i], QType.parse("uint8"), symmetry=family)  # type: ignore[arg-type]
            assert (many.scale[i], many.zero_point[i]) == (one.scale, one.zero_point)


def test_widest_ranges_have_a_scale() -> None:
    top = float(np.finfo(np.float32).max)
    for name in NAMES:
        for kind in ("real", "pow2"):
            choose_qparams(-top, top, QType.parse(name), symmetry="symmetric", scale_kind=kind)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("low", "high", "extra", "words"),
    [
        (np.nan, 1.0, {}, "not finite"),
        (0.0, np.inf, {}, "not finite"),
        (0.0, 1e39, {}, "not finite"),
        (1.0, 0.0, {}, "low end above"),
        ([0.0], [1.0], {}, "without an axis"),
        ([0.0], [1.0, 2.0], {"axis": 0}, "one shape"),
        (0.0, 1.0, {"symmetry": "assymetric"}, "Did you mean 'asymmetric'"),
        (0.0, 1.0, {"scale_kind": "pow3"}, "Did you mean 'pow2'"),
    ],
)
def test_impossible_ranges_are_refused(
    low: Any, high: Any, extra: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        choose_qparams(low, high, QType.parse("int8"), **{"symmetry": "symmetric", **extra})


@given(
    x=st.lists(st.floats(-16384, 16384, width=32), min_size=1, max_size=20),
    scale=st.floats(2.0**-10, 8, width=32),
    qtype=qtypes,
    data=st.data(),
)
@settings(max_examples=200)
def test_quantize_is_its_scalar_specification(
    x: list[float], scale: float, qtype: QType, data: Any
) -> None:
    point = data.draw(st.integers(qtype.qmin, qtype.qmax))
    params = QParams(scale, point, qtype)
    got = quantize(x, params)
    assert got.dtype == qtype.storage_dtype
    assert got.tolist() == [
        oracle_quantize(v, float(params.scale), point, qtype.qmin, qtype.qmax) for v in x
    ]


@given(
    scale=st.floats(2.0**-10, 8, width=32),
    qtype=qtypes.filter(lambda q: q.bits <= 16),
    data=st.data(),
)
@settings(max_examples=100)
def test_the_grid_survives_a_round_trip_and_order_is_kept(
    scale: float, qtype: QType, data: Any
) -> None:
    point = data.draw(st.integers(qtype.qmin, qtype.qmax))
    params = QParams(scale, point, qtype)
    levels = (
        np.linspace(qtype.qmin, qtype.qmax, min(300, 2**qtype.bits))
        .round()
        .astype(qtype.storage_dtype)
    )
    real = dequantize(levels, params)
    assert real.dtype == np.float32
    assert np.array_equal(quantize(real, params), levels)
    between = np.sort(np.concatenate([real, (real[1:] + real[:-1]) / 2]))
    assert (np.diff(quantize(between, params).astype(np.int64)) >= 0).all()
    slack = 0.5 + 2.0 ** (qtype.bits - 22)  # what float32 loses at the far end of the grid
    assert (
        np.abs(fake_quantize(between, params).astype(np.float64) - between) <= scale * slack
    ).all()


def test_a_halfway_value_goes_to_the_even_level_before_the_zero_point() -> None:
    params = QParams(1.0, 1, QType.parse("uint8"))
    assert quantize([0.5, 1.5, 2.5], params).tolist() == [1, 3, 3]


def test_non_finite_values_saturate() -> None:
    params = QParams(0.5, 10, QType.parse("uint8"))
    assert quantize([np.nan, np.inf, -np.inf, 3e38], params).tolist() == [0, 255, 0, 255]
    assert quantize([np.nan, 3e38], QParams(1e-3, 0, QType.parse("int32"))).tolist() == [
        -(2**31),
        2**31 - 1,
    ]


ONNX_TYPES = {
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "int16": TensorProto.INT16,
    "uint16": TensorProto.UINT16,
    "int4": TensorProto.INT4,
    "uint4": TensorProto.UINT4,
}


def engine_round_trip(x: np.ndarray, params: QParams) -> np.ndarray:  # type: ignore[type-arg]
    """ONNX Runtime's QuantizeLinear and DequantizeLinear, one after the other."""
    name = params.qtype.name
    packed = params.zero_point.astype(getattr(ml_dtypes, name, None) or name)
    attributes = {} if params.axis is None else {"axis": params.axis}
    if params.block_size is not None:
        attributes["block_size"] = params.block_size
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **attributes),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **attributes),
    ]
    zero = helper.make_tensor(
        "z", ONNX_TYPES[name], packed.shape, packed.reshape(-1).astype(np.int32).tolist()
    )
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)],
        [numpy_helper.from_array(np.asarray(params.scale), "s"), zero],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": x})[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", list(ONNX_TYPES))
@pytest.mark.parametrize("granularity", ["tensor", "channel", "block"])
def test_the_engine_agrees_bit_for_bit(name: str, granularity: str) -> None:
    rng = np.random.default_rng(7)
    qtype = QType.parse(name)
    shape: tuple[int, ...]
    shape, axis, block = {
        "tensor": ((), None, None),
        "channel": ((6,), 1, None),
        "block": ((40, 3), 1, 2),
    }[granularity]
    scale = rng.uniform(0.01, 0.2, shape).astype(np.float32)
    point = rng.integers(qtype.qmin, qtype.qmax + 1, shape)
    params = QParams(scale, point, qtype, axis=axis, block_size=block)
    reach = float(scale.max()) * 2.0**qtype.bits
    x = rng.uniform(-reach, reach, (40, 6)).astype(np.float32)
    steps, _ = params.expanded(x.shape)
    ties = (np.rint(x / steps) + 0.5) * steps
    for values in (x, ties.astype(np.float32)):
        assert np.array_equal(fake_quantize(values, params), engine_round_trip(values, params))


def test_four_bits_are_those_of_ml_dtypes() -> None:
    """On the unit grid quantizing is rounding to the nearest number of the type, ties to even."""
    x = np.linspace(-8, 7, 121).astype(np.float32)
    ours = quantize(x, QParams(1.0, 0, QType.parse("int4")))
    assert np.array_equal(ours, np.rint(x).astype(ml_dtypes.int4).astype(np.int8))
    assert np.array_equal(
        dequantize(ours.astype(ml_dtypes.int4), QParams(0.5, 0, QType.parse("int4"))), ours * 0.5
    )
