"""What is quantized of constants becomes integer constants, and what moves quantized constants is done at once.

    c ─Q─[l,h]─   →   Q(c) within [l,h]
    c_q ─DQ₁─Q₂─[l,h]─   →   Q₂(DQ₁(c_q)) within [l,h]
    c_q ─DQ(s along axis)─ Transpose ─   →   transposed c_q ─DQ(s along its new place)─

Constants do not change, so that this is exact; only machines that quantize by rules of their own may give other levels,
and where one that is named does, the Q stays. A DequantizeLinear is never folded: as floats, constants lose neither
rounding nor limits, but are no longer integers for any machine. (Glow's DQ(Splat) takes the number as it was before it
was quantized, and loses both.) Sums and functions of constants are ``fold-constants``' part.
"""

from dataclasses import dataclass

import onnx_ir as ir

from qbench.passes.declining import decline
from qbench.passes.effect import MACHINES, Effect, EffectKind
from qbench.passes.naming import NameScope
from qbench.passes.qdq.folding import fold_mover, fold_quantizer


@dataclass(frozen=True, slots=True)
class FoldQuantizedConstants:
    """Requires: QDQ. Ensures: no constant is quantized, requantized or moved at run time, where machines agree on it.

    Args:
        machines: that must give the same levels.
        name: of the pass.
    """

    machines: tuple[str, ...] = MACHINES
    name: str = "fold-quantized-constants"

    @property
    def effect(self) -> Effect:
        """Exact under the machines."""
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
