"""New constants and fresh names in a graph."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import input_at

# Fresh names: a pass that adds a value or a node takes an unused name from here.


class NameScope:
    """The names in use in one model; grows with every name it gives."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._counted: dict[str, int] = {}
        """Name → the number up to which all numbers behind it are taken: thousands of operators
        may want one name.
        """

    @classmethod
    def of_nodes(cls, model: ir.Model) -> "NameScope":
        """The names of every node of every graph of ``model``."""
        return cls(node.name for graph in model.graphs() for node in graph if node.name)

    @classmethod
    def of_values(cls, model: ir.Model) -> "NameScope":
        """The names of every value of every graph of ``model``."""
        taken: set[str] = set()
        for graph in model.graphs():
            values = (
                *graph.inputs,
                *graph.initializers.values(),
                *(v for node in graph for v in node.outputs),
            )
            taken.update(value.name for value in values if value.name)
        return cls(taken)

    def take(self, name: str) -> bool:
        """Take ``name`` itself; False when it was taken before."""
        if name in self._taken:
            return False
        self._taken.add(name)
        return True

    def release(self, name: str) -> None:
        """Give ``name`` back: its bearer is gone, or is about to be replaced under the same
        name.
        """
        self._taken.discard(name)
        wanted, _, number = name.rpartition("_")
        if number.isdecimal() and wanted in self._counted:
            self._counted[wanted] = min(self._counted[wanted], int(number) - 1)

    def fresh(self, wanted: str) -> str:
        """``wanted``, or with the first free number behind it; taken from now on."""
        if self.take(wanted):
            return wanted
        number = self._counted.get(wanted, 0) + 1
        while not self.take(f"{wanted}_{number}"):
            number += 1
        self._counted[wanted] = number
        return f"{wanted}_{number}"


# One result in the place of another.


def take_place(old: ir.Value, new: ir.Value) -> None:
    """Let all readers of ``old`` read ``new``, which takes its name, and its type and shape
    where it has none.
    """
    name = old.name
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    old.name = None  # two values may not have one name, not even for a moment
    new.name = name
    new.type, new.shape = new.type or old.type, new.shape or old.shape


def remove_unread(node: ir.Node) -> None:
    """Remove ``node`` of one result from its graph where nothing reads that and it does not
    leave the graph.
    """
    result = node.outputs[0]
    if isinstance(node.graph, ir.Graph) and not result.uses() and not result.is_graph_output():
        node.graph.remove(node, safe=True)


# Putting new constants into a graph: an initializer with type and shape, under an unused name.


def add_constant(graph: ir.Graph, name: str, array: npt.NDArray[Any], names: NameScope) -> ir.Value:
    """A new initializer of ``graph`` holding ``array``, called ``name`` or, when that is taken,
    with a number behind.

    Args:
        graph: changed in place.
        array: any dtype that ONNX has; made contiguous.
        names: the value names of the whole model; takes the new one.
    """
    unique = names.fresh(name)
    # ascontiguousarray makes a list of a number
    tensor = ir.Tensor(np.asarray(array, order="C"), name=unique)
    value = ir.val(unique, tensor.dtype, tensor.shape, const_value=tensor)
    graph.register_initializer(value)
    return value


def set_constant_operand(
    node: ir.Node, index: int, array: npt.NDArray[Any], names: NameScope
) -> None:
    """Give ``node`` a new constant as its operand ``index``; named after the old one, or
    ``node``.bias for none.

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
    alone = (
        old is not None
        and len(old.uses()) == 1
        and not old.is_graph_output()
        and old.is_initializer()
    )
    node.replace_input_with(index, None)
    if alone and old is not None:
        graph.initializers.pop(wanted)
        names.release(wanted)
    node.replace_input_with(index, add_constant(graph, wanted, array, names))
