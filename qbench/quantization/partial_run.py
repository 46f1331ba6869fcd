"""Running a graph piece by piece: up to one node, then on to the next, while its constants may change in between.

What a piece computed that later ones read is kept, batch by batch, as the integers behind a QuantizeLinear wherever
there are some; a DequantizeLinear is computed anew for every piece that reads it. So each node runs once, the nodes
that are asked for twice, and no more than a front of the graph is held in memory.
"""

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from qbench.backends import Array, Backend, Feeds
from qbench.quantization.channel_means import ChannelMeans, Doubles

_PACKED_BITS = 8
"""Integers narrower than this do not leave an engine."""


class PartialRun:
    """The state of one such run.

    Args:
        model: the graph; constants of nodes that did not run yet may be changed by its owner.
        batches: what it is fed; held until nothing reads it any more.
        backend: runs the pieces.
        threads: of each of them.
    """

    def __init__(self, model: ir.Model, batches: Sequence[Feeds], backend: Backend, *, threads: int) -> None:
        self._model = model
        self._backend = backend
        self._threads = threads
        self._done: set[ir.Node] = set()
        self._known: dict[str, ir.Value] = {str(value.name): value for value in model.graph.inputs}
        self._front: list[dict[str, Array]] = [dict(feeds) for feeds in batches]

    def means(self, node: ir.Node, axis: int) -> Doubles:
        """The means of the first result of ``node`` over all batches, one a channel along ``axis``.

        What ``node`` depends on counts as done from now on; ``node`` itself runs again when later ones depend on it.

        Raises:
            QbenchError: what the backend raises.
        """
        nodes, read = self._piece(node)
        self._done |= {other for other in nodes if other is not node and not _is_cheap(other)}
        made = [v for other in nodes if other in self._done for v in other.outputs if v.name and self._is_wanted(v)]
        result = node.outputs[0]
        graph = ir.convenience.extract(self._model.graph, read, [result, *made])
        means = ChannelMeans(axis)
        with self._backend.prepare(ir.Model(graph, ir_version=self._model.ir_version), threads=self._threads) as run:
            for front in self._front:
                results = run.run({str(value.name): front[str(value.name)] for value in read})
                means.add(results[str(result.name)])
                front.update({str(value.name): results[str(value.name)] for value in made})
        self._known.update({str(value.name): value for value in made})
        self._forget()
        return means.value

    def _piece(self, node: ir.Node) -> tuple[list[ir.Node], list[ir.Value]]:
        """The nodes that ``node`` still needs to run, with itself, and the known values that they read."""
        nodes: dict[ir.Node, None] = {}
        read: dict[ir.Value, None] = {}
        waiting = [node]
        while waiting:
            current = waiting.pop()
            if current in nodes:
                continue
            nodes[current] = None
            for value in _operands(current):
                maker = value.producer()
                if self._known.get(str(value.name)) is value:
                    read[value] = None
                elif maker is not None:
                    waiting.append(maker)
            waiting.extend(use.node for value in current.outputs if _is_packed(value) for use in value.uses())
        return list(nodes), list(read)

    def _is_wanted(self, value: ir.Value) -> bool:
        """Whether a node that has not run yet reads ``value``, or what is cheaply computed from it."""
        readers = (use.node for use in value.uses())
        return any(
            any(self._is_wanted(v) for v in node.outputs) if _is_cheap(node) else node not in self._done
            for node in readers
        )

    def _forget(self) -> None:
        for name in [name for name, value in self._known.items() if not self._is_wanted(value)]:
            del self._known[name]
            for front in self._front:
                front.pop(name, None)


def _is_cheap(node: ir.Node) -> bool:
    """Whether ``node`` is computed anew wherever it is read: its integers are a quarter of its result, or constant."""
    if node.domain or node.op_type != "DequantizeLinear" or node.inputs[0] is None:
        return False
    return not _is_packed(node.inputs[0])


def _is_packed(value: ir.Value) -> bool:
    """Whether ``value`` cannot leave an engine, so that whatever reads it runs in the same piece."""
    return value.dtype is not None and value.dtype.bitwidth < _PACKED_BITS


def _operands(node: ir.Node) -> Iterator[ir.Value]:
    """What ``node`` reads from the graph that it is in, the graphs inside it too."""
    yield from (value for value in node.inputs if value is not None)
    for attribute in node.attributes.values():
        inner: tuple[ir.Graph, ...] = ()
        if attribute.type == ir.AttributeType.GRAPH:
            inner = (attribute.as_graph(),)
        elif attribute.type == ir.AttributeType.GRAPHS:
            inner = tuple(attribute.as_graphs())
        for graph in inner:
            for node_inside in ir.traversal.RecursiveGraphIterator(graph):
                yield from (v for v in node_inside.inputs if v is not None and v.graph is node.graph)
