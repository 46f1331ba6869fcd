"""Shapes through operators from outside, which onnx's inference does not know.

One without a shape rule stands in as an Identity of its first input; the rule of one that has one is asked as soon as
everything before the node is known.
"""

import onnx_ir as ir

from qbench.graph.outside_operators import Dims, outside_operator


def stood_in(light: ir.Model) -> ir.Model:
    """``light``, or a copy with Identities where operators from outside keep the shape of their first input."""
    if not any(outside_operator(node) for graph in light.graphs() for node in graph):
        return light
    copy = light.clone()
    for graph in copy.graphs():
        for node in graph:
            operator = outside_operator(node)
            if operator is not None and operator.shape is None and node.inputs and node.inputs[0] is not None:
                node.op_type, node.domain = "Identity", ""
                node.resize_inputs(1)
                node.attributes.clear()
    return copy


def ask_rules(model: ir.Model, light: ir.Model) -> bool:
    """Write into ``model``, and into ``light`` of the same nodes, what shape rules say now; True when any was new."""
    asked = False
    for graph, other in zip(model.graphs(), light.graphs(), strict=True):
        for node, same in zip(graph, other, strict=True):
            operator = outside_operator(node)
            if operator is None or operator.shape is None or node.outputs[0].shape is not None:
                continue
            first = node.inputs[0] if node.inputs else None
            if first is None or any(value is not None and value.shape is None for value in node.inputs):
                continue
            dims = operator.shape(tuple(_dims(value) for value in node.inputs))
            for value in (node.outputs[0], same.outputs[0]):
                value.shape, value.type = ir.Shape(dims), first.type
            asked = True
    return asked


def _dims(value: ir.Value | None) -> Dims | None:
    if value is None or value.shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape)
