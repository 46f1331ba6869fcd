"""Groups of nodes that can run one after the other, by counting how often the road to a node changes sides.

    stage(n) = max over what n reads of stage,  one more where that is not n's side       outside even, inside odd

Along an edge stages never fall, and they rise where it crosses: what runs in one stage needs nothing of a later one,
and no path leaves a group of one stage and comes back. Linear in nodes and edges.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import onnx_ir as ir


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
    """What ``node`` reads of its own graph, by its subgraphs too, which may read what lies around them."""
    yield from (value for value in node.inputs if value is not None)
    for inner in inner_nodes(node):
        yield from (value for value in inner.inputs if value is not None and value.graph is node.graph)
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
    """The nodes of the main graph that read ``value``, of those in subgraphs the one ``outer`` names."""
    yield from (outer.get(use.node, use.node) for use in value.uses())


def _subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    for attribute in node.attributes.values():
        if attribute.type is ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type is ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()
