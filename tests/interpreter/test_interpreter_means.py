"""Means and sums of levels: each scheme against a loop over scalars, axes against ONNX's
evaluator and the engine.
"""

import math
from dataclasses import replace
from fractions import Fraction
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

from qbench.backends import get_backend
from qbench.errors import InputError, UnsupportedError
from qbench.interpreter import Program, counting_means
from qbench.numerics import Accumulator, Averaging, QParams, QType, averager, get_arithmetic
from qbench.numerics.accumulator import Overflow
from qbench.passes import INTEGER_INTERPRETER, lower_to_qoperator

INT8 = QType.parse("int8")
RANDOM = np.random.default_rng(3)
SCALES = st.floats(0.002, 0.5).map(lambda scale: float(np.float32(scale)))


def mean_of(sums: int, count: int, x: QParams, y: QParams, machine: str, scheme: Averaging) -> int:
    found = averager(scheme, x, y, np.asarray(count, np.int64), get_arithmetic(machine))
    return int(found(np.asarray([sums], np.int64))[0])


def half_away(value: Fraction) -> int:
    size = math.floor(abs(value) + Fraction(1, 2))
    return size if value >= 0 else -size


def tflite_mean(total: int, count: int, sx: float, sy: float, zero: int) -> int:
    """MEAN: the count divides the fixed multiplier; then two roundings."""
    fraction, exponent = math.frexp(sx / sy)
    factor, shift = math.floor(fraction * 2**31 + 0.5), exponent
    if factor == 1 << 31:
        factor, shift = factor // 2, shift + 1
    more = min(count.bit_length() - 1, 32, 31 + shift)
    factor, shift = (factor << more) // count, shift - more
    upper = (total * 2 ** max(shift, 0) * factor + (1 << 30)) >> 31
    return half_away(Fraction(upper, 2 ** max(-shift, 0))) + zero


@settings(max_examples=60)
@given(st.integers(1, 70_000), SCALES, SCALES, st.integers(-128, 127), st.floats(-255, 255))
def test_a_folded_count_is_tflites(
    count: int, sx: float, sy: float, zero: int, mean: float
) -> None:
    total = round(mean * count)
    x, y = QParams(sx, 4, INT8), QParams(sy, zero, INT8)
    assert mean_of(total, count, x, y, "gemmlowp", Averaging.FOLDED) == tflite_mean(
        total, count, sx, sy, zero
    )


@settings(max_examples=60)
@given(st.integers(1, 5000), SCALES, SCALES, st.integers(-255_000, 255_000))
def test_the_exact_machine_divides_once(count: int, sx: float, sy: float, total: int) -> None:
    x, y = QParams(sx, 4, INT8), QParams(sy, -7, INT8)
    exact = round(total * Fraction(sx) / (Fraction(sy) * count)) - 7
    assert mean_of(total, count, x, y, "ideal", Averaging.SCALED) == exact


@settings(max_examples=60)
@given(st.integers(1, 500), st.integers(-128, 127), st.integers(-60_000, 60_000))
def test_a_raw_mean_rounds_what_has_its_zero_point(count: int, zero: int, total: int) -> None:
    one = QParams(0.1, zero, INT8)
    expected = half_away(Fraction(total + count * zero, count))
    assert mean_of(total, count, one, one, "gemmlowp", Averaging.RAW) == expected


def test_raw_means_are_those_of_signed_codes() -> None:
    """{−1, −2} is −2 in int8; the same data as uint8 are so too: LiteRT's files hold int8
    (judged by the engine).
    """
    signed, unsigned = QParams(1.0, 0, INT8), QParams(1.0, 128, QType.parse("uint8"))
    assert mean_of(-3, 2, signed, signed, "gemmlowp", Averaging.RAW) == -2
    assert mean_of(-3, 2, unsigned, unsigned, "gemmlowp", Averaging.RAW) - 128 == -2
    assert mean_of(-3, 2, signed, signed, "gemmlowp", Averaging.SCALED) == -1


def test_a_folded_count_differs_from_a_scaled_one() -> None:
    x, y = QParams(0.1, 0, INT8), QParams(0.07, 0, INT8)
    machine, count, totals = get_arithmetic("gemmlowp"), np.asarray(49), np.arange(-6000, 6000)
    folded, scaled = (
        averager(s, x, y, count, machine)(totals) for s in (Averaging.FOLDED, Averaging.SCALED)
    )
    assert np.abs(folded - scaled).max() == 1
    assert np.count_nonzero(folded != scaled) == 208


def test_floats_have_no_mean_of_sums() -> None:
    one = QParams(1.0, 0, INT8)
    with pytest.raises(ValueError, match="order"):
        mean_of(1, 1, one, one, "ideal", Averaging.REAL)


