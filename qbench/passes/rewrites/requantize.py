"""Requantizations that go, merge, or are absorbed by a neighbour."""

from dataclasses import dataclass, replace
from typing import ClassVar

import onnx_ir as ir

from qbench.graph import only_consumer
from qbench.passes.contract import EXACT, Effect, decline, within
from qbench.passes.editing import NameScope
from qbench.passes.requantization.border import (
    Border,
    Codes,
    border_of,
    can_limit,
    readers_of,
    requantized_at,
    set_limits,
)
from qbench.passes.requantization.requantize import (
    GoingPast,
    Reads,
    Requantize,
    is_of_one_type,
    mark_moved,
    moved_before,
    remove_border,
    requantize_of,
    stand_in,
)
from qbench.passes.requantization.tables import Stop, admits, chain_against, merged_limits

# A requantize to the qparams that its codes have already does nothing: Q(DQ(codes)) are the codes.
#
#     codes ─DQ(p)─Q(p)─[l₂,h₂]─   →   codes ─[l₂,h₂]─
#
#     round(s·(q − z) / s) + z = q
#     float32 errs by less than 2⁻⁶ of a step on types of up to 16 bits
#
# Beyond 2²⁴ that is no longer so: codes of 32 bits are left alone. Limits that hold nothing back
# go. Others move into the border that made the codes where nothing else reads them, else they stay
# as a Clip of codes:
#
#     Q₁─[l₁,h₁]─DQ─Q─[l₂,h₂]─   →   Q₁─[l,h]─
#     [l, h] = [T(l₁), T(h₁)], T(q) = min(max(q, l₂), h₂)


