"""Questions about one place of a graph: what is constant, who makes a value, who reads it, how a node is called."""

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir


def node_key(node: ir.Node) -> str:
    """The name that stands for ``node`` in profiles, plans and counts: its own, else its first named output's."""
    return node.name or next((value.name for value in node.outputs if value.name), "")


def constant_value(value: ir.Value | None) -> npt.NDArray[Any] | None:
    """The array of an initializer or a Constant node's output; None for anything computed or fed.

    An initializer that is also a graph input can be fed another value, hence is no constant.
    """
    if value is None or value.is_graph_input():
        return None
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None else np.asarray(tensor.numpy())


def is_constant(value: ir.Value | None) -> bool:
    """Whether ``value`` is there and constant (without reading its array)."""
    if value is None or value.is_graph_input():
        return False
    return ir.convenience.get_const_tensor(value) is not None


def input_at(node: ir.Node, index: int) -> ir.Value | None:
    """The input of ``node`` at ``index``; None where it is left out."""
    return node.inputs[index] if index < len(node.inputs) else None


def producer(value: ir.Value | None) -> ir.Node | None:
    """The node that computes ``value``, or None for inputs, initializers and absent optional inputs."""
    return None if value is None else value.producer()


def consumers(value: ir.Value) -> tuple[tuple[ir.Node, int], ...]:
    """Every use of ``value`` as (node, input index), in the order the uses were made."""
    return tuple((use.node, use.idx) for use in value.uses())


def only_consumer(value: ir.Value) -> ir.Node | None:
    """The one node that reads ``value``, when nothing else does and it is no graph output."""
    uses = consumers(value)
    return uses[0][0] if len(uses) == 1 and not value.is_graph_output() else None


def values_by_name(model: ir.Model) -> dict[str, ir.Value]:
    """Every named value of the main graph: inputs, initializers and node outputs."""
    graph = model.graph
    named: dict[str, ir.Value] = {}
    for value in (*graph.inputs, *graph.initializers.values(), *(v for node in graph for v in node.outputs)):
        if value.name:
            named[value.name] = value
    return named


def opset(model: ir.Model) -> int:
    """The version of the default operator set that ``model`` imports; 1 when it imports none."""
    return model.opset_imports.get("", model.opset_imports.get("ai.onnx", 1))
