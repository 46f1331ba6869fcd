"""A requantize seen from both its ends."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import onnx_ir as ir

from qbench.graph import is_mover, only_consumer, op_spec
from qbench.numerics import dequantize
from qbench.passes.contract import decline, within
from qbench.passes.editing import NameScope, remove_unread
from qbench.passes.lowering.site import ENGINE_DOMAIN, INTEGER_DOMAIN, INTEGER_INTERPRETER
from qbench.passes.requantization.border import (
    Border,
    Codes,
    border_of,
    can_limit,
    codes_of,
    readers_of,
)
from qbench.passes.requantization.tables import (
    Array,
    Difference,
    Stop,
    admits,
    all_codes,
    brought,
    chain_against,
    merged_limits,
)

# What reads the reals behind a DequantizeLinear in the end, past operators that only move them.
#
#     codes ─DQ─ Reshape ─ Transpose ─┬─ Add ─Q─      an operator between quantizers
#                                      ├─ Q ─          another border
#                                      └─ Softmax ─    an operator on reals; or the graph's output
#
# The sums of a product, above all its bias, are in steps of the scales that it reads: products are
# kept apart from other readers, whether or not something moves the codes before them.


class Reads(enum.Enum):
    """What a reader does with reals."""

    BORDER = "quantizes them"
    BETWEEN_QUANTIZERS = "computes, and its result is quantized at once"
    REAL = "computes reals, or is no operator but the graph's output"


@dataclass(frozen=True, slots=True)
class Reader:
    """One operand of one operator; ``node`` None: an output of the graph."""

    node: ir.Node | None
    reads: Reads

    @property
    def is_of_one_type(self) -> bool:
        """Whether it computes in integers only where all that it reads and gives is of one type."""
        return (
            self.node is not None
            and self.reads is Reads.BETWEEN_QUANTIZERS
            and is_of_one_type(self.node)
        )

    @property
    def is_product(self) -> bool:
        """Whether it multiplies with weights."""
        return self.node is not None and op_spec(self.node).weight is not None


def readers_behind(dequantizer: ir.Node) -> tuple[Reader, ...]:
    """Everything that reads what ``dequantizer`` gives or what movers make of it, one entry per
    operand.
    """
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
    """Whether the integer interpreter computes ``node`` by an engine's operator alone, whose
    operands have one type.
    """
    name = f"QLinear{node.op_type}"
    engine, own = (
        INTEGER_INTERPRETER.lacks(name, domain) is None
        for domain in (ENGINE_DOMAIN, INTEGER_DOMAIN)
    )
    return not node.domain and engine and not own


def results_of(node: ir.Node) -> tuple[ir.Value, ...]:
    """The results of ``node`` that anything reads."""
    return tuple(value for value in node.outputs if value.uses() or value.is_graph_output())


def _reads(node: ir.Node) -> Reads:
    if border_of(node) is not None:
        return Reads.BORDER
    borders = [only_consumer(value) for value in results_of(node)]
    at_once = bool(borders) and all(
        one is not None and border_of(one) is not None for one in borders
    )
    return Reads.BETWEEN_QUANTIZERS if at_once else Reads.REAL


# A requantize seen from both its ends: the codes it reads, and every reader of the codes it gives.
#
#     codes(p₁) ─DQ₁─Q₂─[limits]─┬─DQ₂─ readers      going past it:   codes(p₁) ─┬─DQ₁─ readers
#                                └─DQ₂─ readers                                  └─DQ₁─ readers
#
# Where others read ``codes(p₁)`` or what DQ₁ gives, they go on doing so.

UNREAD = "its qparams are computed, per channel or wider than 16 bits, or its limits cross"


@dataclass(frozen=True, slots=True, eq=False)
class Requantize:
    """Codes of static qparams per tensor that become codes of other qparams.

    Args:
        source: the codes it reads.
        border: makes the others.
    """

    source: Codes
    border: Border

    @property
    def start(self) -> Stop:
        """The qparams and the limits of its input."""
        return Stop(self.source.qparams, self.source.low, self.source.high)

    @property
    def stop(self) -> Stop:
        """The qparams and the limits of its result."""
        return Stop(self.border.qparams, self.border.low, self.border.high)

    @property
    def dequantizers(self) -> tuple[ir.Node, ...] | None:
        """The nodes that read its codes; None where anything but a DequantizeLinear with their
        own qparams does.
        """
        found = [codes_of(node) for node in readers_of(self.border)]
        if self.border.codes.is_graph_output() or any(
            one is None or one.qparams != self.border.qparams for one in found
        ):
            return None
        return tuple(one.dequantizer for one in found if one is not None)

    @property
    def readers(self) -> tuple[Reader, ...]:
        """Everything that reads its reals in the end."""
        return tuple(reader for node in self.dequantizers or () for reader in readers_behind(node))

    def refusal(self, readers: tuple[Reader, ...]) -> str | None:
        """Why one of its ``readers`` would not compute with its input as with its result; None:
        all would.

        A product and its bias are in steps of the scale; not every kernel takes every width and
        type.
        """
        came, made = self.source.qparams, self.border.qparams
        wide = came.qtype.bits != made.qtype.bits
        counted = [one.reads is Reads.BETWEEN_QUANTIZERS for one in readers]
        if any(one.is_product for one in readers) and (wide or came.scale != made.scale):
            return "a product behind it and its bias are in steps of its scale"
        if wide and any(counted):
            return "its readers would read integers of another width, which not every kernel takes"
        if came.qtype != made.qtype and any(one.is_of_one_type for one in readers):
            return "one of its readers takes integers of one type alone"
        return None


def requantize_of(node: ir.Node) -> Requantize | str | None:
    """The requantize whose QuantizeLinear ``node`` is, or why it cannot be read; None: it is
    not a requantize.

    Raises:
        InputError: an invalid Q or DQ.
    """
    source = node.inputs[0] if not node.domain and node.op_type == "QuantizeLinear" else None
    maker = None if source is None else source.producer()
    if maker is None or maker.domain or maker.op_type != "DequantizeLinear":
        return None
    border, codes = border_of(node), codes_of(maker)
    return UNREAD if border is None or codes is None else Requantize(codes, border)


def go_past(site: Requantize) -> None:
    """Let every reader read the codes before the requantize, by their own qparams; the
    requantize goes.
    """
    first = site.source.dequantizer
    for node in site.dequantizers or ():
        node.resize_inputs(len(first.inputs))
        for index, value in enumerate(first.inputs):
            node.replace_input_with(index, value)
    remove_border(site.border)


def remove_border(border: Border) -> None:
    """Remove a border whose codes nothing reads any more, and the DequantizeLinear that fed it
    alone.
    """
    graph, maker = border.quantizer.graph, border.source.producer()
    assert isinstance(graph, ir.Graph)
    for node in (border.clip, border.quantizer):
        if node is not None:
            graph.remove(node, safe=True)
    if maker is not None and maker.op_type == "DequantizeLinear":
        remove_unread(maker)


def stand_in(old: ir.Value, new: ir.Value, names: NameScope) -> None:
    """Let everything that reads ``old``, a node's result, read ``new``; an output of the graph
    keeps its name.
    """
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


# Going past requantizes behind which every code means the same real as before.
#
#     codes(p₁) ─DQ₁─Q₂─[l₂,h₂]─DQ₂─ readers   →   codes(p₁) ─DQ₁─ readers
#     s₂·(T(q) − z₂) = s₁·(q − z₁)
#
# Every code is tried, in float32 and exactly, under every arithmetic. Where one means anything else
# the requantize stays: what its readers make of a rounding, and what of several, is not known here.

_HALF = 0.5 + 2.0**-6
"""Of a step: rounding, and what float32 adds to it on types of up to 16 bits (65,535 steps · 2
· 2⁻²⁴).
"""
_KEPT = 4096
"""Reasons remembered: every round of a pipeline needs those of the last again."""


@dataclass(frozen=True, slots=True)
class GoingPast:
    """One sweep of the pass ``name``.

    Args:
        wanted: whether a requantize with such readers is the pass's.
        arithmetics: of its effect.
        name: of the pass.
    """

    wanted: Callable[[set[Reads]], bool]
    arithmetics: tuple[str, ...]
    name: str

    def sweep(self, model: ir.Model) -> bool:
        """Go past in graph order, each time back along the chain as far as readers let it; True
        when there was one.
        """
        gone = False
        for node in list(model.graph):
            before: ir.Node | None = node if node.graph is not None else None
            while before is not None:
                went, before = self._past(before)
                gone |= went
        return gone

    def _past(self, node: ir.Node) -> tuple[bool, ir.Node | None]:
        """Whether it went past ``node``, and the quantizer whose codes the readers then read."""
        site = requantize_of(node)
        if site is None:
            return False, None
        if isinstance(site, str):
            return decline(node, site, self.name) and False, None
        readers = site.readers
        if not self.wanted({reader.reads for reader in readers}):
            return False, None
        reason = site.refusal(readers) or unlike(site.start, site.stop, self.arithmetics)
        if reason is not None:
            return decline(node, reason, self.name) and False, None
        before = site.source.border
        go_past(site)
        return True, None if before is None else before.quantizer


@lru_cache(maxsize=_KEPT)
def unlike(start: Stop, stop: Stop, arithmetics: tuple[str, ...]) -> str | None:
    """Why codes of ``start`` that are brought to ``stop`` are not as before to every reader;
    None: they are.

    Raises:
        InputError: an unknown arithmetic, or a ratio of scales that it cannot hold.
    """
    codes = all_codes(start)
    step, before = np.float64(stop.qparams.scale), _exact(codes, start)
    moved, apart = np.zeros(len(codes), bool), np.zeros(len(codes))
    for arithmetic in arithmetics:
        there = brought(codes, start.qparams, (stop,), arithmetic)
        far = np.abs(before - _exact(there, stop))
        moved |= (far > 0) | (_float32(codes, start) != _float32(there, stop))
        apart = np.maximum(apart, far / step)
    count = f"{moved.sum()} of {len(codes)} values mean another real"
    farthest = float(apart.max(initial=0.0))
    if moved.any():
        return (
            f"it saturates: {count} behind it"
            if farthest > _HALF
            else f"{count}, by up to {farthest:.3g} steps"
        )
    mantissa, _ = np.frexp(np.float64(start.qparams.scale) / step)
    return (
        None
        if mantissa == 0.5
        else "the ratio of the scales is no power of two, so that products round otherwise"
    )


def _exact(codes: Array, stop: Stop) -> Array:
    """Float64, no bit lost: 24 of the scale, 17 of the codes."""
    return np.asarray(np.float64(stop.qparams.scale) * (codes - int(stop.qparams.zero_point)))


def _float32(codes: Array, stop: Stop) -> Array:
    return dequantize(codes.astype(stop.qparams.qtype.storage_dtype), stop.qparams)


# Quantizers at which a rewrite moved a code: none is moved twice, so that one site keeps to its
# effect.
#
# Merging a hundred requantizes one by one, each time by a step, would move a code by a hundred.
# What different sites move still adds up on the way to an output (``passes.contract``).

_KEY = "qbench.moved"


def moved_before(difference: Difference, *borders: Border) -> bool:
    """Whether ``difference`` would move a code at ``borders``, one of which moved some already."""
    return difference.steps > 0 and any(
        _KEY in border.quantizer.metadata_props for border in borders
    )


def mark_moved(difference: Difference, border: Border, *gone: Border) -> None:
    """Write into ``border`` that ``difference`` moved its codes, or that those of borders
    ``gone`` had been.
    """
    if difference.steps or any(_KEY in one.quantizer.metadata_props for one in gone):
        border.quantizer.metadata_props[_KEY] = "1"


# Whether a requantize and a border would become one where they meet, decided before they are
# brought together.
#
#     codes(p₁) ─DQ₁─Q₂─[l₂,h₂]─DQ₂ … Q₃─[l₃,h₃]─     →     codes(p₁) ─DQ₁ … Q₃─[l,h]─
#
# It checks what ``merge-requantize`` will check, of every code of p₁: limits before the requantize
# are not known then.


def can_merge(
    site: Requantize, waiting: Border | None, steps: int, arithmetics: tuple[str, ...]
) -> bool:
    """Whether ``site`` and the later border ``waiting`` become one, without a Clip where
    neither had any.
    """
    if waiting is None:
        return False
    if waiting.qparams == site.border.qparams:
        return can_limit(waiting, *both_limits(site.border, waiting))
    qparams, last = site.source.qparams, waiting.qparams
    chain = (site.stop, Stop(last, waiting.low, waiting.high))
    found = _merged(Stop(qparams, qparams.qmin, qparams.qmax), chain, arithmetics)
    if (
        found is None
        or not admits(within(steps), found.difference)
        or not can_limit(waiting, found.low, found.high)
    ):
        return False
    clips = (site.border.clip, waiting.clip) != (None, None)
    return (clips or found.is_free) and not moved_before(found.difference, waiting, site.border)


@dataclass(frozen=True, slots=True)
class _Merged:
    """Two requantizes as one: its limits, whether codes keep within these by themselves, and
    what it moves.
    """

    low: int
    high: int
    is_free: bool
    difference: Difference


@lru_cache
def _merged(start: Stop, chain: tuple[Stop, Stop], arithmetics: tuple[str, ...]) -> _Merged | None:
    """``chain`` as one stop, as ``merge-requantize`` would try it; None where arithmetics
    saturate differently.
    """
    (low, high), *others = {merged_limits(start, chain, one) for one in arithmetics}
    if others:
        return None
    last = chain[-1].qparams
    whole = (Stop(last, last.qmin, last.qmax),)
    is_free = all(merged_limits(start, whole, one) == (low, high) for one in arithmetics)
    return _Merged(
        low, high, is_free, chain_against(start, chain, (Stop(last, low, high),), arithmetics)
    )


def both_limits(one: Border, other: Border) -> tuple[int, int]:
    """Where what crosses ``one`` and then ``other``, of the same qparams, saturates."""
    low, high = (min(max(end, other.low), other.high) for end in (one.low, one.high))
    return low, high
