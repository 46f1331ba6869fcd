"""A requantize moves below operators that only move values, and below a maximum."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from qbench.graph import (
    int_attribute,
    ints_attribute,
    only_consumer,
    op_spec,
    origin_of,
    set_origin,
    word_attribute,
)
from qbench.passes.contract import EXACT, Effect, decline
from qbench.passes.editing import NameScope, add_constant
from qbench.passes.requantization.border import Border, Codes, border_of, can_limit, set_limits
from qbench.passes.requantization.requantize import (
    Requantize,
    both_limits,
    can_merge,
    mark_moved,
    requantize_of,
    results_of,
)
from qbench.passes.requantization.tables import Difference, Stop, all_codes, brought

_COPYING = frozenset({"Expand", "Tile"})
_NONE = Difference(0, 0, 0, "")


@dataclass(frozen=True, slots=True)
class SinkRequantize:
    """Requires: QDQ. Ensures: no requantize alone feeds movers before a border it can merge
    with, nor a whole Concat.

    It goes downwards only, so that it ends; a requantize goes below all the movers behind it in one
    run. One that reads another stays with it: they have met, and were each to go on, a chain of
    them would take its square in steps.

    Args:
        steps: by which the later merge may move a code; sinking itself moves none.
        name: of the pass.
    """

    steps: int = 0
    name: str = "sink-requantize"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Sink in graph order; True when there was a requantize to sink.

        A Concat comes after all that feeds it, and is looked at once, whatever comes of it.
        """
        names = _Names(NameScope.of_values(model), NameScope.of_nodes(model))
        changed = False
        for node in list(model.graph):
            if node.graph is None:
                continue
            sunk = self._joined(node, names) if _joins(node) else node
            changed |= sunk is not None and sunk is not node
            while sunk is not None and self._sunk(sunk, names):
                changed = True
        return changed

    def _joined(self, below: ir.Node, names: "_Names") -> ir.Node | None:
        """The QuantizeLinear that went below a Concat for all that feed it; None where they
        stay.
        """
        values = dict.fromkeys(below.inputs)
        sites = [site for value in values if (site := _alone(value)) is not None]
        reason = None
        if len(sites) < len(below.inputs):
            reason = f"not every operand of '{below.name}' is requantized for it alone"
        elif len(sites) < 2:
            reason = f"'{below.name}' joins nothing"
        elif len({(one.source.qparams, one.stop) for one in sites}) > 1:
            reason = (
                f"the operands of '{below.name}' are not requantized from and to the same qparams "
                "and limits"
            )
        elif any(_reads_another(one) for one in sites):
            reason = "it follows another requantize"
        if reason is None:
            _sink([below], sites, names)
            return sites[0].border.quantizer
        for one in sites:
            decline(one.border.quantizer, reason, self.name)
        return None

    def _sunk(self, node: ir.Node, names: "_Names") -> bool:
        site = requantize_of(node)
        if site is None or node.graph is None:
            return False
        if isinstance(site, str):
            return decline(node, site, self.name) and False
        first = _below(site)
        if first is None:
            return False
        movers = _movers_from(first)
        reason = self._problem(site, movers)
        if reason is not None:
            return decline(node, reason, self.name) and False
        _sink(movers, [site], names)
        return True

    def _problem(self, site: Requantize, movers: Sequence[ir.Node]) -> str | None:
        if _alone(movers[0].inputs[0]) is None:
            return "others read its values, too"
        if _reads_another(site):
            return "it follows another requantize"
        arithmetics = self.effect.arithmetics
        reason = next(
            (one for mover in movers if (one := _hindrance(mover, site, arithmetics)) is not None),
            None,
        )
        if reason is not None or can_merge(site, _waiting(movers[-1]), self.steps, arithmetics):
            return reason
        return f"nothing behind '{movers[-1].name}' merges with it"


@dataclass(frozen=True, slots=True, eq=False)
class _Names:
    values: NameScope
    nodes: NameScope


