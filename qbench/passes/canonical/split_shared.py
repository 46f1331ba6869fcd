"""A weight or bias that several nodes share becomes one initializer a node.

Each use gets its own grid: the scale of a bias is the product of its node's input and weight scales, and per-channel
scales run along an axis that depends on the operator. The copies share memory; only a file holds them twice.
"""

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from qbench.graph import consumers, operator_facts
from qbench.passes.effect import EXACT, Effect
from qbench.passes.naming import NameScope


@dataclass(frozen=True, slots=True)
class SplitShared:
    """Requires: constants are initializers. Ensures: an initializer used as weight or bias has no other use.

    The first use that is not a weight or bias, or else the first use, keeps the initializer and its name.
    """

    name: str = "split-shared"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Split them; True when any was shared."""
        names = NameScope.of_values(model)
        modified = False
        for value in list(model.graph.initializers.values()):
            uses = consumers(value)
            own = [(node, index) for node, index in uses if node.graph is model.graph and _has_role(node, index)]
            plain = len(own) < len(uses) or value.is_graph_output()
            for node, index in own if plain else own[1:]:
                node.replace_input_with(index, _copy(model.graph, value, names))
                modified = True
        return modified


def _has_role(node: ir.Node, index: int) -> bool:
    facts = operator_facts(node)
    return index in (facts.weight, facts.bias)


def _copy(graph: ir.Graph, value: ir.Value, names: NameScope) -> ir.Value:
    name = names.fresh(str(value.name))
    copy = ir.val(name, value.dtype, value.shape, const_value=value.const_value)
    copy.metadata_props.update(value.metadata_props)
    graph.register_initializer(copy)
    return copy
