"""A node of few bits is coarse, and the bits are said."""

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest
from digits_targets import batches, capture, examine, machine, put, quantized, target

from qbench.diagnosis.capture import Capturing
from qbench.diagnosis.hypotheses import name_cause
from qbench.diagnosis.unit_runs import Units
from qbench.diagnosis.units import Ends, QuantizedUnit
from qbench.judging import Cause
from qbench.numerics import QParams, QType, get_arithmetic

GEMMLOWP = get_arithmetic("gemmlowp")


@pytest.mark.parametrize(("schema", "bits"), [("w4a8_sym_pc", 4), ("w3a8_sym_pc", 3)])
def test_weights_of_few_bits_are_said(schema, bits):
    of = target(schema=schema)
    (feeds,) = batches(1, 8)
    nodes = [node for node in examine(of, [feeds]).nodes if node.node in ("conv1", "conv2")]
    found = [
        name_cause(one, get_arithmetic("ort-x64"), original=of.original)
        for one in capture(of, nodes, feeds)
    ]
    assert {one.cause for one in found} == {Cause.COARSE}
    assert all(f"the weights have {bits} bits, and their rounding" in one.evidence for one in found)


@pytest.fixture(scope="module")
def of_four_bits():
    """The target whose activations are 4 bits in uint8, and its captured units by node."""
    of = target(machine(arithmetic="gemmlowp"), schema="w4a4_asym_pc_percentile")
    (feeds,) = batches(1)
    nodes = examine(of, [feeds]).nodes
    with Capturing(of, Units.of(of), nodes, feeds) as capturing:
        yield of, {node.node: capturing.of(node) for node in nodes}


def test_the_ends_of_four_bits_in_uint8_are_no_limit_that_the_float_graph_lacks(of_four_bits):
    of, captured = of_four_bits
    found = {
        node: name_cause(one, GEMMLOWP, original=of.original) for node, one in captured.items()
    }
    assert {one.cause for one in found.values()} <= {None, Cause.COARSE}
    assert found["conv1"].cause is Cause.COARSE
    assert "steps of error at 4 bits" in found["pool"].evidence


def test_a_limit_within_four_bits_that_the_quantized_graph_lacks_is_named(of_four_bits):
    of, captured = of_four_bits
    unit = captured["conv1"].unit
    original = of.original.clone()
    (relu,) = (node for node in original.graph if node.outputs[0].name == unit.represents)
    assert relu.op_type == "Relu"
    relu.op_type = "Clip"
    for name, end in (("low", 0.0), ("high", 8 * unit.scale)):
        array = ir.tensor(np.array(end, np.float32), name=name)
        value = ir.Value(name=name, const_value=array)
        original.graph.initializers[name] = value
        relu.resize_inputs(len(relu.inputs) + 1)
        relu.replace_input_with(len(relu.inputs) - 1, value)
    named = name_cause(captured["conv1"], GEMMLOWP, original=original)
    assert named.cause is Cause.ABSORBED_CLIP
    assert "the upper limit is 15.5 steps in the quantized graph and 8 in" in named.evidence


def test_codes_that_wrap_at_four_bits():
    """The scale of conv1 is a third of its own, so that many codes lie beyond the 16."""
    schema = "w4a4_asym_pc_percentile"
    model = quantized(schema)
    (scale,) = (
        node.inputs[1]
        for node in model.graph
        if node.op_type == "QuantizeLinear"
        and (maker := node.inputs[0].producer()) is not None
        and maker.name == "conv1"
    )
    put(scale, scale.const_value.numpy() / 3)
    of = target(machine(arithmetic="gemmlowp"), schema=schema, model=model)
    (feeds,) = batches(1)
    nodes = [node for node in examine(of, [feeds]).nodes if node.node == "conv1"]
    with Capturing(of, Units.of(of), nodes, feeds) as capturing:
        one = capturing.of(nodes[0])
        free = np.rint(one.real)
        assert (free > 15).sum() > 100
        wrapped = np.where(free > 15, free % 16, one.found).astype(one.found.dtype)
        wrong = replace(one, found=wrapped, again=wrapped, isolated=wrapped)
        named = name_cause(wrong, GEMMLOWP, original=of.original)
    assert named.cause is Cause.ACCUMULATOR
    assert "codes that wrap at 4 bits" in named.evidence


@pytest.mark.parametrize(
    ("stored", "lowest", "highest", "expected"),
    [
        ("uint8", 0, 255, "uint8"), ("uint8", 0, 15, "uint4"), ("uint8", 3, 15, "uint4"),
        ("uint8", 0, 100, "uint8"), ("uint8", 20, 31, "uint5"), ("int8", -8, 7, "int4"),
        ("int8", -7, 7, "int4"), ("int8", 0, 7, "int4"), ("int8", -8, 5, "int4"),
        ("int8", -127, 127, "int8"), ("int8", -9, 7, "int8"), ("int16", -128, 127, "int8"),
    ],
)  # fmt: skip
def test_the_type_of_codes_shows_in_their_ends(stored, lowest, highest, expected):
    qparams = QParams(np.float32(0.5), np.int64(lowest), QType.parse(stored))
    unit = QuantizedUnit(
        value="y", node="y", operators=(), feeds=(),
        graph=ir.Model(ir.Graph([], [], nodes=[]), ir_version=10),
        real="x", represents="x", qparams=qparams,
        ends=Ends.of_codes(lowest, highest, lowest), lowest=lowest, highest=highest,
    )  # fmt: skip
    assert str(unit.code_type) == expected