@dataclass(frozen=True, slots=True)
class DropIdentityRequantize:
    """Requires: QDQ. Ensures: no requantize brings codes to the qparams they have, unless its
    limits must stay.

    Args:
        name: of the pass.
    """

    name: str = "drop-identity-requantize"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Drop in graph order, chains of any length at once; True when there was one."""
        names = NameScope.of_values(model)
        return (
            sum(self._dropped(node, names) for node in list(model.graph) if node.graph is not None)
            > 0
        )

    def _dropped(self, node: ir.Node, names: NameScope) -> bool:
        site = requantize_of(node)
        if site is None:
            return False
        if isinstance(site, str):
            return decline(node, site, self.name) and False
        if site.source.qparams != site.border.qparams:
            return False
        codes = site.source.dequantizer.inputs[0]
        assert codes is not None
        if not site.border.low <= site.source.low <= site.source.high <= site.border.high:
            return self._limited(site, codes, names)
        stand_in(site.border.codes, codes, names)
        remove_border(site.border)
        return True

    def _limited(self, site: Requantize, codes: ir.Value, names: NameScope) -> bool:
        """The requantize goes, its limits stay."""
        before, border = site.source.border, site.border
        if before is None:
            assert border.clip is not None
            border.clip.replace_input_with(0, codes)
            remove_border(replace(border, clip=None))
            return True
        if (
            only_consumer(codes) is not site.source.dequantizer
            or only_consumer(border.source) is None
        ):
            return (
                decline(border.quantizer, "others read its input with wider limits", self.name)
                and False
            )
        low, high = (
            min(max(end, border.low), border.high) for end in (site.source.low, site.source.high)
        )
        if not can_limit(before, low, high):
            return (
                decline(
                    border.quantizer, f"no engine clips {before.qparams.qtype} values", self.name
                )
                and False
            )
        stand_in(border.codes, codes, names)
        remove_border(border)
        return set_limits(before, low, high, names)


# Two requantizations in a row become one, with the intersection of their limits.
#
#     codes(p₀) ─DQ₀─Q₁─[l₁,h₁]─DQ₁─Q₂─[l₂,h₂]─   →   codes(p₀) ─DQ₀─Q₂─[l,h]─
#
#     T = what the chain makes of a code of p₀,  [l, h] = [T(low₀), T(high₀)]    a chain is monotone
#
# The last limits alone would be wrong: [1,3], [0,4], [2,4] of the same qparams let nothing above 3
# through, so that [2,3] stays. Dropping the middle qparams drops a rounding: a code moves by up to
# ½·s₁/s₂ + 1 steps. Every code of p₀ is tried both ways, under every arithmetic of the effect, and
# the site is left alone where one moves further than is admitted. A border that was moved once is
# moved no further, so that one border keeps to ``steps``; those of a graph add up.


@dataclass(frozen=True, slots=True)
class MergeRequantize:
    """Requires: QDQ. Ensures: no requantize reads another alone, where merging moves no code by
    more than ``steps``.

    Args:
        steps: of the last scale, that a code may move by; 0: no code may move.
        name: of the pass.
    """

    steps: int = 0
    name: str = "merge-requantize"

    @property
    def effect(self) -> Effect:
        """Exact, or rounding by ``steps``."""
        return within(self.steps)

    def run(self, model: ir.Model) -> bool:
        """Merge in graph order, so that a chain of any length becomes one; True when there was
        one.
        """
        names = NameScope.of_values(model)
        return (
            sum(self._merged(node, names) for node in list(model.graph) if node.graph is not None)
            > 0
        )

    def _merged(self, node: ir.Node, names: NameScope) -> bool:
        last = border_of(node)
        between = None if last is None else requantized_at(last)
        middle = None if between is None else between.border
        first = None if middle is None else requantized_at(middle)
        if last is None or between is None or middle is None or first is None:
            return False
        if len(readers_of(middle)) > 1 or middle.codes.is_graph_output():
            return decline(node, "others read the values between the two", self.name) and False
        if between.qparams != middle.qparams:
            return (
                decline(node, "its integers are written and read with different qparams", self.name)
                and False
            )
        return self._tried(first, middle, last, names)

    def _tried(self, first: Codes, middle: Border, last: Border, names: NameScope) -> bool:
        start = Stop(first.qparams, first.low, first.high)
        chain = (
            Stop(middle.qparams, middle.low, middle.high),
            Stop(last.qparams, last.low, last.high),
        )
        (low, high), *others = {
            merged_limits(start, chain, arithmetic) for arithmetic in self.effect.arithmetics
        }
        if others:
            return (
                decline(
                    last.quantizer,
                    "it saturates at different values under different arithmetics",
                    self.name,
                )
                and False
            )
        difference = chain_against(
            start, chain, (Stop(last.qparams, low, high),), self.effect.arithmetics
        )
        if not admits(self.effect, difference):
            return decline(last.quantizer, str(difference), self.name) and False
        if moved_before(difference, middle, last):
            return (
                decline(last.quantizer, "a merge before this one moved a value already", self.name)
                and False
            )
        free = _whole(low, high, start, last, self.effect.arithmetics)
        limits = (last.qparams.qmin, last.qparams.qmax) if free else (low, high)
        if not can_limit(last, *limits):
            return (
                decline(last.quantizer, f"no engine clips {last.qparams.qtype} values", self.name)
                and False
            )
        last.quantizer.replace_input_with(0, first.dequantizer.outputs[0])
        _removed(middle, last)
        mark_moved(difference, last, middle)
        set_limits(last, *limits, names)
        return True


def _whole(low: int, high: int, start: Stop, last: Border, arithmetics: tuple[str, ...]) -> bool:
    """Whether nothing of ``start`` comes to lie outside the limits anyway, so that none need be
    written.
    """
    free = (Stop(last.qparams, last.qparams.qmin, last.qparams.qmax),)
    return all(merged_limits(start, free, arithmetic) == (low, high) for arithmetic in arithmetics)


def _removed(middle: Border, last: Border) -> None:
    """Remove the requantize that nothing reads any more."""
    graph = last.quantizer.graph
    assert isinstance(graph, ir.Graph)
    (between,) = readers_of(middle)
    graph.remove(between, safe=True)
    if middle.clip is not None:
        graph.remove(middle.clip, safe=True)
    graph.remove(middle.quantizer, safe=True)


# An operator between quantizers reads codes as they were before a requantize that was made for it
# alone.
#
#     codes(p₁) ─DQ₁─Q₂─[l₂,h₂]─DQ₂─ f ─Q_y─   →   codes(p₁) ─DQ₁─ f ─Q_y─
#
# It is done where every code means one real before and behind, whatever f makes of it, and nowhere
# else: a requantize that saturates holds back what f would see, and roundings that are dropped on
# several ways to one f add up. The bias of a product is written in steps of s₁·s_w, so that it goes
# past none but a requantize of the very same scale; what counts integers of one width or one type
# alone goes past none that changes it.


@dataclass(frozen=True, slots=True)
class RequantizeIntoConsumer:
    """Requires: QDQ. Ensures: nothing is requantized for operators between quantizers that
    compute the same without it.

    Args:
        name: of the pass.
    """

    name: str = "requantize-into-consumer"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Go past in graph order; True when there was a requantize to go past."""
        return GoingPast(_wanted, self.effect.arithmetics, self.name).sweep(model)


def _wanted(reads: set[Reads]) -> bool:
    return Reads.BETWEEN_QUANTIZERS in reads and Reads.REAL not in reads


