"""``qbench quantize`` of a model with Q/DQ pairs that were placed by hand."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

FULL = ("--schema", "w8a8_asym_pc")
CALIB = ("--calib", "train.npz")


@pytest.fixture
def stubbed(blobs_files):
    """The small network with a pair in front of its second product: of r."""
    model = onnx.load("net.onnx")
    graph = model.graph
    constants = {"s": np.float32(0.5), "z": np.uint8(7)}
    graph.initializer.extend(
        numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()
    )
    pair = [
        helper.make_node("QuantizeLinear", ["r", "s", "z"], ["rq"], name="stub"),
        helper.make_node("DequantizeLinear", ["rq", "s", "z"], ["rd"], name="unstub"),
    ]
    nodes = []
    for node in graph.node:
        if node.name == "second":
            node.input[0] = "rd"
            nodes += pair
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.save(model, "stubs.onnx")
    return blobs_files


def quantizers(path):
    """Value → scale and zero point of its QuantizeLinear."""
    model = onnx.load(path)
    constants = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    return {
        node.input[0]: (float(constants[node.input[1]]), int(constants[node.input[2]]))
        for node in model.graph.node
        if node.op_type == "QuantizeLinear"
    }


def test_pairs_are_named_and_kept_and_the_rest_stays_float(stubbed, qbench, golden):
    code, out, err = qbench("quantize", "stubs.onnx", *FULL, "-o", "q.onnx")
    assert (code, err) == (0, "")
    golden("output/quantize-stubs.txt", out)
    assert quantizers("q.onnx") == {"r": (0.5, 7)}
    weights = [n.name for n in onnx.load("q.onnx").graph.initializer if n.data_type == 3]
    assert any(name.startswith("w2") for name in weights)
    assert not any(name.startswith("w1") for name in weights)


def test_the_rest_is_quantized_on_request(stubbed, qbench):
    code, out, err = qbench("quantize", "stubs.onnx", *CALIB, *FULL, "--complete", "-o", "q.onnx")
    assert (code, err) == (0, "")
    assert "1 Q/DQ pair placed by hand, kept" in out
    assert "--complete" not in out
    found = quantizers("q.onnx")
    assert len(found) == 2
    assert (0.5, 7) in found.values()
    measured = qbench("eval", "q.onnx", "--fp32", "net.onnx", "--data", "test.npz")[1]
    assert "100.0 % were executed in integers" in measured


def test_the_same_as_facts(stubbed, qbench):
    facts = json.loads(qbench("quantize", "stubs.onnx", *FULL, "-o", "q.onnx", "--json")[1])
    assert facts["stubs"] == [{"value": "r", "node": "stub", "readers": ["second"]}]
    assert facts["without_stubs"] == ["first"]


def test_a_schema_of_weights_quantizes_all_of_them(stubbed, qbench):
    code, out, err = qbench("quantize", "stubs.onnx", "--schema", "w8_sym_pc", "-o", "q.onnx")
    assert (code, err) == (0, "")
    assert "1 Q/DQ pair placed by hand, kept" in out
    weights = {n.name for n in onnx.load("q.onnx").graph.initializer if n.data_type == 3}
    assert {name[:2] for name in weights if "zero_point" not in name} == {"w1", "w2"}


def test_parameters_of_run_time_do_not_replace_a_pair(stubbed, qbench):
    dynamic = ("--schema", "w8a8_asym_pc_dyn", "--complete")
    code, _, err = qbench("quantize", "stubs.onnx", *dynamic, "-o", "q.onnx")
    assert (code, err) == (0, "")
    assert quantizers("q.onnx") == {"r": (0.5, 7)}


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("net.onnx", *CALIB, *FULL, "--complete"), "without a Q/DQ pair"),
        (("stubs.onnx", "--schema", "w8_sym_pc", "--complete"), "quantizes weights alone"),
        (("stubs.onnx", *FULL, "--complete"), "no --profile"),
        (("stubs.onnx", "--plan", "p.json", "--complete"), "--complete with --plan"),
        (("stubs.onnx", "--read", "--complete"), "--complete with --read"),
    ],
)
def test_mistakes_are_one_sentence(arguments, found, stubbed, qbench):
    Path("p.json").write_text("{}")
    code, out, err = qbench("quantize", *arguments, "-o", "q.onnx")
    assert (code, out) == (2, "")
    assert found in err
    assert err.count("\n") == 1


def test_a_pair_that_means_nothing_is_one_sentence(stubbed, qbench):
    model = onnx.load("stubs.onnx")
    for one in model.graph.initializer:
        if one.name == "s":
            one.CopyFrom(numpy_helper.from_array(np.float32(0.0), "s"))
    onnx.save(model, "zero.onnx")
    code, out, err = qbench("quantize", "zero.onnx", *FULL, "-o", "q.onnx")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "scale" in err