def reduction(
    operator: str, attributes: str, axes: str | None, *, opset: int = 21, sx: float = 0.0625
) -> Any:
    given = "" if axes is None else f", int64[{axes.count(',') + 1}] axes = {{{axes}}}"
    operand = "" if axes is None else ", axes"
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : {opset}]> g (uint8[3, 4, 5, 6] q) => (uint8[M] y)'
        f"<float sx = {{{sx}}}, uint8 zx = {{117}}, float sy = {{0.03125}}, uint8 zy = "
        f"{{100}}{given}>"
        f"{{ x = DequantizeLinear(q, sx, zx) r = {operator}{attributes}(x{operand}) y = "
        f"QuantizeLinear(r, sy, zy) }}"
    )
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    return proto


def counted(proto: onnx.ModelProto, machine: str, levels: Any) -> Any:
    lowered = lower_to_qoperator(ir.from_proto(proto), INTEGER_INTERPRETER)
    assert not [node.op_type for node in lowered.graph if node.op_type.endswith("uantizeLinear")]
    return Program(lowered, get_arithmetic(machine)).run({"q": levels})["y"]


CASES = [
    (operator, attributes, axes)
    for operator in ("ReduceMean", "ReduceSum")
    for attributes, axes in [
        ("", "2, 3"),
        ("<keepdims = 0>", "-1"),
        ("<keepdims = 0>", "0, 2"),
        ("", None),
        ("<keepdims = 0>", None),
        ("<noop_with_empty_axes = 1>", None),
        ("", "1"),
    ]
]


@pytest.mark.slow_but(7)
@pytest.mark.parametrize(("operator", "attributes", "axes"), CASES)
@pytest.mark.parametrize("machine", ["ort-x64", "ideal"])
def test_any_axes(operator: str, attributes: str, axes: str | None, machine: str) -> None:
    """Scales are powers of two, so that every float32 sum is exact and no order matters."""
    levels = RANDOM.integers(90, 140, (3, 4, 5, 6)).astype(np.uint8)
    proto = reduction(operator, attributes, axes)
    theirs: Any
    (theirs,) = ReferenceEvaluator(proto).run(None, {"q": levels})
    if (operator, attributes) != (
        "ReduceSum",
        "<noop_with_empty_axes = 1>",
    ):  # the engine sums all the same
        session = onnxruntime.InferenceSession(
            proto.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        np.testing.assert_array_equal(session.run(None, {"q": levels})[0], theirs)
    found = counted(proto, machine, levels)
    assert found.shape == theirs.shape
    np.testing.assert_array_equal(found, theirs)


def test_axes_as_an_attribute() -> None:
    levels = RANDOM.integers(0, 256, (3, 4, 5, 6)).astype(np.uint8)
    proto = reduction("ReduceMean", "<axes = [1, 3], keepdims = 0>", None, opset=13)
    later = reduction("ReduceMean", "<keepdims = 0>", "1, 3")
    np.testing.assert_array_equal(counted(proto, "ideal", levels), counted(later, "ideal", levels))


def global_average(dtype: str = "uint8") -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g ({dtype}[2, 7, 5, 9] q) => ({dtype}[2, 7, 1, '
        "1] y)"
        f"<float sx = {{0.0371}}, {dtype} zx = {{17}}, float sy = {{0.0123}}, {dtype} zy = {{-3}}>"
        "{ x = DequantizeLinear(q, sx, zx) r = GlobalAveragePool(x) y = QuantizeLinear(r, sy, zy) }"
    )


@pytest.mark.parametrize(
    "machine", ["ideal", "gemmlowp", "tflite-single", "neon", "xnnpack", "fbgemm", "glow-cpu"]
)
def test_a_global_average_is_a_mean_over_space(machine: str) -> None:
    levels = RANDOM.integers(-128, 128, (2, 7, 5, 9)).astype(np.int8)
    text = onnx.printer.to_text(global_average("int8")).replace(
        "GlobalAveragePool (x)", "ReduceMean (x, axes)"
    )
    mean = onnx.parser.parse_model(text.replace("zx =", "zx =", 1))
    mean.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2, 3]), "axes"))
    np.testing.assert_array_equal(
        counted(global_average("int8"), machine, levels), counted(mean, machine, levels)
    )


def test_machines_disagree_about_a_mean() -> None:
    levels = RANDOM.integers(-128, 128, (200, 7, 5, 9)).astype(np.int8)
    ideal = counted(global_average("int8"), "ideal", levels).astype(int)
    differing = {
        name: counted(global_average("int8"), name, levels) - ideal
        for name in ("gemmlowp", "tflite-single")
    }
    assert all(np.abs(one).max() <= 1 for one in differing.values())
    assert np.count_nonzero(differing["gemmlowp"]) > 0


