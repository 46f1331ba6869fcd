"""Products of two operands, computed or constant, static or dynamic:
against ONNX Runtime and plain integers.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_node import Array, counted, engine, levels_of, model_of, product_of, register_of

from qbench.errors import UnsupportedError
from qbench.interpreter import Counters, Program, counting_means
from qbench.interpreter.gemm import Pairs, pairs_here
from qbench.numerics import Accumulator, get_arithmetic, requantize
from qbench.numerics.accumulator import Overflow, SumShape

HERE = "ort-x64-avx2" if pairs_here() is Pairs.SATURATE else "ort-x64"
"""The machine that this processor is; ONNX Runtime's precise mode changes nothing of that for
computed operands.
"""
TYPES = st.sampled_from([("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")])
BATCHES = st.sampled_from(
    [((), ()), ((3,), (3,)), ((2, 1), (3,)), ((2, 3), ()), ((), (2,)), ((1,), (2, 2))]
)
SIZES = st.tuples(st.integers(1, 5), st.integers(1, 40), st.integers(1, 20))
INTEGER_ORDER = ("a", "b", "za", "zb")
LINEAR_ORDER = ("a", "sa", "za", "b", "sb", "zb", "sy", "zy")


@st.composite
def products(draw: Any) -> tuple[Array, Array, Array, Array]:
    """Operands and their zero points."""
    (left, right), (one, other) = draw(TYPES), draw(BATCHES)
    (rows, depth, columns), seed, extreme = (
        draw(SIZES),
        draw(st.integers(0, 99)),
        draw(st.booleans()),
    )
    a = levels_of(seed, left, *one, rows, depth, extreme=extreme)
    b = levels_of(seed + 1, right, *other, depth, columns, extreme=extreme)
    return a, b, levels_of(seed + 2, left), levels_of(seed + 3, right)


def linear(a: Array, b: Array, za: Array, zb: Array, *, constant: bool) -> Any:
    grids = {"sa": np.float32(0.02), "za": za, "sb": np.float32(0.011), "zb": zb}
    grids |= {"sy": np.float32(0.02 * a.shape[-1] ** 0.5), "zy": np.asarray(3, a.dtype)}
    feeds = {"a": a} if constant else {"a": a, "b": b}
    return model_of(
        "QLinearMatMul", LINEAR_ORDER, feeds, grids | ({"b": b} if constant else {})
    ), feeds


@settings(max_examples=30)
@given(products())
def test_computed_operands_are_multiplied_as_the_engine_does(
    given: tuple[Array, Array, Array, Array],
) -> None:
    a, b, za, zb = given
    model = model_of("MatMulInteger", INTEGER_ORDER, {"a": a, "b": b}, {"za": za, "zb": zb})
    feeds = {"a": a, "b": b}
    (ours,), (theirs,) = counted(model, HERE, feeds), engine(model, feeds, precise=False)
    assert ours.dtype == theirs.dtype == np.int32
    np.testing.assert_array_equal(ours, theirs)
    exact = np.matmul(a.astype(np.int64) - int(za), b.astype(np.int64) - int(zb))
    np.testing.assert_array_equal(counted(model, "ort-x64", feeds)[0], exact)


@settings(max_examples=25)
@given(products())
def test_their_levels_are_the_engines(given: tuple[Array, Array, Array, Array]) -> None:
    model, feeds = linear(*given, constant=False)
    theirs = engine(model, feeds, precise=False)[0]
    np.testing.assert_array_equal(counted(model, HERE, feeds)[0], theirs)
    stacked, alone = linear(*given, constant=True)
    np.testing.assert_array_equal(counted(stacked, HERE, alone)[0], theirs)


@pytest.mark.parametrize(
    ("left", "right"), [((7,), (7, 3)), ((4, 7), (7,)), ((2, 4, 7), (7,)), ((7,), (3, 7, 2))]
)
def test_vectors_are_rows_and_columns(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = levels_of(0, "uint8", *left), levels_of(1, "int8", *right)
    model = model_of("MatMulInteger", ("a", "b"), {"a": a, "b": b}, {})
    expected = np.matmul(a.astype(np.int64), b.astype(np.int64))
    np.testing.assert_array_equal(counted(model, "ideal", {"a": a, "b": b})[0], expected)
    model, feeds = linear(a, b, np.asarray(9, np.uint8), np.asarray(-4, np.int8), constant=False)
    np.testing.assert_array_equal(
        counted(model, HERE, feeds)[0], engine(model, feeds, precise=False)[0]
    )


NARROW = replace(
    get_arithmetic("ort-x64-avx2"),
    accumulator=Accumulator(bits=18, overflow=Overflow.SATURATE, pair_bits=16),
)
WRAPPING = replace(get_arithmetic("gemmlowp"), accumulator=Accumulator(bits=17))
MACHINES = [
    *map(get_arithmetic, ("ort-x64-avx2", "nvdla", "gemmlowp", "glow-cpu", "onednn", "ideal")),
    NARROW,
    WRAPPING,
]


@pytest.mark.slow_but(17)
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("kinds", [("uint8", "int8"), ("int8", "uint8"), ("int8", "int8")])
@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m.name}-{m.accumulator.bits}")
def test_every_machine_counts_as_plain_integers_do(
    machine: Any, kinds: tuple[str, str], constant: bool
) -> None:
    a, b = levels_of(0, kinds[0], 3, 21, extreme=True), levels_of(1, kinds[1], 21, 4, extreme=True)
    za, zb, pairs = (
        levels_of(2, kinds[0]),
        levels_of(3, kinds[1]),
        machine.accumulator.pairs(SumShape()),
    )
    exact = product_of(a, b, (za, zb), pairs)
    feeds = {"a": a} if constant else {"a": a, "b": b}
    known = {"b": b} if constant else {}
    model = model_of("MatMulInteger", INTEGER_ORDER, feeds, {"za": za, "zb": zb} | known)
    np.testing.assert_array_equal(
        counted(model, machine, feeds)[0], register_of(exact, machine.accumulator, 32)
    )
    model, _ = linear(a, b, za, zb, constant=constant)
    scales = (0.02, 0.011, 0.02 * 21**0.5)
    scales = tuple(float(np.float32(scale)) for scale in scales)
    expected = requantize(register_of(exact, machine.accumulator), scales, 3, kinds[0], machine)
    np.testing.assert_array_equal(counted(model, machine, feeds)[0], expected)


@pytest.mark.parametrize("constant", [False, True])
def test_zero_points_of_rows_and_columns(constant: bool) -> None:
    a, b = levels_of(0, "uint8", 3, 9), levels_of(1, "int8", 9, 5)
    za, zb = levels_of(2, "uint8", 3), levels_of(3, "int8", 5)
    feeds = {"a": a, "za": za} | ({} if constant else {"b": b, "zb": zb})
    model = model_of("MatMulInteger", INTEGER_ORDER, feeds, {"b": b, "zb": zb} if constant else {})
    expected = product_of(a, b, (za[:, None], zb)).astype(np.int64)
    np.testing.assert_array_equal(counted(model, "ideal", feeds)[0], expected)
    stack = {**feeds, "a": np.stack([a, a[::-1]]), "za": np.stack([za, za[::-1]])[..., None]}
    model = model_of("MatMulInteger", INTEGER_ORDER, stack, {"b": b, "zb": zb} if constant else {})
    np.testing.assert_array_equal(counted(model, "ideal", stack)[0], [expected, expected[::-1]])


@pytest.mark.parametrize("kinds", [("uint8", "int8"), ("int8", "int8")])
def test_depths_that_no_int32_holds(kinds: tuple[str, str]) -> None:
    a, b = (
        np.full(shape, np.iinfo(kind).min or 255, kind)
        for kind, shape in zip(kinds, ((1, 140_001), (140_001, 1)), strict=True)
    )
    model = model_of("MatMulInteger", ("a", "b"), {"a": a, "b": b}, {})
    exact = 140_001 * int(a[0, 0]) * int(b[0, 0])
    for name in ("ideal", "nvdla"):
        register = get_arithmetic(name).accumulator
        expected = register_of(np.array([[exact]], object), register, 32)
        np.testing.assert_array_equal(counted(model, name, {"a": a, "b": b})[0], expected)


def events(model: Any, machine: Any, feeds: dict[str, Array]) -> Counters:
    from onnx_ir import from_proto

    program = Program(from_proto(model), machine, means=counting_means())
    program.run(feeds)
    (counters,) = program.counters.values()
    return counters


@pytest.mark.parametrize("constant", [False, True])
def test_events_of_computed_products_are_counted(constant: bool) -> None:
    a, b = np.full((2, 5), 255, np.uint8), np.full((5, 3), 127, np.int8)
    feeds = {"a": a} if constant else {"a": a, "b": b}
    model = model_of("MatMulInteger", ("a", "b"), feeds, {"b": b} if constant else {})
    assert events(model, get_arithmetic("ort-x64-avx2"), feeds).saturated == 2 * 2 * 3
    assert events(model, get_arithmetic("ort-x64"), feeds).saturated == 0
    assert events(model, WRAPPING, feeds).overflowed == 6


BIASES = [(4,), (1, 4), (3, 1), (3, 4), (1,), (1, 1), ()]


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("shape", BIASES)
def test_a_gemm_adds_a_bias_of_any_shape(
    shape: tuple[int, ...], real: bool, constant: bool
) -> None:
    a, b = levels_of(0, "uint8", 3, 6), levels_of(1, "int8", 4, 6)
    bias = np.asarray(np.random.default_rng(2).integers(-20_000, 20_000, shape), np.int32)
    order = ["a", "sa", "za", "b", "sb", "zb", "c"]
    grids = {
        "sa": np.float32(0.013),
        "za": np.uint8(100),
        "sb": np.float32(0.027),
        "zb": np.int8(3),
        "c": bias,
    }
    if not real:
        order, grids = [*order, "sy", "zy"], grids | {"sy": np.float32(0.1), "zy": np.uint8(77)}
    feeds = {"a": a} if constant else {"a": a, "b": b}
    model = model_of(
        "QGemm",
        order,
        feeds,
        grids | ({"b": b} if constant else {}),
        domain="com.microsoft",
        transB=1,
    )
    np.testing.assert_array_equal(
        counted(model, HERE, feeds)[0], engine(model, feeds, precise=False)[0]
    )


def test_a_computed_bias_and_an_alpha_are_refused() -> None:
    a, c = levels_of(0, "uint8", 3, 6), np.zeros(4, np.int32)
    grids = {"b": levels_of(1, "int8", 6, 4), "s": np.float32(1), "z": np.uint8(0), "v": np.int8(0)}
    order = ("a", "s", "z", "b", "s", "v", "c", "s", "z")
    model = model_of("QGemm", order, {"a": a, "c": c}, grids, domain="com.microsoft")
    with pytest.raises(UnsupportedError, match="input 6 of QGemm is no constant"):
        counted(model, "ideal", {"a": a, "c": c})
    model = model_of("QGemm", order, {"a": a}, grids | {"c": c}, domain="com.microsoft", alpha=0.5)
    with pytest.raises(UnsupportedError, match="a QGemm with alpha"):
        counted(model, "ideal", {"a": a})


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(
    ("left", "right"), [((3, 5), (5, 4)), ((2, 3, 64), (64, 31)), ((2, 2, 7, 8), (2, 2, 8, 5))]
)
def test_sums_that_leave_the_integers_are_the_engines(
    left: tuple[int, ...], right: tuple[int, ...], biased: bool
) -> None:
    a, b = levels_of(0, "uint8", *left), levels_of(1, "int8", *right)
    grids = {
        "sa": np.float32(0.013),
        "sb": np.float32(0.0271),
        "za": np.uint8(100),
        "zb": np.int8(3),
    }
    grids |= (
        {"c": np.random.default_rng(2).normal(size=right[-1]).astype(np.float32)} if biased else {}
    )
    order = ["a", "b", "sa", "sb", "za", "zb", *(["c"] if biased else [])]
    feeds = {"a": a, "b": b}
    model = model_of("MatMulIntegerToFloat", order, feeds, grids, domain="com.microsoft")
    np.testing.assert_array_equal(
        counted(model, HERE, feeds)[0], engine(model, feeds, precise=False)[0]
    )


@pytest.mark.slow_but(4)
@pytest.mark.parametrize("machine", ["ideal", "gemmlowp", "nvdla"])
@pytest.mark.parametrize(
    "kinds", [("uint16", "int8"), ("int16", "uint8"), ("int16", "int8"), ("uint8", "int16")]
)
@pytest.mark.parametrize("constant", [False, True])
def test_sixteen_bits_by_eight(kinds: tuple[str, str], constant: bool, machine: str) -> None:
    a, b = levels_of(0, kinds[0], 3, 301), levels_of(1, kinds[1], 301, 4)
    za, zb = levels_of(2, kinds[0]), levels_of(3, kinds[1])
    model, feeds = linear(a, b, za, zb, constant=constant)
    exact = (a.astype(np.int64) - int(za)) @ (b.astype(np.int64) - int(zb))
    scales = tuple(float(np.float32(scale)) for scale in (0.02, 0.011, 0.02 * 301**0.5))
    held = register_of(exact.astype(object), get_arithmetic(machine).accumulator)
    expected = requantize(held, scales, 3, kinds[0], machine)
    np.testing.assert_array_equal(counted(model, machine, feeds)[0], expected)


@pytest.mark.parametrize("constant", [False, True])
def test_what_sixteen_bits_overflow_is_counted(constant: bool) -> None:
    a, b = np.full((1, 301), 65535, np.uint16), np.full((301, 1), 127, np.int8)
    model, feeds = linear(a, b, np.asarray(0, np.uint16), np.asarray(0, np.int8), constant=constant)
    exact = 301 * 65535 * 127
    assert exact > 2**31
    scales = tuple(float(np.float32(scale)) for scale in (0.02, 0.011, 0.02 * 301**0.5))
    expected = requantize([[exact - 2**32]], scales, 3, "uint16", "gemmlowp")
    np.testing.assert_array_equal(counted(model, "gemmlowp", feeds)[0], expected)
    assert events(model, get_arithmetic("gemmlowp"), feeds).overflowed == 1
    assert events(model, get_arithmetic("nvdla"), feeds).overflowed == 0


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("overflow", list(Overflow))
def test_a_gemm_whose_result_is_real_has_the_register_of_the_machine(
    overflow: Overflow, constant: bool
) -> None:
    a, b = np.array([[255] * 8, [1] * 8], np.uint8), np.full((8, 2), 127, np.int8)
    grids = {
        "s": np.float32(0.5),
        "za": np.uint8(0),
        "zb": np.int8(0),
        "c": np.array([3, -4], np.int32),
    }
    feeds = {"a": a} if constant else {"a": a, "b": b}
    known = grids | ({"b": b} if constant else {})
    machine = replace(get_arithmetic("ideal"), accumulator=Accumulator(bits=16, overflow=overflow))
    model = model_of(
        "QGemm", ("a", "s", "za", "b", "s", "zb", "c"), feeds, known, domain="com.microsoft"
    )
    exact = a.astype(object) @ b.astype(object) + grids["c"]
    expected = register_of(exact, machine.accumulator).astype(np.float32) * np.float32(0.25)
    np.testing.assert_array_equal(counted(model, machine, feeds)[0], expected)
    assert events(model, machine, feeds).overflowed == 2
    assert events(model, get_arithmetic("ideal"), feeds).overflowed == 0
