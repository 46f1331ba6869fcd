"""Q/DQ pairs that go or are shared, and quantized constants."""

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from qbench.graph import is_constant
from qbench.passes.contract import ARITHMETICS, EXACT, LOSSY, Effect, EffectKind, decline
from qbench.passes.editing import NameScope
from qbench.passes.qdq.folding import fold_mover, fold_quantizer
from qbench.passes.requantization.border import Border, border_of, codes_of, requantized_at
from qbench.passes.requantization.requantize import Reads, readers_behind, remove_border, stand_in

# Reals that are quantized only to be dequantized again stay as they are: DQ(Q(x)) becomes x.
#
#     real ─Q─[l,h]─DQ─ reals   →   real
#
# This loses whatever the pair did, the rounding and the limits: quantize(3.7) with limit 2, then dequantize, is 2
# before and 3.7 behind. It is LOSSY, a step of quantizing and otherwise of the policy ``fast`` alone.
#
# In QDQ form every operator on integers is between such pairs, and without them would compute in floats. So only
# pairs between floats go: what makes the real reads no codes, and nothing behind quantizes it or
# multiplies it with weights. A constant is not taken: it is folded with its rounding.


@dataclass(frozen=True, slots=True)
class DropPair:
    """Requires: QDQ. Ensures: no float operator reads another's result after a Q/DQ pair.

    Args:
        name: of the pass.
    """

    name: str = "drop-pair"
    effect: ClassVar[Effect] = LOSSY

    def run(self, model: ir.Model) -> bool:
        """Drop in graph order, again where that leaves pairs between floats; True when there was one."""
        names, changed = NameScope.of_values(model), False
        while sum(self._dropped(node, names) for node in list(model.graph) if node.graph is not None):
            changed = True
        return changed

    def _dropped(self, node: ir.Node, names: NameScope) -> bool:
        found = codes_of(node)
        border = None if found is None else found.border
        if found is None or border is None or is_constant(border.source):
            return False
        if (reason := _between_integers(node, border)) is not None:
            return decline(node, reason, self.name) and False
        stand_in(node.outputs[0], border.source, names)
        graph = node.graph
        assert isinstance(graph, ir.Graph)
        graph.remove(node, safe=True)
        if not border.codes.uses() and not border.codes.is_graph_output():
            remove_border(border)
        return True


def _between_integers(dequantizer: ir.Node, border: Border) -> str | None:
    """What of the surroundings computes in integers; None: nothing does."""
    maker = border.source.producer()
    if maker is not None and any(_is_read_as_codes(value) for value in maker.inputs):
        return "what is quantized was computed from quantized values"
    for reader in readers_behind(dequantizer):
        if reader.reads is not Reads.REAL or reader.is_product:
            return "what reads it computes in integers"
    return None


def _is_read_as_codes(value: ir.Value | None) -> bool:
    maker = None if value is None else value.producer()
    return maker is not None and not maker.domain and maker.op_type == "DequantizeLinear"


# One value quantized twice with the same qparams is quantized once: the duplicates in residual branches are one node.
#
#     x ─Q(s, z)─ a      x ─Q(s, z)─ b      →   x ─Q(s, z)─ a, read where b was
#
# Codes requantized twice (each behind a DequantizeLinear of its own) are the same case.


@dataclass(frozen=True, slots=True)
class ShareQuantize:
    """Requires: QDQ. Ensures: no two quantizers give one value, or the same codes, the same qparams and limits."""

    name: str = "share-quantize"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Share them in graph order; True when there were two."""
        first: dict[object, Border] = {}
        changed = False
        for node in list(model.graph):
            border = border_of(node)
            if border is None:
                continue
            known = first.setdefault(_key(border), border)
            if known is border:
                continue
            if border.codes.is_graph_output():
                decline(node, "its result leaves the graph under a name of its own", self.name)
                continue
            _replaced(border, known)
            changed = True
        return changed


def _key(border: Border) -> object:
    """What two borders have in common that give the same codes."""
    source = requantized_at(border)
    read = (border.source, None) if source is None else (source.dequantizer.inputs[0], source.qparams)
    return (*read, border.qparams, border.low, border.high)


def _replaced(border: Border, by: Border) -> None:
    """Let the readers of ``border`` read ``by``, and remove it with the DequantizeLinear that fed it alone."""
    graph, source = border.quantizer.graph, requantized_at(border)
    assert isinstance(graph, ir.Graph)
    if by.clip is not None:  # it may be behind readers of the other
        graph.remove(by.clip)
        graph.insert_after(by.quantizer, by.clip)
    border.codes.replace_all_uses_with(by.codes)
    if border.clip is not None:
        graph.remove(border.clip, safe=True)
    graph.remove(border.quantizer, safe=True)
    if source is not None:
        graph.remove(source.dequantizer, safe=True)


# What is quantized of constants becomes integer constants, and what moves quantized constants is done at once.
#
#     c ─Q─[l,h]─   →   Q(c) within [l,h]
#     c_q ─DQ₁─Q₂─[l,h]─   →   Q₂(DQ₁(c_q)) within [l,h]
#     c_q ─DQ(s along axis)─ Transpose ─   →   transposed c_q ─DQ(s along its new place)─
#
# Constants do not change, so that this is exact; only arithmetics that quantize by rules of their own may give other
# codes, and where one that is named does, the Q stays. A DequantizeLinear is never folded: as floats, constants lose
# neither rounding nor limits, but are no longer integers for any arithmetic. (Glow's DQ(Splat) takes the number as it
# was before it was quantized, and loses both.) Sums and functions of constants are ``fold-constants``' part.


@dataclass(frozen=True, slots=True)
class FoldQuantizedConstants:
    """Requires: QDQ. Ensures: no constant is quantized, requantized or moved at run time, if arithmetics agree on it.

    Args:
        machines: that must give the same codes.
        name: of the pass.
    """

    machines: tuple[str, ...] = ARITHMETICS
    name: str = "fold-quantized-constants"

    @property
    def effect(self) -> Effect:
        """Exact under the arithmetics."""
        return Effect(EffectKind.EXACT, machines=self.machines)

    def run(self, model: ir.Model) -> bool:
        """Fold in graph order, so that one sweep reaches all; True when anything was folded."""
        names = NameScope.of_values(model)
        changed = False
        for node in list(model.graph):
            if node.graph is None:
                continue
            found = fold_quantizer(node, names, self.machines) or fold_mover(node, names)
            if isinstance(found, str):
                decline(node, found, self.name)
            else:
                changed |= found
        return changed