def pooled(operator: str, attributes: str, height: str = "6", axes: str = "") -> onnx.ModelProto:
    """``operator`` over (1, 2, ``height``, 6) between grids whose scales are powers of two."""
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g (int8[1, 2, {height}, 6] q) => (int8[I, J, '
        "K, L] y)"
        f"<float sx = {{0.5}}, int8 z = {{3}}, float sy = {{0.25}}, int64[2] axes = {{2, 3}}>"
        f"{{ x = DequantizeLinear(q, sx, z) r = {operator}{attributes}(x{axes}) y = "
        f"QuantizeLinear(r, sy, z) }}"
    )


MEANS_OF_NINE = [
    ("AveragePool", "<kernel_shape = [3, 3]>", ""),
    ("GlobalAveragePool", "", ""),
    ("ReduceMean", "", ", axes"),
]


@pytest.mark.parametrize("machine", ["pow2-shift", "tqt"])
@pytest.mark.parametrize(("operator", "attributes", "axes"), MEANS_OF_NINE)
def test_a_mean_that_shifts_cannot_hold_is_unsupported_before_anything_runs(
    operator: str, attributes: str, axes: str, machine: str
) -> None:
    """Over 9 or 36 elements, whatever the schema; where sizes are free, when they are known."""
    backend = get_backend(f"integer-{machine}")
    with pytest.raises(UnsupportedError, match=r"over (9|36) elements"):
        backend.prepare(ir.from_proto(pooled(operator, attributes, axes=axes)))
    free = backend.prepare(ir.from_proto(pooled(operator, attributes, "H", axes)))
    with pytest.raises(UnsupportedError, match="elements"):
        free.run({"q": np.zeros((1, 2, 6, 6), np.int8)})


@pytest.mark.parametrize("machine", ["pow2-shift", "tqt"])
def test_means_of_powers_of_two_are_shifts(machine: str) -> None:
    levels = RANDOM.integers(-128, 128, (1, 2, 6, 6)).astype(np.int8)
    found = counted(
        pooled("AveragePool", "<kernel_shape = [2, 2], strides = [2, 2]>"), machine, levels
    )
    for channel, row, column in np.ndindex(2, 3, 3):
        window = (
            levels[0, channel, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2].astype(int) - 3
        )
        exact = Fraction(int(window.sum()) * 2, 4)
        expected = (round(exact) if machine == "tqt" else math.floor(exact + Fraction(1, 2))) + 3
        assert found[0, channel, row, column] == min(max(expected, -128), 127)


def test_what_a_schema_can_mend_stays_an_error() -> None:
    """Scales that are no powers of two are the schema's choice, not what the machine lacks."""
    with pytest.raises(InputError, match="power of two"):
        get_backend("integer-pow2-shift").prepare(ir.from_proto(global_average()))


def test_an_averager_is_made_once_for_each_size(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def counting(*arguments: Any) -> Any:
        made.append(arguments)
        return averager(*arguments)

    monkeypatch.setattr("qbench.interpreter.integer_kernels.pooling.averager", counting)
    proto = pooled("AveragePool", "<kernel_shape = [3, 3]>", "H")
    program = Program(
        lower_to_qoperator(ir.from_proto(proto), INTEGER_INTERPRETER), get_arithmetic("gemmlowp")
    )
    for height in (6, 8, 6, 8):
        program.run({"q": np.zeros((1, 2, height, 6), np.int8)})
    assert len(made) == 2 * 2


def test_what_leaves_the_accumulator_is_counted() -> None:
    proto = reduction("ReduceSum", "<keepdims = 0>", "2, 3")
    lowered = lower_to_qoperator(ir.from_proto(proto), INTEGER_INTERPRETER)
    machine = replace(
        get_arithmetic("ideal"), accumulator=Accumulator(bits=8, overflow=Overflow.SATURATE)
    )
    program = Program(lowered, machine, means=counting_means())
    levels = np.full((3, 4, 5, 6), 117, np.uint8)
    levels[0] = 255
    found = program.run({"q": levels})["y"]
    assert (found[0] == min(127 * 2 + 100, 255)).all()
    assert (found[1:] == 100).all()
    counters = next(iter(program.counters.values()))
    assert (counters.overflowed, counters.clipped) == (4, 4)


@pytest.mark.parametrize("machine", ["gemmlowp", "tflite-single"])
def test_windows_are_folded_by_their_own_count(machine: str) -> None:
    """An AveragePool under a machine that folds: corners have four elements, edges six,
    the rest nine.
    """
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (int8[1, 2, 5, 5] q) => (int8[1, 2, 5, 5] y)'
        "<float sx = {0.0371}, int8 zx = {17}, float sy = {0.0123}, int8 zy = {-3}>"
        "{ x = DequantizeLinear(q, sx, zx) r = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, "
        "1]>(x)"
        "y = QuantizeLinear(r, sy, zy) }"
    )
    levels = RANDOM.integers(-128, 128, (1, 2, 5, 5)).astype(np.int8)
    lowered = lower_to_qoperator(ir.from_proto(proto), INTEGER_INTERPRETER)
    folding = replace(get_arithmetic(machine), averaging=Averaging.FOLDED)
    found = Program(lowered, folding).run({"q": levels})["y"]
    grids = QParams(0.0371, 17, INT8), QParams(0.0123, -3, INT8)
    for channel, row, column in np.ndindex(2, 5, 5):
        window = (
            levels[0, channel, max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2].astype(
                int
            )
            - 17
        )
        expected = mean_of(int(window.sum()), window.size, *grids, machine, Averaging.FOLDED)
        assert found[0, channel, row, column] == min(max(expected, -128), 127)
