"""Biases at scales of their own, in integers: every operator, form and mode against an oracle
of Python's integers.

The oracle follows TVM's realize.cc: UnifyDTypeScale brings the coarser of product and bias to the
finer one's scale (left_shift in int32, which wraps; FixedPointMultiply where the ratio is no power
of two), they are added in int32, and the sum is multiplied for the result.
"""

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib.util import find_spec
from math import frexp

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from qbench.backends import IntegerBackend, get_backend
from qbench.graph import mark_float_codes
from qbench.interpreter import counting_means
from qbench.numerics import OwnBias, get_arithmetic, held
from qbench.passes import declined, integer_target, lower_to_integers

RELAY = get_arithmetic("tvm-relay")
DEPTH, COLUMNS, ROWS = 3, 2, 4


@dataclass(frozen=True)
class Case:
    """One product of int8 by int8 and its bias."""

    operator: str
    split: bool
    ruled: bool
    x: float
    weight: float
    bias: float
    result: float
    kind: str = "int8"

    def model(self, w: np.ndarray, b: np.ndarray) -> ir.Model:
        """Q and DQ around the operator, written as the quantizer writes them."""
        shapes = {
            "Conv": ("N,3,1,1", "N,2,1,1", w.T.reshape(COLUMNS, DEPTH, 1, 1), "2,1,1"),
            "ConvTranspose": ("N,3,1,1", "N,2,1,1", w.reshape(DEPTH, COLUMNS, 1, 1), "2,1,1"),
            "Gemm": ("N,3", "N,2", w, "2"),
            "MatMul": ("N,3", "N,2", w, "2"),
            "MatMul of three axes": ("N,1,3", "N,1,2", w, "2"),
        }
        into, out, weight, behind = shapes[self.operator]
        operator = self.operator.partition(" ")[0]
        stored = behind if self.split else "2"
        lines = [
            "xr = DequantizeLinear(x, sx, z)",
            "wr = DequantizeLinear(w, sw, z)",
            "br = DequantizeLinear(b, sb, zb)",
        ]
        fused = operator != "MatMul" and not self.split
        lines.append(f"p = {operator}(xr, wr{', br' * fused})")
        last = "p"
        if self.ruled:
            lines += [
                "pd = Div(p, sb)",
                "pr = Round(pd)",
                "pc = Clip(pr, low, high)",
                "pm = Mul(pc, sb)",
            ]
            last = "pm"
        if not fused:
            lines.append(f"s = Add({last}, br)")
            last = "s"
        lines.append(f"y = QuantizeLinear({last}, sy, z)")
        constants = [
            *(
                f"float {name} = {{{value!r}}}"
                for name, value in zip(("sx", "sw", "sb", "sy"), self.scales, strict=True)
            ),
            "int8 z = {0}",
            f"{self.kind} zb = {{0}}",
            "float low = {-2147483648.0}",
            "float high = {2147483647.0}",
            (
                f"int8[{','.join(map(str, weight.shape))}] w = "
                f"{{{', '.join(map(str, weight.reshape(-1).tolist()))}}}"
            ),
            f"{self.kind}[{stored}] b = {{{', '.join(map(str, b.tolist()))}}}",
        ]
        body = "\n".join(lines)
        model = ir.from_onnx_text(
            f'<ir_version: 10, opset_import: ["" : 21]> net (int8[{into}] x) => (int8[{out}] y) '
            f"<{', '.join(constants)}> {{ {body} }}"
        )
        for node in model.graph:
            node.name = node.outputs[0].name
            if node.name in ("pd", "pr", "pc", "pm"):
                mark_float_codes(node, "int32")
        return model

    @property
    def scales(self) -> tuple[float, float, float, float]:
        return self.x, self.weight, self.bias, self.result

    def shaped(self, x: np.ndarray) -> np.ndarray:
        shape = {
            "Conv": (-1, 3, 1, 1),
            "ConvTranspose": (-1, 3, 1, 1),
            "MatMul of three axes": (-1, 1, 3),
        }
        return x.reshape(shape.get(self.operator, (-1, 3)))


def wrapped(value: int) -> int:
    """In int32."""
    return (value + 2**31) % 2**32 - 2**31


def multiplied(value: int, ratio: Fraction) -> int:
    """By a power of two shifted, rounding half up on the way to the right;
    else by 31 bits and a shift.
    """
    fraction, exponent = frexp(float(ratio))
    if fraction == 0.5:
        power = exponent - 1
        return wrapped(value << power) if power >= 0 else (value + (1 << (-power - 1))) >> -power
    factor = int(fraction * 2**31 + 0.5)
    if factor == 2**31:
        factor, exponent = factor // 2, exponent + 1
    shift = 31 - exponent
    return (value * factor + (1 << (shift - 1))) >> shift


