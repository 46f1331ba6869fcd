"""Grids of 32 bits, which QuantizeLinear does not have, written in floats, and how to tell them from other arithmetic.

    value ──Div(s)──Round──Clip(qmin − z, qmax − z)──┬──Mul(s)── consumer
                                                     └──Mul(s)── consumer

Levels beyond 2²⁴ are those that float32 has: a quotient of that size is an integer before it is rounded. The four nodes
carry the name of the grid in their metadata, so that a network's own Round is never taken for one.
"""

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from qbench.graph.query import constant_value, node_key, only_consumer

_KEY = "qbench.levels"


def mark_float_levels(node: ir.Node, qtype: str) -> None:
    """Write into ``node`` that it is a part of the grid ``qtype`` in floats."""
    node.metadata_props[_KEY] = qtype


def is_float_levels(node: ir.Node) -> bool:
    """Whether ``node`` is a part of a grid in floats."""
    return _KEY in node.metadata_props


def breaches_of_float_levels(node: ir.Node) -> Iterator[str]:
    """What is wrong about the grid in floats that begins at ``node``, a marked Div; nothing for any other node."""
    if not is_float_levels(node) or node.op_type != "Div":
        return
    name, scale = node_key(node), constant_value(node.inputs[1])
    if scale is None or not np.all(np.isfinite(scale)) or not np.all(scale > 0):
        yield f"The scale of '{name}' is not constant, finite and positive throughout."
        return
    clip = _following(_following(node, "Round"), "Clip")
    if clip is None:
        yield f"Behind '{name}' there is no Round and Clip of their own; expected both, with constant ends."
        return
    readers = [use.node for use in clip.outputs[0].uses()]
    if not readers or clip.outputs[0].is_graph_output():
        yield f"The levels of '{name}' leave the graph or have no reader; expected a Mul behind them."
    for reader in readers:
        factor = constant_value(reader.inputs[1]) if reader.op_type == "Mul" and is_float_levels(reader) else None
        if factor is None or not np.array_equal(factor, scale):
            yield f"The levels of '{name}' are read by '{node_key(reader)}'; expected a Mul by the very scale."
        elif len(reader.outputs[0].uses()) + reader.outputs[0].is_graph_output() != 1:
            yield f"What '{node_key(reader)}' gives has not one reader; expected one Mul a reader."


def _following(node: ir.Node | None, operator: str) -> ir.Node | None:
    """The marked node of kind ``operator`` that alone reads the result of ``node``, its other operands constant."""
    follower = None if node is None else only_consumer(node.outputs[0])
    if follower is None or follower.op_type != operator or not is_float_levels(follower):
        return None
    ends = [value for value in follower.inputs[1:] if value is not None]
    return follower if all(constant_value(end) is not None for end in ends) else None