# Codes that are requantized only to be read as reals are read as what they were.
#
#     codes(p₁) ─DQ₁─Q₂─[l₂,h₂]─DQ₂─ reals   →   codes(p₁) ─DQ₁─ reals
#
# It is done where every code means one real before and behind, as float32 and exactly, and nowhere
# else: a requantize that holds a code back keeps reals in its range, and one that rounds is what
# the graph says. The readers are operators that stay in floats, and outputs of the graph; a product
# that reads codes counts in steps of their scale, its bias too, and goes past none but one of the
# same scale. Other readers of the same codes go past with them.


@dataclass(frozen=True, slots=True)
class RequantizeIntoDequantize:
    """Requires: QDQ. Ensures: nothing is requantized for readers of reals where codes mean the
    same reals without it.

    Args:
        name: of the pass.
    """

    name: str = "requantize-into-dequantize"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Go past in graph order; True when there was a requantize to go past."""
        return GoingPast(
            _requantize_into_dequantize_wanted, self.effect.arithmetics, self.name
        ).sweep(model)


def _requantize_into_dequantize_wanted(reads: set[Reads]) -> bool:
    return Reads.REAL in reads


# What makes reals that are xx.
#
#     real ─Q₁─[l₁,h₁]─DQ₁─Q₂─[l₂,h₂]─   →   real ─Q₂─[l,h]─          [l, h] = [T(l₁), T(h₁)]
#
#     T = what the requantize makes of a code of p₁, monotone, so that it brings limits to limits
#
# With one scale s, whatever the zero points and types, no code moves, since Q₂ rounds what is whole
# already:
#
#     clamp₂(round(s·(clamp₁(round(x/s) + z₁) − z₁) / s) + z₂) = clamp(round(x/s) + z₂)
#
# With two scales a rounding is dropped: a code moves by up to ½·s₁/s₂ + 1 steps. All of it is
# measured: both ways are monotone in x and tried on both sides of every step of either, of float32
# numbers, and of exact ones as arithmetics have them behind a product. The limits of Q₂ alone would
# let through what Q₁ held back.


@dataclass(frozen=True, slots=True)
class RequantizeIntoProducer:
    """Requires: QDQ. Ensures: no requantize alone reads what was quantized from reals, where
    that moves few enough.

    Args:
        steps: of the later scale, that a code may move by; 0: no code may move.
        name: of the pass.
    """

    steps: int = 0
    name: str = "requantize-into-producer"

    @property
    def effect(self) -> Effect:
        """Exact, or rounding by ``steps``."""
        return within(self.steps)

    def run(self, model: ir.Model) -> bool:
        """Take later qparams in graph order, those of chains one after the other; True when
        there was one.
        """
        names = NameScope.of_values(model)
        return (
            sum(self._taken(node, names) for node in list(model.graph) if node.graph is not None)
            > 0
        )

    def _taken(self, node: ir.Node, names: NameScope) -> bool:
        site = requantize_of(node)
        if site is None:
            return False
        if isinstance(site, str):
            return decline(node, site, self.name) and False
        first = site.source.border
        if first is None or requantized_at(first) is not None:
            return False
        if only_consumer(first.codes) is None or only_consumer(site.border.source) is None:
            return decline(node, "others read the values between the two", self.name) and False
        if first.qparams != site.source.qparams:
            return (
                decline(node, "its integers are written and read with different qparams", self.name)
                and False
            )
        maker = first.source.producer()
        if (
            maker is not None
            and first.qparams.qtype != site.border.qparams.qtype
            and is_of_one_type(maker)
        ):
            return (
                decline(node, "its producer takes integers of one type alone", self.name) and False
            )
        return self._tried(site, first, names)

    def _tried(self, site: Requantize, first: Border, names: NameScope) -> bool:
        last, chain = site.border, (site.start, site.stop)
        (low, high), *others = {
            merged_limits(None, chain, arithmetic) for arithmetic in self.effect.arithmetics
        }
        if others:
            return (
                decline(
                    last.quantizer,
                    "it saturates at different values under different arithmetics",
                    self.name,
                )
                and False
            )
        difference = chain_against(
            None, chain, (Stop(last.qparams, low, high),), self.effect.arithmetics
        )
        if not admits(self.effect, difference):
            return decline(last.quantizer, str(difference), self.name) and False
        if moved_before(difference, first, last):
            return (
                decline(last.quantizer, "a merge before this one moved a value already", self.name)
                and False
            )
        if not can_limit(last, low, high):
            return (
                decline(last.quantizer, f"no engine clips {last.qparams.qtype} values", self.name)
                and False
            )
        between = site.source.dequantizer
        last.quantizer.replace_input_with(0, first.source)
        graph = between.graph
        assert isinstance(graph, ir.Graph)
        graph.remove(between, safe=True)
        mark_moved(difference, last, first)
        remove_border(first)
        set_limits(last, low, high, names)
        return True
