"""Putting new constants into a graph: an initializer with type and shape, under a name that nothing else bears."""

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import input_at
from qbench.passes.naming import NameScope


def add_constant(graph: ir.Graph, name: str, array: npt.NDArray[Any], names: NameScope) -> ir.Value:
    """A new initializer of ``graph`` holding ``array``, called ``name`` or, when that is taken, with a number behind.

    Args:
        graph: changed in place.
        array: any dtype that ONNX has; made contiguous.
        names: the value names of the whole model; takes the new one.
    """
    unique = names.fresh(name)
    tensor = ir.Tensor(np.asarray(array, order="C"), name=unique)  # ascontiguousarray makes a list of a number
    value = ir.val(unique, tensor.dtype, tensor.shape, const_value=tensor)
    graph.register_initializer(value)
    return value


def set_constant_operand(node: ir.Node, index: int, array: npt.NDArray[Any], names: NameScope) -> None:
    """Give ``node`` a new constant as its operand ``index``; named after the old one, or ``node``.bias for none.

    Args:
        node: in a graph that is changed in place; an old initializer that nothing else reads goes.
        index: may be behind the last operand that there is.
        array: what the operand becomes.
        names: the value names of the whole model; takes the new one.
    """
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    old = input_at(node, index)
    wanted = str(old.name) if old is not None else f"{node.name or node.outputs[0].name}.bias"
    if index >= len(node.inputs):
        node.resize_inputs(index + 1)
    alone = old is not None and len(old.uses()) == 1 and not old.is_graph_output() and old.is_initializer()
    node.replace_input_with(index, None)
    if alone and old is not None:
        graph.initializers.pop(wanted)
        names.release(wanted)
    node.replace_input_with(index, add_constant(graph, wanted, array, names))
