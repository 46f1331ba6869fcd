"""Q/DQ pairs that go or are shared, and quantized constants."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from qbench.graph import is_constant
from qbench.numerics import dequantize
from qbench.passes.contract import ARITHMETICS, EXACT, LOSSY, Effect, EffectKind, decline
from qbench.passes.editing import NameScope, add_constant
from qbench.passes.qdq.folding import fold_mover, fold_quantizer
from qbench.passes.requantization.border import Border, border_of, codes_of, requantized_at
from qbench.passes.requantization.reach import reach_of
from qbench.passes.requantization.requantize import Reads, readers_behind, remove_border, stand_in

# Reals that are quantized only to be dequantized again are not rounded any more; their limits stay.
#
#     real ─Q─[l,h]─DQ─ reals   →   real ─Clip(DQ(l), DQ(h))─ reals
#     without an end that the real cannot pass
#
# This loses the rounding of the pair, by any number of steps where it stood before something steep.
# It is LOSSY, a step of quantizing and otherwise of the policy ``fast`` alone. The limits may be
# those of the model: quantizers and ``absorb-clip`` move a Relu or Clip into the end of a range of
# codes, and nothing tells such an end from one that calibration chose. Glow drops them:
# quantize(3.7) with limit 2, then dequantize, is 2 before and 3.7 behind.
#
# In QDQ form every operator on integers is between such pairs, and without them would compute in
# floats. So only pairs between floats go: what makes the real reads no codes, and nothing behind
# quantizes it or multiplies it with weights. A constant is not taken: it is folded with its
# rounding.

_ENDS_ARE_INPUTS = 11
"""The opset since which the ends of a Clip are inputs."""


@dataclass(frozen=True, slots=True)
class DropPair:
    """Requires: QDQ. Ensures: no float operator reads another's result after a Q/DQ pair; its
    limits are a Clip.

    Args:
        name: of the pass.
    """

    name: str = "drop-pair"
    effect: ClassVar[Effect] = LOSSY

    def run(self, model: ir.Model) -> bool:
        """Drop in graph order, again where that leaves pairs between floats; True when there
        was one.
        """
        limits, changed = Unrounded.of(model), False
        while sum(
            self._dropped(node, limits) for node in list(model.graph) if node.graph is not None
        ):
            changed = True
        return changed

    def _dropped(self, node: ir.Node, limits: "Unrounded") -> bool:
        border = limits.border_before(node)
        if border is None or is_constant(border.source):
            return False
        if (reason := _between_integers(node, border)) is not None:
            return decline(node, reason, self.name) and False
        limits.put(node, border)
        return True


@dataclass(frozen=True, slots=True)
class Unrounded:
    """The limits of borders as Clips of reals, one a border, in a graph that is changed in
    place.
    """

    values: NameScope
    nodes: NameScope
    written: dict[ir.Value, ir.Value]

    @classmethod
    def of(cls, model: ir.Model) -> "Unrounded":
        """Of ``model``, with no Clip yet."""
        return cls(NameScope.of_values(model), NameScope.of_nodes(model), {})

    def border_before(self, node: ir.Node) -> Border | None:
        """The border whose codes ``node`` dequantizes by the parameters that they were
        quantized by; None elsewhere.
        """
        found = codes_of(node)
        border = None if found is None else found.border
        return (
            border
            if found is not None and border is not None and found.qparams == border.qparams
            else None
        )

    def put(self, dequantizer: ir.Node, border: Border) -> None:
        """Let what reads ``dequantizer`` read the reals before ``border``, within its limits;
        it goes.
        """
        stand_in(dequantizer.outputs[0], self._limited(border), self.values)
        graph = dequantizer.graph
        assert isinstance(graph, ir.Graph)
        graph.remove(dequantizer, safe=True)
        if not border.codes.uses() and not border.codes.is_graph_output():
            remove_border(border)

    def _limited(self, border: Border) -> ir.Value:
        if border.codes not in self.written:
            self.written[border.codes] = self._clipped(border)
        return self.written[border.codes]

    def _clipped(self, border: Border) -> ir.Value:
        source, reach = border.source, reach_of(border.source)
        codes = np.array([border.low, border.high], border.qparams.qtype.storage_dtype)
        low, high = (float(end) for end in dequantize(codes, border.qparams))
        ends = (low if reach.low < low else None, high if reach.high > high else None)
        if ends == (None, None):
            return source
        graph, name = border.quantizer.graph, f"{border.quantizer.name}_limits"
        assert isinstance(graph, ir.Graph)
        clip = ir.Node("", "Clip", [source], num_outputs=1, name=self.nodes.fresh(name))
        clip.metadata_props.update(border.quantizer.metadata_props)
        limited = clip.outputs[0]
        limited.name = self.values.fresh(name)
        limited.type = source.type
        limited.shape = source.shape
        graph.insert_after(border.quantizer, clip)
        self._set_ends(clip, ends, source.dtype or ir.DataType.FLOAT)
        return limited

    def _set_ends(
        self, clip: ir.Node, ends: tuple[float | None, float | None], dtype: ir.DataType
    ) -> None:
        graph = clip.graph
        assert isinstance(graph, ir.Graph)
        imports = graph.opset_imports
        by_attributes = imports.get("", imports.get("ai.onnx", 0)) < _ENDS_ARE_INPUTS
        clip.resize_inputs(1 if by_attributes else 3)
        for index, (end, word) in enumerate(zip(ends, ("min", "max"), strict=True), start=1):
            if end is None:
                continue
            if by_attributes:
                clip.attributes.add(ir.AttrFloat32(word, end))
            else:
                constant = add_constant(
                    graph, f"{clip.name}_{word}", np.array(end, dtype.numpy()), self.values
                )
                clip.replace_input_with(index, constant)


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


# One value quantized twice with the same qparams is quantized once: the duplicates in residual
# branches are one node.
#
#     x ─Q(s, z)─ a      x ─Q(s, z)─ b      →   x ─Q(s, z)─ a, read where b was
#
# Codes requantized twice (each behind a DequantizeLinear of its own) are the same case.


@dataclass(frozen=True, slots=True)
class ShareQuantize:
    """Requires: QDQ. Ensures: no two quantizers give one value, or the same codes, the same
    qparams and limits.
    """

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
    read = (
        (border.source, None) if source is None else (source.dequantizer.inputs[0], source.qparams)
    )
    return (*read, border.qparams, border.low, border.high)


def _replaced(border: Border, by: Border) -> None:
    """Let the readers of ``border`` read ``by``, and remove it with the DequantizeLinear that
    fed it alone.
    """
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


# What is quantized of constants becomes integer constants, and what moves quantized constants is
# done at once.
#
#     c ─Q─[l,h]─   →   Q(c) within [l,h]
#     c_q ─DQ₁─Q₂─[l,h]─   →   Q₂(DQ₁(c_q)) within [l,h]
#     c_q ─DQ(s along axis)─ Transpose ─   →   transposed c_q ─DQ(s along its new place)─
#
# Constants do not change, so that this is exact; only arithmetics that quantize by rules of their
# own may give other codes, and where one that is named does, the Q stays. A DequantizeLinear is
# never folded: as floats, constants lose neither rounding nor limits, but are no longer integers
# for any arithmetic. (Glow's DQ(Splat) takes the number as it was before it was quantized, and
# loses both.) Sums and functions of constants are ``fold-constants``' part.


@dataclass(frozen=True, slots=True)
class FoldQuantizedConstants:
    """Requires: QDQ. Ensures: no constant is quantized, requantized or moved at run time, if
    arithmetics agree on it.

    Args:
        arithmetics: that must give the same codes.
        name: of the pass.
    """

    arithmetics: tuple[str, ...] = ARITHMETICS
    name: str = "fold-quantized-constants"

    @property
    def effect(self) -> Effect:
        """Exact under the arithmetics."""
        return Effect(EffectKind.EXACT, arithmetics=self.arithmetics)

    def run(self, model: ir.Model) -> bool:
        """Fold in graph order, so that one sweep reaches all; True when anything was folded."""
        names = NameScope.of_values(model)
        changed = False
        for node in list(model.graph):
            if node.graph is None:
                continue
            found = fold_quantizer(node, names, self.arithmetics) or fold_mover(node, names)
            if isinstance(found, str):
                decline(node, found, self.name)
            else:
                changed |= found
        return changed