def _below(site: Requantize) -> ir.Node | None:
    """A mover that reads the requantize, alone or not, in one graph with all of it; None where
    there is none.
    """
    for node in site.dequantizers or ():
        for use in node.outputs[0].uses():
            if (
                node.graph is use.node.graph is site.border.quantizer.graph
                and use.idx == 0
                and _moves(use.node)
            ):
                return use.node
    return None


def _movers_from(first: ir.Node) -> list[ir.Node]:
    """``first`` and the movers after it; each is the only reader of the one before."""
    movers = [first]
    while (
        reader := only_consumer(movers[-1].outputs[0])
    ) is not None and reader.graph is first.graph:
        if not _moves(reader) or reader.inputs[0] is not movers[-1].outputs[0]:
            break
        movers.append(reader)
    return movers


def _waiting(last: ir.Node) -> Border | None:
    """The border that alone reads what ``last`` gives, in the same graph."""
    reader = only_consumer(last.outputs[0])
    return None if reader is None or reader.graph is not last.graph else border_of(reader)


def _moves(node: ir.Node) -> bool:
    return op_spec(node).moved == (0,)


def _joins(node: ir.Node) -> bool:
    return not node.domain and node.op_type == "Concat"


def _alone(value: ir.Value | None) -> Requantize | None:
    """The requantize that ``value`` alone reads, for one reader."""
    maker = None if value is None or only_consumer(value) is None else value.producer()
    codes = (
        None
        if maker is None or maker.op_type != "DequantizeLinear" or maker.domain
        else maker.inputs[0]
    )
    quantizer = None if codes is None or only_consumer(codes) is None else codes.producer()
    if quantizer is not None and quantizer.op_type == "Clip" and quantizer.inputs[0] is not None:
        quantizer = quantizer.inputs[0].producer()
    if maker is None or quantizer is None or quantizer.graph is not maker.graph:
        return None
    site = requantize_of(quantizer)
    return site if isinstance(site, Requantize) and site.dequantizers == (maker,) else None


def _hindrance(below: ir.Node, site: Requantize, arithmetics: tuple[str, ...]) -> str | None:
    """Why ``site`` cannot go below a mover."""
    if list(results_of(below)) != [below.outputs[0]]:
        return f"'{below.name}' has several results"
    if below.op_type in _COPYING:
        return f"'{below.name}' copies, and every copy would be requantized"
    if below.op_type == "Pad" and word_attribute(below, "mode", "constant") == "constant":
        return f"'{below.name}' pads with a number that is not requantized"
    if op_spec(below).is_max_pool:
        if not _is_monotone(site.start, site.stop, arithmetics):
            return "a higher value becomes a lower one"
        if not _every_window_reads(below):
            return f"a window of '{below.name}' may lie in its padding alone"
    return None


def _reads_another(site: Requantize) -> bool:
    border = site.source.border
    return border is not None and isinstance(requantize_of(border.quantizer), Requantize)


@lru_cache
def _is_monotone(start: Stop, stop: Stop, arithmetics: tuple[str, ...]) -> bool:
    codes = all_codes(start)
    return all(
        bool((np.diff(brought(codes, start.qparams, (stop,), one)) >= 0).all())
        for one in arithmetics
    )


def _every_window_reads(pool: ir.Node) -> bool:
    """Whether no window lies in padding alone, where a maximum is −∞ and falls on the limit of
    whatever reads it.
    """
    kernel = ints_attribute(pool, "kernel_shape")
    pads = ints_attribute(pool, "pads", (0,) * 2 * len(kernel))
    padded = any(pads) or word_attribute(pool, "auto_pad", "NOTSET") not in {"NOTSET", "VALID"}
    if padded and any(step != 1 for step in ints_attribute(pool, "dilations")):
        return False
    once = (1,) * len(kernel)
    beyond = ints_attribute(pool, "strides", once) if int_attribute(pool, "ceil_mode", 0) else once
    heads, tails = pads[: len(kernel)], pads[len(kernel) :]
    windows = zip(kernel, heads, tails, beyond, strict=True)
    return all(head < size and tail + over <= size for size, head, tail, over in windows)


