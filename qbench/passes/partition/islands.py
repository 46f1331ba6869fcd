"""Islands: the largest groups of the device's nodes that hang together and can run at a stretch, by a greedy rule.

1. Every node of the device is as early as what it reads allows (``stages``); those of one stage that hang together are
   one island.
2. From the last to the first, an island that nobody outside needs sooner waits for the first island that reads it, and
   becomes part of that.

No path leaves an island and comes back, and no two islands wait for each other: stages never fall along an edge.
"""

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from qbench.passes.partition.marking import Place
from qbench.passes.partition.stages import makers, readers, staged


class Islands:
    """Who belongs together: a forest of the device's nodes, and the stage of every node.

    Args:
        places: of every node, in graph order.
        outer: node in a subgraph → the one of ``places`` that it is inside of.
    """

    def __init__(self, places: Mapping[ir.Node, Place], outer: Mapping[ir.Node, ir.Node]) -> None:
        nodes = [node for node, place in places.items() if place is not Place.STORED]
        self._places = places
        self._outer = outer
        self.stages = staged(nodes, self._inside)
        self._parent: dict[ir.Node, ir.Node] = {node: node for node in nodes if self._inside(node)}
        for node in self._parent:
            for maker in makers(node):
                if maker in self._parent and self.stages[maker] == self.stages[node]:
                    self._join(maker, node)
        early = self.groups()
        for group in sorted(early, key=lambda group: -self.stages[group[0]]):
            self._sink(group)

    def groups(self) -> list[list[ir.Node]]:
        """The islands, each in graph order, in the order of their first nodes."""
        found: dict[ir.Node, list[ir.Node]] = {}
        for node in self._parent:
            found.setdefault(self._root(node), []).append(node)
        return list(found.values())

    def _inside(self, node: ir.Node) -> bool:
        return self._places[node] is Place.DEVICE

    def _sink(self, group: Sequence[ir.Node]) -> None:
        """Let an island wait for the one that reads it, where all others that read it can wait as long."""
        members = set(group)
        given = (value for node in group for value in node.outputs)
        outside = [m for value in given for m in readers(value, self._outer) if m not in members]
        latest = min((self.stages[m] - (not self._inside(m)) for m in outside), default=0)
        joined = [m for m in outside if self._inside(m) and self.stages[m] == latest]
        if latest <= self.stages[group[0]] or not joined:
            return
        self.stages.update(dict.fromkeys(group, latest))
        for reader in joined:
            self._join(group[0], reader)

    def _root(self, node: ir.Node) -> ir.Node:
        while self._parent[node] is not node:
            self._parent[node] = self._parent[self._parent[node]]
            node = self._parent[node]
        return node

    def _join(self, one: ir.Node, other: ir.Node) -> None:
        self._parent[self._root(one)] = self._root(other)
