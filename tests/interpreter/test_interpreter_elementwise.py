"""Operators that treat every element alike: all levels, or all pairs, against ONNX's evaluator,
scalars, the engine.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from qbench.errors import InputError
from qbench.graph import POINTWISE
from qbench.interpreter import Program, best_means, counting_means
from qbench.numerics import (
    QParams,
    QType,
    divide_quantized,
    get_arithmetic,
    list_arithmetics,
    quantize,
    rescale_quantized,
    subtract_quantized,
)
from qbench.passes import INTEGER_INTERPRETER, lower_to_qoperator

INT8, UINT8 = QType.parse("int8"), QType.parse("uint8")
BYTES, LEVELS = np.arange(256).astype(np.uint8), np.arange(-128, 128).astype(np.int8)
POWERS = frozenset({"pow2-shift", "tqt"})
"""Machines whose multipliers are powers of two."""
PAIRS = (np.repeat(LEVELS, 256), np.tile(LEVELS, 256))


def net(
    body: str,
    inputs: int = 1,
    dtype: str = "uint8",
    constants: str = "",
    out: str = "",
    *,
    powers: bool = False,
) -> onnx.ModelProto:
    """``body`` makes y of x0, x1, …, which are dequantized; y is quantized; ``powers``: by
    scales that are such.
    """
    scales = [1 / 32, 1 / 16] if powers else [0.0307, 0.0417]
    zeros = {"uint8": (121, 97), "int8": (5, -11), "int16": (77, -300), "uint16": (30_000, 31_000)}[
        dtype
    ]
    given = ", ".join(f"{dtype}[N] q{i}" for i in range(inputs))
    grids = ", ".join(
        f"float s{i} = {{{scales[i]}}}, {dtype} z{i} = {{{zeros[i]}}}" for i in range(inputs)
    )
    read = " ".join(f"x{i} = DequantizeLinear(q{i}, s{i}, z{i})" for i in range(inputs))
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g ({given}) => ({out or dtype}[N] r) <{grids}, '
        f"float sy = {{{1 / 64 if powers else 0.0213}}}, {out or dtype} zy = "
        f"{{{zeros[0] - 3}}}{constants}>"
        f"{{ {read} {body} r = QuantizeLinear(y, sy, zy) }}"
    )
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    return proto


def lowered(proto: onnx.ModelProto) -> ir.Model:
    model = lower_to_qoperator(ir.from_proto(proto), INTEGER_INTERPRETER)
    assert not [node.op_type for node in model.graph if node.op_type.endswith("uantizeLinear")]
    return model


def counted(proto: onnx.ModelProto, machine: str, *levels: Any) -> Any:
    feeds = {f"q{i}": array for i, array in enumerate(levels)}
    return Program(lowered(proto), get_arithmetic(machine)).run(feeds)["r"]


def evaluated(proto: onnx.ModelProto, *levels: Any) -> Any:
    """The evaluator's reals on the grid of the result: what its own QuantizeLinear makes of
    infinities is no level.
    """
    real = onnx.ModelProto()
    real.CopyFrom(proto)
    quantizer = real.graph.node.pop()
    del real.graph.output[:]
    real.graph.output.append(onnx.helper.make_value_info(quantizer.input[0], onnx.TypeProto()))
    known = {one.name: onnx.numpy_helper.to_array(one) for one in proto.graph.initializer}
    zero = known[quantizer.input[2]]
    grid = QParams(float(known["sy"]), int(zero), QType.parse(zero.dtype.name))
    with np.errstate(all="ignore"):
        reals = ReferenceEvaluator(real).run(
            None, {f"q{i}": array for i, array in enumerate(levels)}
        )[0]
    return quantize(np.asarray(reals), grid)


def engine(proto: onnx.ModelProto, *levels: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {f"q{i}": array for i, array in enumerate(levels)})[0]


FUNCTIONS = {
    **{
        name: f"y = {name}(x0)"
        for name in sorted(POINTWISE - {"Add", "Sub", "Mul", "Div", "Pow", "PRelu", "Clip"})
    },
    "Elu of another slope": "y = Elu<alpha = 0.4>(x0)",
    "Gelu by tanh": 'y = Gelu<approximate = "tanh">(x0)',
    "HardSigmoid steep": "y = HardSigmoid<alpha = 0.4, beta = 0.3>(x0)",
    "LeakyRelu falling": "y = LeakyRelu<alpha = -0.3>(x0)",
    "LeakyRelu flat": "y = LeakyRelu<alpha = 0.0>(x0)",
    "Add a number": "y = Add(x0, c)",
    "Sub from a number": "y = Sub(c, x0)",
    "Sub a number": "y = Sub(x0, c)",
    "Mul": "y = Mul(c, x0)",
    "Div by a number": "y = Div(x0, c)",
    "Div a number": "y = Div(c, x0)",
    "Pow": "y = Pow(x0, two)",
    "PRelu": "y = PRelu(x0, c)",
    "Clip": "y = Clip(x0, low, high)",
    "Clip above": "y = Clip(x0, , high)",
}
CONSTANTS = ", float[1] c = {0.73}, int64 two = {2}, float low = {-0.4}, float high = {0.9}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_level_of_every_function(name: str) -> None:
    proto = net(FUNCTIONS[name], constants=CONSTANTS)
    np.testing.assert_array_equal(counted(proto, "ort-x64", BYTES), evaluated(proto, BYTES))


@pytest.mark.slow_but(26)
@pytest.mark.parametrize(
    "name", ["Neg", "Abs", "Relu", "Exp", "Tanh", "Floor", "Clip", "Add a number"]
)
@pytest.mark.parametrize("machine", list_arithmetics())
def test_every_machine_is_within_a_step(name: str, machine: str) -> None:
    """Its rounding may part it from the evaluator by a step (by two of XNNPACK's and Glow's
    eight bits), not more.
    """
    proto = net(FUNCTIONS[name], dtype="int8", constants=CONSTANTS, powers=machine in POWERS)
    apart = np.abs(counted(proto, machine, LEVELS).astype(int) - evaluated(proto, LEVELS))
    assert apart.max() <= (2 if machine in ("xnnpack", "glow-cpu") else 1)


@pytest.mark.parametrize("dtype", ["int16", "uint16"])
@pytest.mark.parametrize("name", ["Tanh", "Relu", "Log", "Clip"])
def test_every_level_of_sixteen_bits(name: str, dtype: str) -> None:
    ends = np.iinfo(dtype)
    levels = np.arange(ends.min, ends.max + 1).astype(dtype)
    proto = net(FUNCTIONS[name], dtype=dtype, constants=CONSTANTS)
    np.testing.assert_array_equal(counted(proto, "ort-x64", levels), evaluated(proto, levels))


def test_grids_of_two_types() -> None:
    proto = net("y = Elu(x0)", dtype="int8", out="uint8")
    np.testing.assert_array_equal(counted(proto, "ort-x64", LEVELS), evaluated(proto, LEVELS))


def test_a_constant_of_more_axes_gives_its_axes() -> None:
    proto = net("y = Mul(x0, c)", constants=", float[1, 1, 1] c = {2.5}")
    assert counted(proto, "ort-x64", BYTES).shape == (1, 1, 256)
    np.testing.assert_array_equal(counted(proto, "ort-x64", BYTES), evaluated(proto, BYTES))


@pytest.mark.parametrize("operator", ["Sub", "Div", "Max", "Min", "PRelu", "Pow"])
def test_every_pair_as_the_engine_dequantizes_it(operator: str) -> None:
    proto = net(f"y = {operator}(x0, x1)", 2, "int8")
    left, right = PAIRS
    found = counted(proto, "ort-x64", left, right)
    np.testing.assert_array_equal(found, evaluated(proto, left, right))
    if operator != "Pow":  # its last bits are the C library's
        np.testing.assert_array_equal(found, engine(proto, left, right))


@pytest.mark.slow_but(4)
@pytest.mark.parametrize("operator", ["Sub", "Div", "Max", "PRelu"])
@pytest.mark.parametrize("machine", ["gemmlowp", "fbgemm", "glow-cpu", "ort-x64"])
def test_broadcasting_and_means_change_no_bit(operator: str, machine: str) -> None:
    proto = net(f"y = {operator}(x0, x1)", 2, "int8")
    row, column = LEVELS[None, :], LEVELS[::3, None].copy()
    model, feeds = lowered(proto), {"q0": column, "q1": row}
    quick = Program(model, get_arithmetic(machine), means=best_means()).run(feeds)["r"]
    plain = Program(model, get_arithmetic(machine), means=counting_means()).run(feeds)["r"]
    whole = {
        "q0": np.broadcast_to(column, quick.shape).copy(),
        "q1": np.broadcast_to(row, quick.shape).copy(),
    }
    np.testing.assert_array_equal(quick, plain)
    np.testing.assert_array_equal(quick, Program(model, get_arithmetic(machine)).run(whole)["r"])


def with_number(operator: str, dtype: str, *, first: bool, powers: bool = False) -> onnx.ModelProto:
    """``operator`` of x0 and a constant of one value on a grid, in either order."""
    zero, level = {
        "int8": (-128, 127),
        "uint8": (3, 200),
        "int16": (-5, -9000),
        "uint16": (40_000, 65_535),
    }[dtype]
    scale = 1 / 256 if powers else 0.0031
    constant = f", {dtype} k = {{{level}}}, float sk = {{{scale}}}, {dtype} zk = {{{zero}}}"
    operands = "c, x0" if first else "x0, c"
    return net(
        f"c = DequantizeLinear(k, sk, zk) y = {operator}({operands})",
        1,
        dtype,
        constant,
        powers=powers,
    )


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("first", [False, True], ids=["x-c", "c-x"])
@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div"])
def test_a_number_on_a_grid_counts_as_an_operand_that_varies(operator: str, first: bool) -> None:
    """A table of one operand's levels has the numbers of the table of all pairs."""
    for machine in set(list_arithmetics()) - {
        "qnnpack",
        "xnnpack",
    }:  # these take fewer ratios of scales
        proto = with_number(operator, "int8", first=first, powers=machine in POWERS)
        varying = onnx.ModelProto.FromString(proto.SerializeToString())
        (constant,) = (one for one in varying.graph.initializer if one.name == "k")
        varying.graph.initializer.remove(constant)
        varying.graph.input.append(
            onnx.helper.make_tensor_value_info("k", onnx.TensorProto.INT8, [])
        )
        level = onnx.numpy_helper.to_array(constant)
        wanted = Program(lowered(varying), get_arithmetic(machine)).run({"q0": LEVELS, "k": level})[
            "r"
        ]
        np.testing.assert_array_equal(counted(proto, machine, LEVELS), wanted, machine)


