"""A requantize seen from both its ends."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import onnx_ir as ir

from qbench.graph import only_consumer, op_spec
from qbench.numerics import dequantize
from qbench.passes.contract import decline
from qbench.passes.editing import NameScope
from qbench.passes.effect import within
from qbench.passes.levels.border import Border, Levels, border_of, can_limit, levels_of, readers_of
from qbench.passes.levels.tables import (
    Array,
    Difference,
    Stop,
    admits,
    all_levels,
    brought,
    chain_against,
    merged_limits,
)
from qbench.passes.lowering.elementwise import is_mover
from qbench.passes.lowering.site import ENGINE_DOMAIN, INTEGER_DOMAIN, INTEGER_MACHINES

# Who reads the reals behind a DequantizeLinear in the end: past whatever only moves them.
#
#     levels ─DQ─ Reshape ─ Transpose ─┬─ Add ─Q─      an operator between grids
#                                      ├─ Q ─          another border
#                                      └─ Softmax ─    an operator on reals; or the graph's output
#
# Machines take a product and its sums in steps of the very grids it reads, its bias above all: what reads a product is
# told apart, whether or not something moves the levels before it.


class Reads(enum.Enum):
    """What a reader does with reals."""

    BORDER = "puts them on a grid"
    BETWEEN_GRIDS = "computes, and what it gives is put on a grid at once"
    REAL = "computes reals, or is no operator but the graph's output"


@dataclass(frozen=True, slots=True)
class Reader:
    """One operand of one operator; ``node`` None: an output of the graph."""

    node: ir.Node | None
    reads: Reads

    @property
    def is_of_one_type(self) -> bool:
        """Whether it counts in integers only where all that it reads and gives is of one type."""
        return self.node is not None and self.reads is Reads.BETWEEN_GRIDS and is_of_one_type(self.node)

    @property
    def is_product(self) -> bool:
        """Whether it multiplies with weights."""
        return self.node is not None and op_spec(self.node).weight is not None


def readers_behind(dequantizer: ir.Node) -> tuple[Reader, ...]:
    """Everything that reads what ``dequantizer`` gives or what movers make of it, an operand each."""
    found, waiting = [], [dequantizer.outputs[0]]
    while waiting:
        value = waiting.pop()
        if value.is_graph_output():
            found.append(Reader(None, Reads.REAL))
        for use in value.uses():
            reads = _reads(use.node)
            if reads is Reads.REAL and use.idx == 0 and is_mover(use.node):
                waiting.extend(use.node.outputs)
            else:
                found.append(Reader(use.node, reads))
    return tuple(found)


def is_of_one_type(node: ir.Node) -> bool:
    """Whether integer machines count ``node`` by an engine's operator alone, whose operands have one type."""
    name = f"QLinear{node.op_type}"
    engine, own = (INTEGER_MACHINES.lacks(name, domain) is None for domain in (ENGINE_DOMAIN, INTEGER_DOMAIN))
    return not node.domain and engine and not own


def results_of(node: ir.Node) -> tuple[ir.Value, ...]:
    """The results of ``node`` that anything reads."""
    return tuple(value for value in node.outputs if value.uses() or value.is_graph_output())


def _reads(node: ir.Node) -> Reads:
    if border_of(node) is not None:
        return Reads.BORDER
    borders = [only_consumer(value) for value in results_of(node)]
    at_once = bool(borders) and all(one is not None and border_of(one) is not None for one in borders)
    return Reads.BETWEEN_GRIDS if at_once else Reads.REAL


# A requantize seen from both its ends: the levels it reads, and every reader of the levels it gives.
#
#     levels(g₁) ─DQ₁─Q₂─[limits]─┬─DQ₂─ readers          going past it:   levels(g₁) ─┬─DQ₁─ readers
#                                 └─DQ₂─ readers                                       └─DQ₁─ readers
#
# Where others read ``levels(g₁)`` or what DQ₁ gives, they go on doing so.

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


# Going past requantizes behind which every level means the real that it meant before.
#
#     levels(g₁) ─DQ₁─Q₂─[l₂,h₂]─DQ₂─ readers   →   levels(g₁) ─DQ₁─ readers          s₂·(T(q) − z₂) = s₁·(q − z₁)
#
# Every level is tried, in float32 and exactly, under every machine. Where one means anything else the requantize stays:
# what its readers make of a rounding, and what of several, is not known here.

_HALF = 0.5 + 2.0**-6
"""Of a step: rounding, and what float32 adds to it on grids of up to 16 bits (65,535 steps · 2 · 2⁻²⁴)."""
_KEPT = 4096
"""Reasons remembered: every round of a pipeline asks for those again that there were in the last."""


@dataclass(frozen=True, slots=True)
class GoingPast:
    """One sweep of the pass ``name``.

    Args:
        wanted: whether a requantize with such readers is the pass's. machines: of its effect. name: of the pass.
    """

    wanted: Callable[[set[Reads]], bool]
    machines: tuple[str, ...]
    name: str

    def sweep(self, model: ir.Model) -> bool:
        """Go past in graph order, each time back along the chain as far as readers let it; True when there was one."""
        gone = False
        for node in list(model.graph):
            before: ir.Node | None = node if node.graph is not None else None
            while before is not None:
                went, before = self._past(before)
                gone |= went
        return gone

    def _past(self, node: ir.Node) -> tuple[bool, ir.Node | None]:
        """Whether it went past ``node``, and the quantizer whose levels the readers then read."""
        site = requantize_of(node)
        if site is None:
            return False, None
        if isinstance(site, str):
            return decline(node, site, self.name) and False, None
        readers = site.readers
        if not self.wanted({reader.reads for reader in readers}):
            return False, None
        reason = site.refusal(readers) or unlike(site.start, site.stop, self.machines)
        if reason is not None:
            return decline(node, reason, self.name) and False, None
        before = site.source.border
        go_past(site)
        return True, None if before is None else before.quantizer


