"""Relu and Clip next to a quantizer become limits of the quantized values."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from qbench.graph import only_consumer
from qbench.numerics import dequantize
from qbench.passes.contract import EXACT, Effect, decline
from qbench.passes.editing import NameScope, take_place
from qbench.passes.requantization.border import (
    Codes,
    RealClip,
    border_of,
    can_limit,
    codes_of,
    limits_behind,
    real_clip_of,
    set_limits,
)
from qbench.passes.requantization.tables import Stop, brought

# A Relu or Clip in front of a quantizer becomes limits behind it: the activation is fused into the
# quantizer.
#
#     x ─Clip(a, b)─Q─[l, h]─   →   x ─Q─[clip(Q(a), l, h), clip(Q(b), l, h)]─
#
# A quantizer is monotone, so that this holds for every number x. Where the new limits are the ends
# of the type, nothing is left of the clip; else it stays as limits on integers, as TFLite keeps it.
# Glow removes a Relu when the zero point is the lowest code and forgets the other case; a Relu that
# is simply dropped lets negative values through.


@dataclass(frozen=True, slots=True)
class AbsorbClip:
    """Requires: QDQ. Ensures: no Relu or Clip with constant ends alone feeds a quantizer of
    static qparams per tensor.

    A NaN comes out as the lowest limit, as before; only that this may be another code.
    """

    name: str = "absorb-clip"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Absorb them in graph order, two in a row too; True when there was one."""
        names = NameScope.of_values(model)
        return sum(self._absorbed(node, names) for node in list(model.graph)) > 0

    def _absorbed(self, node: ir.Node, names: NameScope) -> bool:
        changed = False
        while (border := border_of(node)) is not None:
            clip = real_clip_of(border.source.producer())
            if clip is None or clip.node.graph is not node.graph:
                break
            if only_consumer(border.source) is not node:
                decline(
                    node, f"'{clip.node.name}' has other readers, or leaves the graph", self.name
                )
                break
            low, high = limits_behind(clip, border)
            if (low, high) != (border.low, border.high) and len(clip.source.uses()) > 1:
                decline(node, f"others read what '{clip.node.name}' clips, too", self.name)
                break
            if not can_limit(border, low, high):
                decline(node, f"no engine clips {border.qparams.qtype} values", self.name)
                break
            node.replace_input_with(0, clip.source)
            assert isinstance(node.graph, ir.Graph)
            node.graph.remove(clip.node, safe=True)
            set_limits(border, low, high, names)
            changed = True
        return changed


# A Relu or Clip of dequantized codes becomes limits of the codes, or goes where it lets all of them
# through.
#
#     codes ─DQ─Clip(a, b)─   →   codes ─[q_a, q_b]─DQ─
#     where DQ(q_a) = a and DQ(q_b) = b, or no code is beyond
#
# DQ is monotone: clipping its result is clipping its codes, if the ends are codes. Zero always is
# one, so that a Relu always becomes a limit; an end between two codes stays where it is.


@dataclass(frozen=True, slots=True)
class ClipCodes:
    """Requires: QDQ. Ensures: no Relu or Clip reads dequantized codes of its own whose ends are
    codes too.
    """

    name: str = "clip-levels"  # stored name
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Move them in graph order; True when there was one."""
        names = NameScope.of_values(model)
        return sum(self._moved(node, names) for node in list(model.graph)) > 0

    def _moved(self, node: ir.Node, names: NameScope) -> bool:
        clip = real_clip_of(node)
        codes = None if clip is None else codes_of(clip.source.producer())
        if (
            clip is None
            or codes is None
            or node.graph is None
            or only_consumer(clip.source) is not node
        ):
            return False
        reals = _reals(codes)
        kept = np.clip(reals, np.float32(clip.low), np.float32(clip.high))
        low, high = _ends(codes, reals, clip)
        limited = np.clip(reals, reals[low], reals[high])
        if kept.tobytes() != limited.tobytes():  # bits, not numbers: −0 is not 0
            decline(node, "an end of it lies between two quantized values", self.name)
            return False
        if not _same_behind(
            clip, codes, (codes.low + low, codes.low + high), self.effect.arithmetics
        ):
            decline(node, "the quantizer behind it would saturate at other values", self.name)
            return False
        if kept.tobytes() == reals.tobytes():
            return _removed(clip)
        border = codes.border
        if border is None or len(border.codes.uses()) > 1 or border.codes.is_graph_output():
            decline(node, "what it clips is not quantized for it alone", self.name)
            return False
        low, high = codes.low + low, codes.low + high
        if not can_limit(border, low, high):
            decline(node, f"no engine clips {border.qparams.qtype} values", self.name)
            return False
        _removed(clip)
        set_limits(border, low, high, names)
        return True


def _same_behind(
    clip: RealClip, codes: Codes, ends: tuple[int, int], arithmetics: tuple[str, ...]
) -> bool:
    """Whether a quantizer that would absorb ``clip`` gives the same of ``codes`` if they are
    limited to ``ends``.

    An integer arithmetic absorbs the clip (``absorb-clip``), whose ends are reals; it brings the
    ends of codes to the qparams behind by its own rule, which may round a tie otherwise.
    """
    reader = only_consumer(clip.node.outputs[0])
    while (next_clip := real_clip_of(reader)) is not None:
        reader = only_consumer(next_clip.node.outputs[0])
    border = None if reader is None else border_of(reader)
    if border is None or border.quantizer.graph is not clip.node.graph:
        return True
    stops = (Stop(border.qparams, border.low, border.high),)
    every = np.arange(codes.low, codes.high + 1)
    limits = limits_behind(clip, border)
    return all(
        np.array_equal(
            np.clip(brought(every, codes.qparams, stops, one), *limits),
            brought(np.clip(every, *ends), codes.qparams, stops, one),
        )
        for one in arithmetics
    )


def _reals(codes: Codes) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """The reals of all codes, ascending."""
    every = np.arange(codes.low, codes.high + 1).astype(codes.qparams.qtype.storage_dtype)
    return dequantize(every, codes.qparams)


def _ends(
    codes: Codes, reals: np.ndarray[tuple[int], np.dtype[np.float32]], clip: RealClip
) -> tuple[int, int]:
    """The places of the codes at the ends of ``clip``, or of the nearest ones inside."""
    last = codes.high - codes.low
    low = min(int(np.searchsorted(reals, np.float32(clip.low), side="left")), last)
    high = max(int(np.searchsorted(reals, np.float32(clip.high), side="right")) - 1, 0)
    return (low, high) if low <= high else (high, high)


def _removed(clip: RealClip) -> bool:
    """Let the readers of ``clip`` read what it read, under its name; True."""
    graph = clip.node.graph
    assert isinstance(graph, ir.Graph)
    take_place(clip.node.outputs[0], clip.source)
    graph.remove(clip.node, safe=True)
    return True