def _sink(movers: Sequence[ir.Node], sites: Sequence[Requantize], names: _Names) -> None:
    """``movers`` move codes as they were before the requantize; that of the first operand goes
    behind them.
    """
    first, below = sites[0], movers[-1]
    graph, moved = below.graph, below.outputs[0]
    assert isinstance(graph, ir.Graph)
    (last,) = first.dequantizers or ()
    for index, site in enumerate(sites):
        movers[0].replace_input_with(index, site.source.dequantizer.outputs[0])
    for site in sites[1:]:
        (gone,) = site.dequantizers or ()
        graph.remove(gone, safe=True)
        _without(site)
    chain = [node for node in (first.border.quantizer, first.border.clip, last) if node is not None]
    for node in chain:
        graph.remove(node)
    real, stem = last.outputs[0], moved.name or ""
    moved.replace_all_uses_with(real, replace_graph_outputs=True)
    real.type = moved.type
    moved.name, real.name = names.values.fresh(f"{stem}_before"), stem
    between = _pair(first.source, below, moved, stem, names)
    chain[0].replace_input_with(0, between[-1].outputs[0])
    for node in chain[:-1]:
        node.outputs[0].name = names.values.fresh(f"{stem}_quantized")
    for node in (*between, *chain):
        node.outputs[0].shape = moved.shape
    graph.insert_after(below, [*between, *chain])
    _taken_over(first, last, names)


def _without(site: Requantize) -> None:
    """Remove the border of ``site``, whose DequantizeLinear ``below`` reads now."""
    graph = site.border.quantizer.graph
    assert isinstance(graph, ir.Graph)
    for node in (site.border.clip, site.border.quantizer):
        if node is not None:
            graph.remove(node, safe=True)


def _pair(
    source: Codes, below: ir.Node, moved: ir.Value, stem: str, names: _Names
) -> list[ir.Node]:
    """Q and DQ by the qparams of ``source``, for ``moved``; not yet in the graph."""
    graph, qparams = below.graph, source.qparams
    assert isinstance(graph, ir.Graph)
    parameters = [
        add_constant(graph, f"{stem}_before_scale", qparams.scale, names.values),
        add_constant(
            graph,
            f"{stem}_before_zero_point",
            qparams.zero_point.astype(qparams.qtype.storage_dtype),
            names.values,
        ),
    ]
    made, value = [], moved
    codes = source.dequantizer.inputs[0]
    assert codes is not None
    borders = (
        ("Quantize", "levels", codes.type),  # stored name
        ("Dequantize", "reals", moved.type),
    )
    for operator, word, kind in borders:
        name = names.nodes.fresh(f"{below.name}_{operator.lower()}")
        node = ir.Node("", f"{operator}Linear", [value, *parameters], num_outputs=1, name=name)
        node.outputs[0].name = names.values.fresh(f"{stem}_{word}")
        node.outputs[0].type = kind
        set_origin(node, origin_of(below))
        made.append(node)
        value = node.outputs[0]
    return made


def _taken_over(site: Requantize, last: ir.Node, names: _Names) -> None:
    """Where a border of the same qparams alone reads what the sunk requantize gives, the border
    does both.
    """
    border = _waiting(last)
    if border is None or border.qparams != site.border.qparams:
        return
    low, high = both_limits(site.border, border)
    if not can_limit(border, low, high):
        return
    border.quantizer.replace_input_with(0, site.border.source)
    graph = last.graph
    assert isinstance(graph, ir.Graph)
    graph.remove(last, safe=True)
    _without(site)
    mark_moved(_NONE, border, site.border)
    set_limits(border, low, high, names.values)