@lru_cache(maxsize=_KEPT)
def unlike(start: Stop, stop: Stop, machines: tuple[str, ...]) -> str | None:
    """Why levels of ``start`` that are brought to ``stop`` are not as before to every reader; None: they are.

    Raises:
        InputError: an unknown machine, or a ratio of scales that it cannot hold.
    """
    levels = all_levels(start)
    step, before = np.float64(stop.grid.scale), _exact(levels, start)
    moved, apart = np.zeros(len(levels), bool), np.zeros(len(levels))
    for machine in machines:
        there = brought(levels, start.grid, (stop,), machine)
        far = np.abs(before - _exact(there, stop))
        moved |= (far > 0) | (_float32(levels, start) != _float32(there, stop))
        apart = np.maximum(apart, far / step)
    count, farthest = f"{moved.sum()} of {len(levels)} levels mean another real", float(apart.max(initial=0.0))
    if moved.any():
        return f"it saturates: {count} behind it" if farthest > _HALF else f"{count}, by up to {farthest:.3g} steps"
    mantissa, _ = np.frexp(np.float64(start.grid.scale) / step)
    return None if mantissa == 0.5 else "the ratio of the scales is no power of two, so that products round otherwise"


def _exact(levels: Array, stop: Stop) -> Array:
    """Float64, no bit lost: 24 of the scale, 17 of the levels."""
    return np.asarray(np.float64(stop.grid.scale) * (levels - int(stop.grid.zero_point)))


def _float32(levels: Array, stop: Stop) -> Array:
    return dequantize(levels.astype(stop.grid.qtype.storage_dtype), stop.grid)


# Quantizers at which a rewrite moved a level: none is moved twice, so that one site keeps to what it admits.
#
# Merging a hundred requantizes one by one, each time by a step, would move a level by a hundred. What different sites
# move still adds up on the way to an output (``passes.effect``).

_KEY = "qbench.moved"


def moved_before(difference: Difference, *borders: Border) -> bool:
    """Whether ``difference`` would move a level at ``borders``, one of which moved some already."""
    return difference.steps > 0 and any(_KEY in border.quantizer.metadata_props for border in borders)


def mark_moved(difference: Difference, border: Border, *gone: Border) -> None:
    """Write into ``border`` that ``difference`` moved its levels, or that those of borders ``gone`` had been."""
    if difference.steps or any(_KEY in one.quantizer.metadata_props for one in gone):
        border.quantizer.metadata_props[_KEY] = "1"


# Whether a requantize and a border become one where they meet, told before anything brings them together.
#
#     levels(g₁) ─DQ₁─Q₂─[l₂,h₂]─DQ₂ … Q₃─[l₃,h₃]─     →     levels(g₁) ─DQ₁ … Q₃─[l,h]─
#
# It asks what ``merge-requantize`` will ask, of every level of g₁: limits before the requantize are not known by then.


def can_merge(site: Requantize, waiting: Border | None, steps: int, machines: tuple[str, ...]) -> bool:
    """Whether ``site`` and the border ``waiting`` become one, without a Clip where neither had any."""
    if waiting is None:
        return False
    if waiting.grid == site.border.grid:
        return can_limit(waiting, *both_limits(site.border, waiting))
    grid, last = site.source.grid, waiting.grid
    chain = (site.stop, Stop(last, waiting.low, waiting.high))
    found = _merged(Stop(grid, grid.qmin, grid.qmax), chain, machines)
    if found is None or not admits(within(steps), found.difference) or not can_limit(waiting, found.low, found.high):
        return False
    clips = (site.border.clip, waiting.clip) != (None, None)
    return (clips or found.is_free) and not moved_before(found.difference, waiting, site.border)


@dataclass(frozen=True, slots=True)
class _Merged:
    """Two requantizes as one: its limits, whether levels keep within these by themselves, and what it moves."""

    low: int
    high: int
    is_free: bool
    difference: Difference


@lru_cache
def _merged(start: Stop, chain: tuple[Stop, Stop], machines: tuple[str, ...]) -> _Merged | None:
    """``chain`` as one stop, as ``merge-requantize`` would try it; None where machines saturate elsewhere."""
    (low, high), *others = {merged_limits(start, chain, one) for one in machines}
    if others:
        return None
    last = chain[-1].grid
    whole = (Stop(last, last.qmin, last.qmax),)
    is_free = all(merged_limits(start, whole, one) == (low, high) for one in machines)
    return _Merged(low, high, is_free, chain_against(start, chain, (Stop(last, low, high),), machines))


def both_limits(one: Border, other: Border) -> tuple[int, int]:
    """Where what crosses ``one`` and then ``other``, on the same grid, saturates."""
    low, high = (min(max(end, other.low), other.high) for end in (one.low, one.high))
    return low, high
