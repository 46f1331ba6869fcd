"""A requantize seen from both its ends: the levels it reads, and every reader of the levels it gives.

    levels(g₁) ─DQ₁─Q₂─[limits]─┬─DQ₂─ readers          going past it:   levels(g₁) ─┬─DQ₁─ readers
                                └─DQ₂─ readers                                       └─DQ₁─ readers

Where others read ``levels(g₁)`` or what DQ₁ gives, they go on doing so.
"""

from dataclasses import dataclass

import onnx_ir as ir

from qbench.passes.levels.border import Border, Levels, border_of, levels_of, readers_of
from qbench.passes.levels.readers import Reader, Reads, readers_behind
from qbench.passes.levels.tables import Stop
from qbench.passes.naming import NameScope

UNREAD = "a grid of it is computed, one a channel, wider than 16 bits, or crosses its limits"


@dataclass(frozen=True, slots=True, eq=False)
class Requantize:
    """Levels of one static grid a tensor that become levels of another.

    Args:
        source: the levels it reads. border: what makes the others.
    """

    source: Levels
    border: Border

    @property
    def start(self) -> Stop:
        """The grid and the limits of what comes."""
        return Stop(self.source.grid, self.source.low, self.source.high)

    @property
    def stop(self) -> Stop:
        """The grid and the limits of what goes."""
        return Stop(self.border.grid, self.border.low, self.border.high)

    @property
    def dequantizers(self) -> tuple[ir.Node, ...] | None:
        """Who reads its levels; None where anything but a DequantizeLinear by their own grid does."""
        found = [levels_of(node) for node in readers_of(self.border)]
        if self.border.levels.is_graph_output() or any(one is None or one.grid != self.border.grid for one in found):
            return None
        return tuple(one.dequantizer for one in found if one is not None)

    @property
    def readers(self) -> tuple[Reader, ...]:
        """Everything that reads reals of it in the end."""
        return tuple(reader for node in self.dequantizers or () for reader in readers_behind(node))

    def refusal(self, readers: tuple[Reader, ...]) -> str | None:
        """Why one of its ``readers`` would not count what came as it counts what is made of it; None: all would.

        A product counts in steps of the scale, its bias above all; not every kernel takes every width and type.
        """
        came, made = self.source.grid, self.border.grid
        wide, counted = came.qtype.bits != made.qtype.bits, [one.reads is Reads.BETWEEN_GRIDS for one in readers]
        if any(one.is_product for one in readers) and (wide or came.scale != made.scale):
            return "a product behind it counts in steps of its scale, its bias too"
        if wide and any(counted):
            return "its readers would read integers of another width, which not every kernel takes"
        if came.qtype != made.qtype and any(one.is_of_one_type for one in readers):
            return "one of its readers counts integers of one type alone"
        return None


def requantize_of(node: ir.Node) -> Requantize | str | None:
    """The requantize whose QuantizeLinear ``node`` is, or why it cannot be looked at; None: it is none.

    Raises:
        InputError: a Q or DQ that means nothing.
    """
    source = node.inputs[0] if not node.domain and node.op_type == "QuantizeLinear" else None
    maker = None if source is None else source.producer()
    if maker is None or maker.domain or maker.op_type != "DequantizeLinear":
        return None
    border, levels = border_of(node), levels_of(maker)
    return UNREAD if border is None or levels is None else Requantize(levels, border)


def go_past(site: Requantize) -> None:
    """Let every reader read the levels that came, by their own grid; the requantize goes."""
    first = site.source.dequantizer
    for node in site.dequantizers or ():
        node.resize_inputs(len(first.inputs))
        for index, value in enumerate(first.inputs):
            node.replace_input_with(index, value)
    remove_border(site.border)


def remove_border(border: Border) -> None:
    """Remove a border whose levels nothing reads any more, and the DequantizeLinear that fed it alone."""
    graph, maker = border.quantizer.graph, border.source.producer()
    assert isinstance(graph, ir.Graph)
    for node in (border.clip, border.quantizer):
        if node is not None:
            graph.remove(node, safe=True)
    if maker is not None and maker.op_type == "DequantizeLinear":
        real = maker.outputs[0]
        if not real.uses() and not real.is_graph_output():
            graph.remove(maker, safe=True)


def stand_in(old: ir.Value, new: ir.Value, names: NameScope) -> None:
    """Let everything that reads ``old``, a node's result, read ``new``; an output of the graph keeps its name."""
    node = old.producer()
    assert node is not None
    assert isinstance(node.graph, ir.Graph)
    if old.is_graph_output():
        copy = ir.Node("", "Identity", [new], num_outputs=1, name=f"{node.name}_output")
        copy.metadata_props.update(node.metadata_props)
        result = copy.outputs[0]
        result.type, result.shape = old.type, old.shape
        result.name, old.name = old.name, names.fresh(f"{old.name}_replaced")
        node.graph.insert_before(node, copy)
        old.replace_all_uses_with(result, replace_graph_outputs=True)
    else:
        old.replace_all_uses_with(new)
