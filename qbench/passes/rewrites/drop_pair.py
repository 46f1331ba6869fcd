"""Reals that are quantized only to be dequantized again stay as they are: DQ(Q(x)) becomes x.

    real ─Q─[l,h]─DQ─ reals   →   real

This loses whatever the pair did, the rounding and the limits: quantize(3.7) with limit 2, then dequantize, is 2 before
and 3.7 behind. It is LOSSY, a step of quantizing and otherwise of the policy ``fast`` alone.

In QDQ form every operator on integers stands between such pairs, and without them would count in floats. So only pairs
between floats go: what makes the real reads no levels, and nothing behind puts the reals on a grid or multiplies them
with weights. A constant is not taken: it is folded with its rounding.
"""

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from qbench.graph import is_constant
from qbench.passes.declining import decline
from qbench.passes.effect import LOSSY, Effect
from qbench.passes.levels.border import Border, levels_of
from qbench.passes.levels.readers import Reads, readers_behind
from qbench.passes.levels.requantize import remove_border, stand_in
from qbench.passes.naming import NameScope


@dataclass(frozen=True, slots=True)
class DropPair:
    """Requires: QDQ. Ensures: no float operator reads another's result rounded to a grid.

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
        found = levels_of(node)
        border = None if found is None else found.border
        if found is None or border is None or is_constant(border.source):
            return False
        if (reason := _between_integers(node, border)) is not None:
            return decline(node, reason, self.name) and False
        stand_in(node.outputs[0], border.source, names)
        graph = node.graph
        assert isinstance(graph, ir.Graph)
        graph.remove(node, safe=True)
        if not border.levels.uses() and not border.levels.is_graph_output():
            remove_border(border)
        return True


def _between_integers(dequantizer: ir.Node, border: Border) -> str | None:
    """What of the surroundings counts in integers; None: nothing does."""
    maker = border.source.producer()
    if maker is not None and any(_is_read_as_levels(value) for value in maker.inputs):
        return "what is quantized was made from levels"
    for reader in readers_behind(dequantizer):
        if reader.reads is not Reads.REAL or reader.is_product:
            return "what reads it counts in integers"
    return None


def _is_read_as_levels(value: ir.Value | None) -> bool:
    maker = None if value is None else value.producer()
    return maker is not None and not maker.domain and maker.op_type == "DequantizeLinear"
