"""Strategies for the operators with graphs of their own;
their bodies hold kernels that are ours.
"""

import numpy as np
from onnx import TensorProto, helper

from operator_cases.float_ground import Draw, Example, Strategy

_FLOAT = TensorProto.FLOAT


def branch(draw: Draw) -> Example:
    """If, whose branches read a value of the graph around them."""
    graphs = {}
    for name in ("then_branch", "else_branch"):
        axis = draw.whole(0, 1)
        nodes = [
            helper.make_node(draw.choose("Softmax", "Softsign", "Mean"), ["i1"], [f"{name}_y"])
        ]
        if nodes[0].op_type == "Softmax":
            nodes[0].attribute.append(helper.make_attribute("axis", axis))
        outputs = [helper.make_tensor_value_info(f"{name}_y", _FLOAT, [None, None, None])]
        graphs[name] = helper.make_graph(nodes, name, [], outputs)
    x = draw.numbers(draw.wholes(3, 1, 4))
    return Example([np.array(draw.maybe()), x], graphs, outer=1)


def loop(draw: Draw) -> Example:
    """Loop over a state, with what each pass gives."""
    nodes = [
        helper.make_node("Softsign", ["state"], ["soft"]),
        helper.make_node("Add", ["soft", "state"], ["next"]),
        helper.make_node("Identity", ["go"], ["goes"]),
        helper.make_node("Identity", ["next"], ["seen"]),
    ]
    is_seen = draw.maybe(0.3)
    body = helper.make_graph(
        nodes[: 3 + is_seen],
        "body",
        [
            helper.make_tensor_value_info("count", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", _FLOAT, [None, None]),
        ],
        [
            helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", _FLOAT, [None, None]),
            helper.make_tensor_value_info("seen", _FLOAT, [None, None]),
        ][: 2 + is_seen],
    )
    x = draw.numbers(draw.wholes(2, 1, 4))
    inputs = [np.array(draw.whole(1, 5), np.int64), np.array(1, bool), x]
    return Example(inputs, {"body": body}, 1 + is_seen, slack=8)


def scan(draw: Draw) -> Example:
    """Scan with a running sum, forwards or backwards, from version 9 on."""
    nodes = [
        helper.make_node("Add", ["state", "x"], ["next"]),
        helper.make_node("Softsign", ["next"], ["y"]),
    ]
    size = draw.whole(1, 4)
    infos = {
        name: helper.make_tensor_value_info(name, _FLOAT, [size])
        for name in ("state", "x", "next", "y")
    }
    body = helper.make_graph(
        nodes, "body", [infos["state"], infos["x"]], [infos["next"], infos["y"]]
    )
    attributes = {"body": body, "num_scan_inputs": 1}
    if draw.maybe(0.4):
        attributes["scan_input_directions"] = [draw.whole(0, 1)]
    if draw.maybe(0.4):
        attributes["scan_output_directions"] = [draw.whole(0, 1)]
    x = draw.numbers([draw.whole(1, 4), size])
    if draw.since < 9:
        return Example(
            [None, draw.numbers([1, size]), x[None]],
            {"body": body, "num_scan_inputs": 1},
            2,
            slack=8,
        )
    return Example([draw.numbers([size]), x], attributes, 2, slack=8)


STRATEGIES: dict[str, Strategy] = {"If": branch, "Loop": loop, "Scan": scan}