@pytest.mark.slow_but(5)
@pytest.mark.parametrize("first", [False, True], ids=["x-c", "c-x"])
@pytest.mark.parametrize("dtype", ["int16", "uint16"])
@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div"])
def test_a_number_next_to_levels_of_16_bits(operator: str, dtype: str, first: bool) -> None:
    proto, ends = with_number(operator, dtype, first=first), np.iinfo(dtype)
    levels = np.linspace(ends.min, ends.max, 997).astype(dtype)
    np.testing.assert_array_equal(counted(proto, "ort-x64", levels), evaluated(proto, levels))
    grids = {one.name: onnx.numpy_helper.to_array(one).item() for one in proto.graph.initializer}
    known = Fraction(grids["sk"]) * (grids["k"] - grids["zk"])
    if operator == "Div" and first:
        levels = levels[levels != grids["z0"]]  # a quotient by zero has no exact value
    wanted = []
    for level in levels.tolist():
        pair = [Fraction(grids["s0"]) * (level - grids["z0"]), known][:: -1 if first else 1]
        real = {
            "Add": lambda a, b: a + b,
            "Sub": lambda a, b: a - b,
            "Mul": lambda a, b: a * b,
            "Div": lambda a, b: a / b,
        }
        exact = round(real[operator](*pair) / Fraction(grids["sy"])) + grids["zy"]
        wanted.append(min(max(exact, ends.min), ends.max))
    np.testing.assert_array_equal(counted(proto, "ideal", levels), wanted)


