"""Quantizers of one value on one grid are one quantizer to a machine, however many pairs a graph was written with.

An operator counts in integers when one QuantizeLinear alone reads its result: a pair for every reader, as some tools
write them, would leave it in floats. What stands behind the levels (a Clip for some readers) stays where it is.
"""

from collections.abc import Hashable

import onnx_ir as ir

from qbench.graph import constant_value, int_attribute


def share_quantizers(graph: ir.Graph) -> bool:
    """Let the readers of a later quantizer read the first of its value and grid; True when there were two."""
    first: dict[Hashable, ir.Node] = {}
    changed = False
    for node in list(graph):
        if node.domain or node.op_type != "QuantizeLinear" or node.outputs[0].is_graph_output():
            continue
        known = first.setdefault(_key(node), node)
        if known is node:
            continue
        node.outputs[0].replace_all_uses_with(known.outputs[0])
        graph.remove(node, safe=True)
        changed = True
    return changed


def _key(node: ir.Node) -> Hashable:
    grid = tuple(_content(value) for value in node.inputs[1:])
    return (node.inputs[0], node.outputs[0].dtype, int_attribute(node, "axis", 1), *grid)


def _content(value: ir.Value | None) -> Hashable:
    """What a parameter holds; itself where it is computed."""
    array = constant_value(value)
    return value if array is None else (array.dtype.str, array.shape, array.tobytes())
