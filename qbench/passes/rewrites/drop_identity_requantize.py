"""A requantize to the grid that its levels are on already is no requantize: Q(DQ(levels)) are the levels.

    levels ─DQ(g)─Q(g)─[l₂,h₂]─   →   levels ─[l₂,h₂]─

    round(s·(q − z) / s) + z = q        float32 errs by less than 2⁻⁶ of a step on grids of up to 16 bits

Beyond 2²⁴ that is no longer so: levels of 32 bits are left alone. Limits that hold nothing back go. Others move into
the border that made the levels where nobody else reads them, else they stay as the Clip of levels that they are:

    Q₁─[l₁,h₁]─DQ─Q─[l₂,h₂]─   →   Q₁─[l,h]─       [l, h] = [T(l₁), T(h₁)], T(q) = min(max(q, l₂), h₂)
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import onnx_ir as ir

from qbench.graph import only_consumer
from qbench.passes.declining import decline
from qbench.passes.effect import EXACT, Effect
from qbench.passes.levels.border import can_limit, set_limits
from qbench.passes.levels.requantize import Requantize, remove_border, requantize_of, stand_in
from qbench.passes.naming import NameScope


@dataclass(frozen=True, slots=True)
class DropIdentityRequantize:
    """Requires: QDQ. Ensures: no requantize brings levels to the grid they are on, but where its limits must stay.

    Args:
        name: of the pass.
    """

    name: str = "drop-identity-requantize"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Drop in graph order, chains of any length at once; True when there was one."""
        names = NameScope.of_values(model)
        return sum(self._dropped(node, names) for node in list(model.graph) if node.graph is not None) > 0

    def _dropped(self, node: ir.Node, names: NameScope) -> bool:
        site = requantize_of(node)
        if site is None:
            return False
        if isinstance(site, str):
            return decline(node, site, self.name) and False
        if site.source.grid != site.border.grid:
            return False
        levels = site.source.dequantizer.inputs[0]
        assert levels is not None
        if not site.border.low <= site.source.low <= site.source.high <= site.border.high:
            return self._limited(site, levels, names)
        stand_in(site.border.levels, levels, names)
        remove_border(site.border)
        return True

    def _limited(self, site: Requantize, levels: ir.Value, names: NameScope) -> bool:
        """The requantize goes, its limits stay."""
        before, border = site.source.border, site.border
        if before is None:
            assert border.clip is not None
            border.clip.replace_input_with(0, levels)
            remove_border(replace(border, clip=None))
            return True
        if only_consumer(levels) is not site.source.dequantizer or only_consumer(border.source) is None:
            return decline(border.quantizer, "others read the levels with wider limits", self.name) and False
        low, high = (min(max(end, border.low), border.high) for end in (site.source.low, site.source.high))
        if not can_limit(before, low, high):
            return decline(border.quantizer, f"no engine clips {before.grid.qtype} levels", self.name) and False
        stand_in(border.levels, levels, names)
        remove_border(border)
        return set_limits(before, low, high, names)