def oracle(case: Case, x: list[int], w: list[list[int]], b: list[int]) -> list[int]:
    """One row of levels."""
    product = Fraction(float(np.float32(case.x) * np.float32(case.weight)))
    own, result = Fraction(float(np.float32(case.bias))), Fraction(float(np.float32(case.result)))
    at = own if case.ruled else min(product, own)
    found = []
    for column, bias in enumerate(b):
        acc = wrapped(sum(one * row[column] for one, row in zip(x, w, strict=True)))
        total = wrapped(
            wrapped(multiplied(acc, product / at)) + wrapped(multiplied(bias, own / at))
        )
        found.append(min(max(multiplied(total, at / result), -127), 127))
    return found


OPERATORS = ("Conv", "ConvTranspose", "Gemm", "MatMul", "MatMul of three axes")
POWERS = st.integers(-14, 2).map(lambda power: 2.0**power)
REALS = st.floats(2.0**-14, 4.0, width=32)
LEVELS = st.integers(-128, 127)
ENDS = {"int8": 127, "int16": 32767, "int32": 2**30}


@st.composite
def _cases(draw: st.DrawFn) -> tuple[Case, np.ndarray, np.ndarray, np.ndarray]:
    scales = draw(st.sampled_from((POWERS, POWERS, REALS)))
    split = draw(st.booleans())
    operator = draw(st.sampled_from(OPERATORS))
    kind = draw(st.sampled_from(sorted(ENDS)))
    if kind == "int32" and operator == "Gemm":
        split = True  # fused, it is taken for one at the product's scale
    x, w, b, y = (draw(scales) for _ in range(4))
    case = Case(operator, split, draw(st.booleans()) if split else False, x, w, b, y, kind)
    data = np.array(
        draw(st.lists(LEVELS, min_size=DEPTH * ROWS, max_size=DEPTH * ROWS)), np.int8
    ).reshape(ROWS, DEPTH)
    weight = np.array(
        draw(st.lists(LEVELS, min_size=DEPTH * COLUMNS, max_size=DEPTH * COLUMNS)), np.int8
    )
    end = ENDS[kind]
    bias = np.array(
        draw(st.lists(st.integers(-end, end), min_size=COLUMNS, max_size=COLUMNS)), kind
    )
    return case, data, weight.reshape(DEPTH, COLUMNS), bias


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(_cases())
def test_every_product_adds_its_bias_as_the_oracle(
    drawn: tuple[Case, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    case, x, w, b = drawn
    derived = case.kind == "int32" and np.float32(case.x) * np.float32(case.weight) == np.float32(
        case.bias
    )
    assume(
        not (derived and case.operator == "MatMul of three axes")
    )  # its sum with a derived bias is real
    model = case.model(w, b)
    assert not declined(lower_to_integers(model, integer_target(RELAY)))
    wanted = [oracle(case, row, w.tolist(), b.tolist()) for row in x.tolist()]
    for backend in (
        get_backend("integer-tvm-relay"),
        IntegerBackend(arithmetic=RELAY, means=counting_means()),
    ):
        with backend.prepare(model) as executor:
            found = executor.run({"x": case.shaped(x)})["y"]
            ran = executor.executed()
        assert found.reshape(ROWS, COLUMNS).tolist() == wanted
        assert ran["p"].in_integers


@pytest.mark.parametrize("operator", OPERATORS)
def test_scales_a_channel_meet_channel_by_channel(operator: str) -> None:
    """Weights with a scale a channel: each column has a finer side of its own."""
    case = Case(operator, split=True, ruled=False, x=0.25, weight=0.5, bias=2.0**-5, result=0.5)
    w = np.array([[3, -128], [-77, 127], [55, 1]], np.int8)
    b, x = (
        np.array([101, -97], np.int8),
        np.array([[1, 2, 3], [-128, 127, -128], [0, 0, 0], [9, -9, 9]], np.int8),
    )
    model = case.model(w, b)
    each = np.array([2.0**-6, 2.0**-1], np.float32)
    graph = model.graph
    axis = {"Conv": 0}.get(operator, 1)
    graph.initializers["sw"].const_value = ir.tensor(each, name="sw")
    graph.initializers["sw"].shape = ir.Shape([2])
    zero = ir.Value(
        name="zw", shape=ir.Shape([2]), const_value=ir.tensor(np.zeros(2, np.int8), name="zw")
    )
    zero.type = ir.TensorType(ir.DataType.INT8)
    graph.register_initializer(zero)
    node = next(node for node in graph if node.name == "wr")
    node.replace_input_with(2, zero)
    node.attributes.add(ir.AttrInt64("axis", axis))
    with get_backend("integer-tvm-relay").prepare(model) as executor:
        found = executor.run({"x": case.shaped(x)})["y"].reshape(4, 2)
    for column, scale in enumerate(each.tolist()):
        one = replace(case, weight=scale)
        wanted = [
            oracle(one, row, w[:, column : column + 1].tolist(), b[column : column + 1].tolist())
            for row in x.tolist()
        ]
        assert found[:, column : column + 1].tolist() == wanted


def test_sums_that_leave_int32_on_the_way_are_counted() -> None:
    """acc = 3 · 127², shifted by 20 bits: beyond 2³¹, and wraps as LLVM's shl does."""
    case = Case(
        "Gemm", split=True, ruled=False, x=1.0, weight=1.0, bias=2.0**-20, result=1.0, kind="int16"
    )
    w, b, x = (
        np.full((3, 2), 127, np.int8),
        np.array([5, -5], np.int16),
        np.full((1, 3), 127, np.int8),
    )
    model = case.model(w, b)
    with IntegerBackend(arithmetic=RELAY, means=counting_means()).prepare(model) as executor:
        found = executor.run({"x": x})["y"].tolist()
        assert executor.counters["p"].overflowed == 2
    assert found == [oracle(case, [127] * 3, w.tolist(), b.tolist())]
    fine = replace(case, bias=2.0**-10)
    with IntegerBackend(arithmetic=RELAY, means=counting_means()).prepare(
        fine.model(w, b)
    ) as executor:
        executor.run({"x": x})
        assert executor.counters["p"].overflowed == 0


@pytest.mark.parametrize("operator", ["Gemm", "MatMul"])
def test_a_sum_that_leaves_the_integers_is_real(operator: str) -> None:
    case = Case(operator, split=True, ruled=False, x=0.5, weight=0.25, bias=2.0**-6, result=1.0)
    w, b = np.array([[1, 2], [3, -4], [5, 6]], np.int8), np.array([17, -99], np.int8)
    model = case.model(w, b)
    graph = model.graph
    graph.outputs[0] = next(node for node in graph if node.name == "s").outputs[0]
    graph.remove(next(node for node in graph if node.name == "y"), safe=True)
    x = np.array([[1, 2, 3], [-7, 100, 9]], np.int8)
    with get_backend("integer-tvm-relay").prepare(model) as executor:
        found = executor.run({"x": x})["s"]
        assert executor.executed()["p"].in_integers
    assert found.tolist() == (x.astype(int) @ w.astype(int) / 8 + b.astype(int) / 64).tolist()


@pytest.mark.parametrize("name", ["gemmlowp", "ideal", "tvm-upward"])
def test_an_arithmetic_without_such_biases_leaves_them_and_says_so(name: str) -> None:
    case = Case("Conv", split=False, ruled=False, x=0.5, weight=0.25, bias=2.0**-6, result=1.0)
    model = case.model(np.ones((3, 2), np.int8), np.array([1, 2], np.int8))
    left = declined(lower_to_integers(model, integer_target(get_arithmetic(name))))
    assert left == {"p": "its bias does not have the scale of the product"}


def test_only_multipliers_that_shift_bring_biases_to_a_scale() -> None:
    with pytest.raises(ValueError, match="multipliers that shift"):
        replace(get_arithmetic("ort-x64"), biases=RELAY.biases)
    assert RELAY.with_multiplier(get_arithmetic("ort-x64").scaling).biases is not RELAY.biases


_BY_TVM = """
import json, sys
import numpy as np, tvm
from tvm import te
acc, bias, left = (np.array(part, np.int32) for part in json.loads(sys.argv[1]))
a, b, k = (te.placeholder(acc.shape, "int32", name=name) for name in ("a", "b", "k"))
total = te.compute(acc.shape, lambda i: (a[i] << k[i]) + b[i], name="sum")
function = te.create_prim_func([a, b, k, total])
given = [tvm.runtime.tensor(array) for array in (acc, bias, left, np.zeros_like(acc))]
tvm.compile(function, target="llvm")(*given)
print(json.dumps(given[-1].numpy().tolist()))
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("tvm") is None, reason="needs the extra tvm")
def test_sums_are_those_of_code_that_tvm_compiles() -> None:
    """left_shift and add in int32 as AddRealize writes them, compiled by TVM:
    bits on top are lost in both.
    """
    rng = np.random.default_rng(11)
    left = np.concatenate([np.arange(32), rng.integers(0, 32, 200)])
    acc = rng.integers(-(2**31), 2**31, left.size) >> rng.integers(0, 24, left.size)
    bias = rng.integers(-(2**15), 2**15, left.size)
    text = json.dumps([part.tolist() for part in (acc, bias, left)])
    done = subprocess.run(
        [sys.executable, "-c", _BY_TVM, text], capture_output=True, text=True, check=True
    )
    own = OwnBias.of(1.0, np.ones(left.size), 2.0**-left, ruled=False)
    sums = held(own.sums(RELAY)(acc) + own.bias_codes(bias, RELAY), RELAY.accumulator)
    assert sums.tolist() == json.loads(done.stdout)