def test_several_operands_and_real_ones_of_a_maximum() -> None:
    proto = net("y = Max(x0, x1, c)", 2, "int8", ", float[2, 1] c = {0.31, -0.7}")
    np.testing.assert_array_equal(counted(proto, "ort-x64", *PAIRS), evaluated(proto, *PAIRS))


@pytest.mark.parametrize("constant", ["float c = {-1000000000.0}", "float[256] c"])
def test_choices(constant: str) -> None:
    proto = net("y = Where(mask, x0, c)", 1, "int8", f", {constant}" if "=" in constant else "")
    added = {"mask": np.arange(256) % 3 == 0, "c": np.linspace(-3, 3, 256, dtype=np.float32)}
    for name, array in added.items():
        if name == "mask" or "=" not in constant:
            proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    np.testing.assert_array_equal(counted(proto, "ort-x64", LEVELS), evaluated(proto, LEVELS))


# Differences, quotients and conversions, number by number


def half_up(value: Fraction) -> int:
    return math.floor(value + Fraction(1, 2))


def half_away(value: Fraction) -> int:
    return half_up(value) if value >= 0 else -half_up(-value)


def fixed(value: float) -> tuple[int, int]:
    fraction, exponent = math.frexp(value)
    factor = math.floor(fraction * 2**31 + 0.5)
    return (factor // 2, exponent + 1) if factor == 1 << 31 else (factor, exponent)


def doubly_rounded(value: int, multiplier: float) -> int:
    factor, shift = fixed(multiplier)
    upper = half_up(Fraction(value * 2 ** max(shift, 0) * factor, 1 << 31))
    return half_away(Fraction(upper, 2 ** max(-shift, 0)))


A, B, Y = QParams(0.031, 3, INT8), QParams(0.0473, -9, INT8), QParams(0.052, 7, INT8)
SA, SB, SY = (float(grid.scale) for grid in (A, B, Y))


def tflite_difference(a: int, b: int) -> int:
    twice = 2 * max(SA, SB)
    left = doubly_rounded((a - 3) << 20, SA / twice)
    right = doubly_rounded((b + 9) << 20, SB / twice)
    return doubly_rounded(left - right, twice / (2**20 * SY)) + 7


def exact_difference(a: int, b: int) -> int:
    return round((Fraction(SA) * (a - 3) - Fraction(SB) * (b + 9)) / Fraction(SY)) + 7


def weighted_difference(a: int, b: int) -> int:
    ratios = [float(np.float32(grid.scale / Y.scale)) for grid in (A, B)]
    shift = 21 - math.frexp(max(ratios))[1]
    weights = [round(ratio * 2**shift) for ratio in ratios]
    return half_up(Fraction(weights[0] * (a - 3) - weights[1] * (b + 9), 2**shift)) + 7


def tvm_difference(a: int, b: int) -> int:
    def single(value: int, multiplier: float) -> int:
        factor, shift = fixed(multiplier)
        return half_away(Fraction(value * factor, 2 ** (31 - shift)))

    return single(a - 3, SA / SY) - single(b + 9, SB / SY) + 7


def glow_difference(a: int, b: int) -> int:
    left = np.float32(np.float32(A.scale / Y.scale) * np.float32(a - 3))
    right = np.float32(np.float32(B.scale / Y.scale) * np.float32(b + 9))
    return half_away(Fraction(float(np.float32(np.float32(left - right) + np.float32(7)))))


DIFFERENCES: dict[str, Callable[[int, int], int]] = {
    "gemmlowp": tflite_difference,
    "ideal": exact_difference,
    "xnnpack": weighted_difference,
    "tvm-tonearest": tvm_difference,
    "glow-interpreter": glow_difference,
}


@pytest.mark.parametrize("machine", DIFFERENCES)
def test_differences_are_not_swapped_and_round_as_the_machine_does(machine: str) -> None:
    random = np.random.default_rng(1)
    a, b = random.integers(-128, 128, (2, 800))
    found = subtract_quantized(a, b, A, B, Y, machine)
    expected = [
        min(max(DIFFERENCES[machine](i, j), -128), 127)
        for i, j in zip(a.tolist(), b.tolist(), strict=True)
    ]
    assert found.tolist() == expected
    assert (found != subtract_quantized(b, a, B, A, Y, machine)).mean() > 0.9
    assert found.dtype == np.int8


def test_a_difference_on_one_grid_is_its_zero_point() -> None:
    coarse, fine = QParams(0.25, 3, INT8), QParams(0.125, 7, INT8)
    for machine in list_arithmetics():
        one, result = (coarse, fine) if machine in POWERS else (A, Y)
        assert (subtract_quantized(LEVELS, LEVELS, one, one, result, machine) == 7).all(), machine


def test_a_quotient_by_zero_saturates_and_is_counted() -> None:
    one = QParams(1.0, 0, INT8)
    assert divide_quantized([5, -5, 0, 7], [0, 0, 0, 2], one, one, one, "ort-x64").tolist() == [
        127,
        -128,
        -128,
        4,
    ]
    assert divide_quantized([5, -5, 0, 7], [0, 0, 0, 2], one, one, one, "fbgemm").tolist() == [
        127,
        -128,
        127,
        4,
    ]
    assert divide_quantized([5, -5, 0, 5], [0, 0, 0, 2], one, one, one, "ideal").tolist() == [
        127,
        -128,
        -128,
        2,
    ]
    model = lowered(net("y = Div(x0, x1)", 2, "int8"))
    program = Program(model, get_arithmetic("ideal"), means=counting_means())
    program.run({"q0": np.array([[1, 2, 3]], np.int8), "q1": np.array([[-11], [4]], np.int8)})
    assert next(iter(program.counters.values())).overflowed == 3


def test_quotients_of_the_exact_machine_are_rational() -> None:
    random = np.random.default_rng(2)
    a, b = random.integers(-128, 128, (2, 500))
    b = np.where(b == -9, 1, b)
    found = divide_quantized(a, b, A, B, Y, "ideal")
    exact = [
        round(Fraction(SA) * (i - 3) / (Fraction(SB) * (j + 9) * Fraction(SY))) + 7
        for i, j in zip(a.tolist(), b.tolist(), strict=True)
    ]
    assert found.tolist() == [min(max(value, -128), 127) for value in exact]


@pytest.mark.parametrize(
    ("machine", "rule"),
    [
        ("ideal", lambda c: round(Fraction(SA) * c / Fraction(SY))),
        ("gemmlowp", lambda c: doubly_rounded(c, SA / SY)),
        (
            "xnnpack",
            lambda c: half_up(Fraction(c * round(256 * float(np.float32(A.scale / Y.scale))), 256)),
        ),
        (
            "ort-x64",
            lambda c: round(float(np.float32(np.float32(np.float32(c) * A.scale) / Y.scale))),
        ),
        ("pow2-shift", None),
    ],
)
def test_conversions_from_grid_to_grid(machine: str, rule: Any) -> None:
    if rule is None:
        with pytest.raises(InputError, match="power of two"):
            rescale_quantized(LEVELS, A, Y, machine)
        return
    expected = [min(max(rule(level - 3) + 7, -128), 127) for level in range(-128, 128)]
    assert rescale_quantized(LEVELS, A, Y, machine).tolist() == expected


def test_eight_fraction_bits_are_coarse() -> None:
    """The reference's example: .0392157 → .0235294 has m = 427,
    and 9 of 256 levels are not the exact ones.
    """
    x, y = QParams(0.0392157, -128, INT8), QParams(0.0235294, -128, INT8)
    coarse, exact = (
        rescale_quantized(LEVELS, x, y, "xnnpack"),
        rescale_quantized(LEVELS, x, y, "ideal"),
    )
    assert np.count_nonzero(coarse != exact) == 9
    with pytest.raises(InputError, match="steps of 2"):
        rescale_quantized(LEVELS, QParams(1e-4, 0, INT8), QParams(1.0, 0, INT8), "xnnpack")


def test_both_sides_of_a_leaky_relu_have_a_multiplier() -> None:
    """TFLite's: two multipliers; a table of floats would differ."""
    found = counted(net("y = LeakyRelu<alpha = 0.3>(x0)", dtype="int8"), "gemmlowp", LEVELS)
    sx, sy, slope = np.float32(0.0307), np.float32(0.0213), np.float32(0.3)
    above, below = float(sx) / float(sy), float(sx) * float(slope) / float(sy)
    expected = [doubly_rounded(c, above if c >= 0 else below) + 2 for c in range(-133, 123)]
    assert found.tolist() == [min(max(level, -128), 127) for level in expected]
    assert (found != evaluated(net("y = LeakyRelu<alpha = 0.3>(x0)", dtype="int8"), LEVELS)).any()


def test_a_requantize_node_is_one_operator() -> None:
    proto = net("y = Identity(x0)", dtype="int8", out="int8")
    model = ir.from_proto(proto)
    identity = next(node for node in model.graph if node.op_type == "Identity")
    identity.outputs[0].replace_all_uses_with(identity.inputs[0])
    model.graph.remove(identity, safe=True)
    assert [node.op_type for node in lower_to_qoperator(model, INTEGER_INTERPRETER).graph] == [
        "QLinearRequantize"
    ]
    found = Program(lower_to_qoperator(model, INTEGER_INTERPRETER), get_arithmetic("gemmlowp")).run(
        {"q0": LEVELS}
    )["r"]
    x, y = QParams(0.0307, 5, INT8), QParams(0.0213, 2, INT8)
    np.testing.assert_array_equal(found, rescale_quantized(LEVELS, x, y, "gemmlowp"))


# Reals that are no numbers, or too large

EXTREMES = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 0.0], np.float32)
HIGHEST = ("fbgemm", "fbgemm-avx2", "fbgemm-depthwise", "onednn", "qnnpack")


@pytest.mark.parametrize("machine", list_arithmetics())
@pytest.mark.parametrize("qtype", [INT8, UINT8])
def test_infinities_saturate_and_nan_is_an_end(machine: str, qtype: QType) -> None:
    low, high = get_arithmetic(machine).limits(QParams(0.5, 3, qtype))
    nan = high if machine in HIGHEST else low
    assert quantize(EXTREMES[[0, 1, 2, 5]], QParams(0.5, 3, qtype), machine).tolist() == [
        nan,
        high,
        low,
        3,
    ]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("count", [1, 67])
def test_extremes_are_onnx_runtimes(dtype: str, count: int) -> None:
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g (float[N, M] q0) => ({dtype}[N, M] r)'
        f"<float s = {{0.1}}, {dtype} z = {{3}}> {{ r = QuantizeLinear(q0, s, z) }}"
    )
    x = np.repeat(EXTREMES[:, None], count, axis=1)
    theirs = engine(proto, x)
    np.testing.assert_array_equal(
        quantize(x, QParams(0.1, 3, QType.parse(dtype)), "ort-x64"), theirs
    )
    np.testing.assert_array_equal(quantize(x, QParams(0.1, 3, QType.parse(dtype))), theirs)
