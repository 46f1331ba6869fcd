"""What ``qbench localize`` says of a cell that no gate judges, and of a node that reaches
another output alone.
"""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

SCHEMA = """
[[rules]]
names = ["right_head"]
weight = { qtype = "int8", symmetry = "symmetric", range_method = "percentile(50)" }

[[rules]]
activation = { qtype = "uint8", symmetry = "asymmetric" }
weight = { qtype = "int8", symmetry = "symmetric", granularity = "channel", narrow_range = true }
"""


@pytest.fixture
def two_heads(project):
    """heads.onnx: a trunk with the outputs left and right,
    and a schema that spoils the right head.
    """
    random = np.random.default_rng(3)
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["t"], name="trunk"),
        helper.make_node("Relu", ["t"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "b"], ["left"], name="left_head"),
        helper.make_node("MatMul", ["r", "c"], ["right"], name="right_head"),
    ]
    shapes = {"a": (8, 32), "b": (32, 6), "c": (32, 6)}
    weights = [
        numpy_helper.from_array(random.normal(size=shape).astype(np.float32), n)
        for n, shape in shapes.items()
    ]
    values = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 6])
        for name in ("left", "right")
    }
    feed = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])
    graph = helper.make_graph(nodes, "heads", [feed], list(values.values()), weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10),
        "heads.onnx",
    )
    for name in ("val", "cal"):
        np.savez(f"{name}.npz", x=random.normal(size=(48, 8)).astype(np.float32))
    (project / "bad.toml").write_text(SCHEMA)
    return (
        "heads.onnx",
        "--data",
        "val.npz",
        "--calib",
        "cal.npz",
        "--schema",
        "bad.toml",
        "--samples",
        "16",
    )


@pytest.mark.slow
def test_a_cell_that_no_gate_judges_is_not_called_passed(two_heads, qbench):
    arguments = (*two_heads, "--metrics", "sqnr")
    _, out, err = qbench("localize", *arguments)
    assert "not judged" in out.splitlines()[0], err
    assert "passed" not in out.splitlines()[0]
    assert json.loads(qbench("localize", *arguments, "--json")[1])["verdict"]["ungated"]


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("output", "beyond"), [("left", "right_head"), ("right", "left_head"), ("", "")]
)
def test_nodes_that_do_not_reach_the_output_are_named(two_heads, qbench, output, beyond):
    chosen = ("--output", output) if output else ()
    finding = json.loads(qbench("localize", *two_heads, "--metrics", "sqnr", *chosen, "--json")[1])[
        "finding"
    ]
    said = [note for note in finding["notes"] if "does not depend on" in note]
    wanted = (
        f"the output '{output}' does not depend on {beyond}: "
        "what is wrong there changes nothing of it"
    )
    assert said == ([wanted] if beyond else [])
