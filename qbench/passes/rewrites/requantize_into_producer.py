"""What makes reals that are put on one grid and then on another puts them on the other at once.

    real ─Q₁─[l₁,h₁]─DQ₁─Q₂─[l₂,h₂]─   →   real ─Q₂─[l,h]─          [l, h] = [T(l₁), T(h₁)]

    T = what the requantize makes of a level of g₁, monotone, so that it brings limits to limits

With one scale s, whatever the zero points and types, no level moves, since Q₂ rounds what is whole already:

    clamp₂(round(s·(clamp₁(round(x/s) + z₁) − z₁) / s) + z₂) = clamp(round(x/s) + z₂)

With two scales a rounding is dropped: a level moves by up to ½·s₁/s₂ + 1 steps. All of it is measured: both ways are
monotone in x and tried on both sides of every step of either, of float32 numbers, and of exact ones as machines have
them behind a product. The other grid's limits alone would let through what Q₁ had held back.
"""

from dataclasses import dataclass

import onnx_ir as ir

from qbench.graph import only_consumer
from qbench.passes.declining import decline
from qbench.passes.effect import Effect, within
from qbench.passes.levels.border import Border, can_limit, requantized_at, set_limits
from qbench.passes.levels.difference import admits, chain_against, merged_limits
from qbench.passes.levels.moved import mark_moved, moved_before
from qbench.passes.levels.readers import is_of_one_type
from qbench.passes.levels.requantize import Requantize, remove_border, requantize_of
from qbench.passes.levels.tables import Stop
from qbench.passes.naming import NameScope


@dataclass(frozen=True, slots=True)
class RequantizeIntoProducer:
    """Requires: QDQ. Ensures: no requantize alone reads what was quantized from reals, where that moves few enough.

    Args:
        steps: of the later grid, that a level may move by; 0: not one may move.
        name: of the pass.
    """

    steps: int = 0
    name: str = "requantize-into-producer"

    @property
    def effect(self) -> Effect:
        """Exact, or rounding by ``steps``."""
        return within(self.steps)

    def run(self, model: ir.Model) -> bool:
        """Take later grids in graph order, those of chains one after the other; True when there was one."""
        names = NameScope.of_values(model)
        return sum(self._taken(node, names) for node in list(model.graph) if node.graph is not None) > 0

    def _taken(self, node: ir.Node, names: NameScope) -> bool:
        site = requantize_of(node)
        if site is None:
            return False
        if isinstance(site, str):
            return decline(node, site, self.name) and False
        first = site.source.border
        if first is None or requantized_at(first) is not None:
            return False
        if only_consumer(first.levels) is None or only_consumer(site.border.source) is None:
            return decline(node, "others read the levels between the two", self.name) and False
        if first.grid != site.source.grid:
            return decline(node, "its integers are read by another grid than they were written by", self.name) and False
        maker = first.source.producer()
        if maker is not None and first.grid.qtype != site.border.grid.qtype and is_of_one_type(maker):
            return decline(node, "its producer counts integers of one type alone", self.name) and False
        return self._tried(site, first, names)

    def _tried(self, site: Requantize, first: Border, names: NameScope) -> bool:
        last, chain = site.border, (site.start, site.stop)
        (low, high), *others = {merged_limits(None, chain, machine) for machine in self.effect.machines}
        if others:
            return decline(last.quantizer, "it saturates at other levels on other machines", self.name) and False
        difference = chain_against(None, chain, (Stop(last.grid, low, high),), self.effect.machines)
        if not admits(self.effect, difference):
            return decline(last.quantizer, str(difference), self.name) and False
        if moved_before(difference, first, last):
            return decline(last.quantizer, "a merge before this one moved a level already", self.name) and False
        if not can_limit(last, low, high):
            return decline(last.quantizer, f"no engine clips {last.grid.qtype} levels", self.name) and False
        between = site.source.dequantizer
        last.quantizer.replace_input_with(0, first.source)
        graph = between.graph
        assert isinstance(graph, ir.Graph)
        graph.remove(between, safe=True)
        mark_moved(difference, last, first)
        remove_border(first)
        set_limits(last, low, high, names)
        return True
