"""Saturation lint against brute force, and against the interpreter that counts what happens."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from lint_graphs import conv, conv_integer, matmul

from qbench.diagnosis import lint_products
from qbench.errors import InputError
from qbench.interpreter import Program, counting_means, risky_pairs
from qbench.numerics import Accumulator, get_arithmetic

IN_PAIRS = replace(get_arithmetic("ort-x64"), name="pairs", accumulator=Accumulator(pair_bits=16))
WEIGHTS = st.integers(-128, 127)


def only(model, *machines):
    (layer,) = lint_products(model, machines).layers
    return layer


def saturated(total):
    return max(-(2**15), min(2**15 - 1, total))


def lost(weights, levels):
    """Exact minus saturating sum, pair by pair; what is left over of an odd number stands alone."""
    pairs = zip(weights[::2], weights[1::2], levels[::2], levels[1::2], strict=False)
    return sum(x0 * w0 + x1 * w1 - saturated(x0 * w0 + x1 * w1) for w0, w1, x0, x1 in pairs)


@settings(max_examples=60)
@given(
    hnp.arrays(np.int8, st.tuples(st.integers(1, 7), st.integers(1, 2)), elements=WEIGHTS),
    st.sampled_from([255, 200, 130]),
)
def test_the_worst_loss_is_that_of_all_inputs(weight, high):
    layer = only(matmul(weight, clip=(0, high)))
    columns = [[int(w) for w in column] for column in weight.T]
    inputs = list(
        itertools.product((0, high), repeat=len(weight))
    )  # a sum is linear up to its end: ends are enough
    assert layer.pairs.loss == max(
        abs(lost(column, levels)) for column in columns for levels in inputs
    )
    assert layer.pairs.pairs == len(weight) // 2 * weight.shape[1]
    in_use = [
        lost(c[k : k + 2], (high, high)) != 0 for c in columns for k in range(0, len(weight) - 1, 2)
    ]
    assert layer.pairs.risky == sum(in_use)
    assert (layer.pairs.why_not == "") == (layer.pairs.risky > 0)


@settings(max_examples=40)
@given(hnp.arrays(np.int8, st.tuples(st.integers(1, 8), st.integers(1, 3)), elements=WEIGHTS))
def test_with_8_bit_levels_the_pairs_are_the_interpreters(weight):
    assert only(matmul(weight)).pairs.risky == len(risky_pairs(weight)[0])


SHAPES = [
    ((3, 4, 1, 1), 1),
    ((2, 3, 3, 3), 1),
    ((4, 1, 3, 3), 4),
    ((4, 2, 2, 3), 2),
    ((6, 1, 5), 6),
]


@pytest.mark.parametrize(("shape", "group"), SHAPES)
def test_of_the_highest_levels_all_risky_pairs_saturate_and_no_other(shape, group):
    """Which holds only if pairs are those that the interpreter sums, in its order."""
    weight = np.random.default_rng(7).integers(-128, 128, shape).astype(np.int8)
    model = conv(weight, group=group)
    program = Program(model, IN_PAIRS, means=counting_means())
    program.run({"x": np.full((1, shape[1] * group, *shape[2:]), 255, np.uint8)})
    layer = only(model)
    assert layer.depthwise == (shape[1] == 1)
    assert 0 < layer.pairs.risky < layer.pairs.pairs
    assert program.counters["conv"].saturated == layer.pairs.risky


@pytest.mark.parametrize(("shape", "group"), SHAPES)
def test_a_conv_integer_has_its_weights_on_the_left(words, shape, group):
    """Pairs of unsigned weights saturate, and lie along the window; of one filter a channel too."""
    weight = np.random.default_rng(7).integers(60, 256, shape).astype(np.uint8)
    model, machine = conv_integer(weight, group=group), get_arithmetic("ort-x64-avx2")
    program = Program(model, machine, means=counting_means())
    program.run({"x": np.full((1, shape[1] * group, *shape[2:]), -128, np.int8)})
    layer = only(model, machine)
    assert layer.depthwise == (shape[1] == 1)
    assert 0 < layer.pairs.risky < layer.pairs.pairs
    assert program.counters["conv"].saturated == layer.pairs.risky
    assert layer.machines["ort-x64-avx2"][0].startswith(
        f"{layer.pairs.risky} of {layer.pairs.pairs} pairs"
    )
    other = conv_integer(weight.astype(np.int8), group=group, levels="uint8")
    words(only(other, machine).pairs.why_not)
    assert only(other, machine).machines["ort-x64-avx2"] == ()


@settings(max_examples=40)
@given(
    hnp.arrays(
        np.uint8, st.tuples(st.integers(1, 2), st.integers(1, 6)), elements=st.integers(0, 255)
    ),
    st.sampled_from([(-128, 127), (-128, 0), (-90, 127), (-60, 64)]),
)
def test_the_worst_loss_of_weights_on_the_left_is_that_of_all_inputs(weight, clip):
    layer = only(conv_integer(weight[:, :, None, None], clip=clip))
    inputs = list(itertools.product({*clip, 0}, repeat=weight.shape[1]))
    rows = [[int(w) for w in row] for row in weight]
    assert layer.pairs.loss == max(abs(lost(row, levels)) for row in rows for levels in inputs)
    assert (layer.pairs.why_not == "") == (layer.pairs.risky > 0)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (matmul(np.full((8, 2), 64, np.int8)), "weights have 7 bits or fewer"),
        (matmul(np.full((8, 2), -64, np.int8)), "weights have 7 bits or fewer"),
        (matmul(np.full((8, 2), 127, np.int8), clip=(0, 127)), "codes end at 127"),
        (matmul(np.full((8, 2), -128, np.int8), clip=(0, 128)), "codes end at 128"),
        (
            matmul(np.full((8, 2), 127, np.int8), levels="int8"),
            "int8 × int8 is not summed in pairs",
        ),
        (matmul(np.full((8, 2), 255, np.uint8)), "uint8 × uint8 is not summed in pairs"),
        (matmul(np.array([[100], [-100], [127], [1]], np.int8)), "no pair of one sign above 128"),
        (matmul(np.full((1, 2), 127, np.int8)), "one product a sum"),
    ],
)
def test_what_cannot_saturate_says_why(model, why):
    pairs = only(model).pairs
    assert (pairs.risky, pairs.loss, pairs.why_not) == (0, 0, why)


def test_a_pair_saturates_from_129_on():
    assert only(matmul(np.array([[127], [1]], np.int8))).pairs.risky == 0
    assert only(matmul(np.array([[127], [2]], np.int8))).pairs.risky == 1


def test_loss_in_steps_is_of_the_result_and_no_more_than_its_grid():
    weight = np.full((2, 1), 127, np.int8)
    assert only(matmul(weight, scales=(0.5, 0.01, 1.0))).pairs.loss_steps == pytest.approx(
        0.005 * 32003
    )
    assert only(matmul(weight, scales=(1.0, 1.0, 1.0))).pairs.loss_steps == 255


@settings(max_examples=40)
@given(
    hnp.arrays(np.int8, st.tuples(st.integers(1, 4), st.integers(1, 2)), elements=WEIGHTS),
    st.integers(0, 255),
    st.integers(-(2**31), 2**31 - 1),
)
def test_sum_bits_hold_every_sum_and_one_less_do_not(weight, zero, bias):
    filters = weight.T[:, :, None, None]
    layer = only(conv(filters, np.full(len(filters), bias), zeros=(zero, 0)))
    sums = [
        sum((x - zero) * int(w) for x, w in zip(levels, column, strict=True)) + bias
        for column in weight.T
        for levels in itertools.product((0, 255), repeat=len(weight))
    ]
    half = 1 << (layer.sum_bits - 1)
    assert all(-half <= one < half for one in sums)
    assert any(not -half // 2 <= one < half // 2 for one in sums) or layer.sum_bits == 1


def test_notes_name_what_is_unusual_on_any_machine(words):
    layer = only(conv(np.full((1, 2, 1, 1), 127, np.int8), [2**31 - 1], scales=(1.0, 2.0, 1.0)))
    words(layer.notes)
    assert only(conv(np.full((1, 2, 1, 1), 64, np.int8), [5])).notes == ()


@pytest.mark.parametrize(
    ("machine", "found"),
    [
        ("tqt", "multiplier 0.00"),
        ("ort-x64-avx2", "4 of 4 pairs can saturate in 16 bits"),
        ("fbgemm-depthwise", None),
        ("gemmlowp", None),
        ("ideal", None),
    ],
)
def test_what_a_machine_cannot_represent(machine, found):
    layer = only(conv(np.full((1, 8, 1, 1), 127, np.int8)), get_arithmetic(machine))
    assert [line[: len(found or "")] for line in layer.machines[machine]] == (
        [found] if found else []
    )


def test_narrow_accumulators_and_products_are_said(words):
    model = conv(np.full((1, 64, 3, 3), 127, np.int8))
    narrow = replace(get_arithmetic("gemmlowp"), accumulator=Accumulator(bits=24))
    words(only(model, narrow).machines["gemmlowp"])
    (said,) = only(model, get_arithmetic("glow-cpu")).machines["glow-cpu"]
    assert said.endswith("bits wrap at 32")


def test_a_shift_beyond_every_product_is_said():
    layer = only(
        conv(np.ones((1, 2, 1, 1), np.int8), scales=(2.0**60, 2.0**20, 1.0)),
        get_arithmetic("gemmlowp"),
    )
    (said,) = layer.machines["gemmlowp"]
    assert said.startswith("multiplier ")


def computed(operator, weight):
    """An operator on integers, of levels whose zero point is computed."""
    import onnx_ir as ir

    x = ir.Value(name="x", shape=ir.Shape(["n", 2]), type=ir.TensorType(ir.DataType.UINT8))
    zero = ir.Value(name="z", shape=ir.Shape([]), type=ir.TensorType(ir.DataType.UINT8))
    if weight is None:
        w = ir.Value(name="w", shape=ir.Shape([2, 1]), type=ir.TensorType(ir.DataType.INT8))
    else:
        w = ir.Value(name="w", const_value=ir.tensor(weight, name="w"))
    node = ir.node(operator, [x, w, zero], name="node")
    graph = ir.Graph(
        [x, zero, *([w] if weight is None else [])],
        node.outputs,
        nodes=[node],
        opset_imports={"": 21},
        initializers=[] if weight is None else [w],
        name="g",
    )
    return ir.Model(graph, ir_version=10)


def test_a_computed_zero_point_may_be_any():
    layer = only(computed("MatMulInteger", np.array([[127], [127]], np.int8)))
    assert layer.pairs.risky == 1
    assert layer.pairs.loss_steps is None  # the result is no level
    assert layer.sum_bits == (2 * 127 * 255).bit_length() + 1


def test_computed_operands_are_named():
    lint = lint_products(computed("MatMulInteger", None))
    assert (lint.layers, lint.unjudged) == ((), ("node",))


def test_risky_is_about_the_machines_that_are_asked():
    model = matmul(np.full((4, 1), 127, np.int8))
    assert lint_products(model).risky
    assert lint_products(model, [get_arithmetic("ort-x64-avx2")]).risky
    assert not lint_products(model, [get_arithmetic("ort-x64")]).risky


def test_float_models_are_refused():
    import onnx_ir as ir

    x = ir.Value(name="x", shape=ir.Shape(["n", 2]), type=ir.TensorType(ir.DataType.FLOAT))
    node = ir.node("Relu", [x], name="relu")
    graph = ir.Graph([x], node.outputs, nodes=[node], opset_imports={"": 21}, name="net")
    with pytest.raises(InputError, match="Name a schema"):
        lint_products(ir.Model(graph, ir_version=10))
