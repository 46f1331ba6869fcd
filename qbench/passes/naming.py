"""Fresh names: a pass that adds a value or a node asks here for one that nothing bears yet."""

from collections.abc import Iterable

import onnx_ir as ir


class NameScope:
    """The names in use in one model; grows with every name it gives."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    @classmethod
    def of_nodes(cls, model: ir.Model) -> "NameScope":
        """The names of every node of every graph of ``model``."""
        return cls(node.name for graph in model.graphs() for node in graph if node.name)

    @classmethod
    def of_values(cls, model: ir.Model) -> "NameScope":
        """The names of every value of every graph of ``model``."""
        taken: set[str] = set()
        for graph in model.graphs():
            values = (*graph.inputs, *graph.initializers.values(), *(v for node in graph for v in node.outputs))
            taken.update(value.name for value in values if value.name)
        return cls(taken)

    def take(self, name: str) -> bool:
        """Take ``name`` itself; False when it was taken before."""
        if name in self._taken:
            return False
        self._taken.add(name)
        return True

    def release(self, name: str) -> None:
        """Give ``name`` back: its bearer is gone, or is about to be replaced under the same name."""
        self._taken.discard(name)

    def fresh(self, wanted: str) -> str:
        """``wanted``, or with the first free number behind it; taken from now on."""
        name, number = wanted, 0
        while not self.take(name):
            number += 1
            name = f"{wanted}_{number}"
        return name
