"""Fresh names: a pass that adds a value or a node asks here for one that nothing bears yet."""

from collections.abc import Iterable

import onnx_ir as ir


class NameScope:
    """The names in use in one model; grows with every name it gives."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    @classmethod
    def of_nodes(cls, nodes: Iterable[ir.Node]) -> "NameScope":
        """The names of ``nodes``."""
        return cls(node.name for node in nodes if node.name)

    @classmethod
    def of_values(cls, model: ir.Model) -> "NameScope":
        """The names of every value of every graph of ``model``."""
        taken: set[str] = set()
        for graph in model.graphs():
            values = (*graph.inputs, *graph.initializers.values(), *(v for node in graph for v in node.outputs))
            taken.update(value.name for value in values if value.name)
        return cls(taken)

    def __contains__(self, name: str) -> bool:
        return name in self._taken

    def fresh(self, wanted: str) -> str:
        """``wanted``, or with the first free number behind it; taken from now on."""
        name, number = wanted, 0
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name)
        return name
