"""Nodes of another calibration stand first: once an operator, in the order of the graph, with
what else is known.
"""

import numpy as np
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from qbench.diagnosis.localize_cell import recalibrated_first
from qbench.judging import Cause, MovedRange, Suspect

WEIGHT = numpy_helper.from_array(np.eye(3, dtype=np.float32), "w")


def network():
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
            helper.make_node("Relu", ["h"], ["r"], name="limit"),
            helper.make_node("Sigmoid", ["r"], ["y"], name="squash"),
        ],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
        [WEIGHT],
    )
    return ir.from_proto(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    )


def moved(*values):
    return [
        MovedRange(value=value, before=(0.0, 1.0), after=(0.0, 4.0), apart=0.75) for value in values
    ]


def suspect(node, cause=Cause.DEAD_RANGE):
    return Suspect(node=node, cause=cause, evidence="most of its grid is idle", score=12.0)


def first(values, *suspects, graphs=None, most=5):
    return recalibrated_first(suspects, moved(*values), graphs or {"model": network()}, most=most)


def test_an_operator_with_the_limit_that_it_carries_is_one(words):
    found = first(["h", "r", "y"])
    assert [(one.node, one.cause) for one in found] == [
        ("product", Cause.CALIBRATION),
        ("squash", Cause.CALIBRATION),
    ]
    assert found[0].score > found[1].score > 1e5
    words(found[0].evidence)
    assert "calibration data" in found[0].remedy


def test_what_was_said_of_a_node_stays_in_its_evidence_and_others_behind():
    found = first(["y"], suspect("product"), suspect("squash"))
    assert [one.node for one in found] == ["squash", "product"]
    assert found[0].evidence.endswith("; dead range: most of its grid is idle")
    assert found[1] == suspect("product")


def test_what_a_graph_is_fed_has_its_own_name_and_strangers_none():
    assert [one.node for one in first(["x", "gone"])] == ["x"]


def test_the_first_few_and_nothing_without_a_move():
    assert [one.node for one in first(["x", "h", "y"], most=1)] == ["x"]
    assert first([], suspect("product")) == (suspect("product"),)


def test_with_several_graphs_names_begin_with_that_of_the_graph():
    found = first(["step::y"], graphs={"encoder": network(), "step": network()})
    assert [one.node for one in found] == ["step::squash"]
