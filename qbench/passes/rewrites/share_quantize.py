"""One value quantized twice on one grid is quantized once: the duplicates in residual branches are one node.

    x ─Q(s, z)─ a      x ─Q(s, z)─ b      →   x ─Q(s, z)─ a, read where b was

Levels requantized twice (each behind a DequantizeLinear of its own) are the same case.
"""

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from qbench.passes.declining import decline
from qbench.passes.effect import EXACT, Effect
from qbench.passes.levels.border import Border, border_of, requantized_at


@dataclass(frozen=True, slots=True)
class ShareQuantize:
    """Requires: QDQ. Ensures: no two quantizers bring one value, or the same levels, to one grid with equal limits."""

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
            if border.levels.is_graph_output():
                decline(node, "its levels leave the graph under a name of their own", self.name)
                continue
            _replaced(border, known)
            changed = True
        return changed


def _key(border: Border) -> object:
    """What two borders have in common that give the same levels."""
    source = requantized_at(border)
    read = (border.source, None) if source is None else (source.dequantizer.inputs[0], source.grid)
    return (*read, border.grid, border.low, border.high)


def _replaced(border: Border, by: Border) -> None:
    """Let the readers of ``border`` read ``by``, and remove it with the DequantizeLinear that fed it alone."""
    graph, source = border.quantizer.graph, requantized_at(border)
    assert isinstance(graph, ir.Graph)
    if by.clip is not None:  # it may stand behind readers of the other
        graph.remove(by.clip)
        graph.insert_after(by.quantizer, by.clip)
    border.levels.replace_all_uses_with(by.levels)
    if border.clip is not None:
        graph.remove(border.clip, safe=True)
    graph.remove(border.quantizer, safe=True)
    if source is not None:
        graph.remove(source.dequantizer, safe=True)
