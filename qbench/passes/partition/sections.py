"""A marked graph as sections in the order in which they run, and each section as a model of its own.

An island is a section; what runs between two stages of islands is cut once more, by the same rule, into conversions
(``BORDER``) and what the host computes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import onnx_ir as ir

from qbench.passes.partition.islands import Islands
from qbench.passes.partition.marking import Place
from qbench.passes.partition.stages import around, makers, readers, staged, values_read


@dataclass(frozen=True, slots=True, eq=False)
class Section:
    """Nodes that run at a stretch in one place.

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
        """This section of ``whole`` as a model: ``reads`` to ``gives``, then the values of it that ``taps`` names."""
        outputs = list(self.gives)
        outputs += [v for n in self.nodes for v in n.outputs if v.name in taps and v not in self.gives]
        nodes = [*_stored_for(self.nodes, set(self.reads)), *self.nodes]
        constants = {value: None for node in nodes for value in values_read(node) if value.is_initializer()}
        view = ir.GraphView(
            self.reads,
            outputs,
            nodes=nodes,
            initializers=tuple(constants),
            opset_imports=whole.graph.opset_imports,
            name=whole.graph.name,
        )
        return ir.Model(view.clone(), ir_version=whole.ir_version, functions=tuple(whole.functions.values()))


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
    place: Place, nodes: Sequence[ir.Node], places: Mapping[ir.Node, Place], outer: Mapping[ir.Node, ir.Node]
) -> Section:
    inside = set(nodes)
    read = {value: None for node in nodes for value in values_read(node) if _is_computed(value, places)}
    given = [value for node in nodes for value in node.outputs]
    return Section(
        place,
        tuple(nodes),
        tuple(value for value in read if value.producer() not in inside),
        tuple(
            value
            for value in given
            if value.is_graph_output() or any(reader not in inside for reader in readers(value, outer))
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
