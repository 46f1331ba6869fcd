"""Two requantizations in a row become one, with the intersection of their limits.

    levels(g₀) ─DQ₀─Q₁─[l₁,h₁]─DQ₁─Q₂─[l₂,h₂]─   →   levels(g₀) ─DQ₀─Q₂─[l,h]─

    T = what the chain makes of a level of g₀       [l, h] = [T(low₀), T(high₀)]     a chain is monotone

The last limits alone would be wrong: [1,3], [0,4], [2,4] on one grid let nothing above 3 through, so that [2,3] stays.
Dropping the middle grid drops a rounding: a level moves by up to ½·s₁/s₂ + 1 steps. Every level of g₀ is tried both
ways, under every machine of the effect, and the site is left alone where one moves further than is admitted.
A border that was moved once is moved no further, so that one border keeps to ``steps``; those of a graph add up.
"""

from dataclasses import dataclass

import onnx_ir as ir

from qbench.passes.declining import decline
from qbench.passes.effect import Effect, within
from qbench.passes.levels.border import Border, Levels, border_of, can_limit, readers_of, requantized_at, set_limits
from qbench.passes.levels.difference import admits, chain_against, merged_limits
from qbench.passes.levels.moved import mark_moved, moved_before
from qbench.passes.levels.tables import Stop
from qbench.passes.naming import NameScope


@dataclass(frozen=True, slots=True)
class MergeRequantize:
    """Requires: QDQ. Ensures: no requantize reads another alone, where merging moves no level by more than ``steps``.

    Args:
        steps: of the last grid, that a level may move by; 0: not one may move.
        name: of the pass.
    """

    steps: int = 0
    name: str = "merge-requantize"

    @property
    def effect(self) -> Effect:
        """Exact, or rounding by ``steps``."""
        return within(self.steps)

    def run(self, model: ir.Model) -> bool:
        """Merge in graph order, so that a chain of any length becomes one; True when there was one."""
        names = NameScope.of_values(model)
        return sum(self._merged(node, names) for node in list(model.graph) if node.graph is not None) > 0

    def _merged(self, node: ir.Node, names: NameScope) -> bool:
        last = border_of(node)
        between = None if last is None else requantized_at(last)
        middle = None if between is None else between.border
        first = None if middle is None else requantized_at(middle)
        if last is None or between is None or middle is None or first is None:
            return False
        if len(readers_of(middle)) > 1 or middle.levels.is_graph_output():
            return decline(node, "others read the levels between the two", self.name) and False
        if between.grid != middle.grid:
            return decline(node, "its integers are read by another grid than they were written by", self.name) and False
        return self._tried(first, middle, last, names)

    def _tried(self, first: Levels, middle: Border, last: Border, names: NameScope) -> bool:
        start = Stop(first.grid, first.low, first.high)
        chain = (Stop(middle.grid, middle.low, middle.high), Stop(last.grid, last.low, last.high))
        (low, high), *others = {merged_limits(start, chain, machine) for machine in self.effect.machines}
        if others:
            return decline(last.quantizer, "it saturates at other levels on other machines", self.name) and False
        difference = chain_against(start, chain, (Stop(last.grid, low, high),), self.effect.machines)
        if not admits(self.effect, difference):
            return decline(last.quantizer, str(difference), self.name) and False
        if moved_before(difference, middle, last):
            return decline(last.quantizer, "a merge before this one moved a level already", self.name) and False
        free = _whole(low, high, start, last, self.effect.machines)
        limits = (last.grid.qmin, last.grid.qmax) if free else (low, high)
        if not can_limit(last, *limits):
            return decline(last.quantizer, f"no engine clips {last.grid.qtype} levels", self.name) and False
        last.quantizer.replace_input_with(0, first.dequantizer.outputs[0])
        _removed(middle, last)
        mark_moved(difference, last, middle)
        set_limits(last, *limits, names)
        return True


def _whole(low: int, high: int, start: Stop, last: Border, machines: tuple[str, ...]) -> bool:
    """Whether nothing of ``start`` comes to lie outside the limits anyway, so that none need be written."""
    free = (Stop(last.grid, last.grid.qmin, last.grid.qmax),)
    return all(merged_limits(start, free, machine) == (low, high) for machine in machines)


def _removed(middle: Border, last: Border) -> None:
    """Remove the requantize that nothing reads any more."""
    graph = last.quantizer.graph
    assert isinstance(graph, ir.Graph)
    (between,) = readers_of(middle)
    graph.remove(between, safe=True)
    if middle.clip is not None:
        graph.remove(middle.clip, safe=True)
    graph.remove(middle.quantizer, safe=True)
