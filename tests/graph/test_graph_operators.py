"""Operator facts, each checked against ONNX's own definitions
or against what onnxruntime computes.
"""

import math

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from qbench.graph import (
    OPERATORS,
    REQUANTIZE,
    float_attribute,
    int_attribute,
    ints_attribute,
    op_spec,
    weight_channel_axis,
    word_attribute,
)

WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")


@pytest.mark.parametrize(
    "name", sorted(OPERATORS.keys() - {REQUANTIZE})
)  # ONNX has no operator of this name
def test_every_operator_and_index_exists(name):
    schema = onnx.defs.get_schema(name, 21, "")
    facts = OPERATORS[name]
    for index in (facts.weight, facts.bias, *facts.moved, *(facts.real or ())):
        assert index is None or index < len(schema.inputs)


def computed(name, inputs, attributes):
    from onnx.reference import ReferenceEvaluator

    values = {f"i{i}": a for i, a in enumerate(inputs)}
    node = onnx.helper.make_node(name, list(values), ["o"], **attributes)
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [onnx.helper.make_empty_tensor_value_info(v) for v in values],
        [onnx.helper.make_empty_tensor_value_info("o")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)])
    return ReferenceEvaluator(model).run(None, values)[0]


@pytest.mark.parametrize("name", sorted(n for n, f in OPERATORS.items() if f.low > -math.inf))
def test_bounds_hold_on_wild_values(name):
    facts = OPERATORS[name]
    x = np.linspace(-40, 40, 2001, dtype=np.float32).reshape(1, -1)
    x = np.abs(x) if name == "Sqrt" else x
    result = computed(name, [x], {})
    assert result.min() >= facts.low
    assert result.max() <= facts.high


MOVERS = {
    "Reshape": ([np.array([4, 6])], {}),
    "Transpose": ([], {"perm": [2, 0, 1]}),
    "Slice": ([np.array([1]), np.array([3]), np.array([2])], {}),
    "Gather": ([np.array([0, 1])], {"axis": 0}),
    "Tile": ([np.array([1, 2, 1])], {}),
    "MaxPool": ([], {"kernel_shape": [2]}),
    "Flatten": ([], {}),
}


@pytest.mark.parametrize("name", sorted(MOVERS))
def test_movers_make_no_new_value(name):
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    others, attributes = MOVERS[name]
    assert OPERATORS[name].moved
    assert np.isin(computed(name, [x, *others], attributes), x).all()


@pytest.mark.parametrize(
    ("name", "shape", "attributes", "weight_axis", "rank"),
    [
        ("Conv", (4, 2, 3, 3), {"group": 2}, 0, 4),
        ("ConvTranspose", (4, 3, 2, 2), {}, 1, 4),
        ("Gemm", (4, 5), {}, 1, 2),
        ("Gemm", (5, 4), {"transB": 1}, 0, 2),
        ("MatMul", (4, 5), {}, 1, 2),
    ],
)
def test_scaling_a_weight_channel_scales_that_output_channel(
    name, shape, attributes, weight_axis, rank
):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 4, 5, 5)[:rank]).astype(np.float32)
    w = rng.standard_normal(shape).astype(np.float32)
    node = ir.node(name, [ir.val("x"), ir.val("w")], attributes)
    axis = weight_channel_axis(node, w.ndim)
    assert axis == weight_axis
    scaled = w.copy()
    np.moveaxis(scaled, axis, 0)[1] *= 2
    plain, changed = computed(name, [x, w], attributes), computed(name, [x, scaled], attributes)
    expected = plain.copy()
    np.moveaxis(expected, 1, 0)[1] *= 2
    np.testing.assert_allclose(changed, expected, rtol=1e-5)


def test_a_batched_matmul_weight_counts_its_last_axis_and_a_vector_has_none():
    node = ir.node("MatMul", [ir.val("x"), ir.val("w")])
    assert weight_channel_axis(node, 3) == 2
    assert weight_channel_axis(node, 1) is None


def test_an_operator_of_another_domain_is_unknown():
    foreign = ir.node("Conv", [ir.val("x"), ir.val("w")], domain="com.example")
    assert op_spec(foreign).weight is None


def test_attributes_are_what_is_given_or_left_out():
    node = ir.node("Any", [], {"count": 3, "slope": 0.5, "mode": "edge", "pads": [1, 2]})
    assert (int_attribute(node, "count", 7), int_attribute(node, "none", 7)) == (3, 7)
    assert (float_attribute(node, "slope", 1.5), float_attribute(node, "none", 1.5)) == (0.5, 1.5)
    assert (word_attribute(node, "mode", "constant"), word_attribute(node, "none", "constant")) == (
        "edge",
        "constant",
    )
    assert (ints_attribute(node, "pads", (0,)), ints_attribute(node, "none", (0,))) == (
        (1, 2),
        (0,),
    )
    assert ints_attribute(node, "none") == ()
