"""A Relu or Clip in front of a quantizer becomes limits behind it: the activation is fused into the grid.

    x ─Clip(a, b)─Q─[l, h]─   →   x ─Q─[clip(Q(a), l, h), clip(Q(b), l, h)]─

A quantizer is monotone, so that this holds for every number x. Where the new limits are the grid's ends, nothing is
left of the clip; else it stays as limits on integers, as TFLite keeps it. Glow removes a Relu when the zero point is
the lowest level and forgets the other case; a Relu that is simply dropped lets negative values through.
"""

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from qbench.graph import only_consumer
from qbench.passes.declining import decline
from qbench.passes.effect import EXACT, Effect
from qbench.passes.levels.border import border_of, can_limit, set_limits
from qbench.passes.levels.clips import limits_behind, real_clip_of
from qbench.passes.naming import NameScope


@dataclass(frozen=True, slots=True)
class AbsorbClip:
    """Requires: QDQ. Ensures: no Relu or Clip with constant ends alone feeds a quantizer of a static grid a tensor.

    A NaN, which is no number, comes out as the lowest limit, as before; only that this may be another level.
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
                decline(node, f"'{clip.node.name}' has other readers, or leaves the graph", self.name)
                break
            low, high = limits_behind(clip, border)
            if (low, high) != (border.low, border.high) and len(clip.source.uses()) > 1:
                decline(node, f"others read what '{clip.node.name}' clips, too", self.name)
                break
            if not can_limit(border, low, high):
                decline(node, f"no engine clips {border.grid.qtype} levels", self.name)
                break
            node.replace_input_with(0, clip.source)
            assert isinstance(node.graph, ir.Graph)
            node.graph.remove(clip.node, safe=True)
            set_limits(border, low, high, names)
            changed = True
        return changed
