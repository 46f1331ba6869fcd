"""A marked graph as sections in the order in which they run."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import onnx_ir as ir

from qbench.passes.partition.marking import Place

# Groups of nodes that can run one after the other, by counting how often a path to a node changes
# sides.
#
#     stage(n) = max over what n reads of stage,  one more where that is not n's side
#     outside even, inside odd
#
# Along an edge stages never fall, and they rise where it crosses: what runs in one stage needs
# nothing of a later one, and no path leaves a group of one stage and comes back. Linear in nodes
# and edges.


def staged(nodes: Iterable[ir.Node], inside: Callable[[ir.Node], bool]) -> dict[ir.Node, int]:
    """Node → stage, for ``nodes`` in graph order; edges from elsewhere count as none."""
    stages: dict[ir.Node, int] = {}
    for node in nodes:
        floor = max((stages[maker] for maker in makers(node) if maker in stages), default=0)
        stages[node] = floor + (floor % 2 != inside(node))
    return stages


def makers(node: ir.Node) -> Iterator[ir.Node]:
    """The nodes that compute what ``node`` reads; one that is read twice comes twice."""
    yield from (maker for value in values_read(node) if (maker := value.producer()) is not None)


def values_read(node: ir.Node) -> Iterator[ir.Value]:
    """What ``node`` reads of its own graph, by its subgraphs too, which may read what lies
    around them.
    """
    yield from (value for value in node.inputs if value is not None)
    for inner in inner_nodes(node):
        yield from (
            value for value in inner.inputs if value is not None and value.graph is node.graph
        )
    for graph in _subgraphs(node):
        yield from (value for value in graph.outputs if value.graph is node.graph)


def inner_nodes(node: ir.Node) -> Iterator[ir.Node]:
    """The nodes in the subgraphs of ``node``, at any depth."""
    for graph in _subgraphs(node):
        yield from graph.all_nodes()


def around(graph: ir.Graph) -> dict[ir.Node, ir.Node]:
    """Every node in a subgraph → the node of ``graph`` that it is inside of."""
    return {inner: node for node in graph for inner in inner_nodes(node)}


def readers(value: ir.Value, outer: Mapping[ir.Node, ir.Node]) -> Iterator[ir.Node]:
    """The nodes of the main graph that read ``value``, of those in subgraphs the one ``outer``
    names.
    """
    yield from (outer.get(use.node, use.node) for use in value.uses())


def _subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    for attribute in node.attributes.values():
        if attribute.type is ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type is ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


# Islands: the largest groups of the device's nodes that are connected and can run without a break,
# by a greedy rule.
#
# 1. Every node of the device is as early as what it reads allows (``stages``); connected nodes of
#    one stage are one island.
# 2. From the last to the first, an island that no node outside needs sooner waits for the first
#    island that reads it, and becomes part of that.
#
# No path leaves an island and comes back, and no two islands wait for each other: stages never fall
# along an edge.


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
        """Let an island wait for the one that reads it, where all others that read it can wait
        as long.
        """
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


# A marked graph as sections in the order in which they run, and each section as a model of its own.
#
# An island is a section; what runs between two stages of islands is cut once more, by the same
# rule, into conversions (``BORDER``) and what the host computes.


@dataclass(frozen=True, slots=True, eq=False)
class Section:
    """Nodes that run one after the other in one place.

    Args:
        place: where; never STORED.
        nodes: in graph order.
        reads: computed values from outside, in the order of their first readers.
        gives: values that others read or that leave the graph, in the order of their makers.
    """

    place: Place
    nodes: tuple[ir.Node, ...]
    reads: tuple[ir.Value, ...]
    gives: tuple[ir.Value, ...]

    def model(self, whole: ir.Model, taps: Collection[str] = ()) -> ir.Model:
        """This section of ``whole`` as a model: ``reads`` to ``gives``, then the values of it
        that ``taps`` names.
        """
        outputs = list(self.gives)
        outputs += [
            v for n in self.nodes for v in n.outputs if v.name in taps and v not in self.gives
        ]
        nodes = [*_stored_for(self.nodes, set(self.reads)), *self.nodes]
        constants = {
            value: None for node in nodes for value in values_read(node) if value.is_initializer()
        }
        view = ir.GraphView(
            self.reads,
            outputs,
            nodes=nodes,
            initializers=tuple(constants),
            opset_imports=whole.graph.opset_imports,
            name=whole.graph.name,
        )
        return ir.Model(
            view.clone(), ir_version=whole.ir_version, functions=tuple(whole.functions.values())
        )


def sections_of(graph: ir.Graph, places: Mapping[ir.Node, Place]) -> tuple[Section, ...]:
    """The sections of ``graph``, each behind all that it needs."""
    outer = around(graph)
    islands = Islands(places, outer)
    groups = [((islands.stages[group[0]], 0), Place.DEVICE, group) for group in islands.groups()]
    between: dict[int, list[ir.Node]] = {}
    for node, stage in islands.stages.items():
        if places[node] is not Place.DEVICE:
            between.setdefault(stage, []).append(node)
    for stage, nodes in between.items():
        by_step: dict[int, list[ir.Node]] = {}
        for node, step in staged(nodes, lambda node: places[node] is Place.HOST).items():
            by_step.setdefault(step, []).append(node)
        groups += [((stage, step), places[inner[0]], inner) for step, inner in by_step.items()]
    groups.sort(key=lambda group: group[0])  # stable: islands of one stage stay in graph order
    return tuple(_section(place, nodes, places, outer) for _, place, nodes in groups)


def _section(
    place: Place,
    nodes: Sequence[ir.Node],
    places: Mapping[ir.Node, Place],
    outer: Mapping[ir.Node, ir.Node],
) -> Section:
    inside = set(nodes)
    read = {
        value: None for node in nodes for value in values_read(node) if _is_computed(value, places)
    }
    given = [value for node in nodes for value in node.outputs]
    return Section(
        place,
        tuple(nodes),
        tuple(value for value in read if value.producer() not in inside),
        tuple(
            value
            for value in given
            if value.is_graph_output()
            or any(reader not in inside for reader in readers(value, outer))
        ),
    )


def _is_computed(value: ir.Value, places: Mapping[ir.Node, Place]) -> bool:
    """Whether ``value`` is another one in every run."""
    maker = value.producer()
    return value.is_graph_input() if maker is None else places[maker] is not Place.STORED


def _stored_for(nodes: Iterable[ir.Node], reads: AbstractSet[ir.Value]) -> list[ir.Node]:
    """The nodes of constants alone that ``nodes`` need, each behind what it needs itself."""
    inside, found = set(nodes), dict[ir.Node, None]()
    pending = [(maker, False) for node in nodes for maker in makers(node)]
    while pending:
        node, ready = pending.pop()
        if node in inside or node in found or not reads.isdisjoint(node.outputs):
            continue
        if ready:
            found[node] = None
        else:
            pending.append((node, True))
            pending += [(maker, False) for maker in makers(node)]
    return list(found)
